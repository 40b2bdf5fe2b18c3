# SPDX-License-Identifier: Apache-2.0
#
# Builds for aarch64 on another Debian machine (preset aarch64): Debian's cross compiler and libraries of its second
# architecture, which tools/install-deps aarch64 installs. Programs run under qemu, whose CPU has all levels of kernels.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
