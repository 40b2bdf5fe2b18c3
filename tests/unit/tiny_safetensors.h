/* SPDX-License-Identifier: Apache-2.0
 *
 * A safetensors file for tests from the text of its header and a number of data bytes.
 */
#ifndef TESTS_TINY_SAFETENSORS_H
#define TESTS_TINY_SAFETENSORS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A block of exactly *size bytes; byte i of the data is i. The header is padded to 8 bytes. */
static inline uint8_t *tiny_safetensors(const char *header, size_t n_data, size_t *size) {
    size_t n_text = strlen(header);
    uint64_t n_header = (n_text + 7) / 8 * 8;
    uint8_t *bytes = malloc(8 + (size_t)n_header + n_data);
    if (!bytes) abort();
    *size = 8 + (size_t)n_header + n_data;
    memset(bytes, ' ', *size - n_data);
    memcpy(bytes, &n_header, 8);
    memcpy(bytes + 8, header, n_text);
    for (size_t i = 0; i < n_data; i++) bytes[*size - n_data + i] = (uint8_t)i;
    return bytes;
}

#endif
