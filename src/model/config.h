/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model family is, as data. One forward pass (model/forward.c) serves all families; they differ
 * by the flags and shapes here and by which weights are present.
 */
#ifndef IG_MODEL_CONFIG_H
#define IG_MODEL_CONFIG_H

#include "format/gguf.h"
#include "format/safetensors.h"

enum { IG_MAX_LAYERS = 512, IG_MAX_HEAD_DIM = 512 };

typedef enum ig_norm { IG_NORM_RMS, IG_NORM_LAYER } ig_norm;
typedef enum ig_ffn { IG_FFN_SILU_GATED, IG_FFN_RELU } ig_ffn;
typedef enum ig_rope { IG_ROPE_NONE, IG_ROPE_HALF, IG_ROPE_ADJACENT } ig_rope;
/* How the frequencies between those that are kept and those that are divided go from one to the other. */
typedef enum ig_rope_blend { IG_BLEND_NONE, IG_BLEND_LLAMA3, IG_BLEND_YARN } ig_rope_blend;

typedef struct ig_config {
    char architecture[64]; /* "llama", "qwen2", "qwen3", "mistral", "opt" */
    char name[128];
    int n_layers, n_heads, n_kv_heads, head_dim, d_model, d_ff, n_vocab, n_ctx_train;
    int d_embed; /* width of the embedding; differs from d_model in OPT-350m (projected) */
    ig_norm norm;
    float norm_eps;
    bool post_norm; /* OPT-350m: norms follow the residual sums, and there is no final norm */
    ig_ffn ffn;
    ig_rope rope;
    int n_rot; /* rotated dimensions of a head */
    double rope_theta;
    double rope_linear; /* positions are divided by this ("linear" scaling); 1: none */
    /* Frequencies of fewer turns in rope_original_ctx positions than rope_low_freq are divided by rope_factor, those of
     * more than rope_high_freq kept: */
    ig_rope_blend rope_blend;
    double rope_factor, rope_low_freq, rope_high_freq, rope_original_ctx;
    double rope_gain;          /* "yarn": of queries and of keys; 1: none */
    int learned_positions;     /* rows of the position embedding; 0: none */
    int position_offset;       /* OPT: 2 */
    int window[IG_MAX_LAYERS]; /* attention of layer l sees this many last positions, itself included; 0: all */
    double attn_scale;         /* rope_gain^2 / sqrt(head_dim) */
    bool tied;                 /* the output matrix is the embedding */
    bool final_norm;           /* a norm precedes the output matrix */
} ig_config;

/* Refuses by name: unknown architectures, rope types, activations, quantisation schemes. Every number is
 * range-checked so that products of them fit 64 bits. */
ig_status ig_config_from_gguf(ig_config *out, const ig_gguf *g, ig_error *err);
ig_status ig_config_from_hf(ig_config *out, const char *directory, ig_error *err);
/* The same from the text of a config.json; `path` stands in errors. */
ig_status ig_config_from_json(ig_config *out, const char *text, size_t n_bytes, const char *path, ig_error *err);

#endif
