/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in portable C: the reference of every weight type.
 *
 * Each quantised type has one function that unpacks a block to integer codes and, per 16
 * elements, a scale and a minimum: w = scale * code + min. Dequantisation and products are
 * written once on top of that.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "kernel/codebook.h"
#include "kernel/fixed.h"
#include "kernel/parts.h"
#include "kernel/planes.h"
#include "kernel/quant.h"

/* ---- blocks --------------------------------------------------------------- */

/* The largest block, unpacked. */
typedef struct block {
    int8_t code[256];
    float scale[16], min[16]; /* per 16 elements */
} block;

typedef void (*unpack_fn)(block *b, const uint8_t *p);

static float read_f16(const uint8_t *p) { return ig_f16_f32((uint16_t)(p[0] | p[1] << 8)); }

static void set_affine32(block *b, float scale, float min) {
    b->scale[0] = b->scale[1] = scale;
    b->min[0] = b->min[1] = min;
}

static void unpack_q4_0(block *b, const uint8_t *p) {
    set_affine32(b, read_f16(p), 0);
    for (int i = 0; i < 16; i++) {
        b->code[i] = (int8_t)((p[2 + i] & 15) - 8);
        b->code[16 + i] = (int8_t)((p[2 + i] >> 4) - 8);
    }
}

static void unpack_q4_1(block *b, const uint8_t *p) {
    set_affine32(b, read_f16(p), read_f16(p + 2));
    for (int i = 0; i < 16; i++) {
        b->code[i] = (int8_t)(p[4 + i] & 15);
        b->code[16 + i] = (int8_t)(p[4 + i] >> 4);
    }
}

static void unpack_q5_0(block *b, const uint8_t *p) {
    uint32_t high = ig_read_u32(p + 2);
    set_affine32(b, read_f16(p), 0);
    for (int i = 0; i < 16; i++) {
        b->code[i] = (int8_t)((int)((p[6 + i] & 15u) | (high >> i & 1) << 4) - 16);
        b->code[16 + i] = (int8_t)((int)((uint32_t)p[6 + i] >> 4 | (high >> (16 + i) & 1) << 4) - 16);
    }
}

static void unpack_q5_1(block *b, const uint8_t *p) {
    uint32_t high = ig_read_u32(p + 4);
    set_affine32(b, read_f16(p), read_f16(p + 2));
    for (int i = 0; i < 16; i++) {
        b->code[i] = (int8_t)((p[8 + i] & 15u) | (high >> i & 1) << 4);
        b->code[16 + i] = (int8_t)((uint32_t)p[8 + i] >> 4 | (high >> (16 + i) & 1) << 4);
    }
}

static void unpack_q8_0(block *b, const uint8_t *p) {
    set_affine32(b, read_f16(p), 0);
    memcpy(b->code, p + 2, 32);
}

/* scales[16]: low nibble scale, high nibble minimum; 2-bit codes[64]; d; dmin */
static void unpack_q2_k(block *b, const uint8_t *p) {
    float d = read_f16(p + 80), dmin = read_f16(p + 82);
    for (int i = 0; i < 16; i++) {
        b->scale[i] = d * (float)(p[i] & 15);
        b->min[i] = -(dmin * (float)(p[i] >> 4));
    }
    for (int i = 0; i < 256; i++) b->code[i] = (int8_t)(p[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3);
}

/* high bits[32], 2-bit codes[64], 6-bit scales[12], d */
static void unpack_q3_k(block *b, const uint8_t *p) {
    float d = read_f16(p + 108);
    const uint8_t *s = p + 96;
    for (int i = 0; i < 16; i++) {
        int low = s[i % 8] >> (i / 8 * 4) & 15, high = s[8 + i % 4] >> (i / 4 * 2) & 3;
        b->scale[i] = d * (float)((low | high << 4) - 32);
        b->min[i] = 0;
    }
    for (int i = 0; i < 256; i++) {
        int low = p[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3, high = p[i % 32] >> (i / 32) & 1;
        b->code[i] = (int8_t)(low + 4 * high - 4);
    }
}

/* d, dmin, then 8 scales and 8 minimums of 6 bits in 12 bytes (Q4_K and Q5_K) */
static void unpack_scales_k(block *b, const uint8_t *p) {
    float d = read_f16(p), dmin = read_f16(p + 2);
    const uint8_t *s = p + 4;
    for (int i = 0; i < 8; i++) {
        int scale = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        int min = i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | s[i] >> 6 << 4;
        b->scale[2 * i] = b->scale[2 * i + 1] = d * (float)scale;
        b->min[2 * i] = b->min[2 * i + 1] = -(dmin * (float)min);
    }
}

static void unpack_q4_k(block *b, const uint8_t *p) {
    unpack_scales_k(b, p);
    for (int i = 0; i < 256; i++) b->code[i] = (int8_t)(p[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15);
}

static void unpack_q5_k(block *b, const uint8_t *p) {
    unpack_scales_k(b, p);
    for (int i = 0; i < 256; i++) {
        int low = p[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15, high = p[16 + i % 32] >> (i / 32) & 1;
        b->code[i] = (int8_t)(low | high << 4);
    }
}

/* low nibbles[128], high pairs[64], int8 scales[16], d */
static void unpack_q6_k(block *b, const uint8_t *p) {
    float d = read_f16(p + 208);
    for (int i = 0; i < 16; i++) {
        int scale = p[192 + i] < 128 ? p[192 + i] : p[192 + i] - 256;
        b->scale[i] = d * (float)scale;
        b->min[i] = 0;
    }
    for (int i = 0; i < 256; i++) {
        int half = i / 128, j = i % 128;
        int low = p[half * 64 + j % 64] >> (j / 64 * 4) & 15, high = p[128 + half * 32 + j % 32] >> (j / 32 * 2) & 3;
        b->code[i] = (int8_t)((low | high << 4) - 32);
    }
}

static const int8_t iq4_values[16] = {IG_IQ4_VALUES}, mxfp4_values[16] = {IG_MXFP4_VALUES};

/* 16 bytes: 16 low nibbles, then 16 high ones. */
static void put_values(int8_t *code, const uint8_t *p, const int8_t values[16]) {
    for (int i = 0; i < 16; i++) code[i] = values[p[i] & 15], code[16 + i] = values[p[i] >> 4];
}

static void unpack_iq4_nl(block *b, const uint8_t *p) {
    set_affine32(b, read_f16(p), 0);
    put_values(b->code, p + 2, iq4_values);
}

static void unpack_iq4_xs(block *b, const uint8_t *p) {
    float d = read_f16(p);
    memset(b->min, 0, sizeof b->min);
    for (int i = 0; i < 8; i++) {
        b->scale[2 * i] = b->scale[2 * i + 1] = d * (float)ig_iq4_xs_scale(p, i);
        put_values(b->code + 32 * i, p + 8 + 16 * i, iq4_values);
    }
}

static void unpack_mxfp4(block *b, const uint8_t *p) {
    set_affine32(b, ig_mxfp4_scale(p), 0);
    put_values(b->code, p + 1, mxfp4_values);
}

static void set_scale(block *b, int n, float scale) {
    memset(b->min, 0, sizeof b->min);
    for (int i = 0; i < n / 16; i++) b->scale[i] = scale;
}

/* Four scales, then 8 bytes for each 16 codes: 8 low nibbles, then 8 high ones. */
static void unpack_nvfp4(block *b, const uint8_t *p) {
    memset(b->min, 0, sizeof b->min);
    for (int i = 0; i < 4; i++) b->scale[i] = ig_nvfp4_scale(p[i]);
    for (int i = 0; i < 64; i++) b->code[i] = mxfp4_values[p[4 + i / 16 * 8 + i % 8] >> (i / 8 % 2 * 4) & 15];
}

static void unpack_q1_0(block *b, const uint8_t *p) {
    set_scale(b, 128, read_f16(p));
    for (int i = 0; i < 128; i++) b->code[i] = (int8_t)(2 * (p[2 + i / 8] >> i % 8 & 1) - 1);
}

static void unpack_q2_0(block *b, const uint8_t *p) {
    set_scale(b, 64, read_f16(p));
    for (int i = 0; i < 64; i++) b->code[i] = (int8_t)((p[2 + i / 4] >> i % 4 * 2 & 3) - 1);
}

static void unpack_tq1_0(block *b, const uint8_t *p) {
    set_scale(b, 256, read_f16(p + IG_TQ1_D));
    for (int i = 0; i < 256; i++) {
        int at = i < 160 ? i % 32 : i < 240 ? IG_TQ1_SECOND + i % 16 : IG_TQ1_LAST + i % 4;
        b->code[i] = (int8_t)((p[at] * ig_tq1_powers[i / 32][i % 32] % 256 * 3 >> 8) - 1);
    }
}

static void unpack_tq2_0(block *b, const uint8_t *p) {
    set_scale(b, 256, read_f16(p + 64));
    for (int i = 0; i < 256; i++) b->code[i] = (int8_t)((p[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) - 1);
}

/* The codebook formats. */
INLINE void unpack_book(block *b, const uint8_t *p, ig_book_entry_fn entry, ig_book_signs_fn signs,
                        const uint64_t steps[2], float d, const int offset, const ig_signs kind) {
    memset(b->min, 0, sizeof b->min);
    for (int i = 0; i < 16; i++) b->scale[i] = d * (float)(steps[i / 8] >> 8 * (i % 8) & 255);
    for (int i = 0; i < 256; i++) {
        int v = (int)(entry(p, i / 8) >> 8 * (i % 8) & 255);
        uint32_t negative = kind == IG_SIGNS_EVEN ? ig_even_signs(signs(p, i / 32)) : signs(p, i / 32);
        bool is_less = negative >> i % 32 & 1;
        b->code[i] = (int8_t)(kind == IG_SIGNS_EIGHTH ? v - offset + (is_less ? -1 : 1) : is_less ? -v : v);
    }
}

#define UNPACK_BOOK(TYPE, type, unit, offset, signs)                                                                  \
    static void unpack_##type(block *b, const uint8_t *p) {                                                           \
        uint64_t steps[2];                                                                                            \
        ig_##type##_steps(steps, p);                                                                                  \
        unpack_book(b, p, ig_##type##_entry, ig_##type##_signs, steps, ig_f16_f32(ig_##type##_d(p)) * (unit), offset, \
                    signs);                                                                                           \
    }
IG_BOOK_TYPES(UNPACK_BOOK)

/* ---- activations ---------------------------------------------------------- */

static size_t act_bytes(ig_act form, int n) {
    if (form == IG_ACT_FIXED) return ig_fixed_bytes(n);
    if (form == IG_ACT_BF16) return ig_planes_bytes(n);
    return form == IG_ACT_Q8 ? ig_q8_bytes(n) : ((size_t)n * sizeof(float) + 63) / 64 * 64;
}

static void act_prepare_f32(void *dst, const float *x, int n) {
    memcpy(dst, x, (size_t)n * sizeof *x);
    memset((float *)dst + n, 0, act_bytes(IG_ACT_F32, n) - (size_t)n * sizeof *x);
}

static void act_prepare_q8(void *dst, const float *x, int n) {
    memset(dst, 0, ig_q8_bytes(n));
    ig_q8 a = ig_q8_view(dst, n);
    for (int g = 0; g < n / 32; g++) {
        uint32_t top = 0; /* the order of magnitudes is that of their bits, NaN above all */
        for (int i = 0; i < 32; i++) {
            uint32_t bits = ig_f32_bits(x[32 * g + i]) & 0x7fffffffu;
            if (bits > top) top = bits;
        }
        float max = ig_bits_f32(top);
        if (top >= 0x7f800000u) a.d[g] = a.ds[g] = a.ds16[2 * g] = a.ds16[2 * g + 1] = NAN;
        if (!(max > IG_Q8_TINY && max < INFINITY)) continue;
        float inverse = 127.0f / max;
        int sum[2] = {0, 0};
        for (int i = 0; i < 32; i++) {
            int q = (int)rintf(x[32 * g + i] * inverse);
            a.q[32 * g + i] = (int8_t)q;
            sum[i / 16] += q;
        }
        ig_q8_put_sums(&a, g, max / 127.0f, sum);
    }
}

/* ---- quantised products ---------------------------------------------------- */

static float dot_block(const block *b, int n, const ig_q8 *a, int first) {
    float sum = 0;
    for (int i = 0; i < n / 16; i++) {
        int at = first / 16 + i, dot = 0;
        for (int j = 0; j < 16; j++) dot += b->code[16 * i + j] * a->q[16 * at + j];
        sum += b->scale[i] * a->d[at / 2] * (float)dot + b->min[i] * a->ds16[at];
    }
    return sum;
}

static inline void matmul_blocks(const ig_matmul *m, int row_begin, int row_end, unpack_fn unpack, int n, int bytes) {
    enum { TILE = 16 };
    for (int r = row_begin; r < row_end; r++) {
        const uint8_t *row = (const uint8_t *)m->w + (size_t)r * m->row_bytes;
        for (int c0 = 0; c0 < m->n_cols; c0 += TILE) {
            int n_tile = m->n_cols - c0 < TILE ? m->n_cols - c0 : TILE;
            float sum[TILE] = {0};
            for (int i = 0; i < m->n_in / n; i++) {
                block b;
                unpack(&b, row + (size_t)i * (size_t)bytes);
                for (int c = 0; c < n_tile; c++) {
                    ig_q8 a = ig_q8_view((const char *)m->act + (size_t)(c0 + c) * m->act_stride, m->n_in);
                    sum[c] += dot_block(&b, n, &a, i * n);
                }
            }
            for (int c = 0; c < n_tile; c++) m->out[(size_t)(c0 + c) * m->out_stride + (size_t)r] = sum[c];
        }
    }
}

static inline void dequantize_blocks(float *dst, const void *row, int n_row, unpack_fn unpack, int n, int bytes) {
    for (int i = 0; i < n_row / n; i++) {
        block b;
        unpack(&b, (const uint8_t *)row + (size_t)i * (size_t)bytes);
        for (int j = 0; j < n; j++)
            dst[(size_t)i * (size_t)n + (size_t)j] = b.scale[j / 16] * (float)b.code[j] + b.min[j / 16];
    }
}

#define QUANTISED(type, n, bytes)                                               \
    static void matmul_##type(const ig_matmul *m, int row_begin, int row_end) { \
        matmul_blocks(m, row_begin, row_end, unpack_##type, n, bytes);          \
    }                                                                           \
    static void dequantize_##type(float *dst, const void *row, int n_row) {     \
        dequantize_blocks(dst, row, n_row, unpack_##type, n, bytes);            \
    }
QUANTISED(q4_0, 32, 18)
QUANTISED(q4_1, 32, 20)
QUANTISED(q5_0, 32, 22)
QUANTISED(q5_1, 32, 24)
QUANTISED(q8_0, 32, 34)
QUANTISED(q2_k, 256, 84)
QUANTISED(q3_k, 256, 110)
QUANTISED(q4_k, 256, 144)
QUANTISED(q5_k, 256, 176)
QUANTISED(q6_k, 256, 210)
QUANTISED(iq1_s, 256, 50)
QUANTISED(iq1_m, 256, 56)
QUANTISED(iq2_xxs, 256, 66)
QUANTISED(iq2_xs, 256, 74)
QUANTISED(iq2_s, 256, 82)
QUANTISED(iq3_xxs, 256, 98)
QUANTISED(iq3_s, 256, 110)
QUANTISED(iq4_nl, 32, 18)
QUANTISED(iq4_xs, 256, 136)
QUANTISED(mxfp4, 32, 17)
QUANTISED(nvfp4, 64, 36)
QUANTISED(q1_0, 128, 18)
QUANTISED(q2_0, 64, 18)
QUANTISED(tq1_0, 256, 54)
QUANTISED(tq2_0, 256, 66)

/* ---- floats ---------------------------------------------------------------- */

static float element_f32(const uint8_t *p) { return ig_bits_f32(ig_read_u32(p)); }
static float element_bf16(const uint8_t *p) { return ig_bf16_f32((uint16_t)(p[0] | p[1] << 8)); }
static float element_f8_e4m3(const uint8_t *p) { return ig_f8_f32(p[0]); }

typedef float (*element_fn)(const uint8_t *p);

static inline void matmul_floats(const ig_matmul *m, int row_begin, int row_end, element_fn element, size_t bytes) {
    for (int r = row_begin; r < row_end; r++) {
        const uint8_t *row = (const uint8_t *)m->w + (size_t)r * m->row_bytes;
        const float *scales = ig_scales_of_row(&m->scales, r);
        for (int c = 0; c < m->n_cols; c++) {
            const float *x = (const float *)(const void *)((const char *)m->act + (size_t)c * m->act_stride);
            float sum[4] = {0};
            for (int i = 0; i < m->n_in; i++) {
                float w = element(row + (size_t)i * bytes) * (scales ? scales[i / m->scales.n_cols] : 1);
                sum[i % 4] += w * x[i];
            }
            m->out[(size_t)c * m->out_stride + (size_t)r] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
        }
    }
}

#define FLOATS(type, element, bytes)                                                              \
    static void matmul_##type(const ig_matmul *m, int row_begin, int row_end) {                   \
        matmul_floats(m, row_begin, row_end, element, bytes);                                     \
    }                                                                                             \
    static void dequantize_##type(float *dst, const void *row, int n) {                           \
        for (int i = 0; i < n; i++) dst[i] = element((const uint8_t *)row + (size_t)i * (bytes)); \
    }
FLOATS(f32, element_f32, 4)
FLOATS(f16, read_f16, 2)
FLOATS(bf16, element_bf16, 2)
FLOATS(f8_e4m3, element_f8_e4m3, 1)

/* ---- table ----------------------------------------------------------------- */

/* These products need none; one line, so that a caller may always ask for some. */
static size_t scratch_bytes(int n_in) {
    (void)n_in;
    return 64;
}

static void set_type(ig_kernels *k, ig_type type, ig_matmul_fn matmul, void (*dequantize)(float *, const void *, int)) {
    k->gemv[type] = k->gemm[type] = matmul;
    k->dequantize[type] = dequantize;
}

void ig_kernels_fill_matmul_scalar(ig_kernels *k) {
    k->act_bytes = act_bytes;
    for (int i = 0; i < IG_TYPE_COUNT; i++) k->many_act[i] = ig_kernels_act((ig_type)i);
    k->act_prepare[IG_ACT_F32] = act_prepare_f32;
    k->act_prepare[IG_ACT_Q8] = act_prepare_q8;
    k->scratch_bytes = scratch_bytes;
    set_type(k, IG_TYPE_F32, matmul_f32, dequantize_f32);
    set_type(k, IG_TYPE_F16, matmul_f16, dequantize_f16);
    set_type(k, IG_TYPE_BF16, matmul_bf16, dequantize_bf16);
    set_type(k, IG_TYPE_F8_E4M3, matmul_f8_e4m3, dequantize_f8_e4m3);
    set_type(k, IG_TYPE_Q4_0, matmul_q4_0, dequantize_q4_0);
    set_type(k, IG_TYPE_Q4_1, matmul_q4_1, dequantize_q4_1);
    set_type(k, IG_TYPE_Q5_0, matmul_q5_0, dequantize_q5_0);
    set_type(k, IG_TYPE_Q5_1, matmul_q5_1, dequantize_q5_1);
    set_type(k, IG_TYPE_Q8_0, matmul_q8_0, dequantize_q8_0);
    set_type(k, IG_TYPE_Q2_K, matmul_q2_k, dequantize_q2_k);
    set_type(k, IG_TYPE_Q3_K, matmul_q3_k, dequantize_q3_k);
    set_type(k, IG_TYPE_Q4_K, matmul_q4_k, dequantize_q4_k);
    set_type(k, IG_TYPE_Q5_K, matmul_q5_k, dequantize_q5_k);
    set_type(k, IG_TYPE_Q6_K, matmul_q6_k, dequantize_q6_k);
    set_type(k, IG_TYPE_IQ1_S, matmul_iq1_s, dequantize_iq1_s);
    set_type(k, IG_TYPE_IQ1_M, matmul_iq1_m, dequantize_iq1_m);
    set_type(k, IG_TYPE_IQ2_XXS, matmul_iq2_xxs, dequantize_iq2_xxs);
    set_type(k, IG_TYPE_IQ2_XS, matmul_iq2_xs, dequantize_iq2_xs);
    set_type(k, IG_TYPE_IQ2_S, matmul_iq2_s, dequantize_iq2_s);
    set_type(k, IG_TYPE_IQ3_XXS, matmul_iq3_xxs, dequantize_iq3_xxs);
    set_type(k, IG_TYPE_IQ3_S, matmul_iq3_s, dequantize_iq3_s);
    set_type(k, IG_TYPE_IQ4_NL, matmul_iq4_nl, dequantize_iq4_nl);
    set_type(k, IG_TYPE_IQ4_XS, matmul_iq4_xs, dequantize_iq4_xs);
    set_type(k, IG_TYPE_MXFP4, matmul_mxfp4, dequantize_mxfp4);
    set_type(k, IG_TYPE_NVFP4, matmul_nvfp4, dequantize_nvfp4);
    set_type(k, IG_TYPE_Q1_0, matmul_q1_0, dequantize_q1_0);
    set_type(k, IG_TYPE_Q2_0, matmul_q2_0, dequantize_q2_0);
    set_type(k, IG_TYPE_TQ1_0, matmul_tq1_0, dequantize_tq1_0);
    set_type(k, IG_TYPE_TQ2_0, matmul_tq2_0, dequantize_tq2_0);
}
