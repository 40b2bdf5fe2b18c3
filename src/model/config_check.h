/* SPDX-License-Identifier: Apache-2.0
 *
 * What both spellings of a configuration share: the limits of each number and the checks between
 * numbers. The limits are far above any model and low enough that every product of three fits 64 bits.
 */
#ifndef IG_MODEL_CONFIG_CHECK_H
#define IG_MODEL_CONFIG_CHECK_H

#include "model/config.h"

enum {
    IG_MAX_HEADS = 4096,
    IG_MAX_WIDTH = 1 << 20, /* d_model, d_ff, d_embed */
    IG_MAX_VOCAB = 4 << 20,
    IG_MAX_CTX = 16 << 20,
    IG_LLAMA4_CHUNK = 8192, /* what Llama 4 attends to where it rotates, and from where on queries grow elsewhere */
};

/* Of all scales, of what rotated queries and keys are multiplied by, and of the base of frequencies. */
#define IG_LEAST_SCALE 1e-6
#define IG_MAX_SCALE 1e6
#define IG_LEAST_GAIN 0.01
#define IG_MAX_GAIN 100.0
#define IG_MAX_THETA 1e15

/* So many of the first layers have no experts, and feed-forward layers as wide as c->d_ff is now. */
static inline void ig_config_set_plain_layers(ig_config *c, int n) {
    c->n_plain_layers = n;
    c->d_ff_plain = n ? c->d_ff : 0;
}

/* Layers with a window have these heads, which are others only where they differ from c's as they are now. */
static inline void ig_config_set_local_heads(ig_config *c, int n_heads, int n_kv_heads, int head_dim) {
    if (n_heads == c->n_heads && n_kv_heads == c->n_kv_heads && head_dim == c->head_dim) return;
    c->local_heads = n_heads;
    c->local_kv_heads = n_kv_heads;
    c->local_head_dim = head_dim;
}

/* Kinds of parts that a file numbers one by one. */
typedef enum ig_part { IG_PART_ATTENTION, IG_PART_RECURRENCE, IG_PART_FFN, IG_PARTS } ig_part;
/* Makes layers of n parts, at most IG_MAX_LAYERS: what attends or recurs and, where one follows, a feed-forward part.
 * False: one follows nothing. */
bool ig_config_join_parts(ig_config *c, const ig_part *parts, int n);

/* How a file calls the fields, for errors. */
typedef struct ig_config_names {
    const char *path, *d_model, *n_heads, *n_kv_heads, *head_dim, *n_rot, *eps, *theta;
} ig_config_names;

/* Derives what is still 0 (n_kv_heads, head_dim, rope.n, d_embed, rope.linear, rope.gain, attn_scale, scales), then
 * checks. */
ig_status ig_config_finish(ig_config *c, const ig_config_names *names, ig_error *err);

#endif
