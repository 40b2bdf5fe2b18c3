/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV store of one sequence: owns blocks and block tables and moves bytes between tiers; it never decides which
 * entry matters (that is the policy's part).
 *
 * A block is one 4 KiB frame: K, then V, of consecutive tokens of one KV head of one layer: 2^shift tokens, as 16-bit
 * floats 8 at head dimension 128, 16 at 64, packed to 8 or 4 bits twice or four times as many. There is a block table
 * per layer and KV head, and for packed rows a table of lines, which stays in RAM.
 *
 * Without a disk tier every block stays in RAM. With one, a block that is full is written to it behind the computation
 * (it never changes again), and from then on may leave RAM when its frame is wanted: it is demoted, never lost.
 * A layer reads its entries in one of two ways: ig_kv_load() brings the blocks of chosen entries into RAM, where
 * they stay until others need the room; ig_kv_stream() passes all blocks by in order through a small staging area
 * and leaves what is in RAM as it is, since a scan would only push out what is useful.
 *
 * Entries of a layer can be dropped for ever (ig_kv_keep()). From then on entry i of a KV head does not lie in slot i:
 * new tokens take the slots that are free, and the layer stays in RAM.
 */
#ifndef IG_KV_STORE_H
#define IG_KV_STORE_H

#include "device/device.h"
#include "kv/entries.h"
#include "kv/evict.h"
#include "kv/pool.h"
#include "kv/rows.h"

typedef struct ig_kv_shape {
    int n_layers, n_kv_heads, head_dim; /* head_dim: a multiple of 8, at most 512 */
    int n_ctx;                          /* most tokens */
    int n_batch;                        /* most tokens added to a layer at once */
} ig_kv_shape;

typedef struct ig_kv_options {
    uint64_t ram_bytes;    /* frames, tables and staging together; 0: whatever the context needs */
    uint64_t disk_bytes;   /* most bytes of the disk tier; 0: none */
    const char *disk_path; /* its directory */
    ig_evict_rule evict;   /* which block leaves RAM first */
    int n_pinned_layers;   /* first layers that stay in RAM if there is room for them */
    bool no_uring;         /* disk requests by threads instead of io_uring */
    ig_kv_type type;       /* how rows are kept */
    int n_dropping;        /* layers of which entries will be dropped for ever: sizes are planned for so many */
    int limit;             /* most entries that a KV head of these has when tokens are added; 0: n_ctx */
} ig_kv_options;

typedef struct ig_kv ig_kv;

/* The entries of one KV head that a step uses. */
typedef struct ig_kv_pick {
    const int32_t *index; /* [n] ascending tokens; NULL: all tokens before n */
    int n;
} ig_kv_pick;

typedef struct ig_kv_stats {
    uint64_t ram_bytes;                      /* frames in use, tables, staging */
    uint64_t disk_bytes;                     /* in the disk tier */
    uint64_t demoted, recalled;              /* blocks that left RAM; blocks read back */
    uint64_t prefetch_hits, prefetch_misses; /* blocks that were there when attention wanted them, thanks to a prefetch;
                                                blocks it had to wait for */
    uint64_t read_bytes, written_bytes;
    double stall_seconds; /* the step stood still for the disk */
    uint64_t entries;     /* held, over layers and KV heads */
    uint64_t dropped;     /* for ever, since the store was opened */
} ig_kv_stats;

/* Tokens of a block. */
int ig_kv_block_tokens(int head_dim, ig_kv_type type);
/* Bytes of RAM that a store of this shape takes when full; refuses what open() would refuse. */
ig_status ig_kv_plan(uint64_t *bytes, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err);
/* Most slots of a KV head in layers whose entries are dropped. */
int ig_kv_plan_slots(const ig_kv_shape *shape, const ig_kv_options *options);
/* Bytes that one entry takes. */
uint64_t ig_kv_entry_bytes(const ig_kv_shape *shape, const ig_kv_options *options);
ig_status ig_kv_open(ig_kv **out, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err);
void ig_kv_close(ig_kv *kv);

/* Tokens that every layer has seen; those that it dropped count. */
int ig_kv_length(const ig_kv *kv);
ig_entries ig_kv_entries(const ig_kv *kv, int layer, int head);
/* Whether blocks can be elsewhere than in RAM. */
bool ig_kv_has_disk(const ig_kv *kv);
/* Entries of more layers will be dropped than were said when the empty store was opened, all else being the same: with
 * a limit of RAM, frames make room for what that takes. */
ig_status ig_kv_replan(ig_kv *kv, const ig_kv_options *options, ig_error *err);
/* Another number of first layers that stay in RAM if there is room for them: brings them there, and lets others go. */
ig_status ig_kv_pin(ig_kv *kv, int n_layers, ig_error *err);
/* Whether entries of any layer were dropped for ever. */
bool ig_kv_has_dropped(const ig_kv *kv);

/* Makes room for tokens [0, n) in one layer. Without a disk tier it cannot fail for n <= n_ctx. */
ig_status ig_kv_extend(ig_kv *kv, int layer, int n, ig_error *err);
/* The slot of a token that was not dropped and is not before one that was. */
int ig_kv_slot(const ig_kv *kv, int layer, int head, int token);
/* Where the row of a slot of the layer's last block or of the latest extension lies, to be written once. */
ig_kv_row ig_kv_at(const ig_kv *kv, int layer, int head, int slot);
/* The rows of the layer are written: full blocks go to the disk tier, behind what follows. */
ig_status ig_kv_seal(ig_kv *kv, int layer, ig_error *err);
/* Drops tokens from n on in all layers. May have to read a block back, which becomes the last one; where that fails,
 * fewer than n tokens are left (length()). What was dropped cannot come back: if a layer that has seen more than n
 * tokens dropped some, nothing is left. */
ig_status ig_kv_cut(ig_kv *kv, int n, ig_error *err);

/* A KV head of a layer keeps its entries of these numbers, ascending, fewer than it has; the others are gone for ever.
 * All heads of the layer must keep as many. Heads may come from several threads. */
void ig_kv_keep(ig_kv *kv, int layer, int head, const int32_t *index, int n);
/* The same for all entries but number i. */
void ig_kv_drop(ig_kv *kv, int layer, int head, int i);
/* After keep() or drop(): moves the layer's entries together and gives the room behind them back; moved() is told of
 * each that gets another slot. With a disk tier it must follow a layer's first drop, since it brings what is kept into
 * RAM; where that fails, only cut() may follow. */
typedef void (*ig_kv_moved_fn)(void *user, int layer, int head, int from, int to);
ig_status ig_kv_compact(ig_kv *kv, int layer, ig_kv_moved_fn moved, void *user, ig_error *err);

/* Starts to read what load() will want of a layer, as far as there is room. Two may be under way, of layers that follow
 * each other: load() waits for that of its own. picks [n_picks], a multiple of n_kv_heads: so many to each KV head. */
ig_status ig_kv_prefetch(ig_kv *kv, int layer, const ig_kv_pick *picks, int n_picks, ig_error *err);
/* Brings the blocks of picks [n_picks] into RAM, where they stay at least until the next load(). */
ig_status ig_kv_load(ig_kv *kv, int layer, const ig_kv_pick *picks, int n_picks, ig_error *err);
/* The rows that attention will read: tokens of the pick, or (index == NULL) first .. first + n - 1. All must be in RAM.
 */
ig_kv_view ig_kv_fetch(const ig_kv *kv, int layer, int head, const int32_t *index, int first, int n);

/* Whether every block of tokens [first, n) of a layer is in RAM. */
bool ig_kv_in_ram(const ig_kv *kv, int layer, int first, int n);
/* Views [n_kv_heads] of tokens [begin, begin + IG_ATTEND_UNIT) of n, which last until the next call but one; begin is a
 * multiple of IG_ATTEND_UNIT. Meanwhile the piece that follows is read. */
ig_status ig_kv_stream(ig_kv *kv, int layer, int begin, int n, ig_kv_view *views, ig_error *err);

void ig_kv_get_stats(const ig_kv *kv, ig_kv_stats *out);

#endif
