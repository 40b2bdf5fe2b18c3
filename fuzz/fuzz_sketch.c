/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a sketch file, as it is and with its checksum put right, so that what lies behind that check is reached.
 * Every head's maps are read at both ends.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "format/sketch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { HEADER = 64, CHECKSUM = 48 };

static volatile float seen;

static void try_file(const uint8_t *data, size_t n_bytes) {
    ig_sketch_file f;
    ig_error err = {0};
    ig_status s = ig_sketch_file_open_memory(&f, data, n_bytes, "input", &err);
    if (s) {
        if (f.maps || err.status != s || !strstr(err.text, "input")) abort();
        return;
    }
    for (int l = 0; l < f.shape.n_layers; l++)
        for (int h = 0; h < f.shape.n_heads; h++)
            if (f.shape.kind == IG_SKETCH_SKEW)
                seen += ig_sketch_skew(&f, l, h)[0] + ig_sketch_skew(&f, l, h)[f.shape.head_dim * f.shape.head_dim - 1];
            else
                seen += *ig_sketch_query_map(&f, l, h) + ig_sketch_offset(&f, l, h)[f.shape.rank - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    uint8_t *copy = malloc(n_bytes ? n_bytes : 1);
    if (!copy) return 0;
    memcpy(copy, data, n_bytes);
    try_file(copy, n_bytes);
    if (n_bytes >= HEADER) {
        uint64_t sum = XXH3_64bits_withSeed(copy + HEADER, n_bytes - HEADER, XXH3_64bits(copy, CHECKSUM));
        for (int i = 0; i < 8; i++) copy[CHECKSUM + i] = (uint8_t)(sum >> 8 * i);
        try_file(copy, n_bytes);
    }
    free(copy);
    return 0;
}
