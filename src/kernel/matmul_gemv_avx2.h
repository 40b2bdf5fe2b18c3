/* SPDX-License-Identifier: Apache-2.0
 *
 * Few columns of types that do not come in panels, for the levels that have AVX2, which differ in how bytes are
 * multiplied: weights straight from the file's format, elements in the lanes.
 *
 * One row at a time, so that memory is read as one stream, by up to four columns. The
 * operations for one (row, column) are the same whatever the tile.
 */
#ifndef IG_KERNEL_MATMUL_GEMV_AVX2_H
#define IG_KERNEL_MATMUL_GEMV_AVX2_H

#include "base/compiler.h"
#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx2.h"

enum { MAX_COLS = 4 };

static inline ig_q8 column(const ig_matmul *m, int c) {
    return ig_q8_view((const char *)m->act + (size_t)c * m->act_stride, m->n_in);
}

/* Adds group b of 32 signed bytes, part i of the block at p, to the sums of each column. */
INLINE void add_bytes(__m256 acc[MAX_COLS], const uint8_t *p, int i, const ig_q8 a[MAX_COLS], int b, const int n_cols,
                      load_bytes_fn load, dot4_fn dot4) {
    __m256 scale;
    __m256i code = load(&scale, p, i);
    for (int c = 0; c < n_cols; c++) {
        __m256i dot = dot4(code, _mm256_load_si256((const void *)(a[c].q + 32 * b)), 1);
        __m256 by = _mm256_mul_ps(scale, _mm256_set1_ps(a[c].d[b]));
        acc[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), by, acc[c]);
    }
}

/* Signed bytes, whose blocks have n_parts of 32 elements: 1, or an even number. Sums by twos, so that one need not wait
 * for the other. */
INLINE void row_bytes(const ig_matmul *m, const uint8_t *w, int c0, const int n_cols, float *sums, load_bytes_fn load,
                      const int bytes, const int n_parts, dot4_fn dot4) {
    __m256 acc[2][MAX_COLS];
    ig_q8 a[MAX_COLS];
    const int n = m->n_in / 32, at_once = n_parts > 2 ? n_parts : 2;
    for (int c = 0; c < n_cols; c++) {
        a[c] = column(m, c0 + c);
        acc[0][c] = acc[1][c] = _mm256_setzero_ps();
    }
    int b = 0;
    for (; b + at_once <= n; b += at_once, w += (size_t)(at_once / n_parts) * (size_t)bytes) {
        fetch_weights(w, (size_t)(at_once / n_parts) * (size_t)bytes);
#pragma GCC unroll 8
        for (int i = 0; i < at_once; i++)
            add_bytes(acc[i % 2], w + (size_t)(i / n_parts) * (size_t)bytes, i % n_parts, a, b + i, n_cols, load, dot4);
    }
    if (b < n) add_bytes(acc[0], w, 0, a, b, n_cols, load, dot4);
    for (int c = 0; c < n_cols; c++) sums[c] = sum8(_mm256_add_ps(acc[0][c], acc[1][c]));
}

/* Adds the block s of 256 elements, with a scale for each 16, number b of its row, to the sums of a column. */
INLINE void add_super(__m256 *acc, __m256 *mins, const super *s, const ig_q8 *a, int b, dot4_fn dot4) {
    const __m256i each2 = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3), each4 = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const float *ds = a->ds16 + 16 * b, *d = a->d + 8 * b;
    for (int half = 0; half < 2; half++) {
        __m256 d2 = _mm256_permutevar8x32_ps(_mm256_broadcast_ps((const void *)(d + 4 * half)), each2);
        __m256 scales = _mm256_mul_ps(_mm256_loadu_ps(s->scale + 8 * half), d2);
        *mins = _mm256_fmadd_ps(_mm256_loadu_ps(s->min + 8 * half), _mm256_loadu_ps(ds + 8 * half), *mins);
        for (int i = 0; i < 4; i++) {
            const int8_t *q = a->q + 256 * b + 128 * half + 32 * i;
            __m256i dot = dot4(s->code[4 * half + i], _mm256_load_si256((const void *)q), 0);
            __m256 scale = _mm256_permutevar8x32_ps(scales, _mm256_add_epi32(each4, _mm256_set1_epi32(2 * i)));
            *acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, *acc);
        }
    }
}

/* How a block of 256 is read: at once, or in two steps, between which it lies in memory. */
typedef struct super_steps {
    void (*load)(super *w, const uint8_t *p);
    take_fn begin; /* NULL: at once */
    end_book_fn end;
} super_steps;

/* A block in two steps is begun while the one before is ended: what is stored is read again piece by piece. */
INLINE void row_supers(const ig_matmul *m, const uint8_t *w, int c0, const int n_cols, float *sums,
                       const super_steps of, const int bytes, dot4_fn dot4) {
    __m256 acc[MAX_COLS], mins[MAX_COLS];
    ig_q8 a[MAX_COLS];
    book_block taken[2];
    int n_blocks = m->n_in / 256;
    for (int c = 0; c < n_cols; c++) {
        a[c] = column(m, c0 + c);
        acc[c] = mins[c] = _mm256_setzero_ps();
    }
    if (of.begin) of.begin(&taken[0], w);
    for (int b = 0; b < n_blocks; b++, w += bytes) {
        super s;
        fetch_weights(w, (size_t)bytes);
        if (of.begin) {
            of.begin(&taken[(b + 1) % 2], b + 1 < n_blocks ? w + bytes : w);
            of.end(&s, &taken[b % 2], w);
        } else
            of.load(&s, w);
        for (int c = 0; c < n_cols; c++) add_super(&acc[c], &mins[c], &s, &a[c], b, dot4);
    }
    for (int c = 0; c < n_cols; c++) sums[c] = sum8(_mm256_add_ps(acc[c], mins[c]));
}

typedef void (*row_fn)(const ig_matmul *m, const uint8_t *w, int c0, int n_cols, float *sums);

static inline void run_rows(const ig_matmul *m, int row_begin, int row_end, row_fn row) {
    for (int r = row_begin; r < row_end; r++)
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            float sums[MAX_COLS];
            n_cols = ig_min_int(m->n_cols - c, MAX_COLS);
            row(m, (const uint8_t *)m->w + (size_t)r * m->row_bytes, c, n_cols, sums);
            for (int i = 0; i < n_cols; i++) m->out[(size_t)(c + i) * m->out_stride + (size_t)r] = sums[i];
        }
}

/* What follows `row` goes to it. */
#define DEFINE_GEMV(type, row, ...)                                                                 \
    static void row_##type(const ig_matmul *m, const uint8_t *w, int c0, int n_cols, float *sums) { \
        if (n_cols == 4)                                                                            \
            row(m, w, c0, 4, sums, __VA_ARGS__);                                                    \
        else if (n_cols == 3)                                                                       \
            row(m, w, c0, 3, sums, __VA_ARGS__);                                                    \
        else if (n_cols == 2)                                                                       \
            row(m, w, c0, 2, sums, __VA_ARGS__);                                                    \
        else                                                                                        \
            row(m, w, c0, 1, sums, __VA_ARGS__);                                                    \
    }                                                                                               \
    static void gemv_##type(const ig_matmul *m, int row_begin, int row_end) {                       \
        run_rows(m, row_begin, row_end, row_##type);                                                \
    }
#define AT_ONCE(type) ((super_steps){load_##type, NULL, NULL})
#define AT_TWICE(type) ((super_steps){NULL, begin_##type, end_##type})
#define DEFINE_QUANTISED_GEMV(dot4)                               \
    DEFINE_GEMV(q8_0, row_bytes, load_q8_0, 34, 1, dot4)          \
    DEFINE_GEMV(iq4_nl, row_bytes, load_iq4_nl, 18, 1, dot4)      \
    DEFINE_GEMV(iq4_xs, row_bytes, load_iq4_xs, 136, 8, dot4)     \
    DEFINE_GEMV(nvfp4, row_bytes, load_nvfp4, 36, 2, dot4)        \
    DEFINE_GEMV(q1_0, row_bytes, load_q1_0, 18, 4, dot4)          \
    DEFINE_GEMV(q2_0, row_bytes, load_q2_0, 18, 2, dot4)          \
    DEFINE_GEMV(tq1_0, row_bytes, load_tq1_0, 54, 8, dot4)        \
    DEFINE_GEMV(tq2_0, row_bytes, load_tq2_0, 66, 8, dot4)        \
    DEFINE_GEMV(q2_k, row_supers, AT_ONCE(q2_k), 84, dot4)        \
    DEFINE_GEMV(q3_k, row_supers, AT_ONCE(q3_k), 110, dot4)       \
    DEFINE_GEMV(iq1_s, row_supers, AT_TWICE(iq1_s), 50, dot4)     \
    DEFINE_GEMV(iq1_m, row_supers, AT_TWICE(iq1_m), 56, dot4)     \
    DEFINE_GEMV(iq2_xxs, row_supers, AT_TWICE(iq2_xxs), 66, dot4) \
    DEFINE_GEMV(iq2_xs, row_supers, AT_TWICE(iq2_xs), 74, dot4)   \
    DEFINE_GEMV(iq2_s, row_supers, AT_TWICE(iq2_s), 82, dot4)     \
    DEFINE_GEMV(iq3_xxs, row_supers, AT_TWICE(iq3_xxs), 98, dot4) \
    DEFINE_GEMV(iq3_s, row_supers, AT_TWICE(iq3_s), 110, dot4)

#define SET_GEMV(TYPE, type, ...) k->gemv[IG_TYPE_##TYPE] = gemv_##type;

#endif
