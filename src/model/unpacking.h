/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to weight_unpack.c (all of it), weight_packed.c (whole numbers, and floats of 4 bits) and weight_order.c
 * (floats in another order): a list of tensors that are made of what a directory holds.
 */
#ifndef IG_MODEL_UNPACKING_H
#define IG_MODEL_UNPACKING_H

#include "model/weight_unpack.h"

enum { IG_UNPACK_ROWS = 64 /* of a task */ };

/* Where codes lie; words have 32 bits, eight codes of 4 or four of 8. */
typedef enum ig_code_order {
    IG_CODES_AWQ,   /* qweight [n_in][words of rows], qzeros [groups][words of rows], scales [groups][n_out] */
    IG_CODES_GPTQ,  /* qweight [words of columns][n_out], qzeros and scales alike, g_idx [n_in]: each column's group */
    IG_CODES_ROWS,  /* compressed-tensors: weight_packed [n_out][words of columns], weight_scale [n_out][groups],
                       weight_zero_point [words of rows][groups] or none, weight_shape */
    IG_CODES_BYTES, /* weight [n_out][n_in] with a sign, and weight_scale */
    IG_CODES_PAIRS, /* gpt-oss, floats of 4 bits: gate_up_proj_blocks [experts][n_out][n_in / 32][16], whose rows are of
                       gate and up in turn, down_proj_blocks, and _scales [experts][n_out][n_in / 32], exponents */
} ig_code_order;

typedef struct ig_unpacked ig_unpacked;
struct ig_unpacked {
    ig_tensor made;
    const ig_tensor *codes; /* what it is made of */
    int n_out, n_in;        /* rows, of all its matrices, and columns */
    /* Writes rows [row, row + n) to `to`, n at most IG_UNPACK_ROWS and row a multiple of it. */
    void (*write)(uint8_t *to, const ig_unpacked *p, int row, int n, size_t row_bytes);

    int n_mixed; /* rows of a matrix, of which every other one belongs to its second half; 0: they are in order */
    int n_rows;  /* of a matrix that lies by columns, or of a head */

    const ig_tensor *scales, *zeros; /* zeros == NULL: all are in the middle */
    const ig_tensor *groups;         /* [n_in] int32; NULL: columns lie in groups one behind the other */
    ig_code_order order;
    bool is_rounded; /* no type has such groups or zeros: weights become Q8_0 with scales of their own */
    int bits, group, zero_offset;
    int64_t scale_row, scale_column; /* how far the next one is */
    float factor;                    /* the only number of a tensor that has no codes */
};

typedef struct ig_unpacker {
    ig_safetensors *s;
    ig_device *d;
    const ig_config *c;
    bool *is_gone;    /* [tensors] */
    ig_unpacked *all; /* [n], at most so many */
    size_t n, n_bytes;
    ig_status status; /* the first failure */
    ig_error *err;
} ig_unpacker;

/* Adds to the list what is packed; matrices of experts that lie by columns; rows of q, k and v in turns. */
void ig_unpack_packed(ig_unpacker *u);
void ig_unpack_turned(ig_unpacker *u);
void ig_unpack_heads(ig_unpacker *u);

/* Fails, if nothing has: "tensor '...' why". */
void ig_unpack_fail(ig_unpacker *u, const ig_tensor *t, const char *why);

/* The tensor beside this one, whose name ends with `end` instead of n bytes; it is gone then. NULL: absent, which is a
 * failure if it is needed. */
const ig_tensor *ig_unpack_take(ig_unpacker *u, const ig_tensor *t, size_t n, const char *end, bool is_needed);

/* Adds what becomes n_matrices of one shape or, if 0, one matrix without a dimension for their number (with
 * made.n_dims 1 a vector). Its name has another end instead of n bytes of that of p.codes, which are gone then. */
void ig_unpack_put(ig_unpacker *u, ig_unpacked p, size_t n, const char *end, int n_matrices);

/* Where row y of what is made lies. */
static inline int ig_unpack_row(const ig_unpacked *p, int y) {
    int half = p->n_mixed / 2, in_matrix = half ? y % p->n_mixed : 0;
    return half ? y - in_matrix + in_matrix % half * 2 + in_matrix / half : y;
}

#endif
