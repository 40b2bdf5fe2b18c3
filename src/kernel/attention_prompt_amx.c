/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of a prompt's queries, AMX: tiles of bfloat16, whose products are added up in 32-bit floats. Keys, values,
 * queries and weights are sums of two of these, high + low, which 16-bit floats are without loss; the product of the
 * two low parts is left out.
 *
 * Coarse tiles take the high parts alone, as the products with quantised weights do (matmul_amx.c), but of keys both:
 * biases make some models' keys alike but for small differences, which would be lost. What rounding a query does to
 * what keys have in common changes all its scores alike, and so nothing.
 *
 * A column of a tile is a query throughout, so that no query sees its neighbours. For a block of queries and a chunk of
 * keys: scores, softmax, and values.
 */
#include "kernel/vectors_avx512.h"

#include "kernel/attention_block.h"
#include "kernel/lanes_avx512.h"
#include "kernel/tiles_amx.h"

/* Products are made of operands of 32 rows, in steps of 32 elements: dims of keys and queries, or keys of values and
 * weights. A step of an operand is four tiles: two in one plane and two in the other. */
enum {
    STEP = GROUP,
    STEP_BYTES = 4 * TILE_BYTES,
    PLANE_BYTES = 2 * TILE_BYTES,
    KEY_STEPS = IG_PROMPT_KEYS / STEP,
};

#define LOG2_E 0x1.715476p0f

/* How a tile's scratch is used; dims are rounded up to whole steps. */
typedef struct work {
    char *q;              /* [blocks][steps of dims][high, low][VECTORS] tiles: [16 pairs of dims][16 queries][2] */
    float *acc;           /* [blocks][dims][LANES] */
    float *m, *l;         /* [queries] */
    int32_t *begin, *end; /* [queries] */
    float *s[2];          /* [keys][LANES] scores of a block and of the next */
    char *w; /* [steps of keys][high, low][VECTORS] its weights, tiles: [16 pairs of keys][16 queries][2] */
} work;

/* How a chunk of rows lies in memory. */
typedef struct chunk {
    char *k; /* [keys / 32][steps of dims][high, low][2] tiles: [16 keys][32 dims] */
    char *v; /* [dims / 32][steps of keys][high, low][2] tiles: [16 dims][32 keys] */
} chunk;

static size_t steps_of(int d) { return ((size_t)d + STEP - 1) / STEP; }

/* Bytes of a chunk's keys, or of its values. */
static size_t side_bytes(int d) { return KEY_STEPS * steps_of(d) * STEP_BYTES; }

static size_t layout(work *w, uint8_t *base, int d) {
    const size_t steps = steps_of(d), queries = IG_PROMPT_QUERIES;
    size_t at = 0;
    w->q = take(base, &at, queries / LANES * steps * STEP_BYTES / 4);
    w->acc = take(base, &at, queries * steps * STEP);
    w->m = take(base, &at, queries);
    w->l = take(base, &at, queries);
    w->begin = take(base, &at, queries);
    w->end = take(base, &at, queries);
    for (int i = 0; i < 2; i++) w->s[i] = take(base, &at, IG_PROMPT_KEYS * LANES);
    w->w = take(base, &at, KEY_STEPS * STEP_BYTES / 4);
    return at;
}

static size_t prompt_bytes_amx(int d) {
    work w;
    static uint8_t none;
    return layout(&w, &none, d);
}

static work work_of(const ig_prompt_tile *t) {
    work w;
    layout(&w, t->scratch, t->d);
    return w;
}

static size_t prompt_chunk_bytes_amx(int d) { return 2 * side_bytes(d); }

static chunk chunk_of(void *rows, int d) { return (chunk){rows, (char *)rows + side_bytes(d)}; }

/* ---- keys and values ------------------------------------------------------------------------ */

/* 32 numbers in two planes. */
typedef struct planes {
    __m512i high, low;
} planes;

INLINE planes split(__m512 first, __m512 second) {
    __m512i high = to_bf16(first, second);
    return (planes){high, rest_of(first, second, high)};
}

/* A row of a tile. */
INLINE void put_row(char *to, planes p) {
    _mm512_store_si512(to, p.high);
    _mm512_store_si512(to + PLANE_BYTES, p.low);
}

static void prompt_keys_amx(void *rows, const uint16_t *const *k, int n, int d) {
    const size_t steps = steps_of(d);
    const chunk c = chunk_of(rows, d);
    for (int i = 0; i < whole_groups(n); i++) {
        char *to = c.k + (size_t)i / 32 * steps * STEP_BYTES + (size_t)i % 32 * 64;
        for (int j = 0; j < d; j += STEP, to += STEP_BYTES) {
            planes p = {_mm512_setzero_si512(), _mm512_setzero_si512()};
            if (i < n)
                p = split(load_f16_first(lanes_left(d - j), k[i] + j),
                          load_f16_first(lanes_left(d - j - 16), k[i] + j + 16));
            put_row(to, p);
        }
    }
}

/* 32 rows from row i and 16 dims from dim j, with zeros for what is beyond n and d, to tiles of both planes. */
static void put_values(char *to, const uint16_t *const *v, int i, int n, int j, int d) {
    __m512i high[16], low[16];
    for (int r = 0; r < 16; r++) {
        __m512 x[2];
        for (int e = 0; e < 2; e++) {
            bool is_there = i + 2 * r + e < n;
            x[e] = load_f16_first(is_there ? lanes_left(d - j) : 0, is_there ? v[i + 2 * r + e] + j : v[i]);
        }
        planes p = split(x[0], x[1]);
        high[r] = interleave(p.high), low[r] = interleave(p.low);
    }
    transpose16(high), transpose16(low);
    for (int r = 0; r < 16; r++) put_row(to + 64 * r, (planes){high[r], low[r]});
}

static void prompt_values_amx(void *rows, const uint16_t *const *v, int n, int d) {
    const chunk c = chunk_of(rows, d);
    for (int i = 0; i < n; i += STEP)
        for (int j = 0; j < (int)steps_of(d) * STEP; j += 16)
            put_values(c.v + (size_t)(j / 32 * KEY_STEPS + i / STEP) * STEP_BYTES + (size_t)(j / 16 % 2) * TILE_BYTES,
                       v, i, n, j, d);
}

/* ---- queries and running sums ---------------------------------------------------------------- */

/* Query number r of the tile's lanes: those that are left over do as the last query does. */
INLINE size_t query_of(const ig_prompt_tile *t, int r) { return (size_t)(r < t->n_q ? r : t->n_q - 1); }

/* 32 dims of 16 queries, from lane r and dim j, to tiles of both planes. */
static void put_queries(char *to, const ig_prompt_tile *t, int r, int j) {
    __m512i high[16], low[16];
    const __m512 scale = _mm512_set1_ps(t->scale);
    for (int i = 0; i < 16; i++) {
        const float *q = t->q + query_of(t, r + i) * (size_t)t->d + j;
        planes p = split(_mm512_mul_ps(_mm512_maskz_loadu_ps(lanes_left(t->d - j), q), scale),
                         _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes_left(t->d - j - 16), q + 16), scale));
        high[i] = p.high, low[i] = p.low;
    }
    transpose16(high), transpose16(low);
    for (int i = 0; i < 16; i++) put_row(to + 64 * i, (planes){high[i], low[i]});
}

/* Sums of 16 queries and 16 dims, from lane r and dim j, between [queries][d] and [dims][LANES]. */
INLINE void move_sums(const ig_prompt_tile *t, float *acc, int r, int j, const bool out) {
    const __mmask16 dims = lanes_left(t->d - j);
    __m512i x[16];
    acc += (size_t)j * LANES;
    for (int i = 0; i < 16; i++)
        x[i] = out ? _mm512_load_si512(acc + i * LANES)
                   : _mm512_maskz_loadu_epi32(dims, t->acc + query_of(t, r + i) * (size_t)t->d + j);
    transpose16(x);
    for (int i = 0; i < 16; i++)
        if (!out)
            _mm512_store_si512(acc + i * LANES, x[i]);
        else if (r + i < t->n_q)
            _mm512_mask_storeu_epi32(t->acc + (size_t)(r + i) * (size_t)t->d + j, dims, x[i]);
}

/* The sums of the vector of lanes that begins with lane r. */
static float *sums_of(const work *w, size_t steps, int r) {
    return w->acc + (size_t)(r / LANES) * steps * STEP * LANES + r % LANES;
}

static void prompt_begin_amx(const ig_prompt_tile *t) {
    const size_t steps = steps_of(t->d);
    const int n_dims = (int)steps * STEP;
    const work w = work_of(t);
    for (int r = 0; r < blocks_of(t) * LANES; r++) {
        w.begin[r] = t->begin ? t->begin[query_of(t, r)] : 0;
        w.end[r] = t->end[query_of(t, r)];
        w.m[r] = t->m[query_of(t, r)];
        w.l[r] = t->l[query_of(t, r)];
    }
    for (int r = 0; r < blocks_of(t) * LANES; r += WIDTH) {
        char *to = w.q + (size_t)(r / LANES) * steps * STEP_BYTES + (size_t)(r % LANES / WIDTH) * TILE_BYTES;
        for (int j = 0; j < n_dims; j += STEP, to += STEP_BYTES) put_queries(to, t, r, j);
        for (int j = 0; j < n_dims; j += 16) move_sums(t, sums_of(&w, steps, r), r, j, false);
    }
}

static void prompt_end_amx(const ig_prompt_tile *t) {
    const size_t steps = steps_of(t->d);
    const work w = work_of(t);
    memcpy(t->m, w.m, (size_t)t->n_q * sizeof(float));
    memcpy(t->l, w.l, (size_t)t->n_q * sizeof(float));
    for (int r = 0; r < t->n_q; r += WIDTH)
        for (int j = 0; j < t->d; j += 16) move_sums(t, sums_of(&w, steps, r), r, j, true);
}

/* ---- a block and a chunk -------------------------------------------------------------- */

/* A block of queries and the keys of a chunk that any of them sees. */
typedef struct block {
    const char *q;
    const int32_t *begin, *end; /* no begin: all from 0 on */
    float *m, *l, *acc, *s;
    size_t steps;   /* of dims */
    int first;      /* row of the view that is the chunk's first */
    int n_vectors;  /* of queries: 1 or 2, or 0 where there is nothing to see */
    int n_groups;   /* of keys */
    bool is_masked; /* some query does not see all of the keys */
    bool is_coarse;
} block;

/* Which parts are multiplied: the high ones, those of rows with the high one of columns, or all but both low ones. */
typedef enum parts { HIGH, ROWS, ALL } parts;

INLINE void multiply_tiles(const bool two) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(2, 5, 6);
    if (two) {
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* n steps of two operands, of the second only the first tiles if not `two`: adds to tiles 0 to 3, [row][column]. */
INLINE void multiply_parts(const char *rows, const char *columns, size_t n, const bool two, const parts which) {
    for (size_t i = 0; i < n; i++, rows += STEP_BYTES, columns += STEP_BYTES) {
        _tile_loadd(6, columns, 64);
        if (two) _tile_loadd(7, columns + TILE_BYTES, 64);
        if (which != HIGH) {
            _tile_loadd(4, rows + PLANE_BYTES, 64);
            _tile_loadd(5, rows + PLANE_BYTES + TILE_BYTES, 64);
            multiply_tiles(two);
        }
        _tile_loadd(4, rows, 64);
        _tile_loadd(5, rows + TILE_BYTES, 64);
        multiply_tiles(two);
        if (which != ALL) continue;
        _tile_loadd(6, columns + PLANE_BYTES, 64);
        if (two) _tile_loadd(7, columns + PLANE_BYTES + TILE_BYTES, 64);
        multiply_tiles(two);
    }
}

INLINE void multiply(const char *rows, const char *columns, size_t n, const bool two, parts which) {
    if (which == HIGH)
        multiply_parts(rows, columns, n, two, HIGH);
    else if (which == ROWS)
        multiply_parts(rows, columns, n, two, ROWS);
    else
        multiply_parts(rows, columns, n, two, ALL);
}

/* Tiles 0 to 3 as [32][LANES] numbers. */
enum { SUMS_STRIDE = LANES * sizeof(float), SUMS_BELOW = 16 * LANES };

INLINE void load_sums(const float *sums, const bool two) {
    _tile_loadd(0, sums, SUMS_STRIDE);
    _tile_loadd(2, sums + SUMS_BELOW, SUMS_STRIDE);
    if (!two) return;
    _tile_loadd(1, sums + WIDTH, SUMS_STRIDE);
    _tile_loadd(3, sums + SUMS_BELOW + WIDTH, SUMS_STRIDE);
}

INLINE void store_sums(float *sums, const bool two) {
    _tile_stored(0, sums, SUMS_STRIDE);
    _tile_stored(2, sums + SUMS_BELOW, SUMS_STRIDE);
    if (!two) return;
    _tile_stored(1, sums + WIDTH, SUMS_STRIDE);
    _tile_stored(3, sums + SUMS_BELOW + WIDTH, SUMS_STRIDE);
}

INLINE void clear_sums(void) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

/* Scores of group number g of the keys. */
INLINE void scores(const block *b, const chunk *c, int g) {
    settle(b->q);
    clear_sums();
    multiply(c->k + (size_t)g * b->steps * STEP_BYTES, b->q, b->steps, b->n_vectors == 2, b->is_coarse ? ROWS : ALL);
    store_sums(b->s + g * GROUP * LANES, b->n_vectors == 2);
    settle(b->s);
}

INLINE void values(const block *b, const work *w, const chunk *c) {
    settle(w->w);
    for (size_t j = 0; j < b->steps; j++) {
        float *sums = b->acc + j * STEP * LANES;
        load_sums(sums, b->n_vectors == 2);
        multiply(c->v + j * KEY_STEPS * STEP_BYTES, w->w, (size_t)b->n_groups, b->n_vectors == 2,
                 b->is_coarse ? HIGH : ALL);
        store_sums(sums, b->n_vectors == 2);
    }
    settle(b->acc);
}

/* 2^x, x at most about 0: 2^floor(x) and a polynomial in the rest, which is 1 for 0, to 3e-6, or to 1.5e-4, a tenth of
 * what rounding to bfloat16 costs. NaN stays NaN. */
INLINE __m512 exp2_weight(__m512 x, const bool is_coarse) {
    static const float fine[] = {0x1.b7f734p-7f, 0x1.abf868p-5f, 0x1.ee2452p-3f, 0x1.62d6c6p-1f, 1};
    static const float coarse[] = {0x1.456320p-4f, 0x1.cbc3b0p-3f, 0x1.6462b8p-1f, 1};
    const float *factor = is_coarse ? coarse : fine;
    __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), p = _mm512_set1_ps(factor[0]);
    for (int i = 1; i < (is_coarse ? 4 : 5); i++) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(factor[i]));
    return _mm512_scalef_ps(p, x);
}

/* The largest score of each lane of vector v, or `top`. Scores of rows that a query does not see become -INFINITY. */
INLINE __m512 top_score(const block *b, int v, __m512 top, const bool is_masked) {
    enum { EACH = 4 };
    __m512 tops[EACH] = {top, top, top, top};
    float *s = b->s + v * WIDTH;
    for (int i = 0; i < b->n_groups * GROUP; i += EACH, s += EACH * LANES)
        for (int j = 0; j < EACH; j++) {
            __m512 x = _mm512_load_ps(s + j * LANES);
            if (is_masked) {
                x = hide(x, b->begin ? b->begin + v * WIDTH : NULL, b->end + v * WIDTH, b->first + i + j);
                _mm512_store_ps(s + j * LANES, x);
            }
            tops[j] = larger(x, tops[j]);
        }
    return larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]));
}

/* The softmax of a vector under way: weights are e^(s - top), and l the sum of them; what was summed before this chunk
 * is to be multiplied by `factor`. */
typedef struct softmax {
    __m512 top, factor, l;
} softmax;

/* Of a score and the largest. The difference comes first: it is 0 for that one, however large they are. */
INLINE __m512 weight_of(__m512 s, __m512 top, const bool is_coarse) {
    return exp2_weight(_mm512_mul_ps(_mm512_sub_ps(s, top), _mm512_set1_ps(LOG2_E)), is_coarse);
}

INLINE softmax begin_softmax(const block *b, int v) {
    const __m512 least = _mm512_set1_ps(-0x1p100f);
    float *m = b->m + v * WIDTH;
    __m512 old = _mm512_load_ps(m), top = b->is_masked ? top_score(b, v, old, true) : top_score(b, v, old, false);
    _mm512_store_ps(m, top);
    softmax x = {.top = larger(top, least)};
    x.factor = weight_of(old, x.top, false);
    x.l = _mm512_mul_ps(_mm512_load_ps(b->l + v * WIDTH), x.factor);
    return x;
}

/* The upper halves of two rows' numbers, in pairs. */
INLINE __m512i upper_pairs(__m512 first, __m512 second) {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(_mm512_castps_si512(first), 16),
                                   _mm512_castps_si512(second));
}

INLINE __m512 without_upper(__m512 x) { return _mm512_sub_ps(x, upper_half(_mm512_castps_si512(x))); }

/* Weights of vector v and group number g. */
INLINE void weights(const block *b, const work *w, int v, int g, softmax *x, const bool is_coarse) {
    const float *s = b->s + g * GROUP * LANES + v * WIDTH;
    char *to = w->w + g * STEP_BYTES + v * TILE_BYTES;
    for (int i = 0; i < GROUP; i += 2, s += 2 * LANES, to += 64) {
        __m512 first = weight_of(_mm512_load_ps(s), x->top, is_coarse),
               second = weight_of(_mm512_load_ps(s + LANES), x->top, is_coarse);
        x->l = _mm512_add_ps(x->l, _mm512_add_ps(first, second));
        if (is_coarse)
            _mm512_store_si512(to, interleave(to_bf16(first, second)));
        else
            put_row(to, (planes){upper_pairs(first, second), upper_pairs(without_upper(first), without_upper(second))});
    }
}

INLINE void end_softmax(const block *b, int v, const softmax *x) {
    _mm512_store_ps(b->l + v * WIDTH, x->l);
    if (!_mm512_cmp_ps_mask(x->factor, _mm512_set1_ps(1), _CMP_NEQ_UQ)) return;
    float *acc = b->acc + v * WIDTH;
    for (size_t j = 0; j < b->steps * STEP; j++, acc += LANES)
        _mm512_store_ps(acc, _mm512_mul_ps(_mm512_load_ps(acc), x->factor));
}

/* Adds the chunk to the sums of a block whose scores are there. Those of the next are made meanwhile: tiles and vectors
 * are units of their own. */
static void attend_block(const block *b, const block *next, const work *w, const chunk *c) {
    softmax x[VECTORS];
    for (int v = 0; v < b->n_vectors; v++) x[v] = begin_softmax(b, v);
    for (int g = 0; g < b->n_groups || g < next->n_groups; g++) {
        if (g < next->n_groups) scores(next, c, g);
        for (int v = 0; v < b->n_vectors && g < b->n_groups; v++)
            if (b->is_coarse)
                weights(b, w, v, g, &x[v], true);
            else
                weights(b, w, v, g, &x[v], false);
    }
    for (int v = 0; v < b->n_vectors; v++) end_softmax(b, v, &x[v]);
    values(b, w, c);
}

/* The block that begins with query number i, if there is one. */
static block block_at(const ig_prompt_tile *t, const work *w, int i, int first, int n) {
    if (i >= t->n_q) return (block){0};
    const size_t steps = steps_of(t->d);
    const int32_t *begin = t->begin ? w->begin + i : NULL;
    const seen rows = see(begin, w->end + i, first, n);
    return (block){.q = w->q + (size_t)i / LANES * steps * STEP_BYTES,
                   .begin = begin,
                   .end = w->end + i,
                   .m = w->m + i,
                   .l = w->l + i,
                   .acc = w->acc + (size_t)i * steps * STEP,
                   .s = w->s[i / LANES % 2],
                   .steps = steps,
                   .first = first,
                   .n_groups = rows.n / GROUP,
                   .n_vectors = !rows.n              ? 0
                                : t->n_q - i > WIDTH ? 2
                                                     : 1,
                   .is_masked = rows.is_masked,
                   .is_coarse = t->is_coarse};
}

static void prompt_attend_amx(const ig_prompt_tile *t, void *rows, int first, int n) {
    const work w = work_of(t);
    const chunk c = chunk_of(rows, t->d);
    block b = {0}, next = {0};
    set_whole_tiles();
    for (int i = -LANES; i < t->n_q; i += LANES) {
        b = next;
        next = block_at(t, &w, i + LANES, first, n);
        attend_block(&b, &next, &w, &c);
    }
    _tile_release();
}

void ig_kernels_fill_prompt_amx(ig_kernels *k) {
    k->prompt_bytes = prompt_bytes_amx;
    k->prompt_chunk_bytes = prompt_chunk_bytes_amx;
    k->prompt_begin = prompt_begin_amx;
    k->prompt_keys = prompt_keys_amx;
    k->prompt_values = prompt_values_amx;
    k->prompt_attend = prompt_attend_amx;
    k->prompt_end = prompt_end_amx;
}
