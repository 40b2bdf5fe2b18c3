/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantised weights, AVX-512: rows in the lanes.
 *
 * With many columns a wide panel of 32 rows is unpacked to scratch once, from the file's order or from two stored
 * panels (panel.h), and multiplied with all of them, up to six at a time. One vpdpbusd takes four elements of 16 rows
 * from the panel and four broadcast bytes of a column. Sums of signed types, which are kept as code + 128, start at
 * -128 * (sum of the column's codes). Few columns meet a stored panel as it is, with the same bits.
 */
#include "kernel/matmul_avx512.h"
#include "kernel/panel_avx512.h"
#include "kernel/quant.h"
#include "kernel/quant_avx512.h"
#include "kernel/wide_avx512.h"

size_t ig_gemm_scratch_bytes_avx512(int n_in) {
    size_t n_steps = ((size_t)n_in + 255) / 256 * 4, quantised = n_steps * wide_bytes(affine16);
    size_t floats = FLOAT_SLICE * WIDE_ROWS * sizeof(float);
    return quantised > floats ? quantised : floats;
}

/* ---- panels -------------------------------------------------------------------- */

/* Codes of 16 rows to one step of a panel; half 0 or 1 of its rows. */
static inline void put_codes(char *step, int half, __m512i code[16]) {
    transpose16(code);
    for (int i = 0; i < 16; i++) _mm512_store_si512(step + (2 * i + half) * 64, code[i]);
}

/* 256 elements of a row, from its byte `at`; to four steps. Offset: of signed types. */
INLINE void put_super(char *panel, panel_rows rows, int half, size_t at, super (*load)(const uint8_t *),
                      const int bytes, const int offset, const wide f) {
    size_t step = wide_bytes(f);
    __m512i code[4][16], scale[16], min[16];
    for (int r = 0; r < 16; r++) {
        super w = {0};
        const uint8_t *from = rows.w + (size_t)r * rows.row_bytes + at;
        if (r < rows.n) w = load(from);
        for (int i = 0; i < bytes && rows.ahead; i += 64) __builtin_prefetch(from + rows.ahead + i);
        for (int i = 0; i < 4; i++)
            code[i][r] = offset ? _mm512_add_epi8(w.code[i], _mm512_set1_epi8((char)(128 - offset))) : w.code[i];
        scale[r] = _mm512_castps_si512(w.scale);
        min[r] = _mm512_castps_si512(w.min);
    }
    transpose16(scale); /* 8 scales: the minimums are in the same registers */
    if (f.n_mins == 4) transpose16(min);
    for (int i = 0; i < 4; i++) {
        char *to = panel + (size_t)i * step;
        put_codes(to, half, code[i]);
        for (int j = 0; j < f.n_scales; j++) _mm512_store_si512(affine_at(to, j, half), scale[i * f.n_scales + j]);
        for (int j = 0; j < f.n_mins; j++)
            _mm512_store_si512(affine_at(to, f.n_scales + j, half),
                               f.n_mins == 2 ? scale[8 + 2 * i + j] : min[4 * i + j]);
    }
}

INLINE void unpack_supers(char *panel, panel_rows rows, int half, int n_in, super (*load)(const uint8_t *),
                          const int bytes, const int offset, const wide f) {
    for (int b = 0; b < n_in / 256; b++, panel += 4 * wide_bytes(f))
        put_super(panel, rows, half, (size_t)b * (size_t)bytes, load, bytes, offset, f);
}

/* Of a pair's scales or minimums the n of a row, from vector `first` of the step on. */
INLINE void put_affine(char *step, int first, int half, int r, __m512 v, const int n) {
    const __m128 part[4] = {_mm512_castps512_ps128(v), _mm512_extractf32x4_ps(v, 1), _mm512_extractf32x4_ps(v, 2),
                            _mm512_extractf32x4_ps(v, 3)};
#pragma GCC unroll 4
    for (int i = 0; i < n; i++) _mm_store_ss(affine_at(step, first + i, half) + r, part[4 / n * i]);
}

/* Groups b and b + 1 of 32 elements, or the first of them; to one step. */
INLINE void put_pair(char *step, panel_rows rows, int half, int b, int n_blocks, load_pair_fn load, const int bytes,
                     const int offset, const wide f) {
    __m512i code[16];
    for (int r = 0; r < 16; r++) {
        pair w = {0};
        const uint8_t *row = rows.w + (size_t)r * rows.row_bytes;
        if (r < rows.n) w = load(row, b, n_blocks);
        if (rows.ahead) __builtin_prefetch(row + b / 2 * bytes + rows.ahead);
        code[r] = offset && offset < 128 ? _mm512_add_epi8(w.code, _mm512_set1_epi8((char)(128 - offset))) : w.code;
        put_affine(step, 0, half, r, w.scale, f.n_scales);
        if (f.n_mins) put_affine(step, f.n_scales, half, r, w.min, f.n_mins);
    }
    put_codes(step, half, code);
}

/* Groups of 32: eight at a time if there is a function for that, then two, then one. bytes: of 64 elements, or about
 * as many. */
INLINE void unpack_pairs(char *panel, panel_rows rows, int half, int n_in, super (*load8)(const uint8_t *),
                         load_pair_fn load, const int bytes, const int offset, const wide f) {
    int b = 0, n_blocks = n_in / 32;
    for (; load8 && b + 7 < n_blocks; b += 8, panel += 4 * wide_bytes(f))
        put_super(panel, rows, half, (size_t)(b / 2) * (size_t)bytes, load8, 4 * bytes, offset, f);
    for (; b + 1 < n_blocks; b += 2, panel += wide_bytes(f)) put_pair(panel, rows, half, b, 2, load, bytes, offset, f);
    if (b < n_blocks) put_pair(panel, rows, half, b, 1, load, bytes, offset, f);
}

/* ---- quantised tiles ------------------------------------------------------------- */

static inline __m512i broadcast4(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE void tile_q8(const char *panel, int n_in, const char *act, size_t act_stride, const tile_out *t, const wide f,
                    const int n_cols) {
    __m512 acc[2][TILE_COLS];
    const ig_q8 a = ig_q8_view(act, n_in); /* of the first column; the others lie act_stride further */
    const int parts = f.n_scales == 4 ? 2 : 1, n_fours = f.n_scales == 4 ? 4 : 8; /* of a group of 32, of a part */
#define COLUMN(plane, c) ((const void *)((const char *)(plane) + (size_t)(c)*act_stride))
#pragma GCC unroll 8
    for (int c = 0; c < n_cols; c++) acc[0][c] = acc[1][c] = _mm512_setzero_ps();
    for (int g = 0; g < (n_in + 63) / 64 * 2; g++) {
        const char *step = panel + (size_t)(g / 2) * wide_bytes(f);
        const char *code = step + g % 2 * (CODE_BYTES / 2);
        const float *scale = (const float *)(const void *)(step + CODE_BYTES) + g % 2 * parts * WIDE_ROWS;
        const float *min = scale + f.n_scales * WIDE_ROWS;
        __m512 sum[2][TILE_COLS];
#pragma GCC unroll 2
        for (int part = 0; part < parts; part++) {
            __m512i dot[2][TILE_COLS];
#pragma GCC unroll 8
            for (int c = 0; c < n_cols; c++) {
                const int32_t *start = COLUMN(parts == 2 ? a.n16 + 2 * g + part : a.n32 + g, c);
                dot[0][c] = dot[1][c] = f.n_mins ? _mm512_setzero_si512() : _mm512_set1_epi32(*start);
            }
#pragma GCC unroll 8
            for (int i = 0; i < n_fours; i++) {
                const char *w = code + 128 * (i + part * 4);
                __m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);
#pragma GCC unroll 8
                for (int c = 0; c < n_cols; c++) {
                    __m512i x = broadcast4((const int8_t *)COLUMN(a.q + 32 * g + 16 * part + 4 * i, c));
                    dot[0][c] = _mm512_dpbusd_epi32(dot[0][c], w0, x);
                    dot[1][c] = _mm512_dpbusd_epi32(dot[1][c], w1, x);
                }
            }
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m512 s = _mm512_load_ps(scale + (2 * part + h) * 16);
#pragma GCC unroll 8
                for (int c = 0; c < n_cols; c++) {
                    __m512 v = _mm512_cvtepi32_ps(dot[h][c]);
                    sum[h][c] = part ? _mm512_fmadd_ps(v, s, sum[h][c]) : _mm512_mul_ps(v, s);
                }
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < n_cols; c++) {
            __m512 d = _mm512_set1_ps(*(const float *)COLUMN(a.d + g, c));
            acc[0][c] = _mm512_fmadd_ps(sum[0][c], d, acc[0][c]);
            acc[1][c] = _mm512_fmadd_ps(sum[1][c], d, acc[1][c]);
        }
#pragma GCC unroll 2
        for (int part = 0; part < f.n_mins / 2; part++) {
            __m512 m0 = _mm512_load_ps(min + 2 * part * 16), m1 = _mm512_load_ps(min + (2 * part + 1) * 16);
#pragma GCC unroll 8
            for (int c = 0; c < n_cols; c++) {
                __m512 ds = _mm512_set1_ps(*(const float *)COLUMN(parts == 2 ? a.ds16 + 2 * g + part : a.ds + g, c));
                acc[0][c] = _mm512_fmadd_ps(m0, ds, acc[0][c]);
                acc[1][c] = _mm512_fmadd_ps(m1, ds, acc[1][c]);
            }
        }
    }
#undef COLUMN
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++)
            _mm512_mask_storeu_ps(t->out + (size_t)c * t->stride + 16 * h, t->mask[h], acc[h][c]);
}

typedef void (*tile_fn)(const char *panel, int n_in, const char *act, size_t act_stride, const tile_out *t);

#define TILE(name, f, n_cols)                                                                                         \
    static void name##_##n_cols(const char *panel, int n_in, const char *act, size_t act_stride, const tile_out *t) { \
        tile_q8(panel, n_in, act, act_stride, t, f, n_cols);                                                          \
    }
#define TILES(name)                                      \
    TILE(tile_##name, name, 6)                           \
    TILE(tile_##name, name, 4)                           \
    TILE(tile_##name, name, 2)                           \
    TILE(tile_##name, name, 1)                           \
    static const tile_fn tiles_##name[TILE_COLS + 1] = { \
        [6] = tile_##name##_6, [4] = tile_##name##_4, [2] = tile_##name##_2, [1] = tile_##name##_1};
TILES(signed32)
TILES(signed16)
TILES(affine32)
TILES(affine16)

/* A wide panel, of rows r .. r + n_rows - 1, and all columns. */
static void multiply_wide(const ig_matmul *m, int r, int n_rows, const tile_fn *tiles) {
    for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
        const tile_out t = tile_out_at(m, r, n_rows, c);
        n_cols = tile_width(m->n_cols - c);
        tiles[n_cols](m->scratch, m->n_in, (const char *)m->act + (size_t)c * m->act_stride, m->act_stride, &t);
    }
}

static void gemm_q8(const ig_matmul *m, int row_begin, int row_end, ig_unpack_fn unpack, const tile_fn *tiles) {
    for (int r = row_begin; r < row_end; r += WIDE_ROWS) {
        for (int half = 0; half < 2; half++) unpack(m->scratch, rows_at(m, r + 16 * half, row_end), half, m->n_in);
        multiply_wide(m, r, ig_min_int(row_end - r, WIDE_ROWS), tiles);
    }
}

/* ---- stored panels ------------------------------------------------------------------ */

enum {
    STORED_COLS = 12, /* most of a tile */
    FEW_COLS = 64,    /* for which unpacking does not pay */
};

/* A stored panel to one half of a wide one. */
INLINE void expand(char *to, int half, const char *step, int n_in, const format from, const wide f) {
    const int n = from.n_scales;
    const char *head = step;
    for (int g = 0; g < n_in / 32; g++, step += step_bytes(from)) {
        char *at = to + (size_t)(g / 2) * wide_bytes(f), *code = at + g % 2 * (CODE_BYTES / 2) + 64 * half;
        if (from.super && g % 8 == 0) {
            head = step;
            step += head_bytes(from);
        }
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) {
            __m512i v = stored_codes(step, j, from);
            if (from.offset) v = _mm512_add_epi8(v, _mm512_set1_epi8((char)(128 - from.offset)));
            _mm512_store_si512(code + 128 * j, v);
        }
#pragma GCC unroll 2
        for (int i = 0; i < n; i++) {
            _mm512_store_ps(affine_at(at, g % 2 * n + i, half), stored_affine(step, head, 0, i, from));
            if (f.n_mins)
                _mm512_store_ps(affine_at(at, f.n_scales + g % 2 * n + i, half), stored_affine(step, head, 1, i, from));
        }
    }
    if (n_in / 32 % 2 == 0) return;
    char *last = to + (size_t)(n_in / 64) * wide_bytes(f);
    for (int j = 8; j < 16; j++) _mm512_store_si512(last + 128 * j + 64 * half, _mm512_setzero_si512());
    for (int i = 1; i < f.n_scales + f.n_mins; i += 2) _mm512_store_ps(affine_at(last, i, half), _mm512_setzero_ps());
}

/* What a stored panel and a few columns make, with the operations of tile_q8 in their order. */
INLINE void tile_stored(const char *step, const ig_matmul *m, int column, const tile_out *t, const format f,
                        const int n_cols) {
    const int n = f.n_scales, n_fours = 8 / n;
    const char *head = step;
    __m512 acc[STORED_COLS];
    ig_q8 a[STORED_COLS];
#pragma GCC unroll 12
    for (int c = 0; c < n_cols; c++) {
        a[c] = ig_q8_view((const char *)m->act + (size_t)(column + c) * m->act_stride, m->n_in);
        acc[c] = _mm512_setzero_ps();
    }
    for (int g = 0; g < m->n_in / 32; g++, step += step_bytes(f)) {
        if (f.super && g % 8 == 0) {
            head = step;
            step += head_bytes(f);
        }
        fetch_weights(step, step_bytes(f));
        __m512 sum[STORED_COLS];
#pragma GCC unroll 2
        for (int part = 0; part < n; part++) {
            __m512i dot[STORED_COLS];
#pragma GCC unroll 12
            for (int c = 0; c < n_cols; c++) /* n32 and n16 are -128 times the sum of codes */
                dot[c] = _mm512_set1_epi32((n == 2 ? a[c].n16[2 * g + part] : a[c].n32[g]) / 128 * f.offset);
#pragma GCC unroll 8
            for (int i = 0; i < n_fours; i++) {
                __m512i w = stored_codes(step, n_fours * part + i, f);
#pragma GCC unroll 12
                for (int c = 0; c < n_cols; c++)
                    dot[c] = _mm512_dpbusd_epi32(dot[c], w, broadcast4(a[c].q + 32 * g + 16 * part + 4 * i));
            }
            __m512 scale = stored_affine(step, head, 0, part, f);
#pragma GCC unroll 12
            for (int c = 0; c < n_cols; c++) {
                __m512 v = _mm512_cvtepi32_ps(dot[c]);
                sum[c] = part ? _mm512_fmadd_ps(v, scale, sum[c]) : _mm512_mul_ps(v, scale);
            }
        }
#pragma GCC unroll 12
        for (int c = 0; c < n_cols; c++) acc[c] = _mm512_fmadd_ps(sum[c], _mm512_set1_ps(a[c].d[g]), acc[c]);
        if (f.offset) continue;
        __m512 min = stored_affine(step, head, 1, 0, f);
#pragma GCC unroll 12
        for (int c = 0; c < n_cols; c++) acc[c] = _mm512_fmadd_ps(min, _mm512_set1_ps(a[c].ds[g]), acc[c]);
    }
    for (int c = 0; c < n_cols; c++) _mm512_mask_storeu_ps(t->out + (size_t)c * t->stride, t->mask[0], acc[c]);
}

/* Multiplies at most n_cols columns, and returns how many. */
typedef int (*stored_fn)(const char *panel, const ig_matmul *m, int column, const tile_out *t, int n_cols);
typedef void (*expand_fn)(char *to, int half, const char *stored, int n_in);

static void multiply_few(const ig_matmul *m, int row_begin, int row_end, stored_fn tile) {
    for (int r = row_begin; r < row_end; r += PANEL_ROWS)
        for (int c = 0; c < m->n_cols;) {
            const tile_out t = tile_out_at(m, r, ig_min_int(row_end - r, PANEL_ROWS), c);
            c += tile((const char *)m->w + (size_t)r * m->row_bytes, m, c, &t, m->n_cols - c);
        }
}

static void multiply_stored(const ig_matmul *m, int row_begin, int row_end, stored_fn few, expand_fn to_wide,
                            const tile_fn *tiles) {
    if (m->n_cols <= FEW_COLS) {
        multiply_few(m, row_begin, row_end, few);
        return;
    }
    for (int r = row_begin; r < row_end; r += WIDE_ROWS) {
        int n_rows = ig_min_int(row_end - r, WIDE_ROWS);
        for (int half = 0; half < 2 && PANEL_ROWS * half < n_rows; half++)
            to_wide(m->scratch, half, (const char *)m->w + (size_t)(r + PANEL_ROWS * half) * m->row_bytes, m->n_in);
        multiply_wide(m, r, n_rows, tiles);
    }
}

/* ---- the functions of a type -------------------------------------------------------- */

#define GEMM(type, f, unpack, ...)                                                     \
    void ig_unpack_##type##_avx512(char *panel, panel_rows rows, int half, int n_in) { \
        unpack(panel, rows, half, n_in, __VA_ARGS__);                                  \
    }                                                                                  \
    void ig_gemm_##type##_avx512(const ig_matmul *m, int row_begin, int row_end) {     \
        gemm_q8(m, row_begin, row_end, ig_unpack_##type##_avx512, tiles_##f);          \
    }

/* Tiles of so many columns of a stored panel. */
#define FEW(type, n)                                        \
    case n:                                                 \
        tile_stored(panel, m, column, t, stored_##type, n); \
        return n;

/* widest: columns of a tile of a stored panel, as many as registers can take. */
#define PANELS(type, widest, f, unpack, ...)                                                                  \
    GEMM(type, f, unpack, __VA_ARGS__)                                                                        \
    static void expand_##type(char *to, int half, const char *stored, int n_in) {                             \
        expand(to, half, stored, n_in, stored_##type, f);                                                     \
    }                                                                                                         \
    static int few_##type(const char *panel, const ig_matmul *m, int column, const tile_out *t, int n_cols) { \
        switch (n_cols >= widest ? widest : ig_min_int(n_cols, 8)) {                                          \
            FEW(type, 1)                                                                                      \
            FEW(type, 2)                                                                                      \
            FEW(type, 3)                                                                                      \
            FEW(type, 4)                                                                                      \
            FEW(type, 5)                                                                                      \
            FEW(type, 6)                                                                                      \
            FEW(type, 7)                                                                                      \
            FEW(type, 8)                                                                                      \
            default:                                                                                          \
                tile_stored(panel, m, column, t, stored_##type, widest);                                      \
                return widest;                                                                                \
        }                                                                                                     \
    }                                                                                                         \
    void ig_panels_##type##_avx512(const ig_matmul *m, int row_begin, int row_end) {                          \
        multiply_stored(m, row_begin, row_end, few_##type, expand_##type, tiles_##f);                         \
    }

PANELS(q4_0, STORED_COLS, signed32, unpack_pairs, load8_q4_0, pair_of_q4_0, 36, 8, signed32)
PANELS(q4_1, STORED_COLS, affine32, unpack_pairs, load8_q4_1, pair_of_q4_1, 40, 0, affine32)
PANELS(q5_0, STORED_COLS, signed32, unpack_pairs, load8_q5_0, pair_of_q5_0, 44, 16, signed32)
PANELS(q5_1, STORED_COLS, affine32, unpack_pairs, load8_q5_1, pair_of_q5_1, 48, 0, affine32)
PANELS(q4_k, STORED_COLS, affine32, unpack_supers, load_q4_k, 144, 0, affine32)
PANELS(q5_k, STORED_COLS, affine32, unpack_supers, load_q5_k, 176, 0, affine32)
PANELS(q6_k, 8, signed16, unpack_supers, load_q6_k, 210, 32, signed16)
PANELS(mxfp4, STORED_COLS, signed32, unpack_pairs, NULL, pair_of_mxfp4, 34, 128, signed32)
GEMM(q8_0, signed32, unpack_pairs, NULL, pair_of_q8_0, 68, 128, signed32)
GEMM(iq4_nl, signed32, unpack_pairs, NULL, pair_of_iq4_nl, 36, 128, signed32)
GEMM(iq4_xs, signed32, unpack_supers, load_iq4_xs, 136, 128, signed32)
GEMM(nvfp4, signed16, unpack_pairs, NULL, pair_of_nvfp4, 36, 128, signed16)
GEMM(q1_0, signed32, unpack_pairs, NULL, pair_of_q1_0, 9, 128, signed32)
GEMM(q2_0, signed32, unpack_pairs, NULL, pair_of_q2_0, 18, 128, signed32)
GEMM(tq1_0, signed32, unpack_pairs, NULL, pair_of_tq1_0, 14, 128, signed32)
GEMM(tq2_0, signed32, unpack_pairs, NULL, pair_of_tq2_0, 17, 128, signed32)
GEMM(q2_k, affine16, unpack_supers, load_q2_k, 84, 0, affine16)
GEMM(q3_k, signed16, unpack_supers, load_q3_k, 110, 4, signed16)
GEMM(iq1_s, signed16, unpack_supers, load_iq1_s, 50, 9, signed16)
GEMM(iq1_m, signed16, unpack_supers, load_iq1_m, 56, 9, signed16)
GEMM(iq2_xxs, signed16, unpack_supers, load_iq2_xxs, 66, 43, signed16)
GEMM(iq2_xs, signed16, unpack_supers, load_iq2_xs, 74, 43, signed16)
GEMM(iq2_s, signed16, unpack_supers, load_iq2_s, 82, 43, signed16)
GEMM(iq3_xxs, signed16, unpack_supers, load_iq3_xxs, 98, 62, signed16)
GEMM(iq3_s, signed16, unpack_supers, load_iq3_s, 110, 15, signed16)
