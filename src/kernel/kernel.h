/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU arithmetic: one table of function pointers, filled once for a CPU level.
 *
 * Kernels work on raw pointers. They allocate nothing, start no threads and read no
 * files; the device (src/device) cuts the work into pieces and calls them from its threads.
 * The *_scalar.c files are the reference: every other kernel is
 * compared with them by tests/kernel at every level in one process.
 *
 * Results never depend on how many columns or which rows share a call: row r of column c
 * is computed by the same operations in the same order whatever else the call asks for.
 * That is what makes a sequence independent of its batch mates.
 */
#ifndef IG_KERNEL_KERNEL_H
#define IG_KERNEL_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/block_scales.h"
#include "base/kv_type.h"
#include "base/type.h"
#include "infinigen.h"

/* ---- matrix products: y = W x ------------------------------------------- */

/* Form in which a weight type wants its activations. Every column is prepared once by
 * act_prepare[form] and then used by any number of matrices of that form. */
typedef enum ig_act {
    IG_ACT_F32,   /* float[n]                                          weights that are floats */
    IG_ACT_Q8,    /* 8-bit in groups of 32 with scale and group sums   all quantised weights */
    IG_ACT_FIXED, /* 16-bit in groups of 64 with scale                 F16, BF16, F8 weights, many columns, some levels
                   */
    IG_ACT_BF16,  /* two bfloat16 planes, x ~ high + low               all but F32, many columns, level amx */
    IG_ACT_COUNT,
} ig_act;

typedef struct ig_matmul {
    const void *w;     /* [n_out][n_in] of the weight type as stored in the file, any alignment */
    size_t row_bytes;  /* from one row of w to the next */
    int n_in;          /* a multiple of the type's block */
    const void *act;   /* [n_cols] prepared columns, 64-byte aligned */
    size_t act_stride; /* bytes from one column to the next: act_bytes(form, n_in) or more */
    int n_cols;
    float *out;             /* out[c * out_stride + r] */
    size_t out_stride;      /* floats */
    void *scratch;          /* 64-byte aligned, scratch_bytes(n_in) bytes, one per thread */
    ig_block_scales scales; /* of IG_TYPE_F8_E4M3 */
} ig_matmul;

/* Rows [row_begin, row_end) of the product. */
typedef void (*ig_matmul_fn)(const ig_matmul *m, int row_begin, int row_end);

/* Weights in panels: 16 rows side by side, in an order that products of one level read fastest, and products of few and
 * of many columns that make the bits of the table's gemv and gemm. */
enum { IG_PANEL_ROWS = 16 };

typedef struct ig_panels {
    /* Of a panel of rows of n_in elements; a multiple of IG_PANEL_ROWS, and of 32 unless scales are bytes. */
    size_t (*bytes)(int n_in);
    /* Makes one of the n_rows (1..16) at w that are row_bytes apart. The first of a matrix is 64-byte aligned, and the
     * others follow it. */
    void (*put)(void *panel, const void *w, size_t row_bytes, int n_rows, int n_in);
    /* m->w is the first panel, m->row_bytes the share that a row has of one; row_begin is the first row of a panel. */
    ig_matmul_fn gemv, gemm;
} ig_panels;

/* ---- packed keys and values (base/kv_type.h) ------------------------------ */

/* One packed row: codes of any alignment, and a line per group. */
typedef struct ig_kv_packed {
    const uint8_t *codes;
    const ig_kv_line *lines;
} ig_kv_packed;

/* ---- attention of prompts --------------------------------------------------- */

enum {
    IG_PROMPT_QUERIES = 128, /* most of a tile */
    IG_PROMPT_BLOCK = 16,    /* that share most of their work */
    IG_PROMPT_KEYS = 128,    /* of a chunk */
};

/* A tile of a prompt's queries with their running sums. Query r sees the rows [begin[r], end[r]) of its view. */
typedef struct ig_prompt_tile {
    int n_q, d;             /* 1 .. IG_PROMPT_QUERIES queries of d numbers, a multiple of 8 and at most IG_KV_DIMS */
    const float *q;         /* [n_q][d] */
    float scale;            /* of scores */
    const int *begin, *end; /* [n_q]; begin NULL: 0 of all */
    float *m, *l, *acc;     /* [n_q], [n_q], [n_q][d]; begun with -INFINITY, 0 and 0. acc / l is the result */
    bool is_coarse;         /* queries, weights and values may lose what products with quantised weights lose of x */
    void *scratch;          /* 64-byte aligned, prompt_bytes(d) bytes */
} ig_prompt_tile;

/* ---- the 4-bit key sketch (src/policy) ----------------------------------- */

/* Keys of 16 consecutive tokens, interleaved so that one vector lane is one token. A key x is
 * kept as x ~ step * code + min with codes 0..15. For dims 8j..8j+7 (j = 0 .. d/8-1) byte
 * codes[64*j + 4*t + i] of token t holds dim 8j+i in the low and dim 8j+4+i in the high nibble.
 * Layout: float step[16], float min[16], uint8_t codes[8*d]; 128 + 8*d bytes. */
enum { IG_SKETCH_TOKENS = 16 };

/* Of gelu_mul() below: 2 sqrt(2 / pi), and 0.044715 times that. */
#define IG_GELU_1 1.59576912f
#define IG_GELU_3 0.0713548163f
/* Of swiglu_oai() below. */
#define IG_OAI_ALPHA 1.702f
#define IG_OAI_LIMIT 7.0f
static inline size_t ig_sketch_block_bytes(int d) { return 128 + 8 * (size_t)d; }

/* ---- the 2-bit value sketch (src/policy) ---------------------------------- */

/* Values of 16 consecutive tokens: x ~ step * (code - 1.5) with codes 0..3. Bits 2j and 2j+1 of byte codes[4*i + t]
 * hold dim i of token 4j + t, so that one vector lane is one dim and each of its bytes one token. Layout: uint16_t
 * step[16] (16-bit floats), uint8_t codes[4*d]; 32 + 4*d bytes. */
static inline size_t ig_value_sketch_block_bytes(int d) { return 32 + 4 * (size_t)d; }

/* ---- the table ------------------------------------------------------------ */

typedef struct ig_kernels {
    ig_cpu_level level;

    /* Bytes of one prepared column of n floats (a multiple of 64). */
    size_t (*act_bytes)(ig_act form, int n);
    /* Prepares one column; dst is 64-byte aligned. IG_ACT_FIXED, IG_ACT_BF16: NULL where no gemm wants them. */
    void (*act_prepare[IG_ACT_COUNT])(void *dst, const float *x, int n);
    /* Few columns (decode): weights are read once, straight from the file's format. */
    ig_matmul_fn gemv[IG_TYPE_COUNT];
    /* Many columns (prefill): a panel of rows is unpacked to scratch and used for all columns, which are of the form
     * many_act. */
    ig_matmul_fn gemm[IG_TYPE_COUNT];
    ig_act many_act[IG_TYPE_COUNT];
    /* What types look like in panels; all NULL: this level has none of the type. */
    ig_panels panels[IG_TYPE_COUNT];
    /* Bytes of scratch that gemm and panels need for rows of n_in elements, over all types. */
    size_t (*scratch_bytes)(int n_in);
    /* One row of any type to floats (embedding rows; reference); of IG_TYPE_F8_E4M3 without its scales. */
    void (*dequantize[IG_TYPE_COUNT])(float *dst, const void *row, int n);

    /* What is not finite must stay so: norms of a row whose squares overflow are NaN, and relu of NaN or an infinity is
     * not 0, nor do limits make either finite. */

    /* y[i] = x[i] / rms(x) * w[i]; w may be NULL (all ones). y may be x. */
    void (*rms_norm)(float *y, const float *x, const float *w, int n, float eps);
    /* y[i] = (x[i] - mean) / std * w[i] + b[i]; w and b may be NULL. y may be x. */
    void (*layer_norm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    /* y[i] += x[i] */
    void (*add)(float *y, const float *x, int n);
    /* y[i] += scale * x[i] */
    void (*add_scaled)(float *y, const float *x, float scale, int n);
    /* gate[i] = sigmoid(gate[i]) * up[i] */
    void (*sigmoid_mul)(float *gate, const float *up, int n);
    /* gate[i] = log(1 + exp(gate[i])) * up[i], the same at every level */
    void (*softplus_mul)(float *gate, const float *up, int n);
    /* gate[i] = silu(gate[i]) * up[i] */
    void (*silu_mul)(float *gate, const float *up, int n);
    /* The same with gelu in its tanh form: x / (1 + exp(-x (IG_GELU_1 + IG_GELU_3 x^2))) */
    void (*gelu_mul)(float *gate, const float *up, int n);
    /* gate[i] = g / (1 + exp(-IG_OAI_ALPHA g)) * (u + 1), g = min(gate[i], IG_OAI_LIMIT), u = up[i] within
     * +-IG_OAI_LIMIT */
    void (*swiglu_oai)(float *gate, const float *up, int n);
    /* x[i] = (p[0] x + p[2]) x where x is above 0, else p[1] (exp(min(x, p[3])) - 1 - x) + p[2] x; the same at every
     * level */
    void (*xielu)(float *x, const float *p, int n);
    /* In place: gelu in that tanh form, and x times the normal distribution's share below x, to 2e-7 of x. */
    void (*gelu)(float *x, int n);
    void (*gelu_erf)(float *x, int n);
    /* x[i] = tanh(x[i]) */
    void (*tanh)(float *x, int n);
    /* y[i] *= x[i], the same at every level */
    void (*multiply)(float *y, const float *x, int n);
    /* x[i] = max(x[i], 0), and its square, which is the same at every level */
    void (*relu)(float *x, int n);
    void (*relu_squared)(float *x, int n);
    /* out[i] = bias[i] + the sum over t of w[t * stride + i] * x[t][i], n numbers, in the order of t; rows x[t] of NULL
     * are left out, and bias may be NULL. The same at every level. */
    void (*convolve)(float *out, const float *const *x, const float *w, const float *bias, size_t stride, int n_taps,
                     int n);
    /* left[i] = e^(rate softplus(x[i] + bias[i])), rate <= 0, its logarithm to 3e-7 (1 + itself) or above -87; NaN
     * where the sum is not finite. n a multiple of 16. The same at every level. */
    void (*forget)(float *left, const float *x, const float *bias, float rate, int n);
    /* A token and a state S [n_keys][n], n a multiple of 16, which is at `from` (perhaps the same) and goes to `state`:
     * row i of S *= decay[i], then S += k (beta (v - k S)), out = q S. The same at every level. */
    void (*delta_rule)(float *out, float *state, const float *from, const float *q, const float *k, const float *v,
                       const float *decay, float beta, int n_keys, int n);
    /* Likewise S = decay S + k (share v), out = q S + skip v, with one decay for all rows. */
    void (*state_space)(float *out, float *state, const float *from, const float *q, const float *k, const float *v,
                        float decay, float share, float skip, int n_keys, int n);
    /* Rotates one head in place. cs = n_rot/2 cosines, then n_rot/2 sines. Half-split (NeoX, Hugging Face): pairs
     * (i, i + n_rot/2). Adjacent (GGUF's llama): pairs (2i, 2i + 1). */
    void (*rope_half)(float *x, const float *cs, int n_rot);
    void (*rope_adjacent)(float *x, const float *cs, int n_rot);
    void (*f32_to_f16)(uint16_t *dst, const float *src, int n);
    void (*f16_to_f32)(float *dst, const uint16_t *src, int n);

    /* scores[g * stride + i] = scale * dot(q[g], k[i]); q is [n_q][d] floats, k[i] points at d 16-bit
     * floats, d a multiple of 8. Each key is read once for all n_q queries: the query heads of a group in decode
     * (n_q 1..16), a tile of positions and heads in prefill (n_q up to 128). */
    void (*attn_scores)(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                        const uint16_t *const *k, int n);
    /* One step of online softmax over a chunk, in place: with m' = max(*m, max s), s[i] = exp(s[i] - m'),
     * *l = *l * r + sum s, *m = m', and r = exp(*m_old - m') is returned: what was accumulated
     * so far must be multiplied by it. s[i] = -INFINITY gives 0. Start with *m = -INFINITY, *l = 0 (then r is 0).
     * As long as nothing but -INFINITY has been seen, *m and *l stay as they are and r is 0. Further scores of
     * -INFINITY behind the last change no bit. */
    float (*softmax_step)(float *s, int n, float *m, float *l);
    /* acc[g][0..d) = acc[g] * r[g] + sum_i p[g * stride + i] * v[i], added in the order of i; acc is [n_q][d].
     * r[g] = 0 forgets acc[g], which then may hold anything. */
    void (*attn_values)(float *acc, const float *r, const float *p, size_t stride, int n_q, int d,
                        const uint16_t *const *v, int n);

    /* attn_scores, softmax_step and attn_values in one, for a tile of a prompt's queries and the rows of its view, a
     * chunk of IG_PROMPT_KEYS after the other, each beginning at a multiple of that; NULL where these three are as
     * fast. A query's result depends on what it sees alone: neither on the others of its tile, nor on where one call of
     * prompt_end and the next of prompt_begin stand. */
    size_t (*prompt_bytes)(int d);
    void (*prompt_begin)(const ig_prompt_tile *t);
    /* A chunk's n keys, or its n values, of d numbers, to its place in memory, which all tiles share: 64-byte aligned,
     * prompt_chunk_bytes(d) bytes. Less than IG_PROMPT_KEYS only if nobody sees what follows. */
    size_t (*prompt_chunk_bytes)(int d);
    void (*prompt_keys)(void *chunk, const uint16_t *const *k, int n, int d);
    void (*prompt_values)(void *chunk, const uint16_t *const *v, int n, int d);
    /* Adds the next chunk to the running sums, n rows of it; `first` is the row of the view at which it begins. */
    void (*prompt_attend)(const ig_prompt_tile *t, void *chunk, int first, int n);
    /* m, l and acc as they are now. */
    void (*prompt_end)(const ig_prompt_tile *t);

    /* Keeps a key or value of d numbers, a multiple of 8. IG_KV_F16: 16-bit floats, and no lines. Else codes and lines,
     * the same at every level, with |x - (step code + min)| <= step / 2. NaN counts as 0; what is beyond +-65280 (1
     * bit: 32640) counts as that, so that every sum is finite. */
    void (*kv_pack[IG_KV_TYPES])(void *row, ig_kv_line *lines, const float *x, int d);
    /* n such rows back to 16-bit floats, dst[n][d], rounded to nearest; the same at every level. Not for IG_KV_F16. */
    void (*kv_unpack[IG_KV_TYPES])(uint16_t *dst, const ig_kv_packed *rows, int n, int d);
    /* attn_scores and attn_values straight from packed rows, for few queries; NULL where it is as good to unpack the
     * rows first, the results of which differ by rounding. */
    void (*packed_scores[IG_KV_TYPES])(float *scores, size_t stride, const float *q, int n_q, int d, float scale,
                                       const ig_kv_packed *k, int n);
    void (*packed_values[IG_KV_TYPES])(float *acc, const float *r, const float *p, size_t stride, int n_q, int d,
                                       const ig_kv_packed *v, int n);

    /* Writes token slot t (0..15) of a sketch block from a 16-bit key; d as below. NaN counts as 0, infinities as
     * +-65504. A block starts zeroed: slots not yet written score 0. */
    void (*sketch_put)(void *block, int t, const uint16_t *key, int d);
    /* Estimated scores[g * stride + i] = scale * dot(q[g], key i) for i in 0 .. 16 * n_blocks-1 over
     * consecutive blocks; the query is quantised to 8 bits inside. d a multiple of 8, at most IG_KV_DIMS. */
    void (*sketch_scores)(float *scores, size_t stride, const float *q, int n_q, int d, float scale, const void *blocks,
                          int n_blocks);
    /* Writes token slot t (0..15) of a value sketch block; d as above. NaN counts as 0, what is beyond +-65504 as that.
     * Slots not yet written of a block that was zeroed count as 0. */
    void (*value_put)(void *block, int t, const float *x, int d);
    /* acc[g][0..d) += the sum over i of w[g * stride + i] * value i, for i in 0 .. 16 * n_blocks-1 over consecutive
     * blocks, added in their order: several calls give the bits of one. Weights are 0 .. 1e30; those of a block are
     * rounded to 1/255 of the largest step * weight. */
    void (*value_sums)(float *acc, const float *w, size_t stride, int n_q, int d, const void *blocks, int n_blocks);
    /* The Walsh-Hadamard transform, in place, of each of the pieces of x whose length is the largest power of 2 that
     * divides d; scaled to be orthonormal, so that it is its own inverse. It spreads what a few dims hold evenly, which
     * sketches of few bits want. The same at every level; d as above. */
    void (*hadamard)(float *x, int d);
    /* w[i] += exp(s[i] - max) / sum over i of exp(s[i] - max), for n scores; nothing if all are -INFINITY. */
    void (*softmax_add)(float *w, const float *s, int n);
    /* w[i] = the sum over g of r[g] * s[g * stride + i], n_rows rows of n. */
    void (*sum_rows)(float *w, const float *r, const float *s, size_t stride, int n_rows, int n);
    /* w[i] = (1 - share) * w[i] + share * the mean of the `block` elements that it is one of; the last block may be
     * shorter. */
    void (*smooth)(float *w, int n, int block, float share);

    /* The largest magnitude, 0 of none; infinite or NaN if any element is, NaN before all. */
    float (*peak)(const float *x, int n);
    /* The largest element, and the lowest index that has it. NaN counts as -INFINITY. Of none: -INFINITY and 0. */
    float (*max)(const float *x, int n);
    int (*argmax)(const float *x, int n);
    /* How many x[i] are above t, and (sum != NULL) their sum. NaN is above nothing. */
    int (*count_above)(const float *x, int n, float t, float *sum);
    /* count_above for three thresholds at once. */
    void (*count_above3)(const float *x, int n, const float *t, int *count, float *sum);
    /* Writes the i with x[i] above t, plus first, ascending; returns how many. list has room for n. */
    int (*list_above)(int32_t *list, const float *x, int first, int n, float t);
} ig_kernels;

/* Scores x, n of each of n_rows, become cap * tanh(x / cap); cap 0: they stay as they are (Gemma 2). */
static inline void ig_cap_scores(const ig_kernels *k, float cap, float *scores, size_t stride, int n_rows, int n) {
    for (int r = 0; r < n_rows && cap > 0; r++) {
        float *row = scores + (size_t)r * stride;
        for (int i = 0; i < n; i++) row[i] /= cap;
        k->tanh(row, n);
        for (int i = 0; i < n; i++) row[i] *= cap;
    }
}

/* The table for a level, or for the best if the CPU has not that one; never fails, lives for ever. */
const ig_kernels *ig_kernels_get(ig_cpu_level level);
/* The form a weight type wants of few columns, and of many where many_act does not say otherwise. */
ig_act ig_kernels_act(ig_type type);

#endif
