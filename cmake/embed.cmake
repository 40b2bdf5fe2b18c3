# SPDX-License-Identifier: Apache-2.0
#
# cmake -DFROM=file -DTO=header -P embed.cmake: the bytes of a file as the elements of a C array.
file(READ ${FROM} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," elements "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n"
  elements "${elements}")
file(WRITE ${TO} "${elements}\n")
