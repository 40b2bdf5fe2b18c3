/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory in which the keys and values of a model's sequences lie: blocks, the frames and the tier that hold them,
 * and one budget of RAM and one of disk over all. It moves bytes; it never decides which entry matters (that is the
 * policy's part).
 *
 * A block is K, then V, of consecutive tokens of one KV head of one layer, or rows that are both: 2^shift tokens, as
 * many as fit 4 KiB, as 16-bit floats 8 at head dimension 128, 16 at 64, packed to 8 or 4 bits twice or four times as
 * many. A frame is 4 KiB where a disk or the system moves pages, else what a block takes. The lines of packed rows
 * stay in RAM, in a table by block. Where a layer's heads are narrower than others', a row holds several of its KV
 * heads side by side, and they share a block.
 *
 * A piece is 16 consecutive tokens of a sequence, or as many more as a block holds: their blocks of all layers and KV
 * heads, and what policies keep of them (table.h), all found by the piece's number. A sequence (store.h) is a list of
 * pieces. A full piece never changes again, so that sequences with the same beginning own it together: it is there
 * once, counts its owners, and is free when the last one gives it back. Some that no sequence owns are kept while
 * there is room, since another may want them (prefix_tree.h).
 *
 * Without a disk tier every block stays in RAM. With one, a block that is full is written to it behind the computation
 * and from then on may leave RAM when its frame is wanted: it is demoted, never lost. One thread at a time.
 */
#ifndef IG_KV_MEMORY_H
#define IG_KV_MEMORY_H

#include <sys/types.h>

#include "device/device.h"
#include "kv/evict.h"
#include "kv/prefix_tree.h"

typedef struct ig_kv_shape {
    int n_layers, n_kv_heads, head_dim; /* head_dim: a multiple of 8, at most IG_KV_DIMS */
    bool are_values_keys;               /* a slot has one row, which is its key and its value */
    int n_index; /* numbers behind a row's: of the model's own key to choose its token by (ig_index_share()); 0: none */
    int n_ctx;   /* most tokens of a sequence */
    int n_batch; /* most tokens added to a layer at once */
    /* Layers with a window, whose entries are not dropped, have these heads instead, no wider; 0: they do not. */
    int local_kv_heads, local_head_dim;
    const int *window; /* [n_layers] of that: tokens, 0: all; outlives the memory */
} ig_kv_shape;

typedef struct ig_kv_options {
    uint64_t ram_bytes;    /* frames, tables and staging together; 0: whatever the context needs */
    uint64_t disk_bytes;   /* most bytes of the disk tier; 0: none */
    const char *disk_path; /* its directory */
    ig_evict_rule evict;   /* which block leaves RAM first */
    int n_pinned_layers;   /* first layers that stay in RAM if there is room for them */
    bool is_mapped;  /* no tier, a host's device: frames lie in a mapped file in disk_path, of which ram_bytes may be in
                        RAM (pager.h) */
    bool is_paged;   /* no tier: frames lie where the device moves their pages (IG_PLACE_PAGED) */
    bool no_uring;   /* disk requests by threads instead of io_uring */
    ig_kv_type type; /* how rows are kept */
    const ig_context *ctx; /* whose log is told what the disk tier lacks; NULL: none */
    ig_device *device;     /* whose operations read them; outlives the memory; NULL: the host's alone */
    uint64_t vram_bytes;   /* most bytes of the device's own memory for copies of blocks, if it has one */
    int n_dropping;        /* layers of which entries will be dropped for ever: sizes are planned for so many */
    int n_kept;            /* entries that stay of a KV head of these, which lie in RAM even if there is a disk */
    int limit;             /* most entries that a KV head of these has when tokens are added; 0: n_ctx */
    int n_sequences;       /* most at a time; 0: one */
    const int *window;     /* [n_layers] a layer's attention sees the last so many tokens, 0: all; outlives the memory.
                              Without a tier and a mapped file few others of it are kept (windows.h). NULL: all are */
    int n_ahead;           /* states of tokens ahead that a sequence has beside its own, at most IG_KV_CARRIED - 1 */
    size_t state_bytes;    /* of what layers that have no keys carry on from token to token (states.h); 0: nothing */
    bool share;            /* they share what they have in common (prefix_tree.h) */
} ig_kv_options;

typedef struct ig_kv_memory ig_kv_memory;
typedef struct ig_kv ig_kv; /* a sequence: store.h */

/* The entries of one KV head that a step uses. */
typedef struct ig_kv_pick {
    const int32_t *index; /* [n] ascending tokens; NULL: all tokens before n */
    int n;
} ig_kv_pick;

/* What a step wants of a layer of a sequence. */
typedef struct ig_kv_want {
    ig_kv *kv;
    const ig_kv_pick *picks; /* [n_picks], a multiple of the KV heads: so many to each */
    int n_picks;
} ig_kv_want;

typedef struct ig_kv_stats {
    uint64_t ram_bytes;                      /* frames in use, tables, staging */
    uint64_t disk_bytes;                     /* in the disk tier */
    uint64_t demoted, recalled;              /* blocks that left RAM; blocks read back */
    uint64_t prefetch_hits, prefetch_misses; /* blocks that were there when attention wanted them, thanks to a prefetch;
                                                blocks it had to wait for */
    uint64_t read_bytes, written_bytes;
    double stall_seconds; /* the step stood still for the disk */
    uint64_t n_sequences;
    uint64_t table_bytes;   /* what policies keep of all pieces (table.h) */
    uint64_t n_pieces;      /* that sequences own */
    uint64_t n_kept_pieces; /* that none owns, kept while there is room */
    ig_kv_traffic bus;      /* to a device with memory of its own */
    uint64_t vram_bytes;    /* taken of that */
    uint64_t entries;       /* of one sequence (ig_kv_get_stats): held, over layers and KV heads */
    uint64_t dropped;       /* likewise: for ever, since it was opened */
} ig_kv_stats;

/* Tokens of a block. */
int ig_kv_block_tokens(const ig_kv_shape *shape, ig_kv_type type);
/* Bytes of RAM that a memory of this shape takes when full; refuses what open() would refuse. NULL options: all in RAM.
 */
ig_status ig_kv_plan(uint64_t *bytes, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err);
/* Bytes of the device's own memory that it takes. */
uint64_t ig_kv_plan_vram(const ig_kv_shape *shape, const ig_kv_options *options);
/* Most slots of a KV head in layers whose entries are dropped. */
int ig_kv_plan_slots(const ig_kv_shape *shape, const ig_kv_options *options);
/* Bytes of frames that its layers with a window do not get, since they let go of most tokens. */
uint64_t ig_kv_plan_let_go(const ig_kv_shape *shape, const ig_kv_options *options);
/* Bytes that one entry takes, and a token in all layers. */
uint64_t ig_kv_entry_bytes(const ig_kv_shape *shape, const ig_kv_options *options);
uint64_t ig_kv_token_bytes(const ig_kv_shape *shape, const ig_kv_options *options);

ig_status ig_kv_memory_open(ig_kv_memory **out, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err);
/* No sequence lies in it any more. */
void ig_kv_memory_close(ig_kv_memory *m);
/* Entries of more layers will be dropped than were said when it was opened, all else being the same: with a limit of
 * RAM, frames make room for what that takes. No sequence holds a token. */
ig_status ig_kv_replan(ig_kv_memory *m, const ig_kv_options *options, ig_error *err);
/* Another number of first layers that stay in RAM if there is room for them: brings them there, and lets others go.
 * Where that fails those that stayed before do. */
ig_status ig_kv_pin(ig_kv_memory *m, int n_layers, ig_error *err);
void ig_kv_memory_get_stats(const ig_kv_memory *m, ig_kv_stats *out);

/* Tokens of a piece: 16 or more, a power of two. */
int ig_kv_piece_tokens(const ig_kv_memory *m);
/* Bytes of its K and V with their lines. */
size_t ig_kv_piece_bytes(const ig_kv_memory *m);
/* What the disk tier's file may still grow by, and the disk that it lies on; 0: nothing, or there is no such tier. */
uint64_t ig_kv_spill_left(const ig_kv_memory *m, dev_t *device);
/* How many there is certainly room for: less than sequences may want if the disk tier is too small for that. */
size_t ig_kv_room(const ig_kv_memory *m);
/* NULL if the memory does not share. */
ig_prefix_tree *ig_kv_prefixes(ig_kv_memory *m);

/* A pass over the layers begins: blocks that are not wanted for whole ones leave first. */
void ig_kv_begin_step(ig_kv_memory *m);
/* Starts to read what load() will want of a layer, as far as there is room. Two may be under way, of layers that follow
 * each other: load() waits for that of its own. */
ig_status ig_kv_prefetch_all(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err);
/* Brings the blocks that sequences of this memory want into RAM, where they stay at least until the next load(). If it
 * fails, it fails for all; the caller may then load for each by itself, for which there may be room still. */
ig_status ig_kv_load_all(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err);
/* The same in two halves: the first starts to read, the second waits. In between nothing else is asked of the memory.
 * Where the first has failed there is no second. */
ig_status ig_kv_load_begin(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err);
ig_status ig_kv_load_end(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err);

#endif
