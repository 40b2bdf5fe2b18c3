/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole-number arithmetic, so that a seed means the same everywhere.
 */
#include "eval/random.h"

#include <stdio.h>
#include <stdlib.h>

uint64_t ig_eval_random_mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t ig_eval_random_next(ig_eval_random *r) { return ig_eval_random_mix(r->state += 0x9e3779b97f4a7c15u); }

ig_eval_random ig_eval_random_of(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (ig_eval_random){hash};
}

uint64_t ig_eval_random_below(ig_eval_random *r, uint64_t n) { return ig_eval_random_next(r) % n; }

void ig_eval_random_uuid(char out[37], ig_eval_random *r) {
    unsigned long long a = ig_eval_random_next(r), b = ig_eval_random_next(r);
    snprintf(out, 37, "%08llx-%04llx-4%03llx-%c%03llx-%012llx", a >> 32, a >> 16 & 0xffff, a & 0xfff, "89ab"[b >> 62],
             b >> 48 & 0xfff, b & 0xffffffffffff);
}

void ig_eval_random_shuffle(ig_eval_random *r, uint32_t *items, size_t n) {
    for (size_t i = n; i > 1; i--) {
        size_t k = (size_t)ig_eval_random_below(r, i);
        uint32_t item = items[i - 1];
        items[i - 1] = items[k];
        items[k] = item;
    }
}

uint32_t *ig_eval_random_draw(ig_eval_random *r, size_t n, size_t all) {
    uint32_t *items = malloc((all ? all : 1) * sizeof *items);
    if (!items) return NULL;
    for (size_t i = 0; i < all; i++) items[i] = (uint32_t)i;
    for (size_t i = 0; i < n; i++) {
        size_t k = i + (size_t)ig_eval_random_below(r, all - i);
        uint32_t item = items[i];
        items[i] = items[k];
        items[k] = item;
    }
    return items;
}
