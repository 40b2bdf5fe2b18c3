/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for CUDA's unified memory, which the paper compares with (UVM): frames lie in a mapped file without a
 * name, the system brings pages of 4 KiB when they are touched, and nothing is read ahead. What it may keep in RAM is
 * limited here: before a layer is used, those used longest ago lose pages until there is room for all of that layer. As
 * with UVM, a model whose layers take their turns finds that just the pages it wants are gone.
 *
 * Where pages are changes no bit. A disk that fails under a mapped page is a SIGBUS.
 */
#ifndef IG_KV_PAGER_H
#define IG_KV_PAGER_H

#include "kv/frame_pool.h"

typedef struct ig_kv_pager ig_kv_pager;

typedef struct ig_kv_pager_stats {
    uint64_t resident_bytes; /* when each layer was last looked at */
    uint64_t read_bytes;     /* pages that came back */
    uint64_t written_bytes;  /* pages that left for the first time */
    uint64_t n_left;         /* pages that left */
    double seconds;          /* that steps stood still while pages left */
} ig_kv_pager_stats;

/* Room for n_frames frames, of which max_bytes may be in RAM. */
ig_status ig_kv_pager_open(ig_kv_pager **out, const char *directory, size_t n_frames, int n_layers, uint64_t max_bytes,
                           ig_error *err);
void ig_kv_pager_close(ig_kv_pager *p);
uint8_t *ig_kv_pager_frames(const ig_kv_pager *p); /* [n_frames][IG_FRAME_BYTES] */

/* Steps use this layer from now on. Frames are [n_layers][layer_blocks], NULL where there is none. */
void ig_kv_pager_use(ig_kv_pager *p, int layer, uint8_t *const *frames, size_t layer_blocks);

void ig_kv_pager_get_stats(const ig_kv_pager *p, ig_kv_pager_stats *out);

#endif
