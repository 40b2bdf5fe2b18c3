/* SPDX-License-Identifier: Apache-2.0
 *
 * Sketch files: the linear maps that `infinigen prepare` finds for a model. q and k are post-RoPE. Two kinds:
 *
 * Balanced, per layer and KV head: with q' = Q q and k' = K k - offset, q' k' is close to q k plus something that is
 * the same for all keys, which softmax does not see. Q and K are [rank][head_dim], the offset is [rank].
 *
 * Skew, per layer and query head: the orthogonal matrix A of the paper's section 4.2, so that (q A) (k A) = q k
 * and few columns of q A hold most of it. It is kept by columns, [head_dim][head_dim]: row j is column j of A, the
 * right singular vector of the queries with the j-th largest singular value.
 *
 * A file is little-endian: a header of 64 bytes (its fields are in sketch.c), then every head's maps as 32-bit floats:
 * Q, K and the offset, or A. It is untrusted until ig_sketch_file_open() has returned, and is copied first: a file that
 * changes afterwards changes nothing.
 */
#ifndef IG_FORMAT_SKETCH_H
#define IG_FORMAT_SKETCH_H

#include "base/file.h"
#include "base/kv_type.h"
#include "infinigen_tools.h"

typedef struct ig_sketch_shape {
    ig_sketch_kind kind; /* BALANCED or SKEW */
    uint64_t model;      /* identity of the model it was made for */
    int n_layers, head_dim;
    int n_heads; /* with maps of their own: KV heads (balanced) or query heads (skew) */
    int rank;    /* a multiple of 8, at most head_dim; skew: head_dim */
    int n_ctx;   /* context over which the positions were spread; skew: tokens of the sample, no limit */
} ig_sketch_shape;

typedef struct ig_sketch_file {
    ig_file file;
    ig_sketch_shape shape;
    uint64_t checksum; /* of all of it */
    const float *maps; /* [n_layers][n_heads][ig_sketch_head_floats] */
} ig_sketch_file;

/* "none", "balanced", "skew" */
const char *ig_sketch_kind_name(ig_sketch_kind kind);
/* Of each number kept of a key. */
int ig_sketch_bits(ig_sketch_kind kind);
/* Floats of one head: Q, K, offset, or A. */
size_t ig_sketch_head_floats(const ig_sketch_shape *shape);
/* Bytes of a whole file; 0 if the shape is impossible. */
size_t ig_sketch_file_bytes(const ig_sketch_shape *shape);

/* Reads and checks a file: sizes, checksum, finite numbers; in a skew, columns of length 1. */
ig_status ig_sketch_file_open(ig_sketch_file *out, const char *path, ig_error *err);
/* The same for a file in memory, which must outlive `out`, be aligned to 4 bytes and needs no closing; `name` stands in
 * errors. */
ig_status ig_sketch_file_open_memory(ig_sketch_file *out, const uint8_t *data, size_t n_bytes, const char *name,
                                     ig_error *err);
void ig_sketch_file_close(ig_sketch_file *f);

/* Refuses a path whose place a sketch must not take: what is there is no regular file (a device, a pipe, a link, a
 * folder). For asking before the work; saving asks as well. */
ig_status ig_sketch_file_check_output(const char *path, ig_error *err);

/* Writes a file, whole or not at all: a temporary file beside it is renamed once its bytes are on the disk. */
ig_status ig_sketch_file_save(const char *path, const ig_sketch_shape *shape, const float *maps, ig_error *err);

/* Of a balanced sketch. */
const float *ig_sketch_query_map(const ig_sketch_file *f, int layer, int head); /* Q */
const float *ig_sketch_key_map(const ig_sketch_file *f, int layer, int head);   /* K */
const float *ig_sketch_offset(const ig_sketch_file *f, int layer, int head);
/* Of a skew: the columns of A. */
const float *ig_sketch_skew(const ig_sketch_file *f, int layer, int head);

#endif
