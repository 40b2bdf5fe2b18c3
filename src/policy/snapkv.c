/* SPDX-License-Identifier: Apache-2.0
 *
 * `snapkv` (Li et al. 2024): a prompt's end tells what of the prompt will be of use. Once decoding begins a KV head
 * keeps the prompt's last entries, the window, and of those before it the ones that the window's queries gave most
 * attention, summed over these queries and the query heads of the group; each counts as the mean of itself and its
 * neighbours, so that what stands together stays together. The rest is dropped for ever; what is decoded later stays.
 * After another prompt of the session all that is held is cut down anew. Attention uses all that is held.
 *
 * `pyramidkv` (Cai et al. 2024): the same, but the first layers keep more and the last ones fewer, in equal steps.
 *
 * The window is as long as ig_cache_options.n_recent, 32 by default as in snapkv's code; neighbours and the steepness
 * of the pyramid are as in these codes.
 */

#include "base/compiler.h"
#include "policy/policy.h"

enum { NEIGHBOURS = 2 /* on each side */, STEEPNESS = 20 };

typedef struct snapkv_policy {
    ig_policy base;
    ig_head_table seen; /* head_seen */
} snapkv_policy;

/* What the window's queries gave the entries of a KV head. */
typedef struct head_seen {
    int end;      /* of the prompt that the window belongs to; 0: there was none */
    int next;     /* position after the latest of its queries that were observed */
    float sums[]; /* [n_ctx] of attention weights, by slot */
} head_seen;

static size_t head_bytes(int n) { return sizeof(head_seen) + (size_t)n * sizeof(float); }

static uint64_t snapkv_plan(const ig_policy_shape *s, const ig_cache_options *o, int n) {
    return ig_policy_sparse_heads(s, o) * head_bytes(n);
}

static void snapkv_close(ig_policy *p) { ig_head_table_close(&((snapkv_policy *)p)->seen); }

static ig_status snapkv_open(ig_policy *p, ig_error *err) {
    return ig_head_table_open(&((snapkv_policy *)p)->seen, "what a prompt's end attends to", ig_policy_heads(&p->shape),
                              head_bytes(p->shape.n_ctx), err);
}

static head_seen *seen_of(const ig_policy *p, int layer, int head) {
    return ig_head_table_at(&((const snapkv_policy *)p)->seen, ig_policy_head(p, layer, head));
}

/* ---- what a prompt's end attends to ------------------------------------------------------ */

/* Slot 0 is taken by the first of all tokens; or by a decoded one, after which nothing is dropped before there is
 * another prompt. */
static void snapkv_append(ig_policy *p, int layer, int head, int slot, const uint16_t *key, const uint16_t *value) {
    head_seen *h = seen_of(p, layer, head);
    (void)key, (void)value;
    if (slot == 0) h->end = h->next = 0;
    h->sums[slot] = 0;
}

/* A window may come in several pieces, as its prompt does. */
static void snapkv_observe(ig_policy *p, const ig_observation *x) {
    head_seen *h = seen_of(p, x->layer, x->head);
    bool goes_on = h->end == x->end && h->next == x->first;
    for (int i = 0; i < x->e.n; i++) {
        float *sum = &h->sums[ig_entry_slot(&x->e, i)];
        *sum = (goes_on ? *sum : 0) + x->weights[i];
    }
    h->end = x->end;
    h->next = x->first + x->n;
}

/* ---- what is kept ------------------------------------------------------------------------ */

/* Entries that a KV head of the layer keeps of a prompt that ends after n tokens, and of what was held before. */
static int count_kept(const ig_policy *p, int layer, int n) {
    int count = ig_policy_count(p, n), window = p->options.n_recent,
        n_layers = ig_policy_sparse_layers(&p->shape, &p->options), number = 0;
    if (p->ops == &ig_policy_snapkv || count >= n || n_layers == 1) return count;
    int mean = count - window, most = 2 * mean - mean / STEEPNESS;
    if (most > n - window) most = n - window;
    int least = 2 * mean - most;
    if (least < p->options.n_sinks) least = p->options.n_sinks, most = 2 * mean - least;
    for (int l = 0; l < layer; l++) number += !ig_policy_is_dense(p, l);
    return window + most - (int)((int64_t)(most - least) * number / (n_layers - 1));
}

/* A prompt that was broken off stays whole. */
static int snapkv_limit(const ig_policy *p, int layer, int n_tokens) {
    const head_seen *h = seen_of(p, layer, 0);
    bool has_ended = h->next == h->end && h->end < n_tokens;
    return has_ended ? count_kept(p, layer, h->end) + n_tokens - h->end : n_tokens;
}

/* Of entries [0, n) in order of position. */
static float mean_about(const head_seen *h, const ig_entries *e, int i, int n) {
    int begin = i < NEIGHBOURS ? 0 : i - NEIGHBOURS, end = ig_min_int(i + NEIGHBOURS + 1, n);
    float sum = 0;
    for (int j = begin; j < end; j++) sum += h->sums[ig_entry_slot(e, j)];
    return sum / (2 * NEIGHBOURS + 1);
}

static int snapkv_value(ig_policy *p, int layer, int head, const ig_entries *e, int n_kept, float *value) {
    const head_seen *h = seen_of(p, layer, head);
    int n_decoded = n_kept - count_kept(p, layer, h->end), n_last = ig_min_int(n_kept, n_decoded + p->options.n_recent),
        n = e->n - n_last;
    for (int i = 0; i < e->n; i++) value[i] = i < n ? mean_about(h, e, i, n) : 0;
    return n_last;
}

static void snapkv_move(ig_policy *p, int layer, int head, int from, int to) {
    float *sums = seen_of(p, layer, head)->sums;
    sums[to] = sums[from];
}

#define OPS(its_name, its_help)                                                                         \
    {                                                                                                   \
        .info = {.name = its_name, .help = its_help, .sees_prompts = true}, .n_dense_layers = -1,       \
        .observes_ends = true, .plan = snapkv_plan, .size = sizeof(snapkv_policy), .open = snapkv_open, \
        .close = snapkv_close, .append = snapkv_append, .stages = {{.run = ig_policy_choose_all}},      \
        .observe = snapkv_observe, .limit = snapkv_limit, .value = snapkv_value, .move = snapkv_move    \
    }

const ig_policy_ops ig_policy_snapkv =
    OPS("snapkv", "keep of a prompt what its end attends to, drop the rest for ever (SnapKV)");
const ig_policy_ops ig_policy_pyramidkv =
    OPS("pyramidkv", "keep of a prompt what its end attends to, the first layers more of it than the last (PyramidKV)");
