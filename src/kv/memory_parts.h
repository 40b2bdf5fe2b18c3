/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the memory of keys and values: its struct and that of a sequence, and what their files share. memory.c
 * plans, opens and hands out pieces; memory_frames.c writes blocks to the disk tier and finds frames that may be taken;
 * memory_read.c brings blocks back, and memory_scan.c reads layers in passing; table.c keeps what policies know of
 * pieces; store.c is a sequence: it adds, cuts and counts; store_drop.c drops entries for ever.
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
 * just come. Blocks of sequences that take no part in the steps are idle, and so make way first.
 */
#ifndef IG_KV_MEMORY_PARTS_H
#define IG_KV_MEMORY_PARTS_H

#include "base/memory.h"
#include "device/residency.h"
#include "device/space.h"
#include "kv/pager.h"
#include "kv/frame_pool.h"
#include "kv/slots.h"
#include "kv/states.h"
#include "kv/store.h"
#include "kv/table.h"
#include "kv/tier_disk.h"
#include "kv/windows.h"

enum {
    MAX_WRITES = 64, /* writes under way; tickets of the tier are scarce */
    N_STAGES = 2,    /* one piece is used while the next is read */
};

typedef struct block {
    ig_slot slot;   /* plus one; 0: none */
    uint32_t epoch; /* of the load() or prefetch() that last wanted it */
} block;

/* Full blocks [first, end) of all heads of a layer of a sequence, on their way to the disk. */
typedef struct pending_write {
    ig_ticket ticket;
    ig_kv *kv;
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

/* A part of a scan: all heads' blocks of IG_ATTEND_UNIT tokens. */
typedef struct stage {
    const uint8_t **table; /* [layer_tables][unit_blocks] where they lie now */
    uint8_t *frames;       /* [layer_tables][unit_blocks] room for those that are read */
    ig_ticket ticket;
    const ig_kv *kv;
    int layer, begin, n; /* n: 0 if it holds nothing */
    bool reading;
} stage;

/* A table of what policies keep (table.h). */
typedef struct ig_kv_table {
    uint8_t *heads; /* [n_heads][n_units][unit_bytes]; NULL: there is no table */
    size_t n_heads, n_used, n_units, unit_bytes;
    uint64_t kind;
    int n_users;
    size_t n_pieces;
    uint8_t *written;      /* [n_pieces] 1: what belongs to a full piece is there */
    bool is_large;         /* it lies in large pages */
    ig_device *device;     /* with memory of its own that has copies; NULL: there are none */
    uint8_t *copies;       /* [n_used][n_units][unit_bytes] there */
    atomic_uchar *brought; /* [n_heads][n_units] see ig_unit_table */
    uint32_t n_completed;  /* pieces that sequences may own when they were given what they lacked */
} ig_kv_table;

/* Blocks are numbered within the table of their layer and KV head, or of the KV heads that share rows: those of piece p
 * from p * piece_blocks on. A block's id is its number, and the tables lie behind each other; layers that have fewer
 * than others leave some unused. */
struct ig_kv_memory {
    ig_kv_shape shape;
    ig_device *device;
    int shift;       /* tokens of a block: 1 << shift */
    int piece_shift; /* tokens of a piece: 1 << piece_shift */
    ig_kv_type type;
    size_t row_bytes;       /* of one row of keys or values */
    size_t v_offset;        /* from a key to its value */
    size_t block_bytes;     /* of a block's rows */
    size_t frame_bytes;     /* that it lies in */
    size_t slot_lines;      /* of both; 0: rows are not packed */
    int heads_per_row;      /* of layers with other heads than most */
    size_t n_tables;        /* layers x layer_tables */
    size_t layer_tables;    /* of a layer that has most */
    size_t piece_blocks;    /* blocks of a piece in each table */
    size_t sequence_pieces; /* of a full sequence */
    size_t sequence_blocks; /* of a full sequence in each table */
    size_t n_pieces;
    size_t table_len;    /* blocks of a table: n_pieces x piece_blocks */
    size_t layer_blocks; /* blocks of all tables of a layer */
    uint8_t **frames;    /* [n_tables][table_len] where blocks are; NULL: not in RAM */
    ig_kv_line *lines;   /* [n_tables][table_len][tokens of a block][slot_lines] */
    ig_frame_pool pool;
    ig_kv_pager *pager;   /* NULL: frames are not mapped */
    ig_residency *copies; /* of blocks in memory of the device's own; NULL: it has none */
    uint32_t *n_owners;   /* [n_pieces] sequences */
    uint32_t *spare;      /* [n_pieces] a stack of free pieces */
    size_t n_spare, n_fresh;
    size_t n_sequences, n_open; /* most, and now */
    size_t n_room;              /* pieces that there is certainly room for */
    uint64_t *counted;          /* [n_pieces] which call of ig_kv_count_held() was the last to count it */
    uint64_t n_counts;          /* calls */
    size_t n_lent;              /* frames that are not used, for the slots' sake */
    ig_kv_windows windows;
    ig_kv_states states;
    bool shares;
    ig_prefix_tree prefixes; /* if it does */
    ig_kv_table *tables;     /* [most_tables] of policies; those from n_tables_used on were never used */
    size_t n_tables_used, most_tables;

    /* With a disk tier only. */
    ig_tier *tier;
    ig_space space;
    ig_evict evict;
    block *blocks;     /* [n_tables][table_len] */
    uint32_t *owner;   /* [n_frames] block id of a cached frame */
    uint8_t *foreseen; /* [n_frames] a prefetch brought it, and it was not wanted yet */
    uint32_t epoch;    /* counts loads and prefetches; 0 marks blocks never wanted */
    uint32_t loaded;   /* epoch of the latest load() */
    uint32_t steps[3]; /* epochs at which the latest steps over the layers began, the newest first */
    bool step_begins;  /* with the next load() */
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

struct ig_kv {
    ig_kv_memory *memory;
    bool owns_memory;
    uint32_t *pieces; /* [sequence_pieces] numbers of its pieces, n_pieces of them */
    int n_pieces;
    int first_seen;       /* from this piece on it needs them whole (windows.h) */
    int most_pieces;      /* that it had since it grew again after a cut */
    uint32_t n_replaced;  /* how often one has taken the place of another */
    uint32_t *number;     /* [sequence_blocks] of its blocks within any table; as slot_memory, operations read it */
    int *held;            /* [n_layers] slots in use or free again: tokens, unless some were dropped */
    int *sealed;          /* [n_layers] blocks of each head that were given to the disk tier */
    int *unwritten;       /* [n_layers] where seal() goes on: at sealed, or before, at a block whose write has failed */
    ig_kv_stats moved;    /* for it, of what a memory counts: of what was done for several its share */
    ig_error failure;     /* of a write that was waited for meanwhile; status 0: none */
    ig_slots *slots;      /* [n_tables] */
    int32_t *slot_memory; /* of their lists */
    size_t slot_bytes;
    ig_kv_own_states states;
    bool torn; /* compact() failed: what the layers hold is of no use */
};

/* Whether a device reads blocks elsewhere than where the host has them, and has its states there. */
static inline bool ig_kv_has_own_memory(const ig_device *d) { return d && !d->ops->is_host; }

static inline size_t ig_kv_blocks_for(const ig_kv_memory *m, int n) {
    return ((size_t)n + ((size_t)1 << m->shift) - 1) >> m->shift;
}

static inline size_t ig_kv_pieces_for(const ig_kv_memory *m, int n) {
    return ((size_t)n + ((size_t)1 << m->piece_shift) - 1) >> m->piece_shift;
}

/* Bytes of the lines of a block. */
static inline size_t ig_kv_block_line_bytes(const ig_kv_memory *m) {
    return (m->slot_lines * sizeof(ig_kv_line)) << m->shift;
}

/* Whether the layer has other heads than most. */
static inline bool ig_kv_is_local(const ig_kv_memory *m, int layer) {
    return m->shape.local_kv_heads && m->shape.window[layer];
}

static inline int ig_kv_heads(const ig_kv_memory *m, int layer) {
    return ig_kv_is_local(m, layer) ? m->shape.local_kv_heads : m->shape.n_kv_heads;
}

/* Tables that a layer uses, and that of a KV head. */
static inline int ig_kv_tables_of(const ig_kv_memory *m, int layer) {
    return ig_kv_heads(m, layer) / (ig_kv_is_local(m, layer) ? m->heads_per_row : 1);
}

static inline int ig_kv_table_of(const ig_kv_memory *m, int layer, int head) {
    return ig_kv_is_local(m, layer) ? head / m->heads_per_row : head;
}

/* Id of the first block of a layer's table. */
static inline size_t ig_kv_table_first(const ig_kv_memory *m, int layer, int table) {
    return ((size_t)layer * m->layer_tables + (size_t)table) * m->table_len;
}

/* Id of block b of a sequence in a layer's table. */
static inline size_t ig_kv_block_id(const ig_kv *kv, int layer, int table, size_t b) {
    return ig_kv_table_first(kv->memory, layer, table) + kv->number[b];
}

/* The lines of a block's first row. */
static inline ig_kv_line *ig_kv_block_lines(const ig_kv_memory *m, size_t id) {
    return m->lines ? m->lines + (id << m->shift) * m->slot_lines : NULL;
}

static inline uint32_t ig_kv_frame_number(const ig_kv_memory *m, const uint8_t *frame) {
    return (uint32_t)((size_t)(frame - m->pool.frames) / m->frame_bytes);
}

/* The frame of a block that is about to be written: from now on the device's copy of the block, if there is one, is of
 * no use. All that writes to blocks asks here, but for the device (ig_device_ops.append). Blocks that come back from
 * the disk are what they were. */
static inline uint8_t *ig_kv_open_block(const ig_kv_memory *m, size_t id) {
    if (m->copies) ig_residency_forget(m->copies, id);
    return m->frames[id];
}

/* The list of a KV head, whether entries were dropped of it or not. */
static inline ig_slots *ig_kv_any_slots(const ig_kv *kv, int layer, int head) {
    const ig_kv_memory *m = kv->memory;
    return &kv->slots[(size_t)layer * m->layer_tables + (size_t)ig_kv_table_of(m, layer, head)];
}

/* The list of a KV head that entries were dropped of; NULL: entry i lies in slot i. */
static inline ig_slots *ig_kv_slots(const ig_kv *kv, int layer, int head) {
    ig_slots *s = ig_kv_any_slots(kv, layer, head);
    return s->n_dropped ? s : NULL;
}

/* A piece that is free, or of the kept ones the oldest; UINT32_MAX if sequences own all. It has one owner then. */
uint32_t ig_kv_take_piece(ig_kv_memory *m);
void ig_kv_own_piece(ig_kv_memory *m, uint32_t piece);
/* After its last owner a piece is kept if it is in the tree of prefixes, or free. */
void ig_kv_give_piece(ig_kv_memory *m, uint32_t piece);
/* Frees the kept piece that was given back longest ago; false if there is none. */
bool ig_kv_forget_oldest(ig_kv_memory *m);

/* Tables of policies (table.c): room for those of all sequences; all end; what they have of a piece counts no more. */
ig_status ig_kv_tables_open(ig_kv_memory *m, ig_error *err);
void ig_kv_tables_close(ig_kv_memory *m);
size_t ig_kv_tables_piece_bytes(const ig_kv_memory *m);
void ig_kv_tables_forget(ig_kv_memory *m, uint32_t piece);
/* Large pages are faster, and taken as a whole: tables get them once three quarters of the pieces have been in use. */
void ig_kv_tables_enlarge(ig_kv_memory *m);
/* A piece gets what the tables have of another one, full or not: a policy may fill a piece and not say so; or
 * what it lacks and the other one is known to have. */
void ig_kv_tables_copy(ig_kv_memory *m, uint32_t from, uint32_t to);
void ig_kv_tables_complete(ig_kv_memory *m, uint32_t from, uint32_t to);

/* Blocks of the first n layers; 0 if there is no room for all of them. */
size_t ig_kv_count_pinned(const ig_kv_memory *m, int n);
/* The block is gone: frame and slot are free. */
void ig_kv_drop_block(ig_kv_memory *m, size_t id);
/* Frame and lines of a block become those of another, which has none. Without a disk tier. */
void ig_kv_move_block(ig_kv_memory *m, size_t from, size_t to);

/* Frames and writing (memory_frames.c): a frame that is free, or that of a cached block, which is demoted; NULL if
 * there is none. */
uint8_t *ig_kv_find_frame(ig_kv_memory *m);
/* The block, which has a slot, is cached. */
void ig_kv_cache_block(ig_kv_memory *m, size_t id);
/* Waits for the oldest write; its blocks are cached then. If it has failed, its sequence will hear of it. */
void ig_kv_finish_write(ig_kv_memory *m);
/* Starts to write blocks of a layer up to `end` that are not written and not about to be. */
ig_status ig_kv_write_until(ig_kv *kv, int layer, int end, ig_error *err);
/* Blocks of any layer whose write has failed are written again: they are in the way until they are. */
ig_status ig_kv_write_again(ig_kv *kv, ig_error *err);
/* What became known of a failed write of the sequence, once. */
ig_status ig_kv_take_failure(ig_kv *kv, ig_error *err);
/* Where entries were dropped, those that are held stay in RAM: there is no room for them. */
ig_status ig_kv_fail_kept(ig_error *err);
/* The block's slot is given back. */
void ig_kv_free_slot(ig_kv_memory *m, size_t id);

/* Reading back (memory_read.c): a frame for a new block of the sequence, if need be of what is only kept. */
ig_status ig_kv_take_frame(ig_kv *kv, uint8_t **out, ig_error *err);
/* Blocks `ids` [n], no more than a layer has, are in RAM afterwards, and wanted. */
ig_status ig_kv_read_back(ig_kv *kv, const size_t *ids, size_t n, ig_error *err);
/* The same for a step or cut of the sequence, which is told of a failed write too. */
ig_status ig_kv_recall(ig_kv *kv, const size_t *ids, size_t n, ig_error *err);
/* Nothing is under way afterwards. */
void ig_kv_settle(ig_kv_memory *m);
/* Waits, and counts the time as one in which a step stands still. */
ig_status ig_kv_wait_stalled(ig_kv_memory *m, ig_ticket ticket, ig_error *err);
/* What the memory has counted so far, of what sequences are told; and what was counted since was done for this one. */
ig_kv_stats ig_kv_count_moved(const ig_kv_memory *m);
void ig_kv_charge_one(ig_kv *kv, const ig_kv_stats *before);

/* Scans (memory_scan.c): none goes on. */
void ig_kv_end_scans(ig_kv_memory *m);

#endif
