/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model family is, as data. One forward pass (model/forward.c) serves all families; they differ
 * by the flags and shapes here and by which weights are present.
 */
#ifndef IG_MODEL_CONFIG_H
#define IG_MODEL_CONFIG_H

#include "base/compiler.h"
#include "device/device.h"
#include "format/gguf.h"
#include "format/safetensors.h"

enum { IG_MAX_LAYERS = 512, IG_MAX_EXPERTS = 512 };

typedef enum ig_norm_kind { IG_NORM_RMS, IG_NORM_LAYER, IG_NORM_LAYER_UNBIASED } ig_norm_kind;
/* Where a layer's norms are. */
typedef enum ig_norm_order {
    IG_NORMS_BEFORE,   /* of what attention and the feed-forward layer get */
    IG_NORMS_OF_SUMS,  /* of the state after each was added (OPT-350m); there is no final norm */
    IG_NORMS_AROUND,   /* of what both get, and of what they give before it is added (Gemma 3) */
    IG_NORMS_OF_PARTS, /* of what both give alone (OLMo 2) */
    IG_NORMS_SHARED,   /* one of what both get, side by side: the state is what it was for both (Cohere) */
    IG_NORMS_APART,    /* the same with one each (GPT-NeoX) */
} ig_norm_order;
/* RMS norms of queries and keys. */
typedef enum ig_head_norm {
    IG_HEAD_NORM_NONE,
    IG_HEAD_NORM_EACH, /* of each head by itself (Qwen3, Gemma 3) */
    IG_HEAD_NORM_ALL,  /* of all heads of a token as one vector (OLMo 2) */
} ig_head_norm;
/* How scores of experts become shares of those that are chosen. */
typedef enum ig_routing {
    IG_ROUTING_SOFTMAX,       /* of the scores of those that are chosen, or of all (is_share_of_all) */
    IG_ROUTING_SIGMOID,       /* each one's by the sum of those; a bias counts where they are chosen (GLM 4.5) */
    IG_ROUTING_SOFTMAX_FIRST, /* the same of weights that are a softmax over all (ERNIE 4.5) */
    IG_ROUTING_SIGMOID_LAST,  /* sigmoids of the scores of those that are chosen (Llama 4) */
} ig_routing;
/* How a directory's file has all experts' matrices of a layer, gate and up as one. */
typedef enum ig_expert_order {
    IG_EXPERTS_BY_ROWS,
    IG_EXPERTS_BY_COLUMNS,       /* [experts][n_in][n_out] (Llama 4) */
    IG_EXPERTS_BY_MIXED_COLUMNS, /* the same, and columns of gate and up take turns (gpt-oss) */
} ig_expert_order;
/* Which numbers of a head turn together: i and i + n/2 (HALF; GPT-NeoX, Llama of Hugging Face), 2i and 2i + 1
 * (ADJACENT; GPT-J). IG_ROPE_PAIRED is of GGUF files alone (is_paired). */
typedef enum ig_rope_kind { IG_ROPE_NONE, IG_ROPE_HALF, IG_ROPE_ADJACENT, IG_ROPE_PAIRED } ig_rope_kind;
/* Which frequencies a layer rotates by. */
typedef enum ig_rope_set {
    IG_ROPE_MAIN,
    IG_ROPE_LOCAL, /* plain ones of a base of their own: of layers with a window (Gemma 3, OLMo 3) */
    IG_ROPE_SETS,
    IG_ROPE_LEFT_OUT = IG_ROPE_SETS, /* it does not rotate (SmolLM3) */
} ig_rope_set;
/* How the frequencies between those that are kept and those that are divided go from one to the other. */
typedef enum ig_rope_blend { IG_BLEND_NONE, IG_BLEND_LLAMA3, IG_BLEND_YARN, IG_BLEND_LONGROPE } ig_rope_blend;

/* Latent attention (MLA; DeepSeek-V2, arXiv 2405.04434, section 2.1): of a token one row is kept, of what rotates and
 * of a latent, from which each head makes a key and a value. Attention itself is computed with the rows, which are keys
 * and values of one head for all queries: a head's part of the first projection is multiplied into its queries, and its
 * part of the second into what attention gives. */
typedef struct ig_latent_shape {
    int kv_rank;            /* of the latent; 0: there is none */
    int q_rank;             /* queries are made of a latent of this width; 0: of the state */
    int key_dim, value_dim; /* of a head: of the key what is made of the latent */
} ig_latent_shape;

/* What products of a layer's matrices are multiplied by (Falcon-H1). */
typedef struct ig_multipliers {
    double attn_in, key, attn_out; /* of q, k and v; of k as well; of o */
    double gate, down;             /* of feed-forward parts */
    double state_in, state_out;    /* of all that a state is made with, and of what it gives */
    double state_part[5];          /* of z, values, keys, queries and decays as well */
} ig_multipliers;

/* Where norms are in a layer and of what they are. */
typedef struct ig_norms {
    ig_norm_kind kind;
    ig_norm_order order;
    float eps;           /* of the state's norms */
    float inner_eps;     /* of norms within a layer's parts, as stated */
    float after_eps;     /* of norms of what parts give; eps unless stated */
    float offset;        /* added to the weights of all norms as stored (Gemma); else 0 */
    bool has_final;      /* a norm precedes the output matrix */
    bool is_final_whole; /* offset is not added to those of the final norm (Muse Glimmer) */
    ig_head_norm of_heads;
    bool follow_rope;        /* those of heads follow RoPE (Hunyuan); else they precede it */
    bool are_of_rotated;     /* heads are normed in layers that rotate alone (Llama 4) */
    bool of_heads_are_plain; /* those of heads have no weights */
    bool of_values;          /* RMS norms of each head's values, without weights */
    bool of_embeddings;      /* RMS norms of tokens' embeddings, without weights */
} ig_norms;

/* Feed-forward layers of width d_ff of which a router chooses some for each token. */
typedef struct ig_experts {
    int n, n_used; /* 0: there is one layer, for all */
    int step;      /* only each step-th layer has some (interleave step); 0: all */
    int width;     /* experts read and give vectors of this width, made of the state and made one again
                      (Nemotron 3 Super); 0: d_model, they are the state's */
    int n_groups;  /* experts are of the best n_groups_used groups alone; 0 or 1: of all */
    int n_groups_used;
    ig_routing routing;
    bool is_share_of_all;   /* shares do not add up to 1, as those of all experts do */
    bool are_inputs_shared; /* shares multiply what experts read, not what they give (Llama 4) */
    double scale;           /* of all shares (routed_scaling_factor); 1: nothing */
    int d_shared;           /* width of the shared expert, which all tokens go through; 0: there is none */
    bool is_shared_gated;   /* what it gives is multiplied by the sigmoid of one more product of each token (Qwen3.5) */
    bool is_shared_beside;  /* the shared expert, the experts and the router have norms of their own: each reads the
                               state (Gemma 4) */
    double shared_scale;    /* of what the shared expert gives; 1: nothing */
} ig_experts;

/* How queries and keys are rotated by their positions, and how queries grow with theirs. */
typedef struct ig_rope {
    ig_rope_kind kind;
    bool is_paired; /* IG_ROPE_ADJACENT, where Hugging Face's files of the family have halves: the converter put rows of
                       queries and keys side by side */
    int n;          /* rotated dimensions of a head (partial rotary) */
    int local_n;    /* by IG_ROPE_LOCAL; of whole heads unless stated, or as many as n where they are alike */
    double theta;
    double local_theta;               /* of IG_ROPE_LOCAL; 0: no layer has it */
    unsigned char set[IG_MAX_LAYERS]; /* ig_rope_set */
    double linear;                    /* positions are divided by this ("linear" scaling); 1: none */
    /* Frequencies of fewer turns in original_ctx positions than low_freq are divided by factor, those of more than
     * high_freq kept: */
    ig_rope_blend blend;
    double factor, low_freq, high_freq, original_ctx;
    bool is_exact; /* of YaRN: the blend does not begin and end at whole numbers of frequencies */
    /* "longrope": [n / 2] divisors of the frequencies. GGUF files have them as a tensor. */
    float divisors[IG_KV_DIMS / 2];
    double gain; /* of rotated queries and keys, of IG_ROPE_MAIN (attention_factor of YaRN, mscale); 1: nothing */
    /* Attention temperature: rotated queries at position p are multiplied by 1 + this * log(1 + floor(p /
     * growth_length)) (Ministral 3), or those of layers that do not rotate, as at p + 1 (Llama 4); 0: they are not. */
    double query_growth, growth_length;
    bool grows_unrotated;
} ig_rope;

/* What is the files' alone: how their tensors lie, and what they hold besides. */
typedef struct ig_file_form {
    int zero_offset; /* of zeros of weights in whole numbers (ig_weights_unpack()) */
    ig_expert_order expert_order;
    bool are_heads_mixed;                /* rows of q, k and v, one matrix, are each head's, one head after the other */
    bool is_qkv_fused, is_gate_up_fused; /* q, k and v are one matrix (Phi-3), and gate and up are (GLM-4, too) */
    int fp8_block_rows, fp8_block_cols;  /* of a matrix in FP8 that have one scale; 0: no blocks are stated */
    int n_layers_left_out; /* behind the others: they predict tokens ahead (MTP), and nothing needs them */
    /* Files that number the parts of layers one by one (Nemotron-H): a layer begins with part number first_part[l] of
     * n_parts, and what follows in it is the next one. */
    bool has_numbered_parts;
    int n_parts;
    uint16_t first_part[IG_MAX_LAYERS];
    bool is_text_part; /* they also hold what sees pictures, which nothing here uses */
} ig_file_form;

typedef struct ig_config {
    char architecture[64]; /* "llama", "qwen3", ... as the file has it */
    char name[128];
    int n_layers, n_heads, n_kv_heads, head_dim, d_model, d_ff, n_vocab, n_ctx_train;
    /* Of layers with a window, if they are others; else all 0. */
    int local_heads, local_kv_heads, local_head_dim;
    ig_pooling pooling; /* ig_model_info */
    ig_file_form file;
    int d_embed; /* width of the embedding; differs from d_model in OPT-350m (projected) */
    bool tied;   /* the output matrix is the embedding, as the file states it */
    ig_norms norms;
    ig_activation activation;
    ig_experts experts;
    int n_plain_layers; /* so many first layers have no experts (first_k_dense_replace), or another width (Gemma 4) */
    int d_ff_plain;     /* the width of those, and of all layers without experts */
    bool has_no_ffn[IG_MAX_LAYERS]; /* layers that have no feed-forward part */
    bool has_attn_gate;             /* sigmoids of one more projection multiply what attention gives (Trinity) */
    bool is_gate_of_heads;          /* one for each head (LFM3), not one for each number */
    bool is_gate_softplus;          /* softplus of it does (Laguna) */
    bool is_gate_in_q;              /* it is in the matrix of queries, behind those of each head (Qwen3.5) */
    bool are_keys_values;           /* where there is no window, values are what keys are made of (Gemma 4) */
    /* The last layers, which have queries alone, and the keys and values of the last layer before them that has a
     * window, or none, as they do (Gemma 4 E2B). */
    int n_layers_sharing;
    uint16_t kv_layer[IG_MAX_LAYERS]; /* number of a layer's keys and values; the next one's where it does not attend */
    int d_layer_input;     /* of each token every layer gets an embedding of its own of this width; 0: none does */
    bool has_layer_scales; /* a number that multiplies the state behind a layer */
    bool has_sink_scores;  /* each query head has a learned one (ig_attention) */
    /* Granite and Gemma; else 1. The state holds 1 / residual_scale of what the publication has, so that layers may add
     * to it as they are: embed_scale and norms.eps are for that. */
    double embed_scale, residual_scale, logit_scale;
    double logit_cap; /* logits x become cap * tanh(x / cap) (soft-capping); 0: they do not */
    ig_rope rope;
    int learned_positions;        /* rows of the position embedding; 0: none */
    int position_offset;          /* OPT: 2 */
    int window[IG_MAX_LAYERS];    /* attention of layer l sees this many last positions, itself included; 0: all */
    int kv_window[IG_MAX_LAYERS]; /* the same by the numbers of keys and values */
    bool has_chunks;              /* windows are chunks (ig_window) */
    double attn_scale;            /* of scores; 1 / sqrt(head_dim) unless stated */
    double score_cap;             /* scores x become cap * tanh(x / cap) (soft-capping); 0: they do not */
    ig_latent_shape latent;       /* rows are [rope.n of a key that rotates][kv_rank of the latent] */
    ig_index_shape index;         /* what entries are chosen by: rope.n numbers of its queries and keys rotate, too, */
    bool is_index_adjacent;       /* in pairs side by side (GLM-5); else in halves */
    uint16_t index_layer[IG_MAX_LAYERS]; /* as in ig_layer_heads */
    /* Layers that do not attend but carry a state on (Qwen3.5, Granite 4, LFM2); the others are numbered by themselves
     * where keys and values are concerned. */
    bool is_recurrent[IG_MAX_LAYERS];
    bool is_state_beside; /* all attend, and carry a state beside that (Falcon-H1) */
    int n_recurrent;      /* layers with a state */
    ig_recurrence_shape recurrence;
    bool has_no_state_norm; /* of what Mamba 2 reads from a state */
    /* Stated by directories; GGUF files' matrices have them in them. */
    bool has_multipliers;
    ig_multipliers multipliers;
    int low_rank, n_adapters; /* of adapters (ig_weights), of which the file knows nothing; 0: there are none */
} ig_config;

/* Layers that have keys and values of their own. */
static inline int ig_config_attention_layers(const ig_config *c) {
    return c->n_layers - (c->is_state_beside ? 0 : c->n_recurrent) - c->n_layers_sharing;
}

/* Layers that convolve values with the last ones, d_model of them. */
static inline ig_recurrence_shape ig_config_short_convolution(const ig_config *c, int n_taps) {
    return (ig_recurrence_shape){
        .kind = IG_SHORT_CONVOLUTION, .n_value_heads = 1, .value_dim = c->d_model, .n_taps = n_taps};
}

/* Whether a layer of a model with experts has none, but a feed-forward part for all tokens. */
static inline bool ig_config_is_plain(const ig_config *c, int layer) {
    return layer < c->n_plain_layers || (c->experts.step > 1 && (layer + 1) % c->experts.step);
}

/* Layers that have experts, and the first one. */
int ig_config_expert_layers(const ig_config *c);
int ig_config_first_expert_layer(const ig_config *c);

/* Bytes of the states of all layers that have one. */
static inline size_t ig_config_state_bytes(const ig_config *c) {
    return (size_t)c->n_recurrent * ig_recurrence_floats(&c->recurrence) * sizeof(float);
}

/* The heads of all layers. */
static inline ig_layer_heads ig_config_heads(const ig_config *c) {
    ig_layer_heads h = {.all = {c->n_heads, c->n_kv_heads, c->head_dim, (float)c->attn_scale},
                        .window = c->window,
                        .in_chunks = c->has_chunks};
    if (c->local_kv_heads)
        h.local = (ig_head_shape){c->local_heads, c->local_kv_heads, c->local_head_dim, (float)c->attn_scale};
    h.index = c->index;
    h.index_layer = c->index_layer;
    return h;
}

/* Whether all layers that attend have heads alike, each its own keys and values. */
static inline bool ig_config_is_uniform(const ig_config *c) { return !c->local_kv_heads && !c->n_layers_sharing; }

/* Of a token the queries of all heads, which are as wide as what attention gives, where there are most. */
static inline int ig_config_widest_heads(const ig_config *c) {
    return ig_max_int(c->n_heads * c->head_dim, c->local_heads * c->local_head_dim);
}

/* What attention gives of a token, or the outputs of a recurrence, whichever is wider. */
static inline int ig_config_mixed(const ig_config *c) {
    int heads = ig_config_widest_heads(c), values = c->recurrence.n_value_heads * c->recurrence.value_dim;
    return heads > values ? heads : values;
}

/* [rope.n / 2] radians per position. */
typedef double ig_rope_frequencies[IG_KV_DIMS / 2];

/* By which sessions choose unless they are told otherwise. */
static inline const char *ig_config_policy(const ig_config *c) { return c->index.dim ? "indexer" : "infinigen"; }

/* Attention and the feed-forward layer get norms of the state; else the state itself. */
static inline bool ig_config_norms_first(const ig_config *c) {
    return c->norms.order != IG_NORMS_OF_SUMS && c->norms.order != IG_NORMS_OF_PARTS;
}

/* Of what an expert reads. */
static inline int ig_config_expert_width(const ig_config *c) {
    return c->experts.width ? c->experts.width : c->d_model;
}

/* And the feed-forward layer gets what attention got. */
static inline bool ig_config_is_side_by_side(const ig_config *c) {
    return c->norms.order == IG_NORMS_SHARED || c->norms.order == IG_NORMS_APART;
}

/* Of the widest feed-forward layer. */
static inline int ig_config_widest_ff(const ig_config *c) {
    int most = c->d_ff > c->d_ff_plain ? c->d_ff : c->d_ff_plain;
    return most > c->experts.d_shared ? most : c->experts.d_shared;
}

/* How many sets of frequencies the layers rotate by. */
static inline int ig_config_rope_sets(const ig_config *c) { return c->rope.local_theta > 0 ? IG_ROPE_SETS : 1; }

/* Sets of cosines and sines of a row: one of each set of frequencies and, last, one of queries whose growth is in it.
 */
static inline int ig_config_rotations(const ig_config *c) {
    return ig_config_rope_sets(c) + (c->rope.query_growth > 0);
}

/* Numbers of a head that a rotation is of; where queries grow, those of which only some rotate, all. */
static inline int ig_config_n_rot(const ig_config *c, int rotation) {
    if (rotation == ig_config_rope_sets(c)) return c->head_dim;
    return rotation == IG_ROPE_LOCAL ? c->rope.local_n : c->rope.n;
}

/* Of all rotations of a row. */
static inline int ig_config_rotated(const ig_config *c) {
    int n = 0;
    for (int r = 0; r < ig_config_rotations(c); r++) n += ig_config_n_rot(c, r);
    return n;
}

/* Refuses by name: unknown architectures, rope types, activations, quantisation schemes. Every number is
 * range-checked so that products of them fit 64 bits. */
ig_status ig_config_from_gguf(ig_config *out, const ig_gguf *g, ig_error *err);
ig_status ig_config_from_hf(ig_config *out, const char *directory, ig_error *err);
/* The same from the text of a config.json; `path` stands in errors. */
ig_status ig_config_from_json(ig_config *out, const char *text, size_t n_bytes, const char *path, ig_error *err);

#endif
