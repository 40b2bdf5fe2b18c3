/* SPDX-License-Identifier: Apache-2.0
 *
 * Many columns, AMX: tiles of 16 columns and 16 rows, whose products of bfloat16 are added up in 32-bit floats.
 *
 * A group of rows is unpacked to tiles, a slice of their elements at a time, and meets all columns, whose sums wait in
 * scratch for the next slice. Quantised weights, scale * code + min, are rounded to bfloat16, as are columns, which
 * loses less than columns in 8 bits do (docs/speed-log.md, AMX). Weights in 16-bit floats lose nothing: bfloat16 is
 * what it is, and a 16-bit float is the sum of two. They meet columns of two planes, x ~ high + low. The product of the
 * two low parts is left out.
 *
 * An element of the output is summed in the order of the elements, whatever else a call asks for.
 */
#include <immintrin.h>

#include "base/type.h"
#include "kernel/matmul_avx512.h"
#include "kernel/panel_avx512.h"
#include "kernel/parts.h"
#include "kernel/planes.h"
#include "kernel/quant_avx512.h"
#include "kernel/tiles_amx.h"

/* A tile has [STEP / 2][16 rows][2] bfloat16 of weights, or [16 columns][16 rows] sums. */
enum {
    STEP = IG_PLANE_STEP, /* elements of a tile */
    SLICE = 256,          /* elements of 32 rows, and of 32 columns, that the first-level cache holds together */
    GROUP_ROWS = 256,     /* whose tiles of a slice, and sums, the second-level cache holds */
    GROUP_COLS = 512,
    PLANE_BYTES = SLICE / STEP * 2 * TILE_BYTES, /* of 32 rows: [steps][2 halves] tiles */
    PLANES = 2,
};

/* Where all of that lies. */
typedef struct work {
    char *panel; /* wide: 32 rows of a slice */
    char *tiles; /* [GROUP_ROWS / 32][PLANES][PLANE_BYTES] */
    char *sums;  /* of slices before: [GROUP_ROWS / 32][GROUP_COLS / 32][2 of columns][2 of rows] tiles */
} work;

static size_t layout(work *w, char *base) {
    const size_t n_panels = GROUP_ROWS / WIDE_ROWS, panel = SLICE / 64 * wide_bytes(affine16),
                 tiles = n_panels * PLANES * PLANE_BYTES;
    *w = (work){base, base + panel, base + panel + tiles};
    return panel + tiles + n_panels * GROUP_COLS / 32 * 4 * TILE_BYTES;
}

static size_t scratch_bytes(int n_in) {
    work w;
    size_t mine = layout(&w, NULL), others = ig_gemm_scratch_bytes_avx512(n_in);
    return mine > others ? mine : others;
}

/* ---- columns -------------------------------------------------------------------- */

static void prepare_bf16(void *dst, const float *x, int n) {
    ig_planes p = ig_planes_view(dst, n);
    for (int i = 0; i < n; i += STEP) {
        __m512 first = _mm512_maskz_loadu_ps(lanes_left(n - i), x + i);
        __m512 second = _mm512_maskz_loadu_ps(lanes_left(n - i - 16), x + i + 16);
        __m512i high = to_bf16(first, second);
        _mm512_store_si512(p.high + i, high);
        _mm512_store_si512(p.low + i, rest_of(first, second, high));
    }
}

/* ---- weights to tiles ----------------------------------------------------------------- */

/* Elements 2 i and 2 i + 1 of 16 rows, to a row of a tile. */
INLINE void put_pairs(char *to, __m512 first, __m512 second) {
    _mm512_store_si512(to, interleave(to_bf16(first, second)));
}

/* Scales and what is added, of 16 rows, for codes that are read as 256 + code. */
typedef struct affine {
    __m512 scale, bias;
} affine;

/* Weights are scale * (code - offset) + min. */
INLINE affine affine_of(__m512 scale, __m512 min, const int offset) {
    return (affine){scale, _mm512_fnmadd_ps(scale, _mm512_set1_ps((float)(256 + offset)), min)};
}

/* Code number i of each row's four, as a weight: its bits are the upper ones of the mantissa of 256 + code. */
INLINE __m512 weight_of(__m512i fours, const int i, affine a) {
    __m512i v = i < 2 ? _mm512_slli_epi32(fours, 15 - 8 * i) : _mm512_srli_epi32(fours, 8 * i - 15);
    v = _mm512_ternarylogic_epi32(v, _mm512_set1_epi32(0xff << 15), _mm512_set1_epi32(0x43800000),
                                  0xea); /* a & b | c */
    return _mm512_fmadd_ps(_mm512_castsi512_ps(v), a.scale, a.bias);
}

/* Fours number i of a tile's eight. */
INLINE void put_fours(char *tile, const int i, __m512i fours, affine a) {
    put_pairs(tile + 128 * i, weight_of(fours, 0, a), weight_of(fours, 1, a));
    put_pairs(tile + 128 * i + 64, weight_of(fours, 2, a), weight_of(fours, 3, a));
}

/* A wide panel of n elements, a multiple of STEP. */
INLINE void tiles_of_wide(char *tiles, char *panel, int n, const wide f) {
    const int n_scales = f.n_scales / 2, each = 8 / n_scales; /* of a tile; fours of a scale */
    for (int t = 0; t < n / STEP * 2; t++) {
        char *step = panel + (size_t)(t / 4) * wide_bytes(f), *tile = tiles + (size_t)t * TILE_BYTES;
        const int group = t / 2 % 2, half = t % 2;
#pragma GCC unroll 2
        for (int i = 0; i < n_scales; i++) {
            const int at = group * n_scales + i;
            __m512 scale = _mm512_load_ps(affine_at(step, at, half)), min = _mm512_setzero_ps();
            if (f.n_mins) min = _mm512_load_ps(affine_at(step, f.n_scales + at, half));
            affine a = affine_of(scale, min, f.n_mins ? 0 : 128);
#pragma GCC unroll 8
            for (int j = 0; j < each; j++)
                put_fours(tile, i * each + j, _mm512_load_si512(step + 128 * (8 * group + i * each + j) + 64 * half),
                          a);
        }
    }
}

/* The n elements, a multiple of STEP, of a stored panel that begin with number `from`, a multiple of 256, to every
 * other tile. */
INLINE void tiles_of_panel(char *tiles, const char *panel, int from, int n, size_t ahead, const format f) {
    const int each = 8 / f.n_scales; /* fours of a scale */
    const char *step = panel + panel_bytes(f, from), *head = step;
    for (int t = 0; t < n / STEP; t++, step += step_bytes(f), tiles += 2 * TILE_BYTES) {
        if (f.super && t % 8 == 0) {
            head = step;
            step += head_bytes(f);
        }
#pragma GCC unroll 8
        for (size_t i = 0; i < step_bytes(f); i += 64) __builtin_prefetch(step + ahead + i);
#pragma GCC unroll 2
        for (int i = 0; i < f.n_scales; i++) {
            __m512 min = f.offset ? _mm512_setzero_ps() : stored_affine(step, head, 1, i, f);
            affine a = affine_of(stored_affine(step, head, 0, i, f), min, f.offset);
#pragma GCC unroll 8
            for (int j = 0; j < each; j++) put_fours(tiles, i * each + j, stored_codes(step, i * each + j, f), a);
        }
    }
}

/* 32 elements of 16 rows of 16-bit floats, of each plane; zeros for those beyond n. */
INLINE void tiles_of_floats(char *tiles, panel_rows rows, int from, int n, const ig_type type) {
    __m512i high[16], low[16];
    for (int r = 0; r < 16; r++) {
        const uint8_t *p = rows.w + (size_t)r * rows.row_bytes + (size_t)from * sizeof(uint16_t);
        uint32_t all = r < rows.n ? (uint32_t)((1ull << (n < STEP ? n : STEP)) - 1) : 0;
        if (r < rows.n && rows.ahead) __builtin_prefetch(p + rows.ahead);
        high[r] = _mm512_maskz_loadu_epi16(all, p);
        if (type == IG_TYPE_BF16) continue;
        __m512 first = _mm512_cvtph_ps(_mm512_castsi512_si256(high[r]));
        __m512 second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(high[r], 1));
        high[r] = to_bf16(first, second);
        low[r] = rest_of(first, second, high[r]);
    }
    transpose16(high);
    for (int i = 0; i < 16; i++) _mm512_store_si512(tiles + 64 * i, high[i]);
    if (type == IG_TYPE_BF16) return;
    transpose16(low);
    for (int i = 0; i < 16; i++) _mm512_store_si512(tiles + PLANE_BYTES + 64 * i, low[i]);
}

/* ---- products ------------------------------------------------------------------------- */

/* How many columns and rows the tiles of two columns by two rows have. */
typedef struct shape {
    int cols[2], rows[2];
} shape;

/* Sums are tiles 0 to 3, columns 4 and 5, weights 6 and 7. */
static void set_shape(shape *now, shape s) {
    if (!memcmp(now, &s, sizeof s)) return;
    *now = s;
    tile_config t = {.palette = 1};
    for (int i = 0; i < 2; i++) {
        int cols = s.cols[i] ? s.cols[i] : 1, rows = s.rows[i] ? s.rows[i] : 1;
        for (int j = 0; j < 2; j++) {
            t.rows[2 * i + j] = (uint8_t)cols;
            t.row_bytes[i + 2 * j] = (uint16_t)(4 * rows);
        }
        t.rows[4 + i] = (uint8_t)cols;
        t.row_bytes[4 + i] = 64;
        t.rows[6 + i] = 16;
        t.row_bytes[6 + i] = (uint16_t)(4 * rows);
    }
    settle(&t);
    _tile_loadconfig(&t);
}

/* The tiles of a slice and the columns they meet: x[i], of the first of 16, `stride` bytes from one to the next. */
typedef struct operands {
    const char *tiles;
    const uint16_t *x[2];
    size_t stride;
    int n_steps;
} operands;

INLINE void add_products(operands o, const bool two_cols, const bool two_rows) {
    for (int i = 0; i < o.n_steps; i++, o.tiles += 2 * TILE_BYTES, o.x[0] += STEP, o.x[1] += STEP) {
        _tile_loadd(6, o.tiles, 64);
        _tile_loadd(4, o.x[0], o.stride);
        _tile_dpbf16ps(0, 4, 6);
        if (two_rows) {
            _tile_loadd(7, o.tiles + TILE_BYTES, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (two_cols) {
            _tile_loadd(5, o.x[1], o.stride);
            _tile_dpbf16ps(2, 5, 6);
            if (two_rows) _tile_dpbf16ps(3, 5, 7);
        }
    }
}

/* Sums of 32 columns and 32 rows: where those of the slices before lie and where they go, four tiles. */
typedef struct sums {
    char *at[4];
    size_t stride;
} sums;

INLINE sums sums_at(char *base, size_t column, size_t row, size_t stride) {
    return (sums){{base, base + row, base + column, base + column + row}, stride};
}

/* Adds up to 32 columns and rows of a slice to `from`, if there is one. */
INLINE void multiply_block(const operands *o, int n_pairs, const sums *from, const sums *to, const bool two_cols,
                           const bool two_rows) {
    if (!from) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, from->at[0], from->stride);
        if (two_rows) _tile_loadd(1, from->at[1], from->stride);
        if (two_cols) _tile_loadd(2, from->at[2], from->stride);
        if (two_cols && two_rows) _tile_loadd(3, from->at[3], from->stride);
    }
    for (int i = 0; i < n_pairs; i++) add_products(o[i], two_cols, two_rows);
    _tile_stored(0, to->at[0], to->stride);
    if (two_rows) _tile_stored(1, to->at[1], to->stride);
    if (two_cols) _tile_stored(2, to->at[2], to->stride);
    if (two_cols && two_rows) _tile_stored(3, to->at[3], to->stride);
}

/* Which planes of columns and of weights are multiplied: of n pairs the i-th. */
typedef struct pairing {
    int n;
    bool low_x[3], low_w[3];
} pairing;

static const pairing quantised = {1, {false}, {false}}, of_bf16 = {2, {true, false}, {false, false}},
                     of_f16 = {3, {true, false, false}, {false, true, false}};

/* A slice of a group of rows and columns. */
typedef struct part {
    const ig_matmul *m;
    int row, n_rows, col, n_cols;
    int from, n; /* elements */
} part;

/* Columns [c, c + 32) and rows [r, r + 32) of a part, as far as there are any. */
INLINE void multiply_at(const part *p, const work *w, shape *now, int c, int r, const pairing pairs) {
    const ig_matmul *m = p->m;
    const int n_cols = ig_min_int(p->n_cols - c, 32), n_rows = ig_min_int(p->n_rows - r, 32);
    set_shape(now, (shape){{ig_min_int(n_cols, 16), n_cols > 16 ? n_cols - 16 : 0},
                           {ig_min_int(n_rows, 16), n_rows > 16 ? n_rows - 16 : 0}});
    const char *column = (const char *)m->act + (size_t)(p->col + c) * m->act_stride;
    const ig_planes first = ig_planes_view(column, m->n_in),
                    second = ig_planes_view(column + 16 * m->act_stride, m->n_in);
    const char *tiles = w->tiles + (size_t)(r / 32) * PLANES * PLANE_BYTES;
    operands o[3];
#pragma GCC unroll 3
    for (int i = 0; i < pairs.n; i++)
        o[i] = (operands){tiles + (pairs.low_w[i] ? PLANE_BYTES : 0),
                          {(pairs.low_x[i] ? first.low : first.high) + p->from,
                           (pairs.low_x[i] ? second.low : second.high) + p->from},
                          m->act_stride,
                          (p->n + STEP - 1) / STEP};
    float *out = m->out + (size_t)(p->col + c) * m->out_stride + p->row + r;
    const size_t stride = m->out_stride * sizeof *out;
    const sums kept = sums_at(w->sums + (size_t)(r / 32 * (GROUP_COLS / 32) + c / 32) * 4 * TILE_BYTES, 2 * TILE_BYTES,
                              TILE_BYTES, 64);
    const sums made = sums_at((char *)out, 16 * stride, 64, stride);
    const sums *from = p->from ? &kept : NULL, *to = p->from + p->n < m->n_in ? &kept : &made;
    if (n_cols > 16 && n_rows > 16)
        multiply_block(o, pairs.n, from, to, true, true);
    else if (n_cols > 16)
        multiply_block(o, pairs.n, from, to, true, false);
    else if (n_rows > 16)
        multiply_block(o, pairs.n, from, to, false, true);
    else
        multiply_block(o, pairs.n, from, to, false, false);
}

/* Makes the tiles of rows [r, min(r + 32, row_end)) of a slice. */
typedef void (*make_tiles_fn)(char *tiles, char *wide_panel, const ig_matmul *m, int r, int row_end, int from, int n);

INLINE void multiply_part(const part *p, const work *w, shape *now, make_tiles_fn make_tiles, const pairing pairs) {
    for (int r = 0; r < p->n_rows; r += WIDE_ROWS)
        make_tiles(w->tiles + (size_t)(r / WIDE_ROWS) * PLANES * PLANE_BYTES, w->panel, p->m, p->row + r,
                   p->row + p->n_rows, p->from, p->n);
    settle(w->tiles);
    for (int c = 0; c < p->n_cols; c += 32)
        for (int r = 0; r < p->n_rows; r += WIDE_ROWS) multiply_at(p, w, now, c, r, pairs);
    settle(w->tiles);
}

INLINE void multiply(const ig_matmul *m, int row_begin, int row_end, make_tiles_fn make_tiles, const pairing pairs) {
    shape now = {0};
    work w;
    layout(&w, m->scratch);
    part p = {.m = m};
    for (p.col = 0; p.col < m->n_cols; p.col += GROUP_COLS)
        for (p.row = row_begin; p.row < row_end; p.row += GROUP_ROWS)
            for (p.from = 0; p.from < m->n_in; p.from += SLICE) {
                p.n_cols = ig_min_int(m->n_cols - p.col, GROUP_COLS);
                p.n_rows = ig_min_int(row_end - p.row, GROUP_ROWS);
                p.n = ig_min_int(m->n_in - p.from, SLICE);
                multiply_part(&p, &w, &now, make_tiles, pairs);
            }
    _tile_release();
}

/* ---- the functions of a type ------------------------------------------------------------ */

INLINE void from_rows(char *tiles, char *wide_panel, const ig_matmul *m, int r, int row_end, int from, int n,
                      ig_unpack_fn unpack, const ig_type type, const wide f) {
    for (int half = 0; half < 2; half++) {
        panel_rows rows = rows_at(m, r + 16 * half, row_end);
        rows.w += ig_type_row_bytes(ig_type_get(type), (size_t)from);
        unpack(wide_panel, rows, half, n);
    }
    tiles_of_wide(tiles, wide_panel, n, f);
}

INLINE void from_panels(char *tiles, const ig_matmul *m, int r, int row_end, int from, int n, const format f) {
    const size_t bytes = PANEL_ROWS * m->row_bytes; /* of a panel */
    for (int half = 0; half < 2 && r + PANEL_ROWS * half < row_end; half++)
        tiles_of_panel(tiles + half * TILE_BYTES, (const char *)m->w + (size_t)(r / PANEL_ROWS + half) * bytes, from, n,
                       r + WIDE_ROWS < row_end ? 2 * bytes : 0, f);
}

INLINE void from_floats(char *tiles, const ig_matmul *m, int r, int row_end, int from, int n, const ig_type type) {
    for (int half = 0; half < 2; half++) {
        panel_rows rows = rows_at(m, r + 16 * half, row_end);
        for (int i = 0; i < n; i += STEP)
            tiles_of_floats(tiles + (size_t)(i / STEP * 2 + half) * TILE_BYTES, rows, from + i, n - i, type);
    }
}

#define GEMM(name, make_tiles, pairs)                                  \
    static void name(const ig_matmul *m, int row_begin, int row_end) { \
        multiply(m, row_begin, row_end, make_tiles, pairs);            \
    }
#define MAKE_TILES(name) \
    static void name(char *tiles, char *wide_panel, const ig_matmul *m, int r, int row_end, int from, int n)
#define ROWS(TYPE, type, f)                                                                                 \
    MAKE_TILES(tiles_##type) {                                                                              \
        from_rows(tiles, wide_panel, m, r, row_end, from, n, ig_unpack_##type##_avx512, IG_TYPE_##TYPE, f); \
    }                                                                                                       \
    GEMM(gemm_##type, tiles_##type, quantised)
#define PANELS(TYPE, type, f)                                      \
    ROWS(TYPE, type, f)                                            \
    MAKE_TILES(panel_tiles_##type) {                               \
        (void)wide_panel;                                          \
        from_panels(tiles, m, r, row_end, from, n, stored_##type); \
    }                                                              \
    GEMM(panels_##type, panel_tiles_##type, quantised)
#define FLOATS(TYPE, type, pairs)                                   \
    MAKE_TILES(tiles_##type) {                                      \
        (void)wide_panel;                                           \
        from_floats(tiles, m, r, row_end, from, n, IG_TYPE_##TYPE); \
    }                                                               \
    GEMM(gemm_##type, tiles_##type, pairs)

IG_PANEL_TYPES(PANELS)
IG_ROW_TYPES(ROWS)
FLOATS(F16, f16, of_f16)
FLOATS(BF16, bf16, of_bf16)

void ig_kernels_fill_matmul_amx(ig_kernels *k) {
    k->act_prepare[IG_ACT_BF16] = prepare_bf16;
    k->scratch_bytes = scratch_bytes;
#define SET(TYPE, type) k->gemm[IG_TYPE_##TYPE] = gemm_##type, k->many_act[IG_TYPE_##TYPE] = IG_ACT_BF16;
#define SET_ROWS(TYPE, type, f) SET(TYPE, type)
#define SET_PANELS(TYPE, type, f) SET(TYPE, type) k->panels[IG_TYPE_##TYPE].gemm = panels_##type;
    IG_ROW_TYPES(SET_ROWS)
    IG_PANEL_TYPES(SET_PANELS)
    SET(F16, f16)
    SET(BF16, bf16)
}
