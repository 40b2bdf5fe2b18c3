/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the KV store: its struct, and what its files share. store.c opens, adds, cuts and counts; store_move.c
 * moves blocks between RAM and the disk tier; store_drop.c drops entries for ever.
 *
 * With a disk tier a block that exists is in one of four states:
 *
 *   open       a frame, no slot: still being filled, or full and not yet written, or in vain: then seal() tries again
 *   writing    a frame and a slot; in `writes`
 *   cached     a frame and a slot; its frame may be taken (kv/evict.h)
 *   on disk    a slot only
 *
 * and a frame that a prefetch is filling belongs to `ahead` until the prefetch is waited for.
 *
 * Whose frame is taken: a step wants all layers in turn, often more than there is room for, and then any plain order
 * pushes out every block just before it is wanted again. So what was wanted in the latest steps stays, a block that was
 * idle for two steps leaves, or for one (the order of kv/evict.h says which), and if there is none, one that has only
 * just come.
 */
#ifndef IG_KV_STORE_PARTS_H
#define IG_KV_STORE_PARTS_H

#include "base/memory.h"
#include "kv/slots.h"
#include "kv/store.h"
#include "kv/tier_disk.h"

enum {
    MAX_WRITES = 64, /* writes under way; tickets of the tier are scarce */
    N_STAGES = 2,    /* one piece is used while the next is read */
};

typedef struct block {
    ig_slot slot;   /* plus one; 0: none */
    uint32_t epoch; /* of the load() or prefetch() that last wanted it */
} block;

/* Full blocks [first, end) of all heads of a layer, on their way to the disk. */
typedef struct pending_write {
    ig_ticket ticket;
    int layer, first, end;
} pending_write;

/* A list of blocks being read into frames. */
typedef struct reading {
    uint32_t *blocks; /* [layer_blocks] ids */
    ig_slot *slots;   /* [layer_blocks] */
    uint8_t **frames; /* [layer_blocks] */
    size_t n;
    ig_ticket ticket;
    int layer;      /* of a prefetch */
    uint32_t epoch; /* of a prefetch: the mark of its blocks */
    bool active;
} reading;

/* Blocks that came from the disk, the newest last; of the oldest the place is taken by new ones. */
typedef struct arrivals {
    uint32_t *blocks; /* [cap] a ring of ids; UINT32_MAX: has left */
    size_t cap, n;    /* n: pushed so far, less those that left */
    size_t at;        /* those from here on are wanted or have left */
} arrivals;

/* A piece of a scan: all heads' blocks of IG_ATTEND_UNIT tokens. */
typedef struct stage {
    const uint8_t **table; /* [n_kv_heads][unit_blocks] where they lie now */
    uint8_t *frames;       /* [n_kv_heads][unit_blocks] room for those that are read */
    ig_ticket ticket;
    int layer, begin, n; /* n: 0 if it holds nothing */
    bool reading;
} stage;

struct ig_kv {
    ig_kv_shape shape;
    int shift; /* tokens of a block: 1 << shift */
    ig_kv_type type;
    size_t row_bytes;    /* of one key or value */
    size_t row_lines;    /* of one key or value; 0: rows are not packed */
    size_t n_tables;     /* layers x KV heads */
    size_t table_len;    /* blocks of a full table */
    size_t layer_blocks; /* blocks of a full layer */
    int *held;           /* [n_layers] slots in use or free again: tokens, unless some were dropped */
    int *sealed;         /* [n_layers] blocks of each head that were given to the disk tier */
    int *unwritten;      /* [n_layers] where seal() goes on: at sealed, or before, at a block whose write has failed */
    uint8_t **tables;    /* [n_tables][table_len] frames; NULL: not in RAM */
    ig_kv_line *lines;   /* [n_tables][table_len][tokens of a block][2][row_lines] */
    ig_kv_pool pool;
    ig_slots *slots;      /* [n_tables] */
    int32_t *slot_memory; /* of their lists */
    size_t slot_bytes;
    size_t n_lent; /* frames that are not used, for the slots' sake */
    bool torn;     /* compact() failed: what the layers hold is of no use */

    /* With a disk tier only. */
    ig_tier *tier;
    ig_arena arena;
    ig_evict evict;
    block *blocks;     /* [n_tables][table_len] */
    uint32_t *owner;   /* [n_frames] block id of a cached frame */
    uint8_t *foreseen; /* [n_frames] a prefetch brought it, and it was not wanted yet */
    uint32_t epoch;    /* counts loads and prefetches; 0 marks blocks never wanted */
    uint32_t loaded;   /* epoch of the latest load() */
    uint32_t steps[3]; /* epochs at which the latest steps over the layers began, the newest first */
    int last_layer;    /* that load() was of */
    uint32_t hand;     /* frame where the search for one that is idle goes on */
    arrivals arrived;
    size_t n_pinned;                  /* blocks below this id stay in RAM */
    size_t most_pinned;               /* that there is room for */
    pending_write writes[MAX_WRITES]; /* a ring */
    int first_write, n_writes;
    reading ahead[2]; /* prefetches of layers of even and odd numbers */
    reading late;
    reading *expected; /* the prefetch of the layer that load() is about, under way; or NULL */
    stage stages[N_STAGES];
    size_t unit_blocks;
    ig_kv_stats stats;
};

static inline size_t ig_kv_blocks_for(const ig_kv *kv, int n) {
    return ((size_t)n + ((size_t)1 << kv->shift) - 1) >> kv->shift;
}

/* Bytes of the lines of a block. */
static inline size_t ig_kv_block_line_bytes(const ig_kv *kv) {
    return (2 * kv->row_lines * sizeof(ig_kv_line)) << kv->shift;
}

/* Id of the first block of a table. */
static inline size_t ig_kv_table_at(const ig_kv *kv, int layer, int head) {
    return ((size_t)layer * (size_t)kv->shape.n_kv_heads + (size_t)head) * kv->table_len;
}

static inline uint32_t ig_kv_frame_number(const ig_kv *kv, const uint8_t *frame) {
    return (uint32_t)((size_t)(frame - kv->pool.frames) / IG_FRAME_BYTES);
}

/* The list of a KV head that entries were dropped of; NULL: entry i lies in slot i. */
static inline ig_slots *ig_kv_slots(const ig_kv *kv, int layer, int head) {
    ig_slots *s = &kv->slots[(size_t)layer * (size_t)kv->shape.n_kv_heads + (size_t)head];
    return s->n_dropped ? s : NULL;
}

/* The block is gone: frame and slot are free. */
void ig_kv_drop_block(ig_kv *kv, size_t id);
/* A frame for a block: a free one, or that of a cached block, which is demoted. */
ig_status ig_kv_take_frame(ig_kv *kv, uint8_t **out, ig_error *err);
/* Blocks of any layer whose write has failed are written again: they are in the way of all until they are. */
ig_status ig_kv_write_again(ig_kv *kv, ig_error *err);
/* The block's slot is given back. */
void ig_kv_free_slot(ig_kv *kv, size_t id);
/* Blocks `ids` [n] are in RAM afterwards, and wanted. */
ig_status ig_kv_recall(ig_kv *kv, const size_t *ids, size_t n, ig_error *err);
/* Nothing is under way afterwards; the first error counts. */
ig_status ig_kv_settle(ig_kv *kv, ig_error *err);

#endif
