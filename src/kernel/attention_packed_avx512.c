/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of few queries straight from packed keys and values, for AVX-512.
 *
 * With x = step c + min in each group, scores are step sum(q c) + min sum(q), and values are sum(p step c) + sum(p
 * min): codes only have to become floats, which costs no more than 16-bit floats do, and the lines of a row are used
 * once per query. For scores, codes of 4 bits or fewer look x up instead among the 16 that there are at most. Tiles,
 * and the order of operations on a (query, key) or (query, dim), are as in attention_avx512.c and do not depend on the
 * rest of the call.
 */
#include <string.h>

#include "kernel/attention_avx512.h"
#include "kernel/packed.h"
#include "kernel/parts.h"

enum {
    AHEAD = 32,      /* rows from the one in use to the one prefetched */
    BLOCK_ROWS = 64, /* rows used for all queries before the next */
    GROUPS = IG_KV_DIMS / IG_KV_GROUP
};

/* The lines of a block of rows, by group. */
typedef struct block_lines {
    _Alignas(64) float step[GROUPS][BLOCK_ROWS], min[GROUPS][BLOCK_ROWS];
} block_lines;

/* What lies beyond row n up to a whole vector is as row n - 1. */
static void read_lines(block_lines *b, const ig_kv_packed *rows, int n, int d) {
    for (int group = 0; group * IG_KV_GROUP < d; group++) {
        _Alignas(64) uint32_t raw[BLOCK_ROWS];
        for (int i = 0; i < n; i++) memcpy(&raw[i], &rows[i].lines[group], sizeof *raw);
        for (int i = n; i % 16; i++) raw[i] = raw[n - 1];
        for (int i = 0; i < n; i += 16) {
            __m512i x = _mm512_load_si512(raw + i);
            _mm512_store_ps(b->step[group] + i, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)));
            _mm512_store_ps(b->min[group] + i, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16))));
        }
    }
}

/* Always inlined: calls of a function that does nothing but prefetch are dropped by GCC as without effect. */
INLINE void prefetch_row(const ig_kv_packed *row, int bytes) {
    for (int i = 0; i < bytes; i += 64) fetch_line(row->codes + i);
    fetch_line(row->lines);
}

INLINE void prefetch_rows(const ig_kv_packed *rows, int n, int bytes) {
    for (int i = 0; i < n; i++) prefetch_row(&rows[i], bytes);
}

/* ---- the vectors of a group: 16 codes each -------------------------------------------
 *
 * Codes lie in stretches of consecutive dims: of 8 bits and of 1 bit all of a group in one, of 4 bits in two and of 2
 * bits in four, which share their bytes. A load takes 16 codes of each stretch. */

INLINE int n_parts(int bits) { return bits == 1 ? 1 : 8 / bits; }
INLINE int stretch(int bits, int size) { return size / n_parts(bits); }
INLINE int n_loads(int bits, int size) { return (stretch(bits, size) + 15) / 16; }

INLINE __mmask16 lanes_of(int bits, int size, int load) {
    int left = stretch(bits, size) - 16 * load;
    return left >= 16 ? 0xffff : first_lanes(left);
}

INLINE __m512i load_codes(const uint8_t *codes, int bits, int size, int load) {
    if (bits == 1) {
        uint16_t lanes = codes[2 * load];
        if (size - 16 * load >= 16) memcpy(&lanes, codes + 2 * load, sizeof lanes);
        return _mm512_maskz_set1_epi32(lanes, 1);
    }
    if (stretch(bits, size) % 16 == 0)
        return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(codes + 16 * load)));
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes_of(bits, size, load), codes + 16 * load));
}

/* Those of a stretch lowest, with others' above. */
INLINE __m512i codes_of(__m512i c, int bits, int part) { return _mm512_srli_epi32(c, (unsigned)(bits * part)); }

INLINE __m512 load_dims(const float *x, int bits, int size, int load) {
    return stretch(bits, size) % 16 == 0 ? _mm512_loadu_ps(x + 16 * load)
                                         : _mm512_maskz_loadu_ps(lanes_of(bits, size, load), x + 16 * load);
}

/* ---- scores -------------------------------------------------------------------- */

typedef struct scores_job {
    const float *q;
    int d;
    __m512 scale;
    __m512 sums[GROUPS][TILE]; /* of the queries' dims, by group, in 16 parts */
} scores_job;

static void sum_queries(scores_job *w, int n_q) {
    for (int g = 0; g < n_q; g++)
        for (int j = 0; j < w->d; j += IG_KV_GROUP) {
            __m512 sum = _mm512_setzero_ps();
            int size = ig_packed_group(j, w->d);
            const float *x = w->q + (size_t)g * (size_t)w->d + j;
            for (int i = 0; i < n_loads(8, size); i++) sum = _mm512_add_ps(sum, load_dims(x, 8, size, i));
            w->sums[j / IG_KV_GROUP][g] = sum;
        }
}

INLINE void multiply(__m512 acc[TILE * TILE], const float *q, int n_q, int d, const __m512 k[TILE], int bits, int size,
                     int load) {
    for (int g = 0; g < n_q; g++) {
        __m512 x = load_dims(q + (size_t)g * (size_t)d, bits, size, load);
        for (int i = 0; i < TILE; i++) acc[TILE * g + i] = _mm512_fmadd_ps(x, k[i], acc[TILE * g + i]);
    }
}

/* Adds to acc the products of n_q queries with a group of 4 keys, in 16 parts each. */
INLINE void multiply_q8(__m512 total[TILE * TILE], const float *q, int n_q, int d, const uint8_t *const k[TILE],
                        const float *const step[TILE], const float *const min[TILE], const __m512 sums[TILE],
                        int size) {
    __m512 acc[TILE * TILE], x[TILE];
    for (int i = 0; i < TILE * n_q; i++) acc[i] = _mm512_setzero_ps();
    for (int load = 0; load < n_loads(8, size); load++) {
        for (int i = 0; i < TILE; i++) x[i] = _mm512_cvtepi32_ps(load_codes(k[i], 8, size, load));
        multiply(acc, q, n_q, d, x, 8, size, load);
    }
    for (int i = 0; i < TILE; i++) {
        __m512 s = _mm512_set1_ps(*step[i]), m = _mm512_set1_ps(*min[i]);
        for (int g = 0; g < n_q; g++)
            total[TILE * g + i] =
                _mm512_fmadd_ps(sums[g], m, _mm512_fmadd_ps(acc[TILE * g + i], s, total[TILE * g + i]));
    }
}

/* At most 4 bits: the values of a line are computed once, and codes look them up. */
INLINE void multiply_few(__m512 total[TILE * TILE], const float *q, int n_q, int d, const uint8_t *const k[TILE],
                         const float *const step[TILE], const float *const min[TILE], int bits, int size) {
    __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 codes = _mm512_cvtepi32_ps(_mm512_and_si512(number, _mm512_set1_epi32((1 << bits) - 1)));
    __m512 values[TILE], x[TILE];
    __m512i c[TILE];
    for (int i = 0; i < TILE; i++)
        values[i] = _mm512_fmadd_ps(codes, _mm512_set1_ps(*step[i]), _mm512_set1_ps(*min[i]));
    for (int load = 0; load < n_loads(bits, size); load++) {
        for (int i = 0; i < TILE; i++) c[i] = load_codes(k[i], bits, size, load);
        for (int part = 0; part < n_parts(bits); part++) {
            for (int i = 0; i < TILE; i++) x[i] = _mm512_permutexvar_ps(codes_of(c[i], bits, part), values[i]);
            multiply(total, q + part * stretch(bits, size), n_q, d, x, bits, size, load);
        }
    }
}

INLINE void multiply_group(__m512 total[TILE * TILE], const float *q, int n_q, int d, const uint8_t *const k[TILE],
                           const float *const step[TILE], const float *const min[TILE], const __m512 sums[TILE],
                           int bits, int size) {
    if (bits == 8)
        multiply_q8(total, q, n_q, d, k, step, min, sums, size);
    else
        multiply_few(total, q, n_q, d, k, step, min, bits, size);
}

/* n rows of a block against n_q (1..4) queries. The last part of a tile's sums is left until the products of the next
 * are under way. */
INLINE void scores_rows(float *scores, size_t stride, const scores_job *w, int n_q, const ig_kv_packed *k,
                        const block_lines *lines, int n, int n_left, int bits) {
    __m512 sums[2 * TILE];
    int row_bytes = w->d * bits / 8;
    for (int i = 0; i < 2 * n_q; i++) sums[i] = _mm512_setzero_ps();
    for (int i = 0; i < n; i += TILE) {
        __m512 total[TILE * TILE];
        int at[TILE];
        for (int r = 0; r < TILE; r++) at[r] = i + r < n ? i + r : n - 1;
        for (int x = 0; x < TILE * n_q; x++) total[x] = _mm512_setzero_ps();
        int ahead = n_left - i - AHEAD;
        if (ahead > 0) prefetch_rows(k + i + AHEAD, ahead < TILE ? ahead : TILE, row_bytes);
        for (int j = 0, group = 0; j < w->d; j += IG_KV_GROUP, group++) {
            const uint8_t *codes[TILE];
            const float *step[TILE], *min[TILE];
            for (int r = 0; r < TILE; r++) {
                codes[r] = k[at[r]].codes + j * bits / 8;
                step[r] = &lines->step[group][at[r]], min[r] = &lines->min[group][at[r]];
            }
            if (w->d - j >= IG_KV_GROUP)
                multiply_group(total, w->q + j, n_q, w->d, codes, step, min, w->sums[group], bits, IG_KV_GROUP);
            else
                multiply_group(total, w->q + j, n_q, w->d, codes, step, min, w->sums[group], bits, w->d - j);
        }
        if (i > 0) store_tile(scores + i - TILE, stride, n_q, _mm512_mul_ps(sum_rest(sums, n_q), w->scale), TILE);
        sum_first(sums, total, n_q);
    }
    int last = (n - 1) / TILE * TILE;
    store_tile(scores + last, stride, n_q, _mm512_mul_ps(sum_rest(sums, n_q), w->scale), n - last);
}

INLINE void packed_scores(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                          const ig_kv_packed *k, int n, int bits) {
    block_lines lines;
    scores_job w = {.d = d, .scale = _mm512_set1_ps(scale)};
    prefetch_rows(k, n < AHEAD ? n : AHEAD, d * bits / 8);
    for (int i = 0; i < n; i += BLOCK_ROWS) {
        int m = n - i < BLOCK_ROWS ? n - i : BLOCK_ROWS;
        read_lines(&lines, k + i, m, d);
        for (int g = 0; g < n_q; g += TILE) {
            float *out = scores + (size_t)g * stride + i;
            int left = g == 0 ? n - i : 0, few = n_q - g < TILE ? n_q - g : TILE;
            w.q = q + (size_t)g * (size_t)d;
            if (bits == 8 && (i == 0 || n_q > TILE)) sum_queries(&w, few);
            switch (few) {
                case 1:
                    scores_rows(out, stride, &w, 1, k + i, &lines, m, left, bits);
                    break;
                case 2:
                    scores_rows(out, stride, &w, 2, k + i, &lines, m, left, bits);
                    break;
                case 3:
                    scores_rows(out, stride, &w, 3, k + i, &lines, m, left, bits);
                    break;
                default:
                    scores_rows(out, stride, &w, 4, k + i, &lines, m, left, bits);
            }
        }
    }
}

/* ---- values -------------------------------------------------------------------- */

/* n_q (1..4) queries' share of a block of rows. */
typedef struct values_job {
    const float *r; /* NULL: the factors have been applied */
    const float *p; /* [n_q][stride] */
    size_t stride;
    int d, n, n_left; /* rows of the block; rows from its first to the last of all, 0 if they have been prefetched */
    const ig_kv_packed *rows;
    const block_lines *lines;
} values_job;

/* Adds a group that starts at dim j to acc [n_q][d]. */
INLINE void values_group(const values_job *w, float *acc, int n_q, int j, int bits, int size) {
    _Alignas(64) float steps[TILE][BLOCK_ROWS]; /* p times step */
    __m512 a[TILE][TILE], mins[TILE];
    size_t d = (size_t)w->d;
    int group = j / IG_KV_GROUP, loads = n_loads(bits, size), parts = n_parts(bits), top = (1 << bits) - 1;
    for (int g = 0; g < n_q; g++) {
        mins[g] = _mm512_setzero_ps();
        for (int i = 0; i < w->n; i += 16) {
            __mmask16 lanes = w->n - i >= 16 ? 0xffff : first_lanes(w->n - i);
            __m512 p = _mm512_maskz_loadu_ps(lanes, w->p + (size_t)g * w->stride + i);
            _mm512_store_ps(steps[g] + i, _mm512_mul_ps(p, _mm512_load_ps(w->lines->step[group] + i)));
            mins[g] = _mm512_fmadd_ps(p, _mm512_load_ps(w->lines->min[group] + i), mins[g]);
        }
        for (int x = 0; x < TILE; x++) a[g][x] = _mm512_setzero_ps();
    }
    for (int i = 0; i < w->n; i++) {
        __m512 v[TILE];
        for (int load = 0; load < loads; load++) {
            __m512i c = load_codes(w->rows[i].codes + j * bits / 8, bits, size, load), mask = _mm512_set1_epi32(top);
            for (int part = 0; part < parts; part++) {
                __m512i x = codes_of(c, bits, part);
                v[load * parts + part] = _mm512_cvtepi32_ps(part < parts - 1 ? _mm512_and_si512(x, mask) : x);
            }
        }
        if (j == 0 && i + AHEAD < w->n_left) prefetch_row(&w->rows[i + AHEAD], w->d * bits / 8);
        for (int g = 0; g < n_q; g++) {
            __m512 f = _mm512_set1_ps(steps[g][i]);
            for (int x = 0; x < loads * parts; x++) a[g][x] = _mm512_fmadd_ps(f, v[x], a[g][x]);
        }
    }
    for (int g = 0; g < n_q; g++) {
        __m512 min = _mm512_set1_ps(_mm512_reduce_add_ps(mins[g]));
        for (int x = 0; x < loads * parts; x++) {
            int load = x / parts;
            __mmask16 lanes = lanes_of(bits, size, load);
            float *at = acc + (size_t)g * d + j + 16 * load + x % parts * stretch(bits, size);
            __m512 old = _mm512_maskz_loadu_ps(lanes, at);
            if (w->r) old = w->r[g] == 0 ? _mm512_setzero_ps() : _mm512_mul_ps(old, _mm512_set1_ps(w->r[g]));
            _mm512_mask_storeu_ps(at, lanes, _mm512_add_ps(old, _mm512_add_ps(a[g][x], min)));
        }
    }
}

INLINE void values_rows(const values_job *w, float *acc, int n_q, int bits) {
    int j = 0;
    for (; j + IG_KV_GROUP <= w->d; j += IG_KV_GROUP) values_group(w, acc, n_q, j, bits, IG_KV_GROUP);
    if (j < w->d) values_group(w, acc, n_q, j, bits, w->d - j);
}

INLINE void packed_values(float *acc, const float *r, const float *p, size_t stride, int n_q, int d,
                          const ig_kv_packed *v, int n, int bits) {
    block_lines lines;
    prefetch_rows(v, n < AHEAD ? n : AHEAD, d * bits / 8);
    int i = 0;
    do {
        int m = n - i < BLOCK_ROWS ? n - i : BLOCK_ROWS;
        read_lines(&lines, v + i, m, d);
        for (int g = 0; g < n_q; g += TILE) {
            values_job w = {.r = i ? NULL : r + g,
                            .p = p + (size_t)g * stride + i,
                            .stride = stride,
                            .d = d,
                            .n = m,
                            .n_left = g ? 0 : n - i,
                            .rows = v + i,
                            .lines = &lines};
            float *out = acc + (size_t)g * (size_t)d;
            switch (n_q - g) {
                case 1:
                    values_rows(&w, out, 1, bits);
                    break;
                case 2:
                    values_rows(&w, out, 2, bits);
                    break;
                case 3:
                    values_rows(&w, out, 3, bits);
                    break;
                default:
                    values_rows(&w, out, 4, bits);
            }
        }
        i += BLOCK_ROWS;
    } while (i < n);
}

#define BITS(bits)                                                                                        \
    static void scores_q##bits(float *scores, size_t stride, const float *q, int n_q, int d, float scale, \
                               const ig_kv_packed *k, int n) {                                            \
        packed_scores(scores, stride, q, n_q, d, scale, k, n, bits);                                      \
    }                                                                                                     \
    static void values_q##bits(float *acc, const float *r, const float *p, size_t stride, int n_q, int d, \
                               const ig_kv_packed *v, int n) {                                            \
        packed_values(acc, r, p, stride, n_q, d, v, n, bits);                                             \
    }

BITS(8)
BITS(4)
BITS(2)
BITS(1)

void ig_kernels_fill_attention_packed_avx512(ig_kernels *k) {
    k->packed_scores[IG_KV_Q8] = scores_q8;
    k->packed_scores[IG_KV_Q4] = scores_q4;
    k->packed_scores[IG_KV_Q2] = scores_q2;
    k->packed_scores[IG_KV_Q1] = scores_q1;
    k->packed_values[IG_KV_Q8] = values_q8;
    k->packed_values[IG_KV_Q4] = values_q4;
    k->packed_values[IG_KV_Q2] = values_q2;
    k->packed_values[IG_KV_Q1] = values_q1;
}
