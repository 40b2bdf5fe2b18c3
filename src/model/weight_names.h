/* SPDX-License-Identifier: Apache-2.0
 *
 * What files call a model's tensors.
 */
#ifndef IG_MODEL_WEIGHT_NAMES_H
#define IG_MODEL_WEIGHT_NAMES_H

#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/config.h"

/* Without ".weight" and ".bias", unless a comment says otherwise; the first "%d" is the layer. NULL: no such part. */
typedef struct ig_weight_names {
    const char *prefix; /* of all but the head's name */
    const char *embed, *final_norm;
    const char *head; /* whole */
    const char *attn_norm, *q, *k, *v, *o, *q_norm, *k_norm, *ffn_norm, *gate, *up, *down;
    const char *attn_norm_after, *ffn_norm_after;
    const char *sinks; /* with its suffix */
    const char *attn_gate;
    /* Of layers that do not attend; those of numbers but taps with their suffixes. Mamba 2 has all matrices in one. */
    const char *mixed, *mixed_gate, *beta, *alpha, *taps, *decay, *decay_bias, *skip, *mixed_norm, *mixed_out;
    /* Where queries, keys and values have matrices and taps of their own, and gates come by way of narrower vectors. */
    const char *taps_q, *taps_k, *taps_v, *mixed_gate_in, *alpha_in;
    /* Of latents: of queries, and what makes queries of them; of keys and values, and what makes keys and values of
     * them, in a matrix for each or in one. */
    const char *q_in, *q_in_norm, *q_up, *latent, *latent_norm, *keys_up, *values_up, *keys_values_up;
    const char *index_q, *index_k, *index_norm, *index_weights, *index_q_norm; /* of what entries are chosen by */
    const char *activation;                                                    /* what numbers of it begin with */
    const char *qkv, *gate_up; /* of fused matrices: rows of q, k and v, and of gate and up */
    /* Of experts: where the second "%d" is one's number, a tensor is one's, else it is of all, one below the other. */
    const char *router, *expert_gate, *expert_up, *expert_down, *expert_gate_up;
    const char *expert_suffix; /* ".weight" */
    const char *expert_bias;   /* ".bias", of all experts' */
    const char *router_bias;   /* with its suffix */
    const char *shared_gate, *shared_up, *shared_down;
    const char *shared_share; /* of the one that says how much of these counts */
    const char *experts_in, *experts_out;
    /* Of experts beside a feed-forward layer for all tokens, each with norms of its own; scales with their suffixes. */
    const char *router_scale, *expert_scales, *experts_norm, *experts_norm_after, *shared_norm_after;
    /* Of what layers get of each token beside the state. */
    const char *input_table, *input_in, *input_norm, *input_gate, *input_out, *input_norm_after;
    const char *layer_scale; /* with its suffix */
} ig_weight_names;

/* Those of this architecture in a GGUF file or (g == NULL) in safetensors, as far as the file at hand shows which of
 * several it has. */
void ig_weight_names_choose(ig_weight_names *out, const ig_config *c, const ig_gguf *g, const ig_safetensors *st);

#endif
