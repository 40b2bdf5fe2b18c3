/* SPDX-License-Identifier: Apache-2.0
 *
 * What products of few columns (matmul.cu) and of many (matmul_many.cu) have in common.
 */
#ifndef IG_DEVICE_CUDA_MATMUL_H
#define IG_DEVICE_CUDA_MATMUL_H

#include "device/cuda/codes.cuh"

typedef struct product {
    const uint8_t *w;
    size_t row_bytes;
    const float *bias;
    float scale;
    const uint8_t *x; /* columns */
    size_t stride;    /* bytes from one to the next */
    float *y;
    int y_column; /* numbers from one column's to the next */
    int n_out, n_in, n_cols;
    int n_shares; /* of many columns */
    float *sums;  /* [n_shares][n_cols][n_out] what each comes to, if there are several */
    ig_block_scales blocks;
} product;

/* Of the same columns with matrices of one type and width: blocks of threads of the same z have the same one. Or the
 * first one is that of a head, and those of the next n_heads - 1 lie so many bytes, and floats of y, behind it. */
typedef struct products {
    product of[IG_CUDA_MATRICES];
    int n_heads, y_head;
    size_t w_head, x_head;
} products;

static __device__ __forceinline__ product product_number(const products *all, int i) {
    product m = all->of[all->n_heads ? 0 : i];
    if (!all->n_heads) return m;
    m.w += (size_t)i * all->w_head;
    m.x += (size_t)i * all->x_head;
    m.y += (size_t)i * (size_t)all->y_head;
    return m;
}

static __host__ __device__ __forceinline__ int least(int a, int b) { return a < b ? a : b; }

/* Of number i of a row (ig_block_scales); numbers of a multiple of IG_SCALES_UNIT and those behind have the same. */
static __device__ __forceinline__ float block_scale(const ig_block_scales *b, int row, int i) {
    return b->s ? b->s[(size_t)((b->first + row) / b->n_rows) * (size_t)b->n_across + (size_t)(i / b->n_cols)] : 1.0f;
}

/* Columns `stride` bytes apart; the largest matrix is *n_out rows. */
static products products_of(int *n_out, float *const *y, const ig_matrix *m, int n_m, const void *x, size_t stride,
                            int n_cols) {
    products all = {};
    *n_out = 0;
    for (int i = 0; i < n_m; i++) {
        all.of[i] = product{(const uint8_t *)m[i].w,
                            m[i].row_bytes,
                            m[i].bias,
                            m[i].scale ? *m[i].scale : 1.0f,
                            (const uint8_t *)x,
                            stride,
                            y[i],
                            m[i].n_out,
                            m[i].n_out,
                            m[i].n_in,
                            n_cols,
                            1,
                            NULL,
                            m[i].block_scales};
        if (m[i].n_out > *n_out) *n_out = m[i].n_out;
    }
    return all;
}

/* Defines kernels_of(type), by a file's own kernels_of_floats() and kernels_of_codes(). */
#define FLOATS_OF(t) \
    case t:          \
        return kernels_of_floats<t>();
#define CODES_OF(t, block, bytes, apart) \
    case t:                              \
        return kernels_of_codes<t, block, bytes, apart>();
#define KERNELS_BY_TYPE                       \
    static kernels kernels_of(ig_type type) { \
        switch (type) {                       \
            IG_FLOAT_FORMATS(FLOATS_OF)       \
            IG_CODE_FORMATS(CODES_OF)         \
            default:                          \
                return kernels{};             \
        }                                     \
    }

/* Of heads, whose columns lie column_bytes apart. */
static products products_of_heads(const ig_head_product *p, const ig_matrix *m, const void *x, size_t column_bytes,
                                  int n_rows) {
    products all = {};
    size_t row = (size_t)p->n_heads * column_bytes;
    all.n_heads = p->n_heads;
    all.y_head = (int)p->y_head;
    all.w_head = (size_t)p->of_head * m->row_bytes;
    all.x_head = column_bytes;
    all.of[0] = product{(const uint8_t *)m->w + (size_t)p->first * m->row_bytes,
                        m->row_bytes,
                        NULL,
                        1,
                        (const uint8_t *)x,
                        row,
                        p->y,
                        p->n_heads * (int)p->y_head,
                        p->n,
                        m->n_in,
                        n_rows,
                        1,
                        NULL,
                        {}};
    return all;
}

static unsigned shares(int n, int each) { return (unsigned)((n + each - 1) / each); }

#endif
