# Installs the client library with its headers, and the CMake package that finds it
# (find_package(quarry), target quarry::client).
include(CMakePackageConfigHelpers)

set(quarry_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quarry)

install(TARGETS quarry_client EXPORT quarryTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT client NAMELINK_COMPONENT client-dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/client/include/quarry ${PROJECT_SOURCE_DIR}/common/include/quarry
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT client-dev FILES_MATCHING PATTERN "*.h")
install(EXPORT quarryTargets NAMESPACE quarry:: DESTINATION ${quarry_package_dir} COMPONENT client-dev)

configure_package_config_file(${PROJECT_SOURCE_DIR}/client/quarryConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/quarryConfig.cmake INSTALL_DESTINATION ${quarry_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/quarryConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/quarryConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/quarryConfigVersion.cmake
  DESTINATION ${quarry_package_dir} COMPONENT client-dev)
