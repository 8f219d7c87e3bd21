# One Debian package a component.
set(quarry_packages quarryd libquarry-client0 libquarry-client-dev)
set(quarryd_component node)
set(libquarry-client0_component client)
set(libquarry-client-dev_component client-dev)

# Debian wants the licence under each package's name; no part of a plain `cmake --install`.
foreach(package ${quarry_packages})
  install(FILES ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package}
    COMPONENT ${${package}_component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME quarry)
set(CPACK_PACKAGE_VENDOR Quarry)
set(CPACK_PACKAGE_CONTACT "Quarry's maintainers <quarry@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Shared KV cache for LLM inference")
set(CPACK_COMPONENTS_ALL node client client-dev)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
# As if installed to /usr, so that what goes to /etc does.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_NODE_PACKAGE_NAME quarryd)
set(CPACK_DEBIAN_NODE_PACKAGE_SECTION net)
set(CPACK_COMPONENT_NODE_DESCRIPTION "quarryd, the server of one node, and its tools. It is neither enabled nor started by the installation.")
set(CPACK_DEBIAN_NODE_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_NODE_PACKAGE_CONTROL_EXTRA
  ${CMAKE_CURRENT_LIST_DIR}/conffiles ${CMAKE_CURRENT_LIST_DIR}/postinst ${CMAKE_CURRENT_LIST_DIR}/prerm
  ${CMAKE_CURRENT_LIST_DIR}/postrm)

set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME libquarry-client0)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_CLIENT_DESCRIPTION "The client library, as programs that were built with it need it.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_GENERATE_SHLIBS ON)

set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_NAME libquarry-client-dev)
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_CLIENT-DEV_DESCRIPTION "Headers and CMake package of the client library.")
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_DEPENDS "libquarry-client0 (= ${PROJECT_VERSION}), libabsl-dev")
set(CPACK_DEBIAN_CLIENT-DEV_PACKAGE_SHLIBDEPS OFF)

include(CPack)
