/* SPDX-License-Identifier: Apache-2.0
 *
 * Which blocks of K and V a device has copies of in its own memory. The home of every block is memory of the host
 * (kv/memory.h); a copy saves reading it over the bus, and can be given up at any time without moving anything. Only
 * the bookkeeping is here, on the host's side: what must be copied is listed, and the device carries it out.
 *
 * A copy is current. A block says itself which copy it has, and whoever is about to write to a block ends that first
 * (ig_residency_forget()). The store hands out bytes of blocks for writing in one place only, which does so
 * (ig_kv_open_block() of kv/memory_parts.h). Blocks that are filled, rolled back, compacted or reused need no more care
 * than that, and one that goes to the disk and comes back keeps its copy.
 *
 * When a block is copied. Reading a row in place costs its bytes at every step, a copy the bytes of the whole block
 * once; how often the block will be wanted again nobody knows. It is copied when what was read in place of it since it
 * was last written has cost as much as the copy ("ski rental"): whatever comes, no more than twice the bytes of the
 * best choice cross the bus. Blocks of which everything is read are therefore copied at once, those of which a row or
 * two are wanted after some steps, and one that is still being filled, never.
 *
 * Which copy is given up. One that was not wanted in two whole steps, found by a hand that goes round a table's copies
 * at most once a step; if there is none, the block is read in place. So steps that want more than there is room for, as
 * `full` does, keep what is there instead of pushing out every block just before it is wanted again. Each table of
 * blocks, of a KV head of a layer, has copies of its own: several threads may look after the tables of a layer, and a
 * search never goes beyond one.
 */
#ifndef IG_DEVICE_RESIDENCY_H
#define IG_DEVICE_RESIDENCY_H

#include "device/device.h"

/* The blocks of a memory; those of a table lie behind each other. */
typedef struct ig_residency_shape {
    int n_layers, n_heads;   /* KV heads: each layer has so many tables */
    size_t table_len;        /* blocks of a table */
    size_t block_bytes;      /* keys and values of a block */
    size_t line_bytes;       /* lines of a block of packed rows, which its copy holds too; 0: none */
    const ig_kv_line *lines; /* of all blocks, where the host has them */
    int n_dense_layers;      /* first layers of which all blocks are wanted in each step */
    uint64_t max_bytes;      /* of the device's memory for the copies and the table of where blocks lie */
} ig_residency_shape;

typedef struct ig_resident {
    const uint8_t *told; /* where the device's table says the block lies; NULL: it was never told */
    uint32_t copy;       /* number of its copy plus one; 0: none */
    uint32_t used;       /* the step that last wanted it */
    uint32_t paid;       /* rows read in place since it was last written */
} ig_resident;

/* Copies [first, first + n) of a table. */
typedef struct ig_resident_table {
    uint32_t first, n, n_fresh; /* n_fresh: ever used */
    uint32_t hand, looks;       /* where the search for one to give up goes on; how long, in step `swept` */
    uint32_t swept;
} ig_resident_table;

/* What the device has to do before it reads: copy the block from `from`, or with copy == 0 know that it lies there. */
typedef struct ig_copy_order {
    const uint8_t *from;
    uint32_t block; /* of all tables */
    uint32_t copy;  /* plus one */
} ig_copy_order;

typedef struct ig_residency {
    ig_residency_shape shape;
    size_t n_tables, n_blocks, n_copies;
    size_t copy_bytes;         /* of a copy: the block, then its lines */
    uint8_t *copies;           /* the device's: [n_copies][copy_bytes] */
    const uint8_t **where;     /* the device's: [n_blocks], see ig_copy_address() */
    ig_resident *blocks;       /* [n_blocks] */
    uint32_t *owner;           /* [n_copies] the block that got it last; current if that says so too */
    ig_resident_table *tables; /* [n_tables] */
    ig_copy_order *orders;     /* [n_heads][table_len] found by the latest touch(), of one layer */
    uint32_t *n_orders;        /* [n_heads] */
    ig_kv_traffic *found;      /* [n_heads] by the latest touch() */
    ig_kv_traffic total;
    uint32_t step; /* from 1 */
    int last_layer;
} ig_residency;

/* Bytes of the host's that the bookkeeping takes of each block. */
enum { IG_RESIDENCY_BLOCK_BYTES = sizeof(ig_resident) + sizeof(uint32_t) };

/* Bytes of the device's memory that are used of max_bytes. */
uint64_t ig_residency_bytes(const ig_residency_shape *s);
/* Without the device's memory, which the device adds and takes back: `copies` and `where`. */
ig_status ig_residency_open(ig_residency **out, const ig_residency_shape *s, ig_error *err);
void ig_residency_close(ig_residency *r);
/* Whether every block can have a copy. */
static inline bool ig_residency_holds_all(const ig_residency *r) { return r->n_copies == r->n_blocks; }
/* Another number of dense layers: copies are shared out anew, and all given up. */
void ig_residency_share_out(ig_residency *r, int n_dense_layers);

/* The block is about to be written. Blocks of different tables may be written by several threads. */
static inline void ig_residency_forget(ig_residency *r, size_t block) {
    r->blocks[block].copy = 0;
    r->blocks[block].paid = 0;
}

/* Bit 0 of where a block lies: it is a copy, and its lines lie behind it. */
static inline const uint8_t *ig_copy_address(const ig_residency *r, uint32_t copy) {
    return r->copies + (size_t)(copy - 1) * r->copy_bytes + 1;
}

/* Before touch() and tell(), but not when rows were read: views of this layer will be read. A layer before the last one
 * begins a step; within one, copies of what it has touched stay. */
void ig_residency_begin(ig_residency *r, int layer);
/* When rows are read that touch() is told of. */
typedef enum ig_touch_time {
    IG_TOUCH_NOW,   /* they are about to be */
    IG_TOUCH_AHEAD, /* later perhaps */
    IG_TOUCH_AFTER, /* they were, as tell() had it: a copy is for the next time */
} ig_touch_time;

/* Rows [begin, end) of those of views [n_views] of a layer that belong to KV head number `head`. Fills orders, n_orders
 * and found of that head. Several threads may call it for heads that differ. */
void ig_residency_touch(ig_residency *r, const ig_kv_view *views, int n_views, int head, int begin, int end,
                        ig_touch_time when);
/* In its place where the device alone knows which slots the views list: it is told where all blocks lie that these may
 * be in. Until it has read them no other touch() may come, which might give up copies of these. */
void ig_residency_tell(ig_residency *r, const ig_kv_view *views, int n_views, int head);

#endif
