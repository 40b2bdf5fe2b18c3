# SPDX-License-Identifier: Apache-2.0
#
# INFINIGEN_HARDEN: what compiler and linker do against the use of errors that are left in the code: checked stacks and
# jumps, checked copies, and tables of addresses that nobody can write once the program runs. Each as far as it is there.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckLinkerFlag)
include(CheckPIESupported)

check_pie_supported(LANGUAGES C)

foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection)
  string(MAKE_C_IDENTIFIER "HAVE${flag}" have)
  check_c_compiler_flag(${flag} ${have})
  if(${have})
    add_compile_options(${flag})
  endif()
endforeach()
foreach(word relro now noexecstack separate-code)
  string(MAKE_C_IDENTIFIER "HAVE_LINK_${word}" have)
  check_linker_flag(C "LINKER:-z,${word}" ${have})
  if(${have})
    add_link_options(LINKER:-z,${word})
  endif()
endforeach()

# Only optimised code can check its copies, and sanitizers check more. Headers say by a warning where level 3 is not
# known. A level that the system sets is replaced.
if(NOT INFINIGEN_SANITIZE)
  set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
  check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }" HAVE_FORTIFY_3)
  unset(CMAKE_REQUIRED_FLAGS)
  set(FORTIFIED $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
  add_compile_options("$<${FORTIFIED}:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=$<IF:$<BOOL:${HAVE_FORTIFY_3}>,3,2>>")
endif()
