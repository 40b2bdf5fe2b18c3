/* SPDX-License-Identifier: Apache-2.0
 *
 * Many columns, AVX2: rows in the lanes.
 *
 * A panel of 16 rows is unpacked to scratch once and multiplied with all columns, three at a time (six with float
 * weights, and a slice of 512 elements). It is a stream of steps of 32 elements, each [4 elements][16 rows] bytes of
 * codes followed by one or two vectors of 16 scales and as many minimums; Q8_0 has signed codes and no minimums. With
 * float weights the panel is [element][16 rows] floats.
 */
#include <stdbool.h>

#include "kernel/matmul_avx2.h"
#include "kernel/parts.h"
#include "kernel/quant.h"
#include "kernel/quant_avx2.h"

enum { PANEL_ROWS = 16, TILE_COLS = 3, FLOAT_COLS = 6, CODE_BYTES = 32 * PANEL_ROWS, FLOAT_SLICE = 512 };

/* How a quantised type lies in a panel. */
typedef struct format {
    int n_scales; /* per step of 32 elements: 1 or 2; as many minimums, if codes are unsigned */
    int fits; /* elements of a row that 16 bits can add up, where a lane gets 2 products of each 4; 0: signed codes */
} format;

static const format bits4 = {1, 32}, bits5 = {1, 16}, bits8 = {1, 0}, bits3_16 = {2, 32}, bits6_16 = {2, 8},
                    floats = {0, 0};

static inline size_t step_bytes(format f) {
    return CODE_BYTES + (size_t)(f.n_scales * (f.fits ? 2 : 1)) * PANEL_ROWS * sizeof(float);
}

size_t ig_gemm_scratch_bytes_avx2(int n_in) {
    size_t quantised = ((size_t)n_in + 31) / 32 * step_bytes(bits6_16);
    size_t whole = FLOAT_SLICE * PANEL_ROWS * sizeof(float);
    return ((quantised > whole ? quantised : whole) + 63) / 64 * 64;
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
    const uint8_t *w; /* the slice of the first of the 8 */
    size_t row_bytes;
    int n; /* rows there are, 0..8; for the others the first is read again, and what comes of them is not stored */
} panel_rows;

static inline const uint8_t *row_at(const panel_rows *rows, int r) {
    return rows->w + (size_t)(r < rows->n ? r : 0) * rows->row_bytes;
}

/* 16 bytes of each of 8 rows, the first of which are at p[]: dword i of all rows goes to v[i]. */
INLINE void gather4(__m256i v[4], const uint8_t *const p[8], size_t offset) {
    __m256i t[4];
    for (int r = 0; r < 4; r++) {
        __m128i low = _mm_loadu_si128((const void *)(p[r] + offset));
        t[r] =
            _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128((const void *)(p[r + 4] + offset)), 1);
    }
    __m256i a = _mm256_unpacklo_epi32(t[0], t[1]), b = _mm256_unpacklo_epi32(t[2], t[3]);
    __m256i c = _mm256_unpackhi_epi32(t[0], t[1]), d = _mm256_unpackhi_epi32(t[2], t[3]);
    v[0] = _mm256_unpacklo_epi64(a, b);
    v[1] = _mm256_unpackhi_epi64(a, b);
    v[2] = _mm256_unpacklo_epi64(c, d);
    v[3] = _mm256_unpackhi_epi64(c, d);
}

/* A dword of each of 8 rows. */
INLINE __m256i gather1(const uint8_t *const p[8], size_t offset) {
    uint32_t v[8];
    for (int r = 0; r < 8; r++) v[r] = ig_read_u32(p[r] + offset);
    return _mm256_setr_epi32((int)v[0], (int)v[1], (int)v[2], (int)v[3], (int)v[4], (int)v[5], (int)v[6], (int)v[7]);
}

/* Of 8 dwords the 16-bit floats in their low halves, or their high ones. */
INLINE __m256 half_floats(__m256i v, bool high) {
    if (high) v = _mm256_srli_epi32(v, 16);
    v = _mm256_packus_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)), _mm256_setzero_si256());
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(v, 0x08)));
}

/* 16 in the bytes of elements 4 i .. 4 i + 3 of 8 rows, where the bit of `bits` is set. */
INLINE __m256i fifth_of(__m256i bits, const int i) {
    const __m256i each = _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0, 0, 4, 4, 4, 4, 8,
                                          8, 8, 8, 12, 12, 12, 12);
    const __m256i bit = _mm256_set1_epi32(i % 2 ? (int)0x80402010 : 0x08040201);
    __m256i v = _mm256_shuffle_epi8(bits, _mm256_add_epi8(each, _mm256_set1_epi8((char)(i / 2))));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit), _mm256_set1_epi8(16));
}

/* Q4_0, Q4_1, Q5_0, Q5_1: a scale, perhaps a minimum, perhaps 32 fifth bits, and 16 bytes: what loads one row in
 * quant_avx2.h, for 8 rows at a time. */
INLINE void unpack_nibbles(char *panel, panel_rows rows, int half, int n, small (*unused)(const uint8_t *),
                           const int bytes, const format f) {
    const bool has_fifth = f.fits == bits5.fits, has_min = bytes == 20 + 4 * has_fifth;
    const uint8_t *p[8];
    (void)unused;
    for (int r = 0; r < 8; r++) p[r] = row_at(&rows, r);
    for (int b = 0; b < n / 32; b++, panel += step_bytes(f)) {
        __m256i code[4], affine = gather1(p, 0), bits = has_fifth ? gather1(p, (size_t)bytes - 20) : affine;
        gather4(code, p, (size_t)bytes - 16);
        __m256 scale = half_floats(affine, false);
        __m256 min = has_min ? half_floats(affine, true) : _mm256_mul_ps(scale, _mm256_set1_ps(has_fifth ? -16 : -8));
        _mm256_store_ps(affine_at(panel, 0, half), scale);
        _mm256_store_ps(affine_at(panel, 1, half), min);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            __m256i v = i < 4 ? code[i] : _mm256_srli_epi16(code[i - 4], 4);
            v = _mm256_and_si256(v, _mm256_set1_epi8(15));
            if (has_fifth) v = _mm256_or_si256(v, fifth_of(bits, i));
            _mm256_store_si256((void *)(panel + (2 * i + half) * 32), v);
        }
        for (int r = 0; r < 8; r++) p[r] += bytes;
    }
}

/* Q8_0. */
INLINE void unpack_bytes(char *panel, panel_rows rows, int half, int n, small (*load)(const uint8_t *), const int bytes,
                         const format f) {
    for (int b = 0; b < n / 32; b++, panel += step_bytes(f)) {
        __m256i code[8];
        for (int r = 0; r < 8; r++) {
            small w = load(row_at(&rows, r) + (size_t)b * (size_t)bytes);
            code[r] = w.code;
            affine_at(panel, 0, half)[r] = w.scale;
        }
        put_columns(panel, half, code);
    }
}

/* Eight numbers of each of 8 blocks, the first of them number 8 k: number i of all blocks goes to affine[i] of steps
 * that have f.n_scales. */
INLINE void put_affine(char *panel, int half, __m256i v[8], int k, int which, const format f) {
    transpose8(v);
    for (int i = 0; i < 8; i++) {
        int at = 8 * k + i;
        float *to = affine_at(panel + (size_t)(at / f.n_scales) * step_bytes(f), which + at % f.n_scales, half);
        _mm256_store_si256((void *)to, v[i]);
    }
}

INLINE void unpack_supers(char *panel, panel_rows rows, int half, int n, void (*load)(super *, const uint8_t *),
                          const int bytes, const format f) {
    for (int b = 0; b < n / 256; b++, panel += 8 * step_bytes(f)) {
        super w[8];
        __m256i v[8];
        for (int r = 0; r < 8; r++) load(&w[r], row_at(&rows, r) + (size_t)b * (size_t)bytes);
        for (int i = 0; i < 8; i++) {
            for (int r = 0; r < 8; r++) v[r] = w[r].code[i];
            put_columns(panel + (size_t)i * step_bytes(f), half, v);
        }
        for (int k = 0; k < f.n_scales; k++) {
            for (int r = 0; r < 8; r++) v[r] = load32((const void *)(w[r].scale + 8 * k));
            put_affine(panel, half, v, k, 0, f);
            for (int r = 0; r < 8; r++) v[r] = load32((const void *)(w[r].min + 8 * k));
            put_affine(panel, half, v, k, f.n_scales, f);
        }
    }
}

INLINE void unpack_floats(char *panel, panel_rows rows, int half, int n, __m256 (*load)(const uint8_t *, int),
                          const int bytes, const format unused) {
    (void)unused;
    for (int i = 0; i < n; i += 8) {
        __m256i v[8];
        for (int r = 0; r < 8; r++) {
            v[r] = _mm256_setzero_si256();
            if (r < rows.n)
                v[r] = _mm256_castps_si256(load(rows.w + (size_t)r * rows.row_bytes + (size_t)(i * bytes), n - i));
        }
        put_columns(panel + (size_t)i * PANEL_ROWS * sizeof(float), half, v);
    }
}

/* ---- tiles ------------------------------------------------------------------------ */

/* What a panel and some columns make. */
typedef struct tile_at {
    const ig_matmul *m;
    float *out;   /* of the first row and column */
    int n_rows;   /* to write, 1..16 */
    int column;   /* the first */
    int first, n; /* elements of the slice */
} tile_at;

/* Sums of 8 rows so far. */
static inline __m256 load_half(const tile_at *t, int c, int half) {
    int n = t->n_rows - 8 * half;
    if (t->first == 0 || n <= 0) return _mm256_setzero_ps();
    return load_f32((const uint8_t *)(t->out + (size_t)c * t->m->out_stride + 8 * half), n);
}

static inline void store_half(const tile_at *t, int c, int half, __m256 v) {
    float *dst = t->out + (size_t)c * t->m->out_stride + 8 * half, tail[8];
    int n = t->n_rows - 8 * half;
    if (n >= 8) {
        _mm256_storeu_ps(dst, v);
        return;
    }
    _mm256_storeu_ps(tail, v);
    for (int i = 0; i < n; i++) dst[i] = tail[i];
}

/* A sum that is made where it stands: left to itself GCC adds up more products at a time than there are registers. */
#define STAY(sum) __asm__("" : "+x"(sum))

/* The codes of 4 elements of 16 rows. */
INLINE void load_codes(__m256i w[2], const char *code) {
    for (int h = 0; h < 2; h++) w[h] = _mm256_load_si256((const void *)(code + 32 * h));
}

INLINE void clear(__m256i sum[2][TILE_COLS], const int n_cols) {
#pragma GCC unroll 3
    for (int c = 0; c < n_cols; c++) sum[0][c] = sum[1][c] = _mm256_setzero_si256();
}

/* Integer sums of 16 rows and n elements (16 or 32) at `code`, for each column at q. As many products are added in 16
 * bits as fit. */
INLINE void dot_unsigned(__m256i dot[2][TILE_COLS], const char *code, const int8_t *const q[TILE_COLS], const int n,
                         const int fits, const int n_cols) {
    const int n_16 = n < fits ? n : fits;
    __m256i sum[2][TILE_COLS], w[2];
#pragma GCC unroll 2
    for (int i = 0; i < n; i += n_16) {
        clear(sum, n_cols);
#pragma GCC unroll 8
        for (int j = i; j < i + n_16; j += 4) {
            load_codes(w, code + j * PANEL_ROWS);
#pragma GCC unroll 3
            for (int c = 0; c < n_cols; c++) {
                __m256i x = repeat4(q[c] + j);
                for (int h = 0; h < 2; h++) {
                    sum[h][c] = _mm256_add_epi16(sum[h][c], _mm256_maddubs_epi16(w[h], x));
                    STAY(sum[h][c]);
                }
            }
        }
#pragma GCC unroll 3
        for (int c = 0; c < n_cols; c++)
            for (int h = 0; h < 2; h++) {
                __m256i s = _mm256_madd_epi16(sum[h][c], _mm256_set1_epi16(1));
                dot[h][c] = i ? _mm256_add_epi32(dot[h][c], s) : s;
            }
    }
}

/* The same of codes with a sign, of which no two products fit. */
INLINE void dot_signed(__m256i dot[2][TILE_COLS], const char *code, const int8_t *const q[TILE_COLS], const int n,
                       const int n_cols) {
    __m256i w[2];
    clear(dot, n_cols);
#pragma GCC unroll 8
    for (int i = 0; i < n; i += 4) {
        load_codes(w, code + i * PANEL_ROWS);
#pragma GCC unroll 3
        for (int c = 0; c < n_cols; c++) {
            __m256i x = repeat4(q[c] + i);
            for (int h = 0; h < 2; h++) {
                dot[h][c] = _mm256_add_epi32(dot[h][c], dot4(w[h], x, 1));
                STAY(dot[h][c]);
            }
        }
    }
}

INLINE void tile_q8(const char *panel, const tile_at *t, const format f, const int n_cols) {
    __m256 acc[2][TILE_COLS];
    ig_q8 a[TILE_COLS];
    const int n = f.n_scales;
    for (int c = 0; c < n_cols; c++) {
        a[c] = ig_q8_view((const char *)t->m->act + (size_t)(t->column + c) * t->m->act_stride, t->m->n_in);
        for (int h = 0; h < 2; h++) acc[h][c] = load_half(t, c, h);
    }
    for (int g = t->first / 32; g < (t->first + t->n) / 32; g++, panel += step_bytes(f)) {
        const float *scale = (const float *)(const void *)(panel + CODE_BYTES), *min = scale + n * PANEL_ROWS;
#pragma GCC unroll 2
        for (int part = 0; part < n; part++) {
            const char *code = panel + part * (CODE_BYTES / 2);
            const int8_t *q[TILE_COLS];
            __m256i dot[2][TILE_COLS];
            for (int c = 0; c < n_cols; c++) q[c] = a[c].q + 32 * g + 16 * part;
            if (f.fits)
                dot_unsigned(dot, code, q, 32 / n, f.fits, n_cols);
            else
                dot_signed(dot, code, q, 32 / n, n_cols);
#pragma GCC unroll 3
            for (int c = 0; c < n_cols; c++) {
                __m256 d = _mm256_set1_ps(a[c].d[g]);
                __m256 ds = _mm256_set1_ps(n == 2 ? a[c].ds16[2 * g + part] : a[c].ds[g]);
                for (int h = 0; h < 2; h++) {
                    int at = part * PANEL_ROWS + 8 * h;
                    acc[h][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[h][c]),
                                                _mm256_mul_ps(_mm256_load_ps(scale + at), d), acc[h][c]);
                    if (f.fits) acc[h][c] = _mm256_fmadd_ps(_mm256_load_ps(min + at), ds, acc[h][c]);
                }
            }
        }
    }
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) store_half(t, c, h, acc[h][c]);
}

/* Floats. */
INLINE void tile_f32(const char *panel, const tile_at *t, const format unused, const int n_cols) {
    __m256 acc[2][FLOAT_COLS];
    size_t stride = t->m->act_stride;
    const char *x = (const char *)t->m->act + (size_t)t->column * stride + (size_t)t->first * sizeof(float);
    (void)unused;
#pragma GCC unroll 6
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) acc[h][c] = load_half(t, c, h);
    for (int i = 0; i < t->n; i++, x += sizeof(float), panel += PANEL_ROWS * sizeof(float)) {
        __m256 w[2] = {_mm256_load_ps((const void *)panel), _mm256_load_ps((const void *)(panel + 32))};
#pragma GCC unroll 6
        for (int c = 0; c < n_cols; c++) {
            __m256 v = _mm256_set1_ps(*(const float *)(const void *)(x + (size_t)c * stride));
            for (int h = 0; h < 2; h++) acc[h][c] = _mm256_fmadd_ps(w[h], v, acc[h][c]);
        }
    }
#pragma GCC unroll 6
    for (int c = 0; c < n_cols; c++)
        for (int h = 0; h < 2; h++) store_half(t, c, h, acc[h][c]);
}

/* ---- products ---------------------------------------------------------------------- */

/* The widest tile, 2 columns or 1. */
#define TILES(f, tile, widest)                                             \
    static int tile_##f(const char *panel, const tile_at *t, int n_cols) { \
        if (n_cols >= widest) {                                            \
            tile(panel, t, f, widest);                                     \
            return widest;                                                 \
        }                                                                  \
        if (n_cols >= 2) {                                                 \
            tile(panel, t, f, 2);                                          \
            return 2;                                                      \
        }                                                                  \
        tile(panel, t, f, 1);                                              \
        return 1;                                                          \
    }
TILES(bits4, tile_q8, TILE_COLS)
TILES(bits5, tile_q8, TILE_COLS)
TILES(bits8, tile_q8, TILE_COLS)
TILES(bits3_16, tile_q8, TILE_COLS)
TILES(bits6_16, tile_q8, TILE_COLS)
TILES(floats, tile_f32, FLOAT_COLS)

/* Eight rows and n elements to one half of a panel. */
typedef void (*unpack_fn)(char *panel, panel_rows rows, int half, int n);
/* Multiplies at most n_cols columns, and returns how many. */
typedef int (*tile_fn)(const char *panel, const tile_at *t, int n_cols);

static panel_rows rows_at(const ig_matmul *m, int r, int row_end, size_t offset) {
    int n = row_end - r < 0 ? 0 : min_int(row_end - r, 8);
    return (panel_rows){(const uint8_t *)m->w + (size_t)(n ? r : 0) * m->row_bytes + offset, m->row_bytes, n};
}

/* block: elements that take `bytes`. The rows of the next panel are fetched while this one meets the columns, an equal
 * share with each column. */
static void multiply(const ig_matmul *m, int row_begin, int row_end, unpack_fn unpack, tile_fn tile, int block,
                     int bytes) {
    const int slice = block == 1 ? FLOAT_SLICE : m->n_in;
    const size_t share = PANEL_ROWS * m->row_bytes / (size_t)m->n_cols;
    tile_at t = {.m = m};
    for (int r = row_begin; r < row_end; r += PANEL_ROWS) {
        const char *next = (const char *)m->w + (size_t)(r + PANEL_ROWS) * m->row_bytes;
        t.n_rows = min_int(row_end - r, PANEL_ROWS);
        for (t.first = 0; t.first < m->n_in; t.first += slice) {
            size_t offset = (size_t)(t.first / block) * (size_t)bytes;
            t.n = min_int(m->n_in - t.first, slice);
            for (int half = 0; half < 2; half++)
                unpack(m->scratch, rows_at(m, r + 8 * half, row_end, offset), half, t.n);
            for (int n = t.column = 0; t.column < m->n_cols; t.column += n) {
                t.out = m->out + (size_t)t.column * m->out_stride + (size_t)r;
                n = tile(m->scratch, &t, m->n_cols - t.column);
                if (t.first > 0 || r + PANEL_ROWS >= row_end) continue;
                for (const char *end = next + (size_t)n * share; next < end; next += 64)
                    _mm_prefetch(next, _MM_HINT_T1);
            }
        }
    }
}

#define GEMM(type, unpack, block, bytes, f)                                      \
    static void unpack_##type(char *panel, panel_rows rows, int half, int n) {   \
        unpack(panel, rows, half, n, load_##type, bytes, f);                     \
    }                                                                            \
    void ig_gemm_##type##_avx2(const ig_matmul *m, int row_begin, int row_end) { \
        multiply(m, row_begin, row_end, unpack_##type, tile_##f, block, bytes);  \
    }
GEMM(q4_0, unpack_nibbles, 32, 18, bits4)
GEMM(q4_1, unpack_nibbles, 32, 20, bits4)
GEMM(q5_0, unpack_nibbles, 32, 22, bits5)
GEMM(q5_1, unpack_nibbles, 32, 24, bits5)
GEMM(q8_0, unpack_bytes, 32, 34, bits8)
GEMM(q2_k, unpack_supers, 256, 84, bits3_16)
GEMM(q3_k, unpack_supers, 256, 110, bits3_16)
GEMM(q4_k, unpack_supers, 256, 144, bits4)
GEMM(q5_k, unpack_supers, 256, 176, bits5)
GEMM(q6_k, unpack_supers, 256, 210, bits6_16)
GEMM(f32, unpack_floats, 1, 4, floats)
GEMM(f16, unpack_floats, 1, 2, floats)
GEMM(bf16, unpack_floats, 1, 2, floats)
