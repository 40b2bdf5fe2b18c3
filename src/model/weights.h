/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of one model under the program's own names: pointers into the mapped file with checked
 * types and shapes. Small vectors (norms, biases) are converted to floats once, and matrices put in panels where the
 * device's products want them so.
 */
#ifndef IG_MODEL_WEIGHTS_H
#define IG_MODEL_WEIGHTS_H

#include "base/memory.h"
#include "device/device.h"
#include "model/adapter.h"

/* w == NULL: absent. b is NULL for RMS norms. */
typedef struct ig_norm_weights {
    const float *w, *b;
} ig_norm_weights;

/* Of a layer with latents (ig_latent_shape), beside q, k (the latent's rows), o, and k_norm (the latent's). */
typedef struct ig_latent {
    ig_matrix q_in;     /* [q_rank][d_model] of the latent of queries, normed by q_norm; absent: there is none */
    ig_matrix rotating; /* [n_rot][d_model] of a key */
    ig_matrix key_up;   /* [n_heads kv_rank][key_dim] */
    ig_matrix value_up; /* [n_heads][value_dim, or key_dim rows of keys before them][kv_rank] */
    /* It is not in the file, which has the same the other way round; which has it in FP8. */
    bool is_key_up_made, is_value_up_made;
} ig_latent;

/* What a layer has of its own to choose entries by (ig_index_shape); absent in other layers. */
typedef struct ig_indexer {
    ig_matrix q;       /* [n_heads dim][q_rank] queries, of the latent of queries; with blocks [...][d_model], normed */
    ig_matrix weights; /* [n_heads][d_model] of these; absent with blocks */
    ig_matrix k;       /* [dim][d_model] its keys, normed */
    const float *q_norm;    /* [dim] of each query; NULL: they have none */
    ig_norm_weights k_norm; /* [dim]; with blocks an RMS norm */
} ig_indexer;

/* gate is absent where the activation takes none: up = fc1, down = fc2. */
typedef struct ig_ffn {
    ig_matrix gate, up, down;
} ig_ffn;

/* Of a layer that does not attend, or of the state that it carries beside. */
typedef struct ig_recurrent {
    ig_matrix qkv, z; /* [channels][d_model], [n_value_heads value_dim][d_model] */
    /* Kimi Delta: in the place of qkv, [n_key_heads key_dim][d_model] or of values; and what z and alpha are made of,
     * [key_dim][d_model]: these are [n_value_heads key_dim][key_dim]. */
    ig_matrix q, k, v, z_in, alpha_in;
    ig_matrix beta;  /* [n_value_heads][d_model], of pairs (has_gate_pairs) with alpha in it; Mamba 2 has none; of a
                        short convolution what multiplies its input, [d_model][d_model] */
    ig_matrix alpha; /* [n_value_heads][d_model]; absent in pairs and short convolutions */
    ig_matrix out;   /* [d_model][n_value_heads value_dim] */
    bool is_made;    /* qkv and z are not in the file, which has their rows in turns */
    ig_recurrence_weights w;
    const float *norm; /* [value_dim] of what is read from a state; Mamba 2: of all heads, or NULL: there is none */
} ig_recurrent;

typedef struct ig_layer {
    ig_norm_weights attn_norm, ffn_norm;             /* absent in IG_NORMS_OF_PARTS */
    ig_norm_weights attn_norm_after, ffn_norm_after; /* of what both give; absent in other orders */
    /* None where the layer does not attend, no k and v where it shares those of another, no v where keys are values;
     * q with gates in it: [n_heads][2][head_dim] */
    ig_matrix q, k, v, o;
    ig_latent latent;
    ig_indexer index;
    ig_recurrent recurrent;
    ig_matrix attn_gate; /* [n_heads head_dim][d_model] its sigmoids multiply what attention gives; absent in most
                            models; or [n_heads][d_model] (is_gate_of_heads) */
    const float *q_norm, *k_norm; /* [head_dim], or of all heads; NULL: none (ig_head_norm) */
    ig_matrix router;             /* [n_experts][d_model]; absent where one feed-forward layer is for all tokens */
    const float *router_bias;     /* [n_experts] counts where experts are chosen, not in their shares; NULL: none */
    ig_ffn *experts; /* [n_experts], of all layers one behind the other: this one's begin with `first_expert` */
    int n_experts, first_expert; /* without a router 1, or 0: there is no feed-forward part */
    ig_ffn shared;               /* of all tokens, beside the experts; absent in most models */
    /* [experts.width][d_model] what experts read of the state, and [d_model][experts.width] what joins it of their sum;
     * absent in most models, whose experts read the state. */
    ig_matrix experts_in, experts_out;
    /* Where each of both has norms of its own: ffn_norm is then of what the shared one gets. */
    ig_norm_weights router_norm, experts_norm, experts_norm_after, shared_norm_after;
    const float *expert_scales; /* [n_experts] of their shares; NULL: none */
    /* Of an embedding that the layer has of each token: input_gate [d_layer_input][d_model] of the state, gelu of which
     * multiplies the embedding, input_out [d_model][d_layer_input]; absent in most models. */
    ig_matrix input_gate, input_out;
    ig_norm_weights input_norm_after;
    const float *xielu;    /* [4] of IG_XIELU; NULL: it is another activation */
    float scale;           /* of the state behind the layer */
    ig_matrix shared_gate; /* [1][d_model] whose sigmoid is the share of that; absent: it is 1 */
} ig_layer;

typedef struct ig_weights {
    ig_matrix embed;               /* [n_vocab][d_embed] */
    ig_matrix positions;           /* [learned_positions][d_model] or absent */
    ig_matrix embed_in, embed_out; /* OPT-350m: d_embed -> d_model and back; else absent */
    /* What layers get of a token (ig_config.d_layer_input): a table [n_vocab][n_layers d_layer_input], and beside it
     * products of the embedding, [n_layers d_layer_input][d_model], normed; absent in most models. */
    ig_matrix input_table, input_in;
    const float *input_norm;    /* [d_layer_input] */
    ig_norm_weights final_norm; /* may be absent */
    ig_matrix head;             /* [n_vocab][d_embed] */
    bool is_tied;               /* the head is the embedding */
    const float *classes;      /* [n_classes][d_model] what a model has that ranks texts (Qwen3-Reranker); NULL: none */
    int n_classes;             /* 2: yes and no, in this order; 1: yes alone */
    const float **sink_scores; /* [n_layers][n_heads] as in ig_attention; NULL: there are none */
    const float *rope_factors; /* [n_rot / 2] divisors of the frequencies (GGUF rope_freqs.weight,
                                  rope_factors_long.weight); NULL: none */
    ig_layer *layers;          /* [n_layers] */
    ig_arena owned;            /* converted vectors, and what adapters add */
    ig_arena panels;           /* of matrices */
    uint64_t replaced_bytes;   /* of matrices in the file, which nothing reads since there are panels */
    bool *is_used;             /* [tensors of the file] those that are left over are not, nor counted here: */
    uint64_t n_params, stored_bytes;
    int low_rank; /* the widest ig_low_rank's; 0: there are no adapters */
} ig_weights;

/* Binds all tensors of a GGUF file or (g == NULL) of safetensors, and of adapters; a missing tensor or a wrong shape or
 * type is an error by name, and so is a tensor that nothing uses (it would mean that the model computes something
 * else). */
ig_status ig_weights_bind(ig_weights *out, const ig_config *c, const ig_gguf *g, const ig_safetensors *st,
                          const ig_adapters *adapters, ig_error *err);

enum {
    IG_LAYER_QUERY = 5,                        /* the first ones of these make queries, */
    IG_LAYER_ATTENTION = IG_LAYER_QUERY + 17,  /* and up to here all are attention's, or a state's */
    IG_LAYER_MATRICES = IG_LAYER_ATTENTION + 9 /* but the experts' */
};
/* A layer's matrices in the order of their use. Some may be absent; NULL: what is not in the file. */
void ig_layer_matrices(ig_matrix *out[IG_LAYER_MATRICES], ig_layer *w);

typedef struct ig_load_options {
    bool is_copied;          /* the file is; else it is mapped */
    bool panels;             /* put matrices in panels, where the device's products want them so */
    ig_progress_fn progress; /* in bytes of matrices; may be NULL */
    void *progress_user;
} ig_load_options;

/* Bytes of panels that matrices take on this device. */
uint64_t ig_weights_panel_bytes(ig_weights *w, const ig_config *c, ig_device *d);
/* Puts matrices in panels, and brings the others of a mapped file into memory, so that what follows is not slowed by
 * the disk. What is replaced leaves memory; of a copied file the rows that are also read one by one stay. */
ig_status ig_weights_load(ig_weights *w, const ig_config *c, ig_device *d, const ig_load_options *o, ig_error *err);
void ig_weights_close(ig_weights *w);

#endif
