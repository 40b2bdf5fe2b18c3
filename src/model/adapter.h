/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters (LoRA, arXiv 2106.09685): to a product with a matrix W [n_out][n_in] of the model they add
 * scale * B A x, of a thin A [rank][n_in] and B [n_out][rank]. They come in directories as PEFT writes them, and for
 * GGUF models in GGUF files as llama.cpp does. What is in them is copied when tensors are bound (weight_binder.h); then
 * they are closed.
 */
#ifndef IG_MODEL_ADAPTER_H
#define IG_MODEL_ADAPTER_H

#include "format/tensors.h"
#include "model/config.h"

enum { IG_MAX_ADAPTER_RANK = 8192 };

typedef struct ig_adapter_file {
    const char *path; /* the caller's */
    ig_gguf *g;       /* one of these two */
    ig_safetensors *st;
    double scale;         /* the caller's */
    double alpha;         /* the file's: that is multiplied by alpha / rank, or by alpha / sqrt(rank) */
    bool is_root_of_rank; /* PEFT's rsLoRA (arXiv 2312.03732) */
    bool is_translated;   /* it is a directory, and the model a GGUF file */
    int split_heads; /* dimension of heads whose rows of queries and keys are two halves here, and pairs in the model;
                        0: they are as in the model */
    bool *used;      /* [tensors] */
} ig_adapter_file;

typedef struct ig_adapters {
    ig_adapter_file *files;
    int n;
    uint64_t hash[2]; /* of the tensors and the caller's scales of those whose scale is not 0; 0: of none it is */
    uint64_t hash_of_all[2]; /* of the tensors of all */
} ig_adapters;

/* Those for a model of this configuration, in the order in which they are added. */
ig_status ig_adapters_open(ig_adapters *out, const ig_adapter *list, int n, const ig_config *c, bool is_gguf,
                           ig_error *err);
void ig_adapters_close(ig_adapters *a);

/* A and B for a matrix, or the n matrices of a tensor of three dimensions, by the name that the tensor has in the
 * model's files; marks both as used. Both NULL: the adapter has none. */
typedef struct ig_adapter_pair {
    const ig_tensor *a, *b;
    int split_heads; /* of B's rows, as in ig_adapter_file */
} ig_adapter_pair;
ig_status ig_adapter_find(ig_adapter_pair *out, ig_adapter_file *f, const char *name, int n, int n_out, int n_in,
                          ig_error *err);
/* The row of B for row number `row` of the model's matrix. */
static inline int ig_adapter_row(const ig_adapter_pair *p, int row) {
    int n = p->split_heads, within = n ? row % n : 0;
    return n ? row - within + within % 2 * (n / 2) + within / 2 : row;
}
/* What the file says that B A x is multiplied by; the caller's scale comes beside it. */
double ig_adapter_scale(const ig_adapter_file *f, int rank);
/* IG_E_UNSUPPORTED, naming a tensor, if one was for no matrix of the model. */
ig_status ig_adapter_check_used(const ig_adapter_file *f, ig_error *err);

#endif
