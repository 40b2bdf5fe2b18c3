/* SPDX-License-Identifier: Apache-2.0
 *
 * How the keys and values of the cache are kept: as 16-bit floats, or as codes of 8, 4, 2 or 1 bits (FlexGen's scheme).
 *
 * A packed row is cut into groups of 64 numbers, the last of which may be shorter (80 = 64 + 16), and each group keeps
 * x as step * code + min with codes from 0 to 255, 15, 3 or 1. The codes of a row lie together, group after group;
 * steps and minimums, one ig_kv_line a group, lie elsewhere. 8 bits: a byte a code. 4 bits: of a group of g numbers
 * byte i holds code i in its low and code g/2 + i in its high half. 2 bits: byte i holds codes i, g/4 + i, g/2 + i and
 * 3g/4 + i from its lowest bits upwards. 1 bit: byte i holds codes 8i to 8i + 7.
 */
#ifndef IG_BASE_KV_TYPE_H
#define IG_BASE_KV_TYPE_H

#include <stddef.h>
#include <stdint.h>

#include "infinigen.h"

typedef enum ig_kv_type { IG_KV_F16, IG_KV_Q8, IG_KV_Q4, IG_KV_Q2, IG_KV_Q1, IG_KV_TYPES } ig_kv_type;

enum { IG_KV_GROUP = 64, IG_KV_DIMS = 576 /* of a row, at most */ };

/* The largest number that may be kept: packed with a step rounded up, 3 steps or more from its negative still round to
 * less than infinity. The one step of 1 bit must be below infinity itself, so that 1 bit keeps half of this at most. */
#define IG_KV_MOST 65280.0f

/* What the codes of a group mean; 16-bit floats. */
typedef struct ig_kv_line {
    uint16_t step, min;
} ig_kv_line;

/* "f16" (also NULL), "q8", "q4", "q2", "q1"; IG_E_ARG otherwise. */
ig_status ig_kv_type_parse(ig_kv_type *out, const char *name, ig_error *err);
const char *ig_kv_type_name(ig_kv_type type);

/* Bits of a number. */
static inline int ig_kv_bits(ig_kv_type type) { return 16 >> type; }
/* Bytes of a row of d numbers, d a multiple of 8, without its lines. */
static inline size_t ig_kv_row_bytes(ig_kv_type type, int d) { return (size_t)d * (size_t)ig_kv_bits(type) / 8; }
/* Lines of such a row. */
static inline size_t ig_kv_row_lines(ig_kv_type type, int d) {
    return type == IG_KV_F16 ? 0 : ((size_t)d + IG_KV_GROUP - 1) / IG_KV_GROUP;
}

#endif
