/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames: the unit of placement, transfer and eviction of the KV store. Address space for all is reserved at open;
 * physical memory is taken as frames are first used.
 */
#ifndef IG_KV_FRAME_POOL_H
#define IG_KV_FRAME_POOL_H

#include "device/device.h"

/* Of frames that pages or a disk's blocks hold; others are as large as is wanted, a multiple of the alignment. */
enum { IG_FRAME_BYTES = 4096, IG_FRAME_ALIGNMENT = 64 };

typedef struct ig_frame_pool {
    uint8_t *frames; /* [n_frames][frame_bytes], page-aligned */
    size_t n_frames, frame_bytes;
    size_t n_fresh;  /* frames ever taken: those behind are untouched */
    uint32_t *spare; /* [n_frames] stack of frames given back */
    size_t n_spare;
    ig_device *dev;
    ig_place place;
    bool is_lent; /* the frames are others' */
} ig_frame_pool;

/* In `frames`, which outlive the pool, or if that is NULL in memory of its own in a place that the host and the device
 * (NULL: none) read. */
ig_status ig_frame_pool_open(ig_frame_pool *p, ig_device *dev, ig_place place, size_t n_frames, size_t frame_bytes,
                             uint8_t *frames, ig_error *err);
void ig_frame_pool_close(ig_frame_pool *p);
/* A frame, or NULL if all are taken. Allocates nothing. */
uint8_t *ig_frame_pool_take(ig_frame_pool *p);
void ig_frame_pool_give(ig_frame_pool *p, uint8_t *frame);
size_t ig_frame_pool_taken(const ig_frame_pool *p);

#endif
