/* SPDX-License-Identifier: Apache-2.0
 *
 * Where arithmetic runs: a seam of some twenty operations on whole arrays. The forward pass
 * (model/forward.c) is written in these; a device decides how they are cut over threads (cpu.c) or a GPU.
 *
 * Pointers are to memory that the device has given (alloc) or was told of (bind). Operations run in the order of their
 * calls, but perhaps behind them: what they write may be looked at, and what they read be changed or freed, after
 * finish(). What is handed over by value or as a list of pointers, such as jobs and matrices, is taken at once, but not
 * the views of a job. Operations cannot fail: what they need is taken beforehand by reserve(), and what goes wrong with
 * the device itself finish() tells. Calls from several threads take turns.
 */
#ifndef IG_DEVICE_DEVICE_H
#define IG_DEVICE_DEVICE_H

#include "base/block_scales.h"
#include "base/compiler.h"
#include "base/kv_type.h"
#include "base/type.h"
#include "device/pool.h"

typedef struct ig_low_rank ig_low_rank;

/* y = scale W x (+ bias, + what adapters add). w == NULL: the matrix is absent. */
typedef struct ig_matrix {
    const void *w; /* [n_out][n_in] of `type`, as stored */
    /* The same where, or in the order (put_panels()) in which, operations read it instead; or NULL. */
    const void *panels;
    const float *bias;            /* [n_out] or NULL */
    const float *scale;           /* one number in the host's memory; NULL: 1 */
    ig_block_scales block_scales; /* of IG_TYPE_F8_E4M3; others have none. Numbers that are bound */
    const ig_low_rank *low_rank;  /* NULL: no adapters */
    int low_rank_row;             /* the number of its first row there */
    int n_out, n_in;
    ig_type type;
    size_t row_bytes;
} ig_matrix;

/* What one adapter adds to products with a matrix: the sum over r of (a x)[r] * b[r]. Numbers that are bound. */
typedef struct ig_low_rank_part {
    int adapter;    /* of the model's, which are at most IG_ADAPTERS_MAX */
    ig_matrix a;    /* [rank][n_in] of floats, without bias and scale */
    const float *b; /* [rank][n_out] the other way round than files have it, with the file's scale in it */
} ig_low_rank_part;

/* What adapters have for a matrix and for others below it. */
struct ig_low_rank {
    const ig_low_rank_part *parts; /* [n_parts] the host's, in the order in which they are added */
    int n_parts, n_out;
    int n_adapters; /* of the model */
};

/* How much rows of a product take of the model's adapters. */
typedef struct ig_shares {
    const float *of_rows; /* [n_rows][n_adapters] the device's */
    uint64_t taken;       /* bit i: of adapter i something is taken, by these rows or others of the step */
} ig_shares;

/* Of its weights as stored. */
static inline size_t ig_matrix_bytes(const ig_matrix *m) { return (size_t)m->n_out * m->row_bytes; }

typedef struct ig_residency ig_residency;
typedef struct ig_residency_shape ig_residency_shape;

/* What came over the bus to a device with memory of its own, and what need not (residency.h). */
typedef struct ig_kv_traffic {
    uint64_t hits;   /* blocks whose copies were read */
    uint64_t copied; /* blocks */
    uint64_t rows;   /* keys with their values, read in place */
    uint64_t bytes;  /* of both */
} ig_kv_traffic;

/* The K and V rows that attention of one KV head reads: token slots of a block table, all of them from
 * `first` on, or those listed. A block holds 2^shift slots: first all keys, then, v_offset bytes on, all values; or
 * rows that are both, and v_offset is 0. Packed rows have their lines apart, by block: those of its first slot's key,
 * of its value, of the next slot's key, and so on. */
typedef struct ig_kv_view {
    const uint8_t *const *blocks;
    const uint32_t *number; /* of the sequence's blocks in `blocks` and in `lines`; NULL: block i is number i */
    bool is_staged;         /* blocks[0] is the sequence's block block_base, since attention takes several calls */
    bool is_ascending;      /* index is */
    int block_base;
    int shift;
    size_t row_bytes, v_offset; /* from slot to slot; from a key to its value */
    size_t at;                  /* where the head's part of a row begins (kv/memory.h) */
    const int32_t *index;       /* [n] slots, or NULL: slots first .. first + n - 1 */
    int first, n;
    const int32_t *n_listed; /* the device's: so many of index [n], which is the device's too, count; NULL: all */
    int n_slots;             /* that the sequence uses: all that are listed, but for new ones, are before this one */
    ig_kv_type type;         /* of the rows */
    const ig_kv_line *lines; /* [blocks][2^shift][slot_lines]; NULL for IG_KV_F16 */
    size_t slot_lines, lines_at; /* of a slot; of these the head's own, [2][ig_kv_row_lines], begin there */
    ig_residency *copies;        /* of blocks in the device's own memory; NULL: there are none */
    const uint8_t **where;       /* with copies, the device's: where blocks are to be read, by number */
    size_t table;                /* with copies: the table that the blocks belong to */
    ig_kv_traffic *traffic;      /* with copies: what the view causes is added, by finish() */
} ig_kv_view;

static inline size_t ig_kv_view_block(const ig_kv_view *v, int slot) {
    return v->number ? v->number[slot >> v->shift] : (size_t)(slot >> v->shift);
}

/* The key of a slot; its value lies v_offset behind. */
static inline const uint8_t *ig_kv_view_row(const ig_kv_view *v, int slot) {
    size_t block = v->is_staged ? (size_t)((slot >> v->shift) - v->block_base) : ig_kv_view_block(v, slot);
    return v->blocks[block] + (size_t)(slot & ((1 << v->shift) - 1)) * v->row_bytes + v->at;
}

/* The lines of a slot's key. Those of its value follow. */
static inline const ig_kv_line *ig_kv_view_lines(const ig_kv_view *v, int slot) {
    size_t row = (ig_kv_view_block(v, slot) << v->shift) + (size_t)(slot & ((1 << v->shift) - 1));
    return v->lines + row * v->slot_lines + v->lines_at;
}

/* Rows that attention is split by when it takes several calls (ig_attention.begin, end). A device may split a decode
 * step's further: from so many rows on, into so many parts, if UNIT rows do not make more. */
enum { IG_ATTEND_UNIT = 512, IG_ATTEND_LEAST = 64, IG_ATTEND_PARTS = 256 };

/* Parts of a decode step that reads up to n rows, at most. */
static inline int ig_attend_parts(int n) {
    int units = (n + IG_ATTEND_UNIT - 1) / IG_ATTEND_UNIT, least = (n + IG_ATTEND_LEAST - 1) / IG_ATTEND_LEAST;
    return least <= IG_ATTEND_PARTS ? least : units > IG_ATTEND_PARTS ? units : IG_ATTEND_PARTS;
}

/* Which rows of its views a call of attend() takes. */
typedef enum ig_attend_rows {
    IG_ROWS_ALL,
    IG_ROWS_IN_ORDER, /* [begin, end), a multiple of IG_ATTEND_UNIT but for the last end: not all in memory at once */
    IG_ROWS_THERE,    /* of a decode step, at most those whose blocks are there: the others are on their way */
    IG_ROWS_LEFT,     /* those that this left: now all are there */
} ig_attend_rows;

/* How many of the tokens before it a query sees. */
typedef struct ig_window {
    int n;          /* the last so many, its own included; 0: all */
    bool in_chunks; /* chunks of n tokens begin at multiples of n, and it sees those of its own chunk (Llama 4) */
} ig_window;

/* The first row that a query sees, which sees none from `end` on. */
static inline IG_ANYWHERE int ig_window_begin(ig_window w, int end) {
    if (!w.n || end <= w.n) return 0;
    return w.in_chunks ? (end - 1) / w.n * w.n : end - w.n;
}

/* Attention of one sequence: n_tokens queries at consecutive positions, the last of which sees every row of its
 * view; query t sees the rows before the last n_tokens - 1 - t ones, and of these those in its window. A query's
 * result does not depend, bitwise, on how many others there are, but on what they are: those of a prompt, whose views
 * list all slots from 0, or the one of a decode step.
 *
 * Rows may be taken in several calls, of which `carry` keeps what they hand on and the last one writes the result. The
 * bits are those of a single call. */
typedef struct ig_attention {
    const float *q;       /* [n_tokens][n_heads][head_dim] */
    const float *q_scale; /* [n_heads][head_dim] what queries are multiplied by before they meet keys; NULL: nothing */
    float *out;           /* the same shape, not q */
    float *lse; /* [n_tokens][n_heads] logarithm of the sum of the exponentials of the scores, sinks' too; or NULL */
    /* [n_heads][head_dim], of a decode step: out becomes (1 - rest_share) out + rest; NULL: nothing */
    const float *rest;
    const float *rest_share; /* [n_heads]; where it is 0, rest is not looked at */
    int n_tokens;
    bool prompt; /* else n_tokens is 1 */
    /* Of a prompt: the layer's output matrix is quantised, so that results need not be more exact than such products.
     */
    bool is_coarse;
    ig_window window;
    /* [n_heads] of a learned sink of each query head: an entry of no token, without a value, that all queries see
     * (gpt-oss); NULL: there is none */
    const float *sink_scores;
    float cap;               /* scores x become cap * tanh(x / cap) before softmax, of the host alone; 0: they do not */
    const ig_kv_view *views; /* [n_kv_heads] */
    ig_attend_rows rows;
    float *carry;   /* of several calls */
    int begin, end; /* of IG_ROWS_IN_ORDER */
} ig_attention;

typedef struct ig_floats {
    const float *x;
    size_t n;
} ig_floats;

typedef struct ig_head_shape {
    int n_heads, n_kv_heads, head_dim;
    float scale;
} ig_head_shape;

/* What a model brings along to choose entries by. Of each token it makes a key, and queries.
 *
 * Without blocks (DeepSeek Sparse Attention, DeepSeek-V3.2, arXiv 2512.02556, section 2.1) queries have a weight each;
 * an entry's score is the sum over the queries of weight * max(0, query . key), and attention is meant to use the
 * n_chosen entries with the best scores.
 *
 * With blocks (MiniMax M3) each KV head chooses by a query of its own, whose product with a key is an entry's score.
 * Blocks of so many consecutive entries are chosen together, by the best score in each: the last n_local ones, and as
 * many others as make up n_chosen entries. */
typedef struct ig_index_shape {
    int n_heads, dim; /* queries of a token, and their width, which is a key's; 0: it brings nothing */
    int n_chosen;
    int block, n_local; /* 0: there are no blocks */
} ig_index_shape;

enum { IG_INDEX_HEADS = 128, IG_INDEX_DIMS = 256 /* at most */, IG_NO_INDEX = UINT16_MAX };

/* Numbers of such a key that a row keeps: the rows of a token in all KV heads share them out. */
static inline int ig_index_share(const ig_index_shape *s, int n_kv_heads, int n_rows) {
    return s->dim ? s->dim / (n_kv_heads * n_rows) : 0;
}

/* Of all layers of a model; or those with a window have others, as many of queries. */
typedef struct ig_layer_heads {
    ig_head_shape all, local; /* local.n_heads 0: none has */
    const int *window;        /* [n_layers] ig_window's n */
    bool in_chunks;           /* all windows */
    ig_index_shape index;
    const uint16_t *index_layer; /* [n_layers] by whose keys and queries of that sort a layer chooses: its own, or those
                                    of the last that has some; or IG_NO_INDEX: by none */
} ig_layer_heads;

/* Whether the layer has some of its own. */
static inline bool ig_has_index(const ig_layer_heads *h, int layer) {
    return h->index.dim && h->index_layer[layer] == layer;
}

static inline const ig_head_shape *ig_heads_of(const ig_layer_heads *h, int layer) {
    return h->local.n_heads && h->window[layer] ? &h->local : &h->all;
}

/* Keys and values of n tokens of a sequence that are to be kept in a layer: rows 0 .. n - 1 of the views, which hold
 * nothing else. They get the form that ig_kv_write() of kv/rows.h gives them, in copies of their blocks, too. */
typedef struct ig_append {
    const float *k, *v;          /* [n][n_kv_heads][head_dim] the device's */
    const float *origin, *scale; /* of packed keys, as in ig_key_frame; or NULL */
    const ig_kv_view *views;     /* [n_kv_heads] */
    int n;
} ig_append;

/* Sketches of a KV head's keys or values, in units of IG_SKETCH_TOKENS slots (kernel/kernel.h has their form). */
typedef struct ig_units {
    const uint8_t *host; /* [number][bytes] */
    uint8_t *dev;        /* the same in the device's own memory, as they were when they were brought; NULL: not there */
    size_t bytes;        /* of a unit, a multiple of 16 */
    int fresh;           /* those from here on are to be brought before they are read */
} ig_units;

/* Which of n weighed entries are chosen. */
typedef struct ig_pick_rule {
    int n_sinks, n_recent; /* first and last entries that are always chosen */
    int count;             /* most entries in all */
    double mass;           /* choose no more once the chosen weights reach this share of the sum; 1: no end by weight */
} ig_pick_rule;

/* What changes weights before. The share `locality` of each becomes that share of the mean of its block; then those in
 * blocks that were used become (1 + inertia) times as much, while the rule's mass is of what they were. */
typedef struct ig_pick_favour {
    int block; /* entries */
    float locality, inertia;
    const uint8_t *used; /* the host's: n_known bits, the lowest of a byte first: 1: it was; later blocks were not */
    int n_known;
} ig_pick_favour;

/* Keys that are not sketched: some columns of them are kept, [IG_SKETCH_TOKENS][rank] 16-bit floats in a unit, for each
 * query head by itself. Entries weigh by their scores. Lists choose in common: each counts its entries whose scores are
 * within alpha of its best, and all choose as many as that is on average, 1 or more, within the rule's count. */
typedef struct ig_scan_columns {
    int n;                /* of rank, which is a multiple of 8; 0: keys are sketched */
    const int32_t *index; /* [n] memory of IG_PLACE_HOST: rows of query_map, or without one numbers of a query; NULL: a
                             query has no others */
    float alpha;
    int list, n_lists; /* this is number `list` of n_lists side by side that choose in common */
} ig_scan_columns;

/* Entries of a KV head, slots 0 .. n - 1, that a device chooses from for the queries of a group: it weighs them by
 * their sketches, picks by these weights, and finds what the others add to the attention. The last entry may be so new
 * that nothing was sketched of it: it is weighed by its key itself, and must be one that the rule chooses in any case.
 */
typedef struct ig_scan_list {
    ig_units keys, values;  /* no values: nothing is estimated */
    const uint32_t *pieces; /* unit i is number (pieces[i >> shift] << shift) + its low bits; NULL: number i */
    int shift;
    int n, group, rank, head_dim;
    float scale;              /* of the scores */
    const float *sink_scores; /* [group] as in ig_attention, bound: sinks have their share of the attention; or NULL */
    const float *q;           /* [group][head_dim] the device's */
    const float *k; /* [head_dim] the device's: the key of the last entry; NULL: all have sketches (or columns) */
    const float *query_map, *key_map, *offset; /* [rank][head_dim], [rank][head_dim], [rank], bound: Q, K and what
                                                  format/sketch.h has of them; or NULL, and rank is head_dim */
    ig_pick_rule rule;                         /* of softmax weights, summed over the group */
    ig_pick_favour favour;
    ig_scan_columns columns;    /* of one query; without favour, an end by weight, and estimates */
    float *scratch;             /* [ig_scan_floats()] the device's; begins with the weights [n] that were picked by */
    int32_t *index, *n_index;   /* [n] get the chosen slots, ascending, and their number; memory of IG_PLACE_HOST */
    int32_t *picked, *n_picked; /* get the same, the device's. NULL: one of both is not asked for */
    float *rest, *rest_share;   /* [group][head_dim], [group] get what ig_attention has of these names; or NULL */
} ig_scan_list;

/* Slots that one sum is over, of those that make up a list's; and floats of what is counted to pick. */
enum { IG_SCAN_PART = 128, IG_SCAN_BOARD = 20 << 10 };

/* Scratch of a list with at most n entries, a multiple of 4. */
static inline size_t ig_scan_floats(int group, int head_dim, int n) {
    size_t parts = ((size_t)n + IG_SCAN_PART - 1) / IG_SCAN_PART, queries = (size_t)group * (3 * (size_t)head_dim + 10);
    size_t each = IG_SCAN_PART + 2 + (size_t)group * (IG_SCAN_PART + 3);
    return (IG_SCAN_BOARD + parts * each + queries + 4 + 3) / 4 * 4;
}

typedef enum ig_recurrence_kind {
    IG_GATED_DELTA_NET, /* Yang and others, 2024, arXiv 2412.06464; Qwen3.5 */
    IG_KIMI_DELTA,      /* the same where each row of a state decays by itself (Kimi Linear, 2025, arXiv 2510.26692) */
    IG_MAMBA_2,         /* Dao and Gu, 2024, arXiv 2405.21060; Granite 4 */
    IG_SHORT_CONVOLUTION, /* gated, without states of heads: all channels are values (LFM2) */
} ig_recurrence_kind;

/* Layers that do not attend: tokens change a state of each value head, a matrix, and read from it. Queries and keys of
 * a head serve several value heads (Mamba 2 calls queries C, keys B, values x, and key heads groups). */
typedef struct ig_recurrence_shape {
    ig_recurrence_kind kind;
    int n_key_heads, n_value_heads; /* the second a multiple of the first */
    int key_dim, value_dim;         /* multiples of 16, at most IG_RECURRENCE_DIMS */
    bool has_gate_pairs;            /* recur() gets beta and alpha as [rows][n_key_heads][2][value heads of one], alpha
                                       from the first of its own on; not with is_tiled */
    int n_taps;                     /* a convolution over so many last tokens comes first */
    bool is_tiled;                  /* value head i is of key head i % n_key_heads; else those of one lie together */
} ig_recurrence_shape;

enum { IG_RECURRENCE_DIMS = 256, IG_RECURRENCE_TAPS = 8, IG_RECURRENCE_KEPT = 4 };

/* Channels: queries, keys and values of a token, one behind the other; of Mamba 2 the other way round. */
static inline size_t ig_recurrence_channels(const ig_recurrence_shape *s) {
    return 2 * (size_t)s->n_key_heads * (size_t)s->key_dim + (size_t)s->n_value_heads * (size_t)s->value_dim;
}

/* Numbers of a value head that say how much of its state a token forgets: one, or one for each row. */
static inline int ig_recurrence_decays(const ig_recurrence_shape *s) {
    return s->kind == IG_KIMI_DELTA ? s->key_dim : 1;
}

/* Where they begin. */
typedef struct ig_recurrence_parts {
    size_t query, key, value;
} ig_recurrence_parts;

static inline ig_recurrence_parts ig_recurrence_places(const ig_recurrence_shape *s) {
    size_t n = (size_t)s->n_key_heads * (size_t)s->key_dim, values = (size_t)s->n_value_heads * (size_t)s->value_dim;
    ig_recurrence_parts p = {0, n, 2 * n}, mamba = {values + n, values, 0};
    return s->kind == IG_MAMBA_2 ? mamba : p;
}

/* The key head of a value head. */
static inline int ig_recurrence_key_head(const ig_recurrence_shape *s, int head) {
    return s->is_tiled ? head % s->n_key_heads : head / (s->n_value_heads / s->n_key_heads);
}

/* Floats of a layer's state: of the latest tokens what the convolution gets, [n_taps - 1][channels], the oldest first;
 * then [n_value_heads][key_dim][value_dim]. */
static inline size_t ig_recurrence_floats(const ig_recurrence_shape *s) {
    return (size_t)(s->n_taps - 1) * ig_recurrence_channels(s) +
           (size_t)s->n_value_heads * (size_t)s->key_dim * (size_t)s->value_dim;
}

/* Where the numbers of a row's value head lie in beta, and in alpha in units of ig_recurrence_decays(). */
static inline size_t ig_recurrence_gate(const ig_recurrence_shape *s, size_t row, int head) {
    int group = s->n_value_heads / s->n_key_heads, others = s->has_gate_pairs ? head / group * group : 0;
    return row * (size_t)(s->has_gate_pairs ? 2 * s->n_value_heads : s->n_value_heads) + (size_t)(head + others);
}

/* A layer's rows of one sequence, consecutive tokens. */
typedef struct ig_recurrence {
    int row, n;        /* n 0: none */
    const float *from; /* its state before them; NULL: zeros */
    int n_kept;        /* 1 .. IG_RECURRENCE_KEPT */
    struct {
        int after;    /* so many of the rows; ascending, the last is n */
        float *state; /* gets the state then; not `from` */
    } kept[IG_RECURRENCE_KEPT];
} ig_recurrence;

typedef struct ig_recurrence_weights {
    const float *taps;       /* [n_taps][channels] the last one is of the token itself */
    const float *taps_bias;  /* [channels] or NULL: none */
    const float *decay;      /* [n_value_heads] below 0: the rate of what a token forgets of the state */
    const float *decay_bias; /* [n_value_heads][ig_recurrence_decays()] of the numbers that say how much of that */
    const float *skip;       /* [n_value_heads] Mamba 2: the share of the values in what is read */
} ig_recurrence_weights;

/* Sizes that the operations' own scratch is made for. */
typedef struct ig_device_need {
    int max_rows;    /* rows of x in one operation */
    int max_in;      /* widest matrix input */
    int max_rank;    /* of all parts of an ig_low_rank together; 0: no matrix has any */
    int max_entries; /* rows of one view */
    ig_head_shape heads;
    size_t mail_bytes; /* of jobs, views and lists that operations of a step are called with */
} ig_device_need;

/* What serves both. */
static inline ig_device_need ig_device_need_both(const ig_device_need *a, const ig_device_need *b) {
    ig_device_need both = *a;
    both.max_rows = ig_max_int(a->max_rows, b->max_rows);
    both.max_in = ig_max_int(a->max_in, b->max_in);
    both.max_rank = ig_max_int(a->max_rank, b->max_rank);
    both.max_entries = ig_max_int(a->max_entries, b->max_entries);
    both.heads.n_heads = ig_max_int(a->heads.n_heads, b->heads.n_heads);
    both.heads.n_kv_heads = ig_max_int(a->heads.n_kv_heads, b->heads.n_kv_heads);
    both.heads.head_dim = ig_max_int(a->heads.head_dim, b->heads.head_dim);
    if (b->mail_bytes > a->mail_bytes) both.mail_bytes = b->mail_bytes;
    return both;
}

/* Whether scratch for `have` serves `need`. */
static inline bool ig_device_serves(const ig_device_need *have, const ig_device_need *need) {
    const ig_head_shape *h = &have->heads, *n = &need->heads;
    return have->max_rows >= need->max_rows && have->max_in >= need->max_in && have->max_rank >= need->max_rank &&
           have->max_entries >= need->max_entries && have->mail_bytes >= need->mail_bytes && h->n_heads >= n->n_heads &&
           h->n_kv_heads >= n->n_kv_heads && h->head_dim >= n->head_dim;
}

/* Floats that low ranks want of all rows: of as many matrices as share an input, but for those of experts. */
static inline size_t ig_device_low_rank_floats(const ig_device_need *need) {
    return 4 * (size_t)need->max_rows * (size_t)need->max_rank;
}

/* Floats of ig_attention.carry for n_tokens queries of a prompt (0: for a decode step) over n rows: of each part and
 * query head two sums and those of the values; and one of each view, of which there are at most n_heads. Of a prompt
 * there are two parts: that which calls are in, and all before it. */
static inline size_t ig_attend_carry_floats(const ig_head_shape *s, int n_tokens, int n) {
    size_t parts = n_tokens ? 2 * (size_t)n_tokens : (size_t)ig_attend_parts(n);
    return parts * (size_t)s->n_heads * ((size_t)s->head_dim + 3);
}

/* Products of heads: rows [head * of_head + first, + n) of m times n_in floats of x, where a row's heads lie x_head
 * floats apart and those of the next row behind them, go to y, where they lie y_head apart. */
typedef struct ig_head_product {
    const ig_matrix *m; /* no bias, no scales, no adapters; with panels, of_head and first are multiples of 16 */
    int n_heads, of_head, first, n;
    const float *x;
    float *y;
    size_t x_head, y_head;
} ig_head_product;
/* ig_device_need.max_in of them: n_heads times n_in and 8 more, where a scale may lie, rounded up to a multiple of
 * this. */
enum { IG_HEAD_COLUMN = 64 };

typedef struct ig_norm {
    int n;       /* numbers that are normed together */
    bool is_rms; /* RMS norm, without b; else layer norm */
    float eps;
    const float *w, *b; /* [n_w][n], bound, row r has those of r % n_w; or NULL: none */
    int n_w;            /* 0: 1 */
} ig_norm;

/* Of the first n_rot numbers of a head, in pairs. */
typedef struct ig_rotation {
    const float *cs; /* [n_rows][n_rot] the device's: n_rot/2 cosines and n_rot/2 sines of a row's position */
    int n_rot;
    bool is_adjacent; /* pairs are neighbours; else they are half of n_rot apart */
} ig_rotation;

typedef enum ig_activation {
    IG_SILU_GATED,     /* gate = silu(gate) * up */
    IG_SIGMOID_GATED,  /* gate = sigmoid(gate) * up */
    IG_SOFTPLUS_GATED, /* gate = log(1 + exp(gate)) * up */
    IG_PRODUCT,        /* gate = gate * up */
    IG_GELU_GATED,     /* gate = gelu(gate) * up, in its tanh form */
    IG_SWIGLU_OAI,     /* the gate of gpt-oss (kernel/kernel.h) */
    IG_RELU,           /* gate = max(gate, 0) */
    IG_RELU_SQUARED,   /* gate = max(gate, 0)^2 (So and others, 2021, arXiv 2109.08668) */
    IG_GELU,           /* gate = gelu(gate), in its tanh form */
    IG_GELU_ERF,       /* gate = gate * Phi(gate) (Hendrycks and Gimpel, 2016, arXiv 1606.08415) */
    IG_XIELU,          /* of four numbers, which `up` is (kernel/kernel.h; Huang and Schlag, 2024, arXiv 2411.13010) */
    IG_TANH,           /* gate = tanh(gate) */
    IG_ACTIVATIONS,
} ig_activation;

/* Whether it takes `up`. */
static inline bool ig_activation_is_gated(ig_activation kind) { return kind < IG_RELU; }

/* Where memory lies. */
typedef enum ig_place {
    IG_PLACE_HOST,   /* the host's; operations reach it too, perhaps slowly */
    IG_PLACE_DEVICE, /* the device's own, for operations alone */
    IG_PLACE_PAGED,  /* either: pages move to whoever touches them, host and operations at a time */
    IG_PLACES,
} ig_place;

typedef struct ig_device ig_device;
typedef struct ig_lane ig_lane; /* copies that run beside operations */

typedef struct ig_device_ops {
    const char *name;
    bool is_plan; /* nothing runs and there is no memory: of all below only close, bind and unbind are there */
    bool is_host; /* its memory is the host's: alloc, free, bind, unbind, lanes and what copies need are not there */
    void (*close)(ig_device *d);
    /* Zeroed memory, or NULL, also where the device has none of that kind. See ig_space. */
    void *(*alloc)(ig_device *d, ig_place place, size_t n_bytes);
    void (*free)(ig_device *d, ig_place place, void *p);
    /* Numbers in memory of the host's alone, which stay as they are until unbind(): operations find them by the same
     * addresses from then on. What is bound several times is there until unbind() was called as often; of what is not
     * bound it does nothing. */
    ig_status (*bind)(ig_device *d, const void *p, size_t n_bytes, ig_error *err);
    void (*unbind)(ig_device *d, const void *p);
    /* Bytes of the weights of m in panels, an order that products read faster, with the same bits; 0: there is none. Of
     * devices with is_host alone, as is: */
    size_t (*panel_bytes)(ig_device *d, const ig_matrix *m);
    /* Writes the panels of m to 64-byte aligned memory. */
    void (*put_panels)(ig_device *d, void *to, const ig_matrix *m);
    /* n bytes from anywhere to anywhere; nothing if both are the same. */
    void (*copy)(ig_device *d, void *to, const void *from, size_t n_bytes);
    void (*clear)(ig_device *d, void *to, size_t n_bytes);
    /* to[r][0..n) = from[r][0..n), rows that lie to_row and from_row floats apart. */
    void (*copy_rows)(ig_device *d, float *to, size_t to_row, const float *from, size_t from_row, int n, int n_rows);
    /* A lane: copies from memory that the device has given, in the order of their calls, while operations run. Both
     * wait for each other only where that is said; marks are numbers below n_marks. close_lane() waits for what was
     * sent. */
    ig_status (*open_lane)(ig_device *d, ig_lane **out, int n_marks, ig_error *err);
    void (*close_lane)(ig_device *d, ig_lane *l);
    /* A copy, and the mark behind it. */
    void (*send)(ig_device *d, ig_lane *l, int mark, void *to, const void *from, size_t n_bytes);
    /* What is sent from here on goes behind all operations so far. */
    void (*follow)(ig_device *d, ig_lane *l);
    /* Operations from here on run behind the mark. */
    void (*await)(ig_device *d, ig_lane *l, int mark);
    /* Seconds that operations have stood still in await(). */
    double (*waited)(ig_device *d, ig_lane *l);
    /* Waits for all operations so far. IG_E_DEVICE: one of them has failed. */
    ig_status (*finish)(ig_device *d, ig_error *err);
    /* Takes scratch for at least `need`; keeps the larger of what it has. */
    ig_status (*reserve)(ig_device *d, const ig_device_need *need, ig_error *err);
    /* Adds to the bytes of each place what reserve() takes for `need`, and opening the device took there for it. */
    void (*plan)(const ig_device *d, uint64_t bytes[IG_PLACES], const ig_device_need *need);
    /* Bytes of scratch held; from any thread, like reserve() and the operations, which take turns. */
    size_t (*scratch_bytes)(ig_device *d);

    /* out[r][0..n_in) = scale * row ids[r] of m; added to out if `add`. */
    void (*embed)(ig_device *d, float *out, const ig_matrix *m, float scale, const int32_t *ids, int n_rows, bool add);
    /* y[i][r][0..m[i]->n_out) = scale m[i] x[r] + bias + the row's shares of what adapters add, for n_m matrices of one
     * input x [n_rows][n_in]. A row's result does not depend on n_rows, bitwise, but on `few`: made for single rows
     * (decode), or for many (a prompt). Nor does it depend on what others take: of an adapter of which a row takes 0 it
     * gets nothing, not even what is not finite. shares may be NULL where no matrix has a low rank. */
    void (*matmul)(ig_device *d, float *const *y, const ig_matrix *const *m, int n_m, const float *x,
                   const ig_shares *shares, int n_rows, bool few);
    /* The same of heads by themselves; p is taken at once. */
    void (*matmul_heads)(ig_device *d, const ig_head_product *p, int n_rows, bool few);
    /* Whether rows of both kinds have the same bits, and may share a product with m. */
    bool (*few_as_many)(const ig_device *d, const ig_matrix *m);
    /* y[r] = norm of x[r], rows of norm->n floats. */
    void (*norm)(ig_device *d, float *y, const float *x, const ig_norm *norm, int n_rows);
    /* Rotates heads of x [n_rows][n_heads][head_dim]. */
    void (*rope)(ig_device *d, float *x, const ig_rotation *by, int n_rows, int n_heads, int head_dim);
    /* y += x, n floats. */
    void (*add)(ig_device *d, float *y, const float *x, size_t n);
    /* x *= factor, n floats. */
    void (*scale)(ig_device *d, float *x, float factor, size_t n);
    /* y[rows[r]] += shares[r] * x[r], rows of n floats; `rows` are different ones, and no shares: 1. As ids of embed(),
     * both lists are the host's. */
    void (*add_rows)(ig_device *d, float *y, const float *x, const int32_t *rows, const float *shares, int n_rows,
                     int n);
    /* x[r][0..n) *= the sigmoid of gates[r], or softplus: of IG_SIGMOID_GATED or IG_SOFTPLUS_GATED. */
    void (*gate_rows)(ig_device *d, ig_activation kind, float *x, const float *gates, int n_rows, int n);
    /* n floats of a feed-forward layer, or of what attention gives, in place; `up` is of the gated ones and of
     * IG_XIELU. */
    void (*activate)(ig_device *d, ig_activation kind, float *gate, const float *up, size_t n);
    /* out[r][0..channels) = silu of taps_bias + the sum over taps t of taps[t] * x[r - n_taps + 1 + t] (of
     * IG_SHORT_CONVOLUTION the sum itself), for the rows of n_jobs sequences; what is wanted of them later goes to
     * their states. Weights are bound. Devices without recurrences have neither of both. */
    void (*convolve)(ig_device *d, float *out, const float *x, const ig_recurrence_shape *s,
                     const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs);
    /* out[r][n_value_heads][value_dim]: what the rows' tokens read from the state S after they have changed it. With
     * queries, keys and values q, k, v of x [rows][channels], and numbers a, b of each value head, alpha and beta
     * [rows][n_value_heads]: t = softplus(a + decay_bias), S = e^(decay t) S; or where they have more, alpha
     * [rows][n_value_heads][ig_recurrence_decays()], that with each row of S; then
     * Gated DeltaNet, Kimi Delta: q, k at length 1, S += k (sigmoid(b) (v - k S)), out = q S / sqrt(key_dim);
     * Mamba 2 (beta is NULL): S += k (t v), out = q S + skip v. */
    void (*recur)(ig_device *d, float *out, const float *x, const float *beta, const float *alpha,
                  const ig_recurrence_shape *s, const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs);
    /* The largest magnitude of each of n_x arrays, to out [n_x] in memory of the host that the device has given;
     * infinite or NaN if any is. */
    void (*peak)(ig_device *d, float *out, const ig_floats *x, int n_x);
    /* n_jobs sequences of one layer in one go. */
    void (*attend)(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs);
    /* Adds to weights[head * stride + i] the softmax weights, summed over queries and the heads of the group, of rows
     * i of [begin, end) of the head's view. job->q and ->lse are as an attend() over perhaps other rows left them. */
    void (*weigh)(ig_device *d, const ig_head_shape *shape, const ig_attention *job, int begin, int end, float *weights,
                  size_t stride);
    /* Of devices with memory of their own, else not there. Bytes of it that are free: */
    uint64_t (*room)(ig_device *d);
    /* Copies of blocks there; what reads views of these blocks uses them, brings them, and gives them up. */
    ig_status (*open_copies)(ig_device *d, ig_residency **out, const ig_residency_shape *shape, ig_error *err);
    void (*close_copies)(ig_device *d, ig_residency *r);
    /* Keeps new rows of n_jobs sequences of one layer. */
    void (*append)(ig_device *d, const ig_head_shape *shape, const ig_append *jobs, int n_jobs);
    /* Starts to copy what attend() of these decode steps would copy, beside the operations that follow: of the jobs
     * only the views are looked at. Rows may be added to blocks that are not full meanwhile. */
    void (*prefetch)(ig_device *d, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs);
    /* Chooses from lists. If that is awaited what is chosen is there when the call returns; what that leaves out, and
     * else all of it, is there after finish(). */
    void (*choose)(ig_device *d, const ig_scan_list *lists, int n, bool is_awaited);
    /* A parallel loop for the host side of a step (storing keys, selection). */
    void (*parallel)(ig_device *d, int n_tasks, ig_task_fn fn, void *arg);
    /* What the host's threads have done so far. */
    ig_pool_work (*worked)(const ig_device *d);
} ig_device_ops;

struct ig_device {
    const ig_device_ops *ops;
};

/* The CPU: kernels of `level` at most, on n_threads threads. */
ig_status ig_device_open_cpu(ig_device **out, ig_cpu_level level, int n_threads, ig_error *err);
void ig_device_close(ig_device *d);

#endif
