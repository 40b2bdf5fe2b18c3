/* SPDX-License-Identifier: Apache-2.0
 *
 * Few columns, AVX-512, of types that do not come in panels: weights straight from the file's format, elements in the
 * lanes.
 *
 * A tile is a few rows by a few columns; each weight is unpacked once and used for all
 * columns of the tile. The operations for one (row, column) are the same in every tile.
 * Memory sets the pace with one column: the unpacking of quant_avx512.h is a handful of
 * instructions per 64 weights, and four rows run side by side to hide its latency and to
 * share what depends on the column alone.
 */
#include "base/half.h"
#include "kernel/matmul_avx512.h"
#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx512.h"

enum { MAX_ROWS = 4, MAX_COLS = 4 };

/* Least distance, in bytes, at which memory is fetched ahead of its use. */
enum { AHEAD = 8192 };

typedef struct rows {
    const uint8_t *w[MAX_ROWS];
    const char *act; /* of the first column */
    float *out;      /* of the first row and column */
    int row;         /* the first one's number */
} rows;

/* The rows of a tile are one run of bytes, but it is read as several short streams, which the
 * hardware does not see coming. While the tile takes `bytes` from its rows, as many are fetched
 * further on in the run: one tile on, or more. That made memory-bound products 2 to 4 times as fast. */
static inline const uint8_t *fetch_from(const ig_matmul *m, const uint8_t *first, int n_rows) {
    size_t tile = m->row_bytes * (size_t)n_rows;
    return first + (tile > AHEAD ? tile : AHEAD);
}

static inline void fetch_tile(const uint8_t **next, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch((const char *)*next + i, _MM_HINT_T0);
    *next += bytes;
}

static inline void columns_of(ig_q8 a[MAX_COLS], const ig_matmul *m, const rows *t, int n_cols) {
    for (int c = 0; c < n_cols; c++) a[c] = ig_q8_view(t->act + (size_t)c * m->act_stride, m->n_in);
}

INLINE void set_zero(__m512 acc[MAX_ROWS][MAX_COLS], const int n_rows, const int n_cols) {
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++) acc[r][c] = _mm512_setzero_ps();
}

INLINE void put_sums(const ig_matmul *m, const rows *t, __m512 acc[MAX_ROWS][MAX_COLS], const int n_rows,
                     const int n_cols) {
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++)
            t->out[(size_t)c * m->out_stride + (size_t)r] = _mm512_reduce_add_ps(acc[r][c]);
}

/* ---- signed bytes ------------------------------------------------------------ */

/* What one step of 64 elements takes from a column. */
typedef struct column_pair {
    __m512i q, start; /* codes; -128 times the sums of four codes */
    __m512 d;
} column_pair;

INLINE column_pair column_at(const ig_q8 *a, int b) {
    column_pair x = {.q = _mm512_load_si512(a->q + 32 * b), .start = _mm512_setzero_si512()};
    x.start = _mm512_sub_epi32(x.start, _mm512_dpbusd_epi32(x.start, _mm512_set1_epi8(-128), x.q));
    x.d = _mm512_mask_broadcastss_ps(_mm512_set1_ps(a->d[b]), 0xff00, _mm_load_ss(a->d + b + 1));
    return x;
}

INLINE void step_pairs(const rows *t, const ig_q8 *a, int b, const int n_blocks, __m512 acc[MAX_ROWS][MAX_COLS],
                       const int n_rows, const int n_cols, load_pair_fn load) {
    column_pair x[MAX_COLS];
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++) x[c] = column_at(&a[c], b);
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        pair w = load(t->w[r], b, n_blocks);
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++) {
            __m512 dot = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(x[c].start, w.code, x[c].q));
            acc[r][c] = _mm512_fmadd_ps(dot, _mm512_mul_ps(w.scale, x[c].d), acc[r][c]);
        }
    }
}

/* bytes: of 64 elements, or about as many. */
INLINE void tile_pairs(const ig_matmul *m, rows t, const int n_rows, const int n_cols, load_pair_fn load,
                       const int bytes) {
    __m512 acc[MAX_ROWS][MAX_COLS];
    ig_q8 a[MAX_COLS];
    columns_of(a, m, &t, n_cols);
    set_zero(acc, n_rows, n_cols);
    const uint8_t *next = fetch_from(m, t.w[0], n_rows);
    int n_blocks = m->n_in / 32, b = 0;
    for (; b + 1 < n_blocks; b += 2) {
        fetch_tile(&next, bytes * n_rows);
        step_pairs(&t, a, b, 2, acc, n_rows, n_cols, load);
    }
    if (b < n_blocks) step_pairs(&t, a, b, 1, acc, n_rows, n_cols, load);
    put_sums(m, &t, acc, n_rows, n_cols);
}

/* ---- 256 elements ------------------------------------------------------------- */

/* How a block is read: at once, or in two steps, between which it lies in memory. */
typedef struct super_steps {
    super (*load)(const uint8_t *p);
    take_fn begin; /* NULL: at once */
    end_book_fn end;
} super_steps;

typedef book_block taken_blocks[MAX_ROWS];

INLINE void begin_blocks(taken_blocks taken, const rows *t, const int n_rows, size_t at, const super_steps of) {
    if (!of.begin) return;
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) of.begin(&taken[r], t->w[r] + at);
}

/* Lanes of a register of 16 scales that belong to the 16 sums of 4 of part i. */
static inline __m512i scale_lanes(int i) {
    __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_add_epi32(_mm512_srli_epi32(lane, 2), _mm512_set1_epi32(4 * i));
}

INLINE void step_supers(const rows *t, const ig_q8 *a, int b, __m512 acc[MAX_ROWS][MAX_COLS],
                        __m512 mins[MAX_ROWS][MAX_COLS], const int n_rows, const int n_cols, const super_steps of,
                        taken_blocks taken, const int bytes) {
    const __m512i each2 = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    __m512 d[MAX_COLS];
#pragma GCC unroll 4
    for (int c = 0; c < n_cols; c++)
        d[c] = _mm512_permutexvar_ps(each2, _mm512_castps256_ps512(_mm256_load_ps(a[c].d + 8 * b)));
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        const uint8_t *p = t->w[r] + (size_t)b * (size_t)bytes;
        super w = of.begin ? of.end(&taken[r], p) : of.load(p);
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++) {
            __m512 sd = _mm512_mul_ps(w.scale, d[c]);
            mins[r][c] = _mm512_fmadd_ps(w.min, _mm512_load_ps(a[c].ds16 + 16 * b), mins[r][c]);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w.code[i],
                                                  _mm512_load_si512(a[c].q + 256 * b + 64 * i));
                __m512 scale = _mm512_permutexvar_ps(scale_lanes(i), sd);
                acc[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc[r][c]);
            }
        }
    }
}

/* Blocks in two steps are begun while those before are ended: what is stored is read again piece by piece. */
INLINE void tile_supers(const ig_matmul *m, rows t, const int n_rows, const int n_cols, const super_steps of,
                        const int bytes) {
    taken_blocks taken[2];
    int n_blocks = m->n_in / 256;
    __m512 acc[MAX_ROWS][MAX_COLS], mins[MAX_ROWS][MAX_COLS];
    ig_q8 a[MAX_COLS];
    columns_of(a, m, &t, n_cols);
    set_zero(acc, n_rows, n_cols);
    set_zero(mins, n_rows, n_cols);
    const uint8_t *next = fetch_from(m, t.w[0], n_rows);
    begin_blocks(taken[0], &t, n_rows, 0, of);
    for (int b = 0; b < n_blocks; b++) {
        fetch_tile(&next, bytes * n_rows);
        begin_blocks(taken[(b + 1) % 2], &t, n_rows, (size_t)(b + 1 < n_blocks ? b + 1 : b) * (size_t)bytes, of);
        step_supers(&t, a, b, acc, mins, n_rows, n_cols, of, taken[b % 2], bytes);
    }
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++) acc[r][c] = _mm512_add_ps(acc[r][c], mins[r][c]);
    put_sums(m, &t, acc, n_rows, n_cols);
}

/* ---- floats ------------------------------------------------------------------- */

typedef __m512 (*load_floats_fn)(const void *p, __mmask16 mask);

INLINE void tile_floats(const ig_matmul *m, rows t, const int n_rows, const int n_cols, load_floats_fn load,
                        const int bytes) {
    __m512 acc[MAX_ROWS][MAX_COLS];
    set_zero(acc, n_rows, n_cols);
    const uint8_t *next = fetch_from(m, t.w[0], n_rows);
    for (int i = 0; i < m->n_in; i += 16) {
        fetch_tile(&next, 16 * bytes * n_rows);
        __mmask16 mask = (__mmask16)(m->n_in - i < 16 ? (1u << (m->n_in - i)) - 1 : 0xffff);
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            __m512 w = load(t.w[r] + (size_t)i * (size_t)bytes, mask);
#pragma GCC unroll 4
            for (int c = 0; c < n_cols; c++) {
                const float *x = (const float *)(const void *)(t.act + (size_t)c * m->act_stride);
                acc[r][c] = _mm512_fmadd_ps(w, _mm512_load_ps(x + i), acc[r][c]);
            }
        }
    }
    put_sums(m, &t, acc, n_rows, n_cols);
}

/* ---- 8-bit floats --------------------------------------------------------------- */

/* Of a tile: sums of the block of columns that is multiplied, and of each row the largest code without its sign, by
 * which a NaN is found. */
typedef struct sums_f8 {
    __m512 sum[MAX_ROWS][MAX_COLS][2];
    __m256i most[MAX_ROWS];
} sums_f8;

/* 32 elements from i on, but those of `mask` alone. */
INLINE void step_f8(sums_f8 *s, const ig_matmul *m, const rows *t, int i, __mmask32 mask, const int n_rows,
                    const int n_cols) {
#pragma GCC unroll 4
    for (int r = 0; r < n_rows; r++) {
        __m256i codes = mask == UINT32_MAX ? _mm256_loadu_si256((const void *)(t->w[r] + i))
                                           : _mm256_maskz_loadu_epi8(mask, t->w[r] + i);
        __m512i halves = finite_f8(codes);
        s->most[r] = _mm256_max_epu8(s->most[r], _mm256_and_si256(codes, _mm256_set1_epi8(IG_F8_NAN)));
        __m512 w[] = {_mm512_cvtph_ps(_mm512_castsi512_si256(halves)),
                      _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1))};
#pragma GCC unroll 4
        for (int c = 0; c < n_cols; c++) {
            const float *x = (const float *)(const void *)(t->act + (size_t)c * m->act_stride) + i;
            s->sum[r][c][0] = _mm512_fmadd_ps(w[0], _mm512_load_ps(x), s->sum[r][c][0]);
            /* columns end with the last 16 */
            if (mask >> 16) s->sum[r][c][1] = _mm512_fmadd_ps(w[1], _mm512_load_ps(x + 16), s->sum[r][c][1]);
        }
    }
}

INLINE void tile_f8(const ig_matmul *m, rows t, const int n_rows, const int n_cols, const float unit) {
    __m512 acc[MAX_ROWS][MAX_COLS];
    sums_f8 s;
    const int width = ig_scales_width(&m->scales, m->n_in);
    const uint8_t *next = fetch_from(m, t.w[0], n_rows);
    set_zero(acc, n_rows, n_cols);
    for (int r = 0; r < n_rows; r++) s.most[r] = _mm256_setzero_si256();
    for (int b = 0, i = 0; i < m->n_in; b++) {
        const int end = ig_min_int(i + width, m->n_in);
        for (int r = 0; r < n_rows; r++)
            for (int c = 0; c < n_cols; c++) s.sum[r][c][0] = s.sum[r][c][1] = _mm512_setzero_ps();
        for (; i + 32 <= end; i += 32) {
            fetch_tile(&next, 32 * n_rows);
            step_f8(&s, m, &t, i, UINT32_MAX, n_rows, n_cols);
        }
        if (i < end) step_f8(&s, m, &t, i, (1u << (end - i)) - 1, n_rows, n_cols);
        i = end;
#pragma GCC unroll 4
        for (int r = 0; r < n_rows; r++) {
            const float *scales = ig_scales_of_row(&m->scales, t.row + r);
            __m512 scale = _mm512_set1_ps(unit * (scales ? scales[b] : 1));
#pragma GCC unroll 4
            for (int c = 0; c < n_cols; c++)
                acc[r][c] = _mm512_fmadd_ps(scale, _mm512_add_ps(s.sum[r][c][0], s.sum[r][c][1]), acc[r][c]);
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < n_cols; c++)
            if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(s.most[r], _mm256_set1_epi8(IG_F8_NAN))))
                acc[r][c] = _mm512_set1_ps(NAN);
    put_sums(m, &t, acc, n_rows, n_cols);
}

/* ---- all rows and columns ------------------------------------------------------ */

static rows tile_at(const ig_matmul *m, int r, int n_rows, int c) {
    rows t = {.act = (const char *)m->act + (size_t)c * m->act_stride,
              .out = m->out + (size_t)c * m->out_stride + (size_t)r,
              .row = r};
    for (int i = 0; i < n_rows; i++) t.w[i] = (const uint8_t *)m->w + (size_t)(r + i) * m->row_bytes;
    return t;
}

/* Rows by fours with one column, by twos with more; columns by fours, and what is left. */
#define GEMV(type, tile, ...)                                                           \
    static void tile_##type(const ig_matmul *m, int r, int n_rows, int c, int n_cols) { \
        rows t = tile_at(m, r, n_rows, c);                                              \
        if (n_rows == 4)                                                                \
            tile(m, t, 4, 1, __VA_ARGS__);                                              \
        else if (n_rows == 2 && n_cols == 4)                                            \
            tile(m, t, 2, 4, __VA_ARGS__);                                              \
        else if (n_rows == 2 && n_cols == 3)                                            \
            tile(m, t, 2, 3, __VA_ARGS__);                                              \
        else if (n_rows == 2 && n_cols == 2)                                            \
            tile(m, t, 2, 2, __VA_ARGS__);                                              \
        else if (n_rows == 2)                                                           \
            tile(m, t, 2, 1, __VA_ARGS__);                                              \
        else if (n_cols == 4)                                                           \
            tile(m, t, 1, 4, __VA_ARGS__);                                              \
        else if (n_cols == 3)                                                           \
            tile(m, t, 1, 3, __VA_ARGS__);                                              \
        else if (n_cols == 2)                                                           \
            tile(m, t, 1, 2, __VA_ARGS__);                                              \
        else                                                                            \
            tile(m, t, 1, 1, __VA_ARGS__);                                              \
    }                                                                                   \
    void ig_gemv_##type##_avx512(const ig_matmul *m, int row_begin, int row_end) {      \
        run_tiles(m, row_begin, row_end, tile_##type);                                  \
    }

static void run_tiles(const ig_matmul *m, int row_begin, int row_end,
                      void (*tile)(const ig_matmul *m, int r, int n_rows, int c, int n_cols)) {
    for (int r = row_begin, n_rows; r < row_end; r += n_rows) {
        n_rows = row_end - r >= 4 && m->n_cols == 1 ? 4 : row_end - r >= 2 ? 2 : 1;
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            n_cols = ig_min_int(m->n_cols - c, MAX_COLS);
            tile(m, r, n_rows, c, n_cols);
        }
    }
}

#define AT_ONCE(type) ((super_steps){load_##type, NULL, NULL})
#define AT_TWICE(type) ((super_steps){NULL, begin_##type, end_##type})

GEMV(q8_0, tile_pairs, pair_of_q8_0, 68)
GEMV(iq4_nl, tile_pairs, pair_of_iq4_nl, 36)
GEMV(iq4_xs, tile_pairs, pair_of_iq4_xs, 34)
GEMV(nvfp4, tile_pairs, pair_of_nvfp4, 36)
GEMV(q1_0, tile_pairs, pair_of_q1_0, 9)
GEMV(q2_0, tile_pairs, pair_of_q2_0, 18)
GEMV(tq1_0, tile_pairs, pair_of_tq1_0, 14)
GEMV(tq2_0, tile_pairs, pair_of_tq2_0, 17)
GEMV(q2_k, tile_supers, AT_ONCE(q2_k), 84)
GEMV(q3_k, tile_supers, AT_ONCE(q3_k), 110)
GEMV(iq1_s, tile_supers, AT_TWICE(iq1_s), 50)
GEMV(iq1_m, tile_supers, AT_TWICE(iq1_m), 56)
GEMV(iq2_xxs, tile_supers, AT_ONCE(iq2_xxs), 66)
GEMV(iq2_xs, tile_supers, AT_ONCE(iq2_xs), 74)
GEMV(iq2_s, tile_supers, AT_ONCE(iq2_s), 82)
GEMV(iq3_xxs, tile_supers, AT_ONCE(iq3_xxs), 98)
GEMV(iq3_s, tile_supers, AT_ONCE(iq3_s), 110)
GEMV(f32, tile_floats, load_f32, 4)
GEMV(f16, tile_floats, load_f16, 2)
GEMV(bf16, tile_floats, load_bf16, 2)
GEMV(f8_e4m3, tile_f8, IG_F8_UNIT)
