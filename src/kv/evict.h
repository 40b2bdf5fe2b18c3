/* SPDX-License-Identifier: Apache-2.0
 *
 * Which frame leaves the RAM tier first: an order over the frames that may leave, as intrusive lists, so that every
 * operation takes constant time (but for skipping frames in use).
 *
 *   fifo     the one that came first
 *   lru      the one used longest ago
 *   counter  the one used least often; when a count reaches 255 all counts are halved (the paper's section 4.4)
 */
#ifndef IG_KV_EVICT_H
#define IG_KV_EVICT_H

#include "infinigen.h"

typedef enum ig_evict_rule { IG_EVICT_COUNTER, IG_EVICT_LRU, IG_EVICT_FIFO } ig_evict_rule;

enum { IG_EVICT_LISTS = 256 };

typedef struct ig_evict {
    ig_evict_rule rule;
    uint32_t n_frames;
    uint32_t *prev, *next; /* [n_frames + IG_EVICT_LISTS]: frames, then the lists' heads */
    uint8_t *count;        /* [n_frames] times used since it came, halved now and then */
    uint8_t *listed;       /* [n_frames] */
} ig_evict;

/* Bytes of the tables for n frames, which open() carves from `memory` (zeroed). */
size_t ig_evict_bytes(size_t n_frames);
void ig_evict_open(ig_evict *e, ig_evict_rule rule, size_t n_frames, void *memory);
/* "counter", "lru", "fifo"; IG_E_ARG otherwise. */
ig_status ig_evict_parse(ig_evict_rule *out, const char *name, ig_error *err);

const char *ig_evict_name(ig_evict_rule rule);

/* The frame may leave from now on; it counts as just come. */
void ig_evict_add(ig_evict *e, uint32_t frame);
/* The frame may not leave, or has left. Harmless if it is not listed. */
void ig_evict_remove(ig_evict *e, uint32_t frame);
/* The frame was used. */
void ig_evict_use(ig_evict *e, uint32_t frame);
/* The first frame in order for which keep(user, frame) is false, or UINT32_MAX; it stays listed. */
uint32_t ig_evict_victim(const ig_evict *e, bool (*keep)(void *user, uint32_t frame), void *user);

#endif
