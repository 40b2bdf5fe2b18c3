/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers for sampling and tests: SplitMix64 (Steele, Lea, Flood 2014); one 64-bit state,
 * every seed is good.
 */
#ifndef IG_BASE_RANDOM_H
#define IG_BASE_RANDOM_H

#include <stdint.h>

typedef struct ig_random {
    uint64_t state;
} ig_random;

static inline uint64_t ig_random_u64(ig_random *r) {
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Uniform in [0, 1). */
static inline double ig_random_unit(ig_random *r) { return (double)(ig_random_u64(r) >> 11) * 0x1p-53; }

#endif
