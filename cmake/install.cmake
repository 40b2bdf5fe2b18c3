# SPDX-License-Identifier: Apache-2.0
#
# What `cmake --install` puts where: headers, both libraries, pkg-config file, CMake package, program, and the man page
# and shell completions, which the program itself writes from its option table.
include(CMakePackageConfigHelpers)

install(FILES include/infinigen.h include/infinigen_requests.h include/infinigen_tools.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS infinigen infinigen-shared EXPORT infinigen-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

# The .pc file finds its prefix from where it lies, so that an installed tree can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig
  OUTPUT_VARIABLE PC_PREFIX)
# A program linked from a prefix of its own must find the library without LD_LIBRARY_PATH; a distribution's need not.
set(PC_RPATH "-Wl,-rpath,\${libdir} ")
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(PC_RPATH "")
endif()
if(INFINIGEN_CUDA) # of the static library
  set(PC_CUDA " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -lstdc++ -ldl -lrt")
  set(PACKAGE_CUDA "find_dependency(CUDAToolkit)")
endif()
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

# Only a program that runs here can write its own documentation.
if(TARGET infinigen-cli AND NOT CMAKE_CROSSCOMPILING AND EXISTS ${PROJECT_SOURCE_DIR}/src/cli/man.c
   AND EXISTS ${PROJECT_SOURCE_DIR}/src/cli/completion.c)
  function(written_by_program file folder) # written_by_program(<file> <folder> <argument>...)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/share/${file})
    add_custom_command(OUTPUT ${output} DEPENDS infinigen-cli VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/share
      COMMAND infinigen-cli ${ARGN} > ${output})
    set_property(GLOBAL APPEND PROPERTY WRITTEN_FILES ${output})
    install(FILES ${output} DESTINATION ${folder})
  endfunction()
  written_by_program(infinigen.1 ${CMAKE_INSTALL_MANDIR}/man1 man)
  written_by_program(infinigen ${CMAKE_INSTALL_DATADIR}/bash-completion/completions completion bash)
  written_by_program(_infinigen ${CMAKE_INSTALL_DATADIR}/zsh/site-functions completion zsh)
  written_by_program(infinigen.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d completion fish)
  get_property(written_files GLOBAL PROPERTY WRITTEN_FILES)
  add_custom_target(infinigen-docs ALL DEPENDS ${written_files})
endif()

# Samples for who runs a server: units of systemd, proxies.
install(FILES contrib/infinigen.service contrib/infinigen-cuda.conf contrib/infinigen.socket contrib/nginx.conf contrib/haproxy.cfg
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/infinigen/examples)
