/* SPDX-License-Identifier: Apache-2.0
 *
 * The frame pool: untouched frames in order of address, and a stack of those given back.
 */
#include "kv/frame_pool.h"

#include "base/error.h"
#include "base/memory.h"
#include "device/space.h"

ig_status ig_frame_pool_open(ig_frame_pool *p, ig_device *dev, ig_place place, size_t n_frames, size_t frame_bytes,
                             uint8_t *frames, ig_error *err) {
    size_t bytes, spare_bytes;
    *p = (ig_frame_pool){.dev = dev, .place = place, .frame_bytes = frame_bytes};
    if (n_frames > UINT32_MAX || !ig_mul_size(&bytes, n_frames, frame_bytes) ||
        !ig_mul_size(&spare_bytes, n_frames, sizeof *p->spare))
        return ig_fail(err, IG_E_LIMIT, "KV cache: %zu blocks are more than can be addressed", n_frames);
    p->is_lent = frames != NULL;
    p->frames = frames ? frames : ig_device_alloc(dev, place, bytes);
    p->spare = ig_pages_reserve(spare_bytes);
    p->n_frames = n_frames;
    if (!p->frames || !p->spare) {
        ig_frame_pool_close(p);
        if (place != IG_PLACE_PAGED) return ig_fail_memory(err, "KV cache", bytes);
        return ig_fail(
            err, IG_E_MEMORY,
            "%zu bytes of managed memory for the KV cache (--kv-map) cannot be had: too little is free, or this "
            "system does not let host and GPU touch it at a time",
            bytes);
    }
    /* Dense attention walks through all frames at every step: large pages save it a TLB miss for each. */
    if (!frames && (!dev || dev->ops->is_host)) ig_pages_want_large(p->frames, bytes);
    return IG_OK;
}

void ig_frame_pool_close(ig_frame_pool *p) {
    if (!p->is_lent) ig_device_free(p->dev, p->place, p->frames, p->n_frames * p->frame_bytes);
    ig_pages_release(p->spare, p->n_frames * sizeof *p->spare);
    *p = (ig_frame_pool){0};
}

uint8_t *ig_frame_pool_take(ig_frame_pool *p) {
    if (p->n_spare) return p->frames + (size_t)p->spare[--p->n_spare] * p->frame_bytes;
    if (p->n_fresh == p->n_frames) return NULL;
    return p->frames + p->n_fresh++ * p->frame_bytes;
}

void ig_frame_pool_give(ig_frame_pool *p, uint8_t *frame) {
    p->spare[p->n_spare++] = (uint32_t)((size_t)(frame - p->frames) / p->frame_bytes);
}

size_t ig_frame_pool_taken(const ig_frame_pool *p) { return p->n_fresh - p->n_spare; }
