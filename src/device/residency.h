/* SPDX-License-Identifier: Apache-2.0
 *
 * Which blocks of K and V a device has copies of in its own memory. The home of every block is memory of the host
 * (kv/memory.h); a copy saves reading it over the bus, and can be given up at any time without moving anything. The
 * books are the device's: before an attention it goes through the lists of rows, which the host need not have seen, and
 * decides what to copy (device/cuda/residency.cu). Here is what the host has of it: how the copies are shared out, what
 * was written since the device looked last, and the count of steps.
 *
 * A copy is current. Whoever is about to write to a block says so first (ig_residency_forget()), and the device gives
 * up the copy before it looks at the block again. The store hands out bytes of blocks for writing in one place only,
 * which does so (ig_kv_open_block() of kv/memory_parts.h); an operation that keeps rows writes to blocks and to copies.
 * Blocks that are filled, rolled back, compacted or reused need no more care than that, and one that goes to the disk
 * and comes back keeps its copy.
 *
 * When a block is copied. Reading a row in place costs its bytes at every step, a copy the bytes of the whole block
 * once; how often the block will be wanted again nobody knows. It is copied when what was read in place of it since the
 * host last wrote it has cost as much as the copy ("ski rental"): whatever comes, no more than twice the bytes of the
 * best choice cross the bus. Blocks of which everything is read are therefore copied at once, and those of which a row
 * or two are wanted after some steps. One that is still being filled will be wanted by most steps to come: it is copied
 * in the second step that reads it, unless the host has written to it in between.
 *
 * Which copy is given up. One that was not wanted in two whole steps, found by a hand that goes round a table's copies
 * at most once a step; if there is none, the block is read in place. So steps that want more than there is room for, as
 * `full` does, keep what is there instead of pushing out every block just before it is wanted again. Each table of
 * blocks, of a KV head of a layer, has copies of its own: a search never goes beyond one.
 */
#ifndef IG_DEVICE_RESIDENCY_H
#define IG_DEVICE_RESIDENCY_H

#include "base/memory.h"
#include "device/device.h"

/* The blocks of a memory; those of a table lie behind each other. */
typedef struct ig_residency_shape {
    int n_layers, n_heads;   /* KV heads: each layer has so many tables */
    size_t table_len;        /* blocks of a table */
    size_t block_bytes;      /* keys and values of a block */
    size_t line_bytes;       /* lines of a block of packed rows, which its copy holds too; 0: none */
    const ig_kv_line *lines; /* of all blocks, where the host has them */
    int n_dense_layers;      /* first layers of which all blocks are wanted in each step */
    uint64_t max_bytes;      /* of the device's memory for the copies and the books */
} ig_residency_shape;

/* A block in the books. As many rows as it has, or more, are paid only while a copy is asked for. */
typedef struct ig_resident {
    uint32_t used; /* the step that last wanted it */
    uint32_t paid; /* rows read in place since the host last wrote it; of no use while it has a copy */
} ig_resident;

/* Rows of a block that is worth a copy, which a job of the device's wants. */
typedef struct ig_resident_want {
    uint32_t block;
    uint32_t job : 16, n : 15, is_first : 1; /* of those that want the block in a launch */
} ig_resident_want;

/* A copy that the device is to make. */
typedef struct ig_resident_order {
    const uint8_t *from; /* the block's home */
    uint32_t block, copy;
} ig_resident_order;

/* Copies [first, first + n) of a table. */
typedef struct ig_resident_table {
    uint32_t first, n, n_fresh; /* n_fresh: ever used */
    uint32_t hand, looks;       /* where the search for one to give up goes on; how long, in step `swept` */
    uint32_t swept;
    uint32_t n_wanted, n_done; /* while the device looks: of books.wanted, and parts of the lists that were looked at */
    uint32_t n_ordered;        /* of books.orders, once it has looked */
} ig_resident_table;

enum {
    IG_IDLE_STEPS = 2, /* that a block was not wanted in before its copy may go */
    IG_WANTS = 4       /* for each block of a table there is room for so many */
};

/* What the device has, all in one piece of its memory. */
typedef struct ig_resident_books {
    uint8_t *copies;           /* [n_copies][copy_bytes] */
    const uint8_t **where;     /* [n_blocks] a copy's address plus 1, since its lines lie behind it; or the home, where
                                  rows are read in place; NULL: the host wrote it since a list wanted it */
    ig_resident *blocks;       /* [n_blocks] of no use where that is NULL */
    ig_resident_table *tables; /* [n_tables] */
    uint32_t *owner;           /* [n_copies] the block that got it last; current if that says so too */
    ig_resident_want *wanted;  /* [n_heads][n_wants] of the layer that the device looks at */
    ig_resident_order *orders; /* [n_heads][table_len] of that layer: no copy is given out twice for the same lists */
} ig_resident_books;

enum { IG_RESIDENCY_TOLD = 1024 };

typedef struct ig_residency {
    ig_residency_shape shape;
    size_t n_tables, n_blocks, n_copies, n_wants;
    size_t copy_bytes; /* of a copy: the block, then its lines */
    ig_resident_books books;
    ig_resident_table *tables;        /* [n_tables] as the copies are shared out */
    bool is_new;                      /* they were shared out, and the books are to begin anew */
    uint8_t *written;                 /* [n_blocks] 1: since the device was told last */
    uint8_t *has_written;             /* [n_tables] 1: some of its blocks */
    uint32_t told[IG_RESIDENCY_TOLD]; /* [n_told] such blocks, that the device is told of next */
    int n_told;
    ig_kv_traffic total;         /* of what the device has counted */
    uint32_t step;               /* from 1 */
    int first_layer, last_layer; /* of this step */
} ig_residency;

/* Bytes of the host's that each block takes. */
enum { IG_RESIDENCY_BLOCK_BYTES = sizeof(uint8_t) };

/* Bytes of the device's memory that are used of max_bytes. */
uint64_t ig_residency_bytes(const ig_residency_shape *s);
/* Without the books, for which the device has the arena's memory: by ig_residency_lay_out(), in two passes. */
ig_status ig_residency_open(ig_residency **out, const ig_residency_shape *s, ig_error *err);
void ig_residency_lay_out(ig_residency *r, ig_arena *a);
void ig_residency_close(ig_residency *r);
/* The layer that a view is of. */
static inline int ig_residency_layer(const ig_residency *r, const ig_kv_view *v) {
    return (int)(v->table / (size_t)r->shape.n_heads);
}
/* Whether every block can have a copy. */
static inline bool ig_residency_holds_all(const ig_residency *r) { return r->n_copies == r->n_blocks; }
/* Another number of dense layers: copies are shared out anew, and all given up. */
void ig_residency_share_out(ig_residency *r, int n_dense_layers);

/* The block is about to be written. Several threads may write to blocks of a table. */
void ig_residency_forget(ig_residency *r, size_t block);
/* Blocks of a layer's tables that were written since join r->told, which whoever tells the device of it empties; their
 * number. Less than there is room for: that was all. */
int ig_residency_take_written(ig_residency *r, int layer);
/* Rows of this layer are about to be read. One that is before the last one begins a step, but for those that are read
 * more than once, which are behind the first. */
void ig_residency_begin(ig_residency *r, int layer);

#endif
