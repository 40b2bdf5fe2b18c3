/* SPDX-License-Identifier: Apache-2.0
 *
 * A KV policy turns queries and what it keeps of the keys into *indices* of entries to use. It never reads K or V
 * rows and does not know where they are. One policy object serves one sequence.
 *
 * A new policy is one file that fills an ig_policy_ops and one line in policy.c.
 */
#ifndef IG_POLICY_POLICY_H
#define IG_POLICY_POLICY_H

#include "format/sketch.h"
#include "kernel/kernel.h"

typedef struct ig_policy_shape {
    int n_layers, n_heads, n_kv_heads, head_dim, n_ctx;
    float scale;       /* of the scores, before softmax */
    const int *window; /* [n_layers] sliding window of a layer, 0: none; borrowed */
    const ig_kernels *kernels;
    const ig_sketch_file *sketch; /* maps of this model's shape, or NULL; borrowed */
} ig_policy_shape;

typedef struct ig_policy ig_policy;

typedef struct ig_policy_ops {
    const char *name;
    const char *help; /* one line */
    bool uses_sketch; /* takes ig_policy_shape.sketch */
    /* Bytes that a full sequence takes on top of K and V. */
    uint64_t (*plan)(const ig_policy_shape *shape, const ig_cache_options *options);
    ig_status (*open)(ig_policy **out, const ig_policy_shape *shape, const ig_cache_options *options, ig_error *err);
    void (*close)(ig_policy *p);
    /* True if every step uses all entries of this layer: no selection, nothing kept. */
    bool (*is_dense)(const ig_policy *p, int layer);
    /* Token `token` of a layer that is not dense has got this post-RoPE key, [head_dim] 16-bit floats. Later tokens, if
     * there were any, are gone. Tokens of one head come in order; heads may come from several threads. */
    void (*append)(ig_policy *p, int layer, int head, int token, const uint16_t *key);
    /* Entries among [0, n) that the queries q [group][head_dim] of a KV head should attend to: their number, and the
     * ascending list in index [n] unless all n are chosen. The newest entry, n - 1, is the query's own token.
     * `scratch`: scratch_bytes() bytes of the calling thread. Heads may come from several threads. */
    int (*select)(ig_policy *p, int layer, int head, const float *q, int n, int32_t *index, void *scratch);
    size_t (*scratch_bytes)(const ig_policy_shape *shape);
    /* Bytes kept at present for n tokens. */
    uint64_t (*bytes)(const ig_policy *p, int n);
} ig_policy_ops;

struct ig_policy {
    const ig_policy_ops *ops;
    ig_policy_shape shape;
    ig_cache_options options;
};

/* IG_E_ARG with the list of names if there is none of that name. Also checks the options' ranges. */
ig_status ig_policy_find(const ig_policy_ops **out, const ig_cache_options *options, ig_error *err);

extern const ig_policy_ops ig_policy_full, ig_policy_window, ig_policy_quest, ig_policy_infinigen;

/* ---- what sparse policies share ---- */

/* The first layers as the options say, and sliding-window layers, which are bounded anyway. */
bool ig_policy_layer_is_dense(const ig_policy_shape *shape, const ig_cache_options *options, int layer);
/* Entries that a step may use of n: the budget, but the sinks and the recent ones at least. */
int ig_policy_count(const ig_cache_options *options, int n);

/* ---- choosing entries (pick.c) ---- */

/* How many entries a budget means for n entries: a share if at most 1, rounded up, else a number; 1..n. */
int ig_pick_budget(double budget, int n);

typedef struct ig_pick_rule {
    int n_sinks, n_recent; /* first and last entries that are always chosen */
    int count;             /* most entries in all */
    double mass;           /* choose no more once the chosen weights reach this share of the sum; 1: no end by weight */
} ig_pick_rule;

/* Chooses from weights w[n] >= 0: what the rule says must be, then the heaviest others within its limits. Of equal
 * weights the lower index. Writes the ascending list to index [n] and returns its length. */
int ig_pick(const ig_kernels *k, int32_t *index, const float *w, int n, const ig_pick_rule *rule);

#endif
