/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers that are the same on every machine.
 */
#ifndef IG_EVAL_RANDOM_H
#define IG_EVAL_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood 2014). */
typedef struct ig_eval_random {
    uint64_t state;
} ig_eval_random;

/* Depends on every byte of `text` (FNV-1a). */
ig_eval_random ig_eval_random_of(const char *text);
uint64_t ig_eval_random_next(ig_eval_random *r);
/* Below n, which is 1 or more. */
uint64_t ig_eval_random_below(ig_eval_random *r, uint64_t n);
void ig_eval_random_uuid(char out[37], ig_eval_random *r); /* version 4 */
/* n distinct numbers below `all` (n <= all), in random order; free() them. NULL: no memory. */
uint32_t *ig_eval_random_draw(ig_eval_random *r, size_t n, size_t all);
void ig_eval_random_shuffle(ig_eval_random *r, uint32_t *items, size_t n);

/* All bits of the result depend on all of z; no two z have the same. */
uint64_t ig_eval_random_mix(uint64_t z);

#endif
