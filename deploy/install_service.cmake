# Runs at installation, when the prefix is known: the unit names the program and its settings
# by full paths, and /etc belongs to the prefix /usr.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(sysconfdir /etc)
else()
  set(sysconfdir ${CMAKE_INSTALL_PREFIX}/etc)
endif()
set(destination $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/systemd/system)

file(READ ${CMAKE_CURRENT_LIST_DIR}/systemd/quarryd.service unit)
string(REPLACE "/usr/bin/quarryd" "${CMAKE_INSTALL_PREFIX}/${bindir}/quarryd" unit "${unit}")
string(REPLACE "/etc/quarry/" "${sysconfdir}/quarry/" unit "${unit}")
string(REPLACE "/usr/share/" "${CMAKE_INSTALL_PREFIX}/share/" unit "${unit}")
file(MAKE_DIRECTORY ${destination})
file(WRITE ${destination}/quarryd.service "${unit}")
file(CHMOD ${destination}/quarryd.service PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${CMAKE_INSTALL_PREFIX}/lib/systemd/system/quarryd.service)
message(STATUS "Installing: ${destination}/quarryd.service")

# Settings that somebody has written are kept.
if(NOT EXISTS $ENV{DESTDIR}${sysconfdir}/quarry/quarryd.toml)
  file(INSTALL ${CMAKE_CURRENT_LIST_DIR}/quarryd.toml DESTINATION ${sysconfdir}/quarry)
endif()
