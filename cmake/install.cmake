# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` puts where: header, both libraries, pkg-config file, CMake package, program, and the man page
# and shell completions, which the program itself writes from its option table.
include(CMakePackageConfigHelpers)

install(FILES include/infinigen.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS infinigen infinigen-shared EXPORT infinigen-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

string(REPLACE ";" " " PC_REQUIRES "${INFINIGEN_REQUIRES}")
configure_file(cmake/infinigen.pc.in infinigen.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/infinigen.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CMAKE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/infinigen)
configure_package_config_file(cmake/infinigen-config.cmake.in infinigen-config.cmake
  INSTALL_DESTINATION ${CMAKE_PACKAGE_DIR})
write_basic_package_version_file(infinigen-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/infinigen-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/infinigen-config-version.cmake DESTINATION ${CMAKE_PACKAGE_DIR})
install(EXPORT infinigen-targets NAMESPACE infinigen:: DESTINATION ${CMAKE_PACKAGE_DIR})

if(TARGET infinigen-cli)
  install(TARGETS infinigen-cli DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
