/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on the CPU, with an online softmax (Milakov and Gimelshein 2018; FlashAttention's order of work).
 *
 * Prefill: a task is one KV head and a tile of its queries (positions x heads of the group, at most IG_TILE_ROWS),
 * which share each key read. Where the level has kernels for prompts, other tasks make a part of the view ready for
 * them first, once for all tiles. Decode: a task is one KV head of one sequence and IG_SPLIT rows of its view; the
 * parts are merged in order. Parts are cut by the row's number in the view, never by the number of threads, so that the
 * same rows give the same bits whichever policy chose them and however many threads run.
 */
#include <math.h>
#include <string.h>

#include "device/cpu.h"

enum {
    /* Rows that are made ready for a prompt's kernels at a time: few enough to stay in a cache while all tiles read
     * them. */
    ROUND_ROWS = 2048,
    MERGE_ALONE = 32768, /* floats of parts below which merging them is not shared out */
};

typedef struct attend_job {
    ig_cpu_device *d;
    const ig_head_shape *shape;
    const ig_attention *jobs;
    int n_jobs, group;
    int tile_rows;   /* prefill: queries of a tile */
    int begin, end;  /* prefill: rows of the view in this round */
    bool is_first;   /* prefill: no round was before */
    float *carry;    /* prefill: what rounds hand on */
    int n_splits;    /* decode: most parts of any view */
    int first_split; /* decode in several calls: the parts of this one */
    int end_split;
    int heads_per_task; /* decode: query heads whose parts a task merges */
    float *partial;     /* decode: results of the parts */
} attend_job;

/* One thread's scratch. */
typedef struct tile {
    float *q, *acc;          /* [IG_TILE_ROWS][head_dim] */
    float *scores;           /* [IG_TILE_ROWS][IG_TILE_KEYS] */
    float *m, *l, *r;        /* [IG_TILE_ROWS] */
    const uint16_t **k, **v; /* [IG_TILE_KEYS] */
    /* of packed rows, which are unpacked when their turn comes: keys first, then values in their place */
    ig_kv_packed *packed_k, *packed_v; /* [IG_TILE_KEYS] */
    uint16_t *unpacked;                /* [IG_TILE_KEYS][head_dim] */
    bool direct;                       /* or not at all */
    /* where the level has kernels for prompts: what each query sees, and their scratch */
    int *begin, *end; /* [IG_TILE_ROWS] */
    void *prompt;
} tile;

static size_t tile_layout(tile *t, const ig_kernels *k, uint8_t *base, int head_dim) {
    size_t at = 0, rows = (size_t)IG_TILE_ROWS * (size_t)head_dim * sizeof(float);
    size_t scores = (size_t)IG_TILE_ROWS * IG_TILE_KEYS * sizeof(float);
    size_t line = IG_TILE_ROWS * sizeof(float), pointers = IG_TILE_KEYS * sizeof(void *);
    size_t packed = IG_TILE_KEYS * sizeof(ig_kv_packed);
    t->q = (float *)(void *)(base + at), at += rows;
    t->acc = (float *)(void *)(base + at), at += rows;
    t->scores = (float *)(void *)(base + at), at += scores;
    t->m = (float *)(void *)(base + at), at += line;
    t->l = (float *)(void *)(base + at), at += line;
    t->r = (float *)(void *)(base + at), at += line;
    t->k = (const uint16_t **)(void *)(base + at), at += pointers;
    t->v = (const uint16_t **)(void *)(base + at), at += pointers;
    t->packed_k = (ig_kv_packed *)(void *)(base + at), at += packed;
    t->packed_v = (ig_kv_packed *)(void *)(base + at), at += packed;
    t->unpacked = (uint16_t *)(void *)(base + at), at += IG_TILE_KEYS * (size_t)head_dim * sizeof(uint16_t);
    t->begin = (int *)(void *)(base + at), at += IG_TILE_ROWS * sizeof(int);
    t->end = (int *)(void *)(base + at), at += IG_TILE_ROWS * sizeof(int);
    at = ig_round_up(at, IG_ALIGN);
    t->prompt = base + at, at += k->prompt_bytes ? k->prompt_bytes(head_dim) : 0;
    return at;
}

size_t ig_cpu_attention_thread_bytes(const ig_kernels *k, const ig_head_shape *shape) {
    tile t;
    static uint8_t none;
    return tile_layout(&t, k, &none, shape->head_dim) + IG_ALIGN;
}

/* Decode, a part of a view of one sequence: group x (m, l, acc[head_dim]), and how many rows are in them. */
static size_t part_floats(const ig_head_shape *s) {
    return (size_t)(s->n_heads / s->n_kv_heads) * ((size_t)s->head_dim + 2) + 1;
}

/* Decode: several sequences share the buffer; those that do not fit go in further rounds. */
size_t ig_cpu_attention_partial_floats(const ig_device_need *need) {
    return ig_attend_carry_floats(&need->heads, 0, need->max_entries + 16 * IG_SPLIT);
}

/* Prompts: the chunks of a round, of each KV head. */
size_t ig_cpu_attention_chunk_bytes(const ig_kernels *k, const ig_device_need *need) {
    if (!k->prompt_bytes) return 0;
    size_t rows = (size_t)need->max_entries < ROUND_ROWS ? (size_t)need->max_entries : ROUND_ROWS;
    return (size_t)need->heads.n_kv_heads * ((rows + IG_TILE_KEYS - 1) / IG_TILE_KEYS) *
           k->prompt_chunk_bytes(need->heads.head_dim);
}

size_t ig_cpu_attention_carry_floats(const ig_kernels *k, const ig_device_need *need) {
    if (!k->prompt_bytes || need->max_entries <= ROUND_ROWS) return 0;
    return (size_t)need->max_rows * (size_t)need->heads.n_heads * ((size_t)need->heads.head_dim + 2);
}

static tile thread_tile(ig_cpu_device *d, int thread, int head_dim) {
    tile t;
    tile_layout(&t, d->k, d->thread_scratch + (size_t)thread * d->thread_bytes, head_dim);
    return t;
}

/* Addresses of rows [begin, begin + n) of a view. */
static void resolve(tile *t, const ig_kv_view *view, int begin, int n, int head_dim) {
    size_t n_lines = ig_kv_row_lines(view->type, head_dim);
    for (int i = 0; i < n; i++) {
        int slot = view->index ? view->index[begin + i] : view->first + begin + i;
        const uint8_t *row = ig_kv_view_row(view, slot);
        if (n_lines) {
            const ig_kv_line *lines = ig_kv_view_lines(view, slot);
            /* chosen rows are scattered over three places */
            __builtin_prefetch(lines), __builtin_prefetch(row), __builtin_prefetch(row + view->v_offset);
            t->packed_k[i] = (ig_kv_packed){row, lines};
            t->packed_v[i] = (ig_kv_packed){row + view->v_offset, lines + n_lines};
            t->k[i] = t->v[i] = t->unpacked + (size_t)i * (size_t)head_dim;
            continue;
        }
        t->k[i] = (const uint16_t *)(const void *)row;
        t->v[i] = (const uint16_t *)(const void *)(row + view->v_offset);
    }
}

/* Row r of the queries for view `head`: that of a token and a head of the group, as numbered in [token][head]. */
static size_t query_at(const attend_job *j, int r, int head) {
    return (size_t)(r / j->group) * (size_t)j->shape->n_heads + (size_t)(head * j->group + r % j->group);
}

/* Queries [first, first + n) for view `head`, as its rows want them, to the tile. */
static void take_queries(const attend_job *j, const ig_attention *a, tile *t, int first, int n, int head) {
    size_t d = (size_t)j->shape->head_dim;
    for (int r = 0; r < n; r++) {
        const float *from = a->q + query_at(j, first + r, head) * d;
        const float *scale = a->q_scale ? a->q_scale + (size_t)(head * j->group + (first + r) % j->group) * d : NULL;
        float *to = t->q + (size_t)r * d;
        for (size_t i = 0; i < d; i++) to[i] = scale ? from[i] * scale[i] : from[i];
    }
}

static void reset(tile *t, int rows, int head_dim) {
    memset(t->acc, 0, (size_t)rows * (size_t)head_dim * sizeof(float));
    for (int r = 0; r < rows; r++) {
        t->m[r] = -INFINITY;
        t->l[r] = 0;
    }
}

/* Rows as 16-bit floats, where t->k and t->v point. */
static void unpack(const attend_job *j, tile *t, const ig_kv_view *view, const ig_kv_packed *rows, int n) {
    if (view->type != IG_KV_F16) j->d->k->kv_unpack[view->type](t->unpacked, rows, n, j->shape->head_dim);
}

/* One inner step over keys [begin, begin + n) of the view for `rows` queries: first the scores, which the caller may
 * mask, then (finish_step) softmax and values. */
static void start_step(const attend_job *j, tile *t, const ig_kv_view *view, int begin, int n, int rows) {
    const ig_kernels *k = j->d->k;
    int d = j->shape->head_dim;
    resolve(t, view, begin, n, d);
    t->direct = !j->jobs->prompt && k->packed_scores[view->type];
    if (t->direct) {
        k->packed_scores[view->type](t->scores, IG_TILE_KEYS, t->q, rows, d, j->shape->scale, t->packed_k, n);
    } else {
        unpack(j, t, view, t->packed_k, n);
        k->attn_scores(t->scores, IG_TILE_KEYS, t->q, rows, d, j->shape->scale, t->k, n);
    }
    ig_cap_scores(k, j->jobs->cap, t->scores, IG_TILE_KEYS, rows, n);
}

static void finish_step(const attend_job *j, tile *t, const ig_kv_view *view, int n, int rows) {
    const ig_kernels *k = j->d->k;
    int d = j->shape->head_dim;
    for (int r = 0; r < rows; r++)
        t->r[r] = k->softmax_step(t->scores + (size_t)r * IG_TILE_KEYS, n, &t->m[r], &t->l[r]);
    if (t->direct) {
        k->packed_values[view->type](t->acc, t->r, t->scores, IG_TILE_KEYS, rows, d, t->packed_v, n);
        return;
    }
    unpack(j, t, view, t->packed_v, n);
    k->attn_values(t->acc, t->r, t->scores, IG_TILE_KEYS, rows, d, t->v, n);
}

/* Copies the running sums of `rows` queries to or from memory that outlives the call. */
static void move_state(tile *t, float *carry, int rows, int head_dim, bool out) {
    float *parts[] = {t->m, t->l, t->acc};
    for (int i = 0; i < 3; i++) {
        size_t n = (size_t)rows * (i == 2 ? (size_t)head_dim : 1);
        memcpy(out ? carry : parts[i], out ? parts[i] : carry, n * sizeof(float));
        carry += n;
    }
}

/* What a query head's sink adds to the sum of its exponentials, relative to m. */
static float sink_of(const ig_attention *a, size_t head, float m) {
    return a->sink_scores ? expf(a->sink_scores[head] - m) : 0;
}

/* ---- prefill ------------------------------------------------------------------ */

/* Query r sees no rows of a head's view from this one on, */
static int seen_by(const attend_job *j, int head, int r) {
    return j->jobs->views[head].n - j->jobs->n_tokens + r / j->group + 1;
}

/* and none before this one. */
static int seen_from(const attend_job *j, int head, int r) {
    return ig_window_begin(j->jobs->window, seen_by(j, head, r));
}

/* The first row that query r sees and what comes before it in its chunk. */
static int chunk_seen_from(const attend_job *j, int r) { return seen_from(j, 0, r) / IG_TILE_KEYS * IG_TILE_KEYS; }

/* Query first + r of the tile may not see keys past its own position or before its window. */
static void mask_tile(const attend_job *j, tile *t, int head, int first, int rows, int begin, int n) {
    for (int r = 0; r < rows; r++) {
        int hi = seen_by(j, head, first + r) - begin, lo = seen_from(j, head, first + r) - begin;
        float *s = t->scores + (size_t)r * IG_TILE_KEYS;
        if (hi >= n && lo <= 0) continue;
        for (int c = 0; c < n; c++)
            if (c >= hi || c < lo) s[c] = -INFINITY;
    }
}

/* The steps of queries [first, first + rows) over keys [begin, end) of the view, with the kernels of decode. */
static void prefill_steps(const attend_job *j, tile *t, int head, int first, int rows, int begin, int end) {
    const ig_kv_view *view = &j->jobs->views[head];
    for (; begin < end; begin += IG_TILE_KEYS) {
        int n = end - begin < IG_TILE_KEYS ? end - begin : IG_TILE_KEYS;
        start_step(j, t, view, begin, n, rows);
        mask_tile(j, t, head, first, rows, begin, n);
        finish_step(j, t, view, n, rows);
    }
}

/* Whether the level's own kernels for prompts are used, which know no cap. */
static bool has_prompt_kernels(const attend_job *j) { return j->d->k->prompt_bytes && !(j->jobs->cap > 0); }

/* Where the chunk of a head that begins at row `begin` of the view lies, of this round. */
static uint8_t *chunk_at(const attend_job *j, int head, int begin) {
    size_t per_head = (size_t)((j->end - j->begin + IG_TILE_KEYS - 1) / IG_TILE_KEYS);
    size_t chunk = (size_t)head * per_head + (size_t)((begin - j->begin) / IG_TILE_KEYS);
    return j->d->chunks + chunk * j->d->k->prompt_chunk_bytes(j->shape->head_dim);
}

/* Makes a chunk ready for the level's kernels for prompts. */
static void chunk_task(void *arg, int task, int thread) {
    const attend_job *j = arg;
    const ig_kernels *k = j->d->k;
    int head = task % j->shape->n_kv_heads, begin = j->begin + task / j->shape->n_kv_heads * IG_TILE_KEYS;
    int n = j->end - begin < IG_TILE_KEYS ? j->end - begin : IG_TILE_KEYS, d = j->shape->head_dim;
    const ig_kv_view *view = &j->jobs->views[head];
    tile t = thread_tile(j->d, thread, d);
    resolve(&t, view, begin, n, d);
    unpack(j, &t, view, t.packed_k, n);
    k->prompt_keys(chunk_at(j, head, begin), t.k, n, d);
    unpack(j, &t, view, t.packed_v, n);
    k->prompt_values(chunk_at(j, head, begin), t.v, n, d);
}

/* The same as prefill_steps() with these kernels. */
static void prompt_steps(const attend_job *j, tile *t, int head, int first, int rows, int begin, int end) {
    const ig_kernels *k = j->d->k;
    ig_prompt_tile p = {.n_q = rows,
                        .d = j->shape->head_dim,
                        .q = t->q,
                        .scale = j->shape->scale,
                        .begin = j->jobs->window.n ? t->begin : NULL,
                        .end = t->end,
                        .m = t->m,
                        .l = t->l,
                        .acc = t->acc,
                        .is_coarse = j->jobs->is_coarse,
                        .scratch = t->prompt};
    for (int r = 0; r < rows; r++) t->begin[r] = seen_from(j, 0, first + r), t->end[r] = seen_by(j, 0, first + r);
    k->prompt_begin(&p);
    for (; begin < end; begin += IG_TILE_KEYS) {
        int n = end - begin < IG_TILE_KEYS ? end - begin : IG_TILE_KEYS;
        k->prompt_attend(&p, chunk_at(j, head, begin), begin, n);
    }
    k->prompt_end(&p);
}

/* The result of queries [first, first + rows). */
static void put_result(const attend_job *j, const tile *t, int head, int first, int rows) {
    const ig_attention *a = j->jobs;
    size_t d = (size_t)j->shape->head_dim;
    for (int r = 0; r < rows; r++) {
        size_t at = query_at(j, first + r, head);
        float l = t->l[r] + sink_of(a, at % (size_t)j->shape->n_heads, t->m[r]), *out = a->out + at * d,
              scale = 1.0f / l;
        for (size_t c = 0; c < d; c++) out[c] = t->acc[(size_t)r * d + c] * scale;
        if (a->lse) a->lse[at] = t->m[r] + logf(l);
    }
}

static void prefill_task(void *arg, int task, int thread) {
    const attend_job *j = arg;
    const ig_attention *a = j->jobs;
    int all = a->n_tokens * j->group, n_tiles = (all + j->tile_rows - 1) / j->tile_rows, d = j->shape->head_dim;
    /* The last tiles see the most keys: they go first, so that threads end together. */
    int head = task % j->shape->n_kv_heads, first = (n_tiles - 1 - task / j->shape->n_kv_heads) * j->tile_rows;
    int rows = all - first < j->tile_rows ? all - first : j->tile_rows;
    int begin = j->begin, end = seen_by(j, 0, first + rows - 1), seen = chunk_seen_from(j, first);
    tile t = thread_tile(j->d, thread, d);
    float *carry = j->carry + ((size_t)head * (size_t)all + (size_t)first) * ((size_t)d + 2);

    take_queries(j, a, &t, first, rows, head);
    if (j->is_first)
        reset(&t, rows, d);
    else
        move_state(&t, carry, rows, d, false);
    if (begin < seen) begin = seen;
    if (end > j->end) end = j->end;
    (has_prompt_kernels(j) ? prompt_steps : prefill_steps)(j, &t, head, first, rows, begin, end);
    if (j->end < a->views->n)
        move_state(&t, carry, rows, d, true);
    else
        put_result(j, &t, head, first, rows);
}

/* Queries of a tile: threads that have little to do get smaller ones, as far as the level's kernels share nothing among
 * more than a block of queries. */
static int choose_tile(const attend_job *j) {
    int all = j->jobs->n_tokens * j->group, tasks = 4 * j->d->n_threads;
    int rows = (all * j->shape->n_kv_heads / tasks + IG_PROMPT_BLOCK - 1) / IG_PROMPT_BLOCK * IG_PROMPT_BLOCK;
    if (!has_prompt_kernels(j) || rows > IG_TILE_ROWS) return IG_TILE_ROWS;
    return rows > IG_PROMPT_BLOCK ? rows : IG_PROMPT_BLOCK;
}

/* One sequence's queries over the rows of this call, in rounds. */
static void attend_prompt(attend_job *j) {
    const ig_attention *a = j->jobs;
    int first = chunk_seen_from(j, 0), last = a->views->n, heads = j->shape->n_kv_heads;
    bool in_order = a->rows == IG_ROWS_IN_ORDER;
    if (in_order) first = a->begin, last = a->end;
    j->carry = in_order ? a->carry : j->d->carry;
    j->is_first = !in_order || first == 0;
    j->tile_rows = choose_tile(j);
    int n_tiles = (a->n_tokens * j->group + j->tile_rows - 1) / j->tile_rows;
    int each = has_prompt_kernels(j) ? ROUND_ROWS : last - first;
    for (j->begin = first; j->begin < last; j->begin = j->end, j->is_first = false) {
        j->end = last - j->begin < each ? last : j->begin + each;
        int n_chunks = (j->end - j->begin + IG_TILE_KEYS - 1) / IG_TILE_KEYS;
        if (has_prompt_kernels(j)) ig_pool_run(j->d->pool, n_chunks * heads, chunk_task, j);
        ig_pool_run(j->d->pool, n_tiles * heads, prefill_task, j);
    }
}

/* ---- decode ------------------------------------------------------------------- */

/* Most parts of any view. */
static int count_splits(const ig_head_shape *s, const ig_attention *a) {
    int n = 1;
    for (int h = 0; h < s->n_kv_heads; h++) {
        int parts = (a->views[h].n + IG_SPLIT - 1) / IG_SPLIT;
        if (parts > n) n = parts;
    }
    return n;
}

/* Where (job, head, part)'s sums lie: group x m, group x l, group x head_dim, and the number of rows in them. */
static float *partial_at(const attend_job *j, int job, int head, int part) {
    const ig_attention *a = &j->jobs[job];
    bool own = a->rows != IG_ROWS_ALL;
    size_t n = (size_t)(own ? count_splits(j->shape, a) : j->n_splits), heads = (size_t)j->shape->n_kv_heads;
    size_t first = own ? 0 : (size_t)job * heads * n;
    return (own ? a->carry : j->partial) + (first + (size_t)head * n + (size_t)part) * part_floats(j->shape);
}

/* Whether the blocks of rows [begin, begin + n) of a view are in memory. */
static bool are_there(const ig_kv_view *view, int begin, int n) {
    for (int i = begin; i < begin + n; i++)
        if (!view->blocks[ig_kv_view_block(view, view->index ? view->index[i] : view->first + i)]) return false;
    return true;
}

static void decode_task(void *arg, int task, int thread) {
    const attend_job *j = arg;
    int n_parts = j->end_split - j->first_split, d = j->shape->head_dim, group = j->group;
    int part = j->first_split + task % n_parts, head = task / n_parts % j->shape->n_kv_heads;
    int job = task / n_parts / j->shape->n_kv_heads;
    const ig_attention *a = &j->jobs[job];
    const ig_kv_view *view = &a->views[head];
    int begin = part * IG_SPLIT, end = begin + IG_SPLIT < view->n ? begin + IG_SPLIT : view->n;
    if (begin >= view->n) return;
    float *sums = partial_at(j, job, head, part), *n_done = sums + part_floats(j->shape) - 1;
    int done = a->rows == IG_ROWS_LEFT ? (int)*n_done : 0;
    if (begin + done == end) return;
    tile t = thread_tile(j->d, thread, d);
    take_queries(j, a, &t, 0, group, head);
    if (done)
        move_state(&t, sums, group, d, false);
    else
        reset(&t, group, d);
    for (int n; begin + done < end; done += n) {
        n = end - begin - done < IG_TILE_KEYS ? end - begin - done : IG_TILE_KEYS;
        if (a->rows == IG_ROWS_THERE && !are_there(view, begin + done, n)) break;
        start_step(j, &t, view, begin + done, n, group);
        finish_step(j, &t, view, n, group);
    }
    move_state(&t, sums, group, d, true);
    *n_done = (float)done;
}

/* Joins the parts of one query head: out = sum_p acc_p e^(m_p - m) / (sum_p l_p e^(m_p - m) + e^(sink - m)). */
static void merge_head(const attend_job *j, int job, int head, int g, float *out, float *lse) {
    int d = j->shape->head_dim, n = (j->jobs[job].views[head].n + IG_SPLIT - 1) / IG_SPLIT;
    float m = -INFINITY, l = 0;
    for (int p = 0; p < n; p++) {
        float mp = partial_at(j, job, head, p)[g];
        if (mp > m) m = mp;
    }
    memset(out, 0, (size_t)d * sizeof(float));
    for (int p = 0; p < n; p++) {
        const float *part = partial_at(j, job, head, p);
        const float *acc = part + 2 * j->group + (size_t)g * (size_t)d;
        float w = expf(part[g] - m);
        l += part[j->group + g] * w;
        for (int c = 0; c < d; c++) out[c] += acc[c] * w;
    }
    l += sink_of(&j->jobs[job], (size_t)(head * j->group + g), m);
    for (int c = 0; c < d; c++) out[c] /= l;
    if (lse) *lse = m + logf(l);
}

static void run_parts(attend_job *j) {
    int n_parts = j->end_split - j->first_split;
    ig_pool_run(j->d->pool, j->n_jobs * j->shape->n_kv_heads * n_parts, decode_task, j);
}

/* Adds what query head h does not read. */
static void add_rest(const ig_attention *a, int h, int d, float *out) {
    const float *rest = a->rest + (size_t)h * (size_t)d;
    float share = a->rest_share[h];
    if (share == 0) return;
    for (int c = 0; c < d; c++) out[c] = (1 - share) * out[c] + rest[c];
}

/* Some query heads of the jobs, counted through. */
static void merge_task(void *arg, int task, int thread) {
    const attend_job *j = arg;
    int n_heads = j->shape->n_heads, all = j->n_jobs * n_heads, end = (task + 1) * j->heads_per_task;
    (void)thread;
    for (int i = task * j->heads_per_task; i < end && i < all; i++) {
        int job = i / n_heads, h = i % n_heads;
        const ig_attention *a = &j->jobs[job];
        float *out = a->out + (size_t)h * (size_t)j->shape->head_dim;
        if (a->rows == IG_ROWS_THERE) continue;
        merge_head(j, job, h / j->group, h % j->group, out, a->lse ? a->lse + h : NULL);
        if (a->rest) add_rest(a, h, j->shape->head_dim, out);
    }
}

/* Few parts are merged on the calling thread. */
static void merge_parts(attend_job *j) {
    int all = j->n_jobs * j->shape->n_heads, tasks = 4 * j->d->n_threads;
    if ((size_t)all * (size_t)j->end_split * (size_t)j->shape->head_dim < MERGE_ALONE) tasks = 1;
    j->heads_per_task = (all + tasks - 1) / tasks;
    tasks = (all + j->heads_per_task - 1) / j->heads_per_task;
    if (tasks == 1)
        merge_task(j, 0, 0);
    else
        ig_pool_run(j->d->pool, tasks, merge_task, j);
}

/* One sequence whose rows come in several calls, in order. */
static void decode_in_order(attend_job *j) {
    const ig_attention *a = j->jobs;
    j->n_jobs = 1;
    j->first_split = a->begin / IG_SPLIT;
    j->end_split = (a->end + IG_SPLIT - 1) / IG_SPLIT;
    run_parts(j);
    if (a->end == a->views[0].n) merge_parts(j);
}

void ig_cpu_attend(ig_device *dev, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs) {
    ig_cpu_device *d = (ig_cpu_device *)dev;
    attend_job j = {.d = d, .shape = shape, .group = shape->n_heads / shape->n_kv_heads};
    size_t each = (size_t)shape->n_kv_heads * part_floats(shape);
    pthread_mutex_lock(&d->turn);
    for (int i = 0; i < n_jobs;) {
        j.jobs = jobs + i;
        if (jobs[i].prompt) {
            j.n_jobs = 1;
            attend_prompt(&j);
            i++;
            continue;
        }
        if (jobs[i].rows == IG_ROWS_IN_ORDER) {
            decode_in_order(&j);
            i++;
            continue;
        }
        /* As many single-token sequences as the partials have room for. */
        j.n_jobs = j.first_split = 0;
        j.n_splits = 1;
        j.partial = d->partial;
        while (i < n_jobs && !jobs[i].prompt && jobs[i].rows != IG_ROWS_IN_ORDER) {
            int splits = count_splits(shape, &jobs[i]);
            if (splits < j.n_splits) splits = j.n_splits;
            if (j.n_jobs && (size_t)(j.n_jobs + 1) * (size_t)splits * each > d->partial_floats) break;
            j.n_splits = splits;
            j.n_jobs++;
            i++;
        }
        j.end_split = j.n_splits;
        run_parts(&j);
        merge_parts(&j);
    }
    pthread_mutex_unlock(&d->turn);
}

/* ---- weights ------------------------------------------------------------------ */

typedef struct weigh_job {
    attend_job base;
    int begin, end;
    float *weights;
    size_t stride;
} weigh_job;

/* One KV head and IG_TILE_KEYS rows of its view, over all queries. */
static void weigh_task(void *arg, int task, int thread) {
    const weigh_job *w = arg;
    const attend_job *j = &w->base;
    const ig_attention *a = j->jobs;
    const ig_head_shape *shape = j->shape;
    const ig_kernels *k = j->d->k;
    int head = task % shape->n_kv_heads, begin = w->begin + task / shape->n_kv_heads * IG_TILE_KEYS,
        d = shape->head_dim;
    const ig_kv_view *view = &a->views[head];
    int end = w->end < view->n ? w->end : view->n;
    int n = end - begin < IG_TILE_KEYS ? end - begin : IG_TILE_KEYS;
    if (n <= 0) return;
    float *sum = w->weights + (size_t)head * w->stride + begin;
    tile t = thread_tile(j->d, thread, d);
    for (int first = 0, all = a->n_tokens * j->group; first < all; first += IG_TILE_ROWS) {
        int rows = all - first < IG_TILE_ROWS ? all - first : IG_TILE_ROWS;
        if (seen_by(j, head, first + rows - 1) <= begin) continue; /* all before these keys */
        take_queries(j, a, &t, first, rows, head);
        for (int r = 0; r < rows; r++) t.m[r] = a->lse[query_at(j, first + r, head)];
        start_step(j, &t, view, begin, n, rows);
        mask_tile(j, &t, head, first, rows, begin, n);
        for (int r = 0; r < rows; r++) {
            float *s = t.scores + (size_t)r * IG_TILE_KEYS;
            t.l[r] = 0;
            k->softmax_step(s, n, &t.m[r], &t.l[r]); /* lse is the largest, but for rounding */
            k->add(sum, s, n);
        }
    }
}

void ig_cpu_weigh(ig_device *dev, const ig_head_shape *shape, const ig_attention *job, int begin, int end,
                  float *weights, size_t stride) {
    ig_cpu_device *d = (ig_cpu_device *)dev;
    int group = shape->n_heads / shape->n_kv_heads;
    weigh_job w = {.base = {.d = d, .shape = shape, .jobs = job, .n_jobs = 1, .group = group},
                   .begin = begin,
                   .end = end,
                   .weights = weights,
                   .stride = stride};
    pthread_mutex_lock(&d->turn);
    int n_chunks = (end - begin + IG_TILE_KEYS - 1) / IG_TILE_KEYS;
    ig_pool_run(d->pool, n_chunks * shape->n_kv_heads, weigh_task, &w);
    pthread_mutex_unlock(&d->turn);
}
