/* SPDX-License-Identifier: Apache-2.0
 *
 * Many columns, AVX2: rows in the lanes.
 *
 * A panel of 16 rows is unpacked to scratch once and multiplied with all columns, two at a
 * time (six with float weights). It is a stream of steps of 32 elements, each [4 elements][16 rows]
 * bytes of codes followed by one or two vectors of 16 scales and as many minimums; Q8_0 has
 * signed codes and no minimums. With float weights the panel is [element][16 rows] floats, a
 * slice of elements at a time.
 */
#include "kernel/matmul_avx2.h"
#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx2.h"

enum { PANEL_ROWS = 16, TILE_COLS = 2, FLOAT_COLS = 6, CODE_BYTES = 32 * PANEL_ROWS, FLOAT_SLICE = 512 };

/* How a quantised type lies in a panel. */
typedef struct format {
    int n_scales; /* per step of 32 elements: 1 or 2; as many minimums */
    int is_signed;
} format;

static const format group32 = {1, 0}, group16 = {2, 0}, group32_signed = {1, 1};

static inline size_t step_bytes(format f) {
    return CODE_BYTES + (size_t)(f.n_scales * (f.is_signed ? 1 : 2)) * PANEL_ROWS * sizeof(float);
}

size_t ig_gemm_scratch_bytes_avx2(int n_in) {
    size_t quantised = ((size_t)n_in + 31) / 32 * step_bytes(group16);
    size_t floats = FLOAT_SLICE * PANEL_ROWS * sizeof(float);
    return ((quantised > floats ? quantised : floats) + 63) / 64 * 64;
}

static int min_int(int a, int b) { return a < b ? a : b; }

/* ---- panels --------------------------------------------------------------------- */

/* 8 rows of 8 dwords to 8 columns. */
static inline void transpose8(__m256i v[8]) {
    __m256i t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x20);
        v[4 + i] = _mm256_permute2x128_si256(u[i], u[4 + i], 0x31);
    }
}

/* Eight dwords of each of 8 rows to a panel of 16 rows; half 0 or 1. */
static inline void put_columns(char *panel, int half, __m256i v[8]) {
    transpose8(v);
    for (int i = 0; i < 8; i++) _mm256_store_si256((void *)(panel + (2 * i + half) * 32), v[i]);
}

static inline float *affine_at(char *step, int i, int half) {
    return (float *)(void *)(step + CODE_BYTES + (2 * i + half) * 32);
}

typedef struct panel_rows {
    const uint8_t *w; /* first of the 8 */
    size_t row_bytes;
    int n; /* rows there are, 0..8 */
} panel_rows;

INLINE void unpack_smalls(char *panel, panel_rows rows, int half, int n_in, small (*load)(const uint8_t *),
                          const int bytes, const format f) {
    for (int b = 0; b < n_in / 32; b++, panel += step_bytes(f)) {
        __m256i code[8];
        for (int r = 0; r < 8; r++) {
            small w = {0};
            if (r < rows.n) w = load(rows.w + (size_t)r * rows.row_bytes + (size_t)b * (size_t)bytes);
            code[r] = w.code;
            affine_at(panel, 0, half)[r] = w.scale;
            if (!f.is_signed) affine_at(panel, 1, half)[r] = w.min;
        }
        put_columns(panel, half, code);
    }
}

INLINE void unpack_supers(char *panel, panel_rows rows, int half, int n_in, void (*load)(super *, const uint8_t *),
                          const int bytes, const format f) {
    const int n = f.n_scales;
    for (int b = 0; b < n_in / 256; b++, panel += 8 * step_bytes(f)) {
        __m256i code[8][8];
        for (int r = 0; r < 8; r++) {
            super w = {0};
            if (r < rows.n) load(&w, rows.w + (size_t)r * rows.row_bytes + (size_t)b * (size_t)bytes);
            for (int i = 0; i < 8; i++) {
                char *step = panel + (size_t)i * step_bytes(f);
                code[i][r] = w.code[i];
                for (int j = 0; j < n; j++) {
                    affine_at(step, j, half)[r] = w.scale[i * n + j];
                    affine_at(step, n + j, half)[r] = w.min[i * n + j];
                }
            }
        }
        for (int i = 0; i < 8; i++) put_columns(panel + (size_t)i * step_bytes(f), half, code[i]);
    }
}

/* ---- tiles ------------------------------------------------------------------------ */

typedef struct tile_out {
    float *out;
    size_t stride;
    int n_rows; /* to write, 1..16 */
} tile_out;

static inline void store_half(const tile_out *t, int c, int half, __m256 v) {
    float *dst = t->out + (size_t)c * t->stride + 8 * half, tail[8];
    int n = t->n_rows - 8 * half;
    if (n >= 8) {
        _mm256_storeu_ps(dst, v);
        return;
    }
    _mm256_storeu_ps(tail, v);
    for (int i = 0; i < n; i++) dst[i] = tail[i];
}

/* Integer sums of 8 rows and n elements (a multiple of 8) at `code`, for one column. */
INLINE __m256i dot_rows(const char *code, const int8_t *q, const int n, const int is_signed) {
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int i = 0; i < n; i += 8) {
        int32_t q0, q1;
        memcpy(&q0, q + i, sizeof q0);
        memcpy(&q1, q + i + 4, sizeof q1);
        __m256i w0 = _mm256_load_si256((const void *)(code + i * PANEL_ROWS));
        __m256i w1 = _mm256_load_si256((const void *)(code + (i + 4) * PANEL_ROWS));
        __m256i x0 = _mm256_set1_epi32(q0), x1 = _mm256_set1_epi32(q1);
        if (is_signed) {
            sum = _mm256_add_epi32(sum, _mm256_add_epi32(dot4(w0, x0, 1), dot4(w1, x1, 1)));
        } else { /* two sums of codes up to 63 fit 16 bits */
            __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w0, x0), _mm256_maddubs_epi16(w1, x1));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        }
    }
    return sum;
}

INLINE void tile_q8(const char *panel, const ig_matmul *m, int c0, tile_out t, const format f, const int n_cols) {
    __m256 acc[2][TILE_COLS];
    ig_q8 a[TILE_COLS];
    const int n = f.n_scales;
    for (int c = 0; c < n_cols; c++) {
        a[c] = ig_q8_view((const char *)m->act + (size_t)(c0 + c) * m->act_stride, m->n_in);
        acc[0][c] = acc[1][c] = _mm256_setzero_ps();
    }
    for (int g = 0; g < m->n_in / 32; g++, panel += step_bytes(f)) {
        const float *scale = (const float *)(const void *)(panel + CODE_BYTES), *min = scale + n * PANEL_ROWS;
#pragma GCC unroll 2
        for (int part = 0; part < n; part++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const char *code = panel + part * (CODE_BYTES / 2) + 32 * h;
                __m256 s = _mm256_load_ps(scale + part * PANEL_ROWS + 8 * h);
#pragma GCC unroll 2
                for (int c = 0; c < n_cols; c++) {
                    __m256i dot = dot_rows(code, a[c].q + 32 * g + 16 * part, 32 / n, f.is_signed);
                    __m256 sd = _mm256_mul_ps(s, _mm256_set1_ps(a[c].d[g]));
                    acc[h][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), sd, acc[h][c]);
                    if (f.is_signed) continue;
                    __m256 ds = _mm256_set1_ps(n == 2 ? a[c].ds16[2 * g + part] : a[c].ds[g]);
                    acc[h][c] = _mm256_fmadd_ps(_mm256_load_ps(min + part * PANEL_ROWS + 8 * h), ds, acc[h][c]);
                }
            }
    }
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) store_half(&t, c, h, acc[h][c]);
}

typedef void (*tile_fn)(const char *panel, const ig_matmul *m, int c0, int n_cols, tile_out t);

#define TILES(name)                                                                                  \
    static void tile_##name(const char *panel, const ig_matmul *m, int c0, int n_cols, tile_out t) { \
        if (n_cols == 2)                                                                             \
            tile_q8(panel, m, c0, t, name, 2);                                                       \
        else                                                                                         \
            tile_q8(panel, m, c0, t, name, 1);                                                       \
    }
TILES(group32)
TILES(group16)
TILES(group32_signed)

typedef void (*unpack_fn)(char *panel, panel_rows rows, int half, int n_in);

static panel_rows rows_at(const ig_matmul *m, int r, int row_end) {
    int n = row_end - r < 0 ? 0 : min_int(row_end - r, 8);
    return (panel_rows){(const uint8_t *)m->w + (size_t)(n ? r : 0) * m->row_bytes, m->row_bytes, n};
}

static tile_out tile_out_at(const ig_matmul *m, int r, int row_end, int c) {
    return (tile_out){m->out + (size_t)c * m->out_stride + (size_t)r, m->out_stride, min_int(row_end - r, PANEL_ROWS)};
}

static void gemm_q8(const ig_matmul *m, int row_begin, int row_end, unpack_fn unpack, tile_fn tile) {
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        for (int half = 0; half < 2; half++) unpack(m->scratch, rows_at(m, r + 8 * half, row_end), half, m->n_in);
        for (int c = 0; c < m->n_cols; c += TILE_COLS)
            tile(m->scratch, m, c, min_int(m->n_cols - c, TILE_COLS), tile_out_at(m, r, row_end, c));
    }
}

#define GEMM(type, unpack, bytes, f)                                              \
    static void unpack_##type(char *panel, panel_rows rows, int half, int n_in) { \
        unpack(panel, rows, half, n_in, load_##type, bytes, f);                   \
    }                                                                             \
    void ig_gemm_##type##_avx2(const ig_matmul *m, int row_begin, int row_end) {  \
        gemm_q8(m, row_begin, row_end, unpack_##type, tile_##f);                  \
    }
GEMM(q4_0, unpack_smalls, 18, group32)
GEMM(q4_1, unpack_smalls, 20, group32)
GEMM(q5_0, unpack_smalls, 22, group32)
GEMM(q5_1, unpack_smalls, 24, group32)
GEMM(q8_0, unpack_smalls, 34, group32_signed)
GEMM(q2_k, unpack_supers, 84, group16)
GEMM(q3_k, unpack_supers, 110, group16)
GEMM(q4_k, unpack_supers, 144, group32)
GEMM(q5_k, unpack_supers, 176, group32)
GEMM(q6_k, unpack_supers, 210, group16)

/* ---- floats ------------------------------------------------------------------------ */

INLINE void unpack_floats(char *panel, panel_rows rows, int half, int first, int n,
                          __m256 (*load)(const uint8_t *, int), const int bytes) {
    for (int i = 0; i < n; i += 8) {
        __m256i v[8];
        for (int r = 0; r < 8; r++) {
            v[r] = _mm256_setzero_si256();
            if (r < rows.n)
                v[r] = _mm256_castps_si256(
                    load(rows.w + (size_t)r * rows.row_bytes + (size_t)(first + i) * (size_t)bytes, n - i));
        }
        put_columns(panel + (size_t)i * PANEL_ROWS * sizeof(float), half, v);
    }
}

/* Elements first .. first + n; later slices add to what is in out. */
INLINE void tile_f32(const float *panel, int first, int n, const ig_matmul *m, int c0, tile_out t, const int n_cols) {
    __m256 acc[2][FLOAT_COLS];
    const char *x = (const char *)m->act + (size_t)c0 * m->act_stride + (size_t)first * sizeof(float);
#pragma GCC unroll 6
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) {
            int n_left = t.n_rows - 8 * h;
            acc[h][c] = _mm256_setzero_ps();
            if (first && n_left > 0)
                acc[h][c] = load_f32((const uint8_t *)(t.out + (size_t)c * t.stride + 8 * h), n_left);
        }
    for (int i = 0; i < n; i++, x += sizeof(float)) {
        __m256 w0 = _mm256_load_ps(panel + i * PANEL_ROWS), w1 = _mm256_load_ps(panel + i * PANEL_ROWS + 8);
#pragma GCC unroll 6
        for (int c = 0; c < n_cols; c++) {
            __m256 v = _mm256_set1_ps(*(const float *)(const void *)(x + (size_t)c * m->act_stride));
            acc[0][c] = _mm256_fmadd_ps(w0, v, acc[0][c]);
            acc[1][c] = _mm256_fmadd_ps(w1, v, acc[1][c]);
        }
    }
#pragma GCC unroll 6
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) store_half(&t, c, h, acc[h][c]);
}

typedef void (*unpack_floats_fn)(char *panel, panel_rows rows, int half, int first, int n);

static void gemm_floats(const ig_matmul *m, int row_begin, int row_end, unpack_floats_fn unpack) {
    for (int r = row_begin; r < row_end; r += PANEL_ROWS)
        for (int first = 0; first < m->n_in; first += FLOAT_SLICE) {
            int n = min_int(m->n_in - first, FLOAT_SLICE);
            for (int half = 0; half < 2; half++) unpack(m->scratch, rows_at(m, r + 8 * half, row_end), half, first, n);
            for (int c = 0, n_cols; c < m->n_cols; c += n_cols) {
                n_cols = m->n_cols - c >= 6 ? 6 : m->n_cols - c >= 2 ? 2 : 1;
                tile_out t = tile_out_at(m, r, row_end, c);
                if (n_cols == 6)
                    tile_f32(m->scratch, first, n, m, c, t, 6);
                else if (n_cols == 2)
                    tile_f32(m->scratch, first, n, m, c, t, 2);
                else
                    tile_f32(m->scratch, first, n, m, c, t, 1);
            }
        }
}

#define GEMM_FLOATS(type, bytes)                                                          \
    static void unpack_##type(char *panel, panel_rows rows, int half, int first, int n) { \
        unpack_floats(panel, rows, half, first, n, load_##type, bytes);                   \
    }                                                                                     \
    void ig_gemm_##type##_avx2(const ig_matmul *m, int row_begin, int row_end) {          \
        gemm_floats(m, row_begin, row_end, unpack_##type);                                \
    }
GEMM_FLOATS(f32, 4)
GEMM_FLOATS(f16, 2)
GEMM_FLOATS(bf16, 2)
