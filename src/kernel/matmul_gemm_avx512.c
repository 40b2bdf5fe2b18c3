/* SPDX-License-Identifier: Apache-2.0
 *
 * Many columns, AVX-512: rows in the lanes.
 *
 * A panel of 32 rows is unpacked to scratch once and multiplied with all columns, up to six
 * at a time. It is a stream of steps of 64 elements, each [4 elements][32 rows] bytes of codes
 * followed by the scales and minimums of its groups as floats, so that one vpdpbusd takes four
 * elements of 16 rows from the panel and four broadcast bytes of a column. Signed types are kept as
 * value + 128 and start their integer sums at -128 * (sum of the column's codes). With float
 * weights the panel is [element][32 rows] floats, a slice of elements at a time.
 */
#include "kernel/matmul_avx512.h"
#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx512.h"

enum { PANEL_ROWS = 32, TILE_COLS = 6, CODE_BYTES = 64 * PANEL_ROWS, FLOAT_SLICE = 1024 };

/* How a quantised type lies in a panel. */
typedef struct format {
    int n_scales; /* per step of 64 elements: 2 or 4 */
    int n_mins;   /* 0 (signed), 2 or 4 */
} format;

static const format signed32 = {2, 0}, signed16 = {4, 0}, affine32 = {2, 2}, affine16 = {4, 4};

static inline size_t step_bytes(format f) { return CODE_BYTES + (size_t)(f.n_scales + f.n_mins) * PANEL_ROWS * 4; }

size_t ig_gemm_scratch_bytes_avx512(int n_in) {
    size_t n_steps = ((size_t)n_in + 255) / 256 * 4, quantised = n_steps * step_bytes(affine16);
    size_t floats = FLOAT_SLICE * PANEL_ROWS * sizeof(float);
    return quantised > floats ? quantised : floats;
}

/* ---- panels -------------------------------------------------------------------- */

/* 16 rows of 16 dwords to 16 columns. */
static inline void transpose16(__m512i v[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* v[i + j]: column 4 * lane + j of rows i..i+3 */
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);
        t[8 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);
        t[12 + j] = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
    }
    for (int j = 0; j < 4; j++) {
        v[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
        v[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
        v[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xdd);
    }
}

/* Codes of 16 rows to one step of a panel; half 0 or 1 of its rows. */
static inline void put_codes(char *step, int half, __m512i code[16]) {
    transpose16(code);
    for (int i = 0; i < 16; i++) _mm512_store_si512(step + (2 * i + half) * 64, code[i]);
}

/* Vector i of the scales and minimums of a step, for half the rows. */
static inline float *affine_at(char *step, int i, int half) {
    return (float *)(void *)(step + CODE_BYTES + (2 * i + half) * 64);
}

typedef struct panel_rows {
    const uint8_t *w; /* first of the 16 */
    size_t row_bytes;
    int n; /* rows there are, 0..16 */
} panel_rows;

/* 256 elements of a row, from its byte `at`; to four steps. Offset: of signed types. */
INLINE void put_super(char *panel, panel_rows rows, int half, size_t at, super (*load)(const uint8_t *),
                      const int offset, const format f) {
    size_t step = step_bytes(f);
    __m512i code[4][16], scale[16], min[16];
    for (int r = 0; r < 16; r++) {
        super w = {0};
        if (r < rows.n) w = load(rows.w + (size_t)r * rows.row_bytes + at);
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
                          const int bytes, const int offset, const format f) {
    for (int b = 0; b < n_in / 256; b++, panel += 4 * step_bytes(f))
        put_super(panel, rows, half, (size_t)b * (size_t)bytes, load, offset, f);
}

/* One block or two from byte `at`; to one step. */
INLINE void put_pair(char *panel, panel_rows rows, int half, size_t at, pair (*load)(const uint8_t *, int),
                     int n_blocks, const int offset) {
    __m512i code[16];
    for (int r = 0; r < 16; r++) {
        pair w = {0};
        if (r < rows.n) w = load(rows.w + (size_t)r * rows.row_bytes + at, n_blocks);
        code[r] = offset && offset < 128 ? _mm512_add_epi8(w.code, _mm512_set1_epi8((char)(128 - offset))) : w.code;
        _mm_store_ss(affine_at(panel, 0, half) + r, _mm512_castps512_ps128(w.scale));
        _mm_store_ss(affine_at(panel, 1, half) + r, _mm512_extractf32x4_ps(w.scale, 2));
        if (offset) continue;
        _mm_store_ss(affine_at(panel, 2, half) + r, _mm512_castps512_ps128(w.min));
        _mm_store_ss(affine_at(panel, 3, half) + r, _mm512_extractf32x4_ps(w.min, 2));
    }
    put_codes(panel, half, code);
}

/* Blocks of 32: eight at a time if there is a function for that, then two, then one. */
INLINE void unpack_pairs(char *panel, panel_rows rows, int half, int n_in, super (*load8)(const uint8_t *),
                         pair (*load)(const uint8_t *, int), const int bytes, const int offset) {
    const format f = offset ? signed32 : affine32;
    int b = 0, n_blocks = n_in / 32;
    for (; load8 && b + 7 < n_blocks; b += 8, panel += 4 * step_bytes(f))
        put_super(panel, rows, half, (size_t)b * (size_t)bytes, load8, offset, f);
    for (; b < n_blocks; b += 2, panel += step_bytes(f)) {
        size_t at = (size_t)b * (size_t)bytes;
        if (b + 1 < n_blocks)
            put_pair(panel, rows, half, at, load, 2, offset);
        else
            put_pair(panel, rows, half, at, load, 1, offset);
    }
}

/* ---- quantised tiles ------------------------------------------------------------- */

/* Rows of a tile: lanes to write of the two halves. */
typedef struct tile_out {
    float *out;
    size_t stride;
    __mmask16 mask[2];
} tile_out;

static inline __m512i broadcast4(const int8_t *p) {
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE void tile_q8(const char *panel, int n_in, const char *act, size_t act_stride, tile_out t, const format f,
                    const int n_cols) {
    __m512 acc[2][TILE_COLS];
    const ig_q8 a = ig_q8_view(act, n_in); /* of the first column; the others lie act_stride further */
    const int parts = f.n_scales == 4 ? 2 : 1, n_fours = f.n_scales == 4 ? 4 : 8; /* of a group of 32, of a part */
#define COLUMN(plane, c) ((const void *)((const char *)(plane) + (size_t)(c)*act_stride))
#pragma GCC unroll 8
    for (int c = 0; c < n_cols; c++) acc[0][c] = acc[1][c] = _mm512_setzero_ps();
    for (int g = 0; g < (n_in + 63) / 64 * 2; g++) {
        const char *step = panel + (size_t)(g / 2) * step_bytes(f);
        const char *code = step + g % 2 * (CODE_BYTES / 2);
        const float *scale = (const float *)(const void *)(step + CODE_BYTES) + g % 2 * parts * PANEL_ROWS;
        const float *min = scale + f.n_scales * PANEL_ROWS;
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
        for (int h = 0; h < 2; h++) _mm512_mask_storeu_ps(t.out + (size_t)c * t.stride + 16 * h, t.mask[h], acc[h][c]);
}

typedef void (*tile_fn)(const char *panel, int n_in, const char *act, size_t act_stride, tile_out t);

#define TILE(name, f, n_cols)                                                                                  \
    static void name##_##n_cols(const char *panel, int n_in, const char *act, size_t act_stride, tile_out t) { \
        tile_q8(panel, n_in, act, act_stride, t, f, n_cols);                                                   \
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

static int tile_width(int n_left) { return n_left >= 6 ? 6 : n_left >= 4 ? 4 : n_left >= 2 ? 2 : 1; }

static tile_out tile_out_at(const ig_matmul *m, int r, int n_rows, int c) {
    uint32_t mask = (uint32_t)((1ull << n_rows) - 1);
    return (tile_out){
        m->out + (size_t)c * m->out_stride + (size_t)r, m->out_stride, {(__mmask16)mask, (__mmask16)(mask >> 16)}};
}

typedef void (*unpack_fn)(char *panel, panel_rows rows, int half, int n_in);

static int min_int(int a, int b) { return a < b ? a : b; }

static panel_rows rows_at(const ig_matmul *m, int r, int row_end) {
    int n = row_end - r < 0 ? 0 : min_int(row_end - r, 16);
    return (panel_rows){(const uint8_t *)m->w + (size_t)(n ? r : 0) * m->row_bytes, m->row_bytes, n};
}

static void gemm_q8(const ig_matmul *m, int row_begin, int row_end, unpack_fn unpack, const tile_fn *tiles) {
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        int n_rows = min_int(row_end - r, PANEL_ROWS);
        for (int half = 0; half < 2; half++) unpack(m->scratch, rows_at(m, r + 16 * half, row_end), half, m->n_in);
        for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
            n_cols = tile_width(m->n_cols - c);
            tiles[n_cols](m->scratch, m->n_in, (const char *)m->act + (size_t)c * m->act_stride, m->act_stride,
                          tile_out_at(m, r, n_rows, c));
        }
    }
}

#define GEMM(type, f, unpack, ...)                                                 \
    static void unpack_##type(char *panel, panel_rows rows, int half, int n_in) {  \
        unpack(panel, rows, half, n_in, __VA_ARGS__);                              \
    }                                                                              \
    void ig_gemm_##type##_avx512(const ig_matmul *m, int row_begin, int row_end) { \
        gemm_q8(m, row_begin, row_end, unpack_##type, tiles_##f);                  \
    }
GEMM(q4_0, signed32, unpack_pairs, load8_q4_0, load_q4_0, 18, 8)
GEMM(q4_1, affine32, unpack_pairs, load8_q4_1, load_q4_1, 20, 0)
GEMM(q5_0, signed32, unpack_pairs, load8_q5_0, load_q5_0, 22, 16)
GEMM(q5_1, affine32, unpack_pairs, load8_q5_1, load_q5_1, 24, 0)
GEMM(q8_0, signed32, unpack_pairs, NULL, load_q8_0, 34, 128)
GEMM(q2_k, affine16, unpack_supers, load_q2_k, 84, 0, affine16)
GEMM(q3_k, signed16, unpack_supers, load_q3_k, 110, 4, signed16)
GEMM(q4_k, affine32, unpack_supers, load_q4_k, 144, 0, affine32)
GEMM(q5_k, affine32, unpack_supers, load_q5_k, 176, 0, affine32)
GEMM(q6_k, signed16, unpack_supers, load_q6_k, 210, 32, signed16)

/* ---- floats ---------------------------------------------------------------------- */

INLINE void unpack_floats(float *panel, panel_rows rows, int half, int first, int n,
                          __m512 (*load)(const void *, __mmask16), const int bytes) {
    for (int i = 0; i < n; i += 16) {
        __mmask16 mask = (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : 0xffff);
        __m512i v[16];
        for (int r = 0; r < 16; r++) {
            v[r] = _mm512_setzero_si512();
            if (r < rows.n)
                v[r] = _mm512_castps_si512(
                    load(rows.w + (size_t)r * rows.row_bytes + (size_t)(first + i) * (size_t)bytes, mask));
        }
        transpose16(v);
        for (int j = 0; j < 16; j++) _mm512_store_si512(panel + (i + j) * PANEL_ROWS + 16 * half, v[j]);
    }
}

/* Elements first .. first + n of a slice; later slices add to what is in out. */
INLINE void tile_f32(const float *panel, int first, int n, const char *act, size_t act_stride, tile_out t,
                     const int n_cols) {
    __m512 acc[2][TILE_COLS];
#pragma GCC unroll 8
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++)
            acc[h][c] =
                first ? _mm512_maskz_loadu_ps(t.mask[h], t.out + (size_t)c * t.stride + 16 * h) : _mm512_setzero_ps();
    const char *x = act + (size_t)first * sizeof(float);
    for (int i = 0; i < n; i++, x += sizeof(float)) {
        __m512 w0 = _mm512_load_ps(panel + i * PANEL_ROWS), w1 = _mm512_load_ps(panel + i * PANEL_ROWS + 16);
#pragma GCC unroll 8
        for (int c = 0; c < n_cols; c++) {
            __m512 v = _mm512_set1_ps(*(const float *)(const void *)(x + (size_t)c * act_stride));
            acc[0][c] = _mm512_fmadd_ps(w0, v, acc[0][c]);
            acc[1][c] = _mm512_fmadd_ps(w1, v, acc[1][c]);
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) _mm512_mask_storeu_ps(t.out + (size_t)c * t.stride + 16 * h, t.mask[h], acc[h][c]);
}

static void tiles_f32(const ig_matmul *m, int first, int n, int r, int n_rows) {
    for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
        n_cols = tile_width(m->n_cols - c);
        const char *act = (const char *)m->act + (size_t)c * m->act_stride;
        tile_out t = tile_out_at(m, r, n_rows, c);
        if (n_cols == 6)
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 6);
        else if (n_cols == 4)
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 4);
        else if (n_cols == 2)
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 2);
        else
            tile_f32(m->scratch, first, n, act, m->act_stride, t, 1);
    }
}

typedef void (*unpack_floats_fn)(float *panel, panel_rows rows, int half, int first, int n);

static void gemm_floats(const ig_matmul *m, int row_begin, int row_end, unpack_floats_fn unpack) {
    for (int r = row_begin; r < row_end; r += PANEL_ROWS)
        for (int first = 0; first < m->n_in; first += FLOAT_SLICE) {
            int n = min_int(m->n_in - first, FLOAT_SLICE);
            for (int half = 0; half < 2; half++) unpack(m->scratch, rows_at(m, r + 16 * half, row_end), half, first, n);
            tiles_f32(m, first, n, r, min_int(row_end - r, PANEL_ROWS));
        }
}

#define GEMM_FLOATS(type, bytes)                                                           \
    static void unpack_##type(float *panel, panel_rows rows, int half, int first, int n) { \
        unpack_floats(panel, rows, half, first, n, load_##type, bytes);                    \
    }                                                                                      \
    void ig_gemm_##type##_avx512(const ig_matmul *m, int row_begin, int row_end) {         \
        gemm_floats(m, row_begin, row_end, unpack_##type);                                 \
    }
GEMM_FLOATS(f32, 4)
GEMM_FLOATS(f16, 2)
GEMM_FLOATS(bf16, 2)
