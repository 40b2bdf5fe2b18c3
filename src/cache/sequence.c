/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a sequence, what comes and goes with its tokens, and showing a policy what its store holds.
 */
#include "cache/sequence.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"

/* ---- opening -------------------------------------------------------------------- */

static void lay_out_selection(ig_space *a, ig_selection *x, int n_lists, int n_ctx) {
    x->slots = ig_space_host(a, (size_t)n_ctx * (size_t)n_lists * sizeof *x->slots);
    x->n = ig_space_host(a, (size_t)n_lists * sizeof *x->n);
    x->all = ig_space_host(a, (size_t)n_lists * sizeof *x->all);
    x->layer = -1;
}

/* Entries that a list of a late pass (late.c) has at most; 0: no pass of the sequence is late and chooses. */
static int most_chosen(const ig_sequence_plan *p) {
    const ig_policy policy = {p->ops, *p->policy, *p->options};
    int n_ctx = p->policy->n_ctx, most = ig_policy_count(&policy, n_ctx), whole = p->ops->n_whole;
    if (!ig_policy_is_helped(p->ops, p->policy->device) || p->limit || p->has_disk) return 0;
    if (most < whole) most = whole;     /* where a mass was asked for */
    if (p->ops->guess_is_final) most++; /* a step's own entry comes on top */
    return most < n_ctx ? most : n_ctx;
}

static void lay_out_hidden(ig_space *a, ig_hidden_lists *x, size_t n_lists, size_t most) {
    x->slots = ig_space_device(a, n_lists * most * sizeof *x->slots);
    x->n = ig_space_device(a, n_lists * sizeof *x->n);
}

static void lay_out_late(ig_space *a, ig_late_choice *x, int n_layers, int n_lists) {
    size_t lists = (size_t)n_lists, all = (size_t)n_layers * lists, most = (size_t)x->most;
    if (!most) return;
    x->slots = ig_space_host(a, all * most * sizeof *x->slots);
    x->n = ig_space_host(a, all * sizeof *x->n);
    lay_out_hidden(a, &x->chosen, lists, most);
    lay_out_hidden(a, &x->guess, lists, most);
}

static void lay_out(ig_sequence *seq, const ig_policy_shape *s) {
    ig_space *a = &seq->space;
    for (int i = 0; i < seq->n_chosen; i++) lay_out_selection(a, &seq->chosen[i], seq->n_lists, s->n_ctx);
    lay_out_selection(a, &seq->guess, seq->n_lists, s->n_ctx);
    lay_out_late(a, &seq->late, s->n_layers, seq->n_lists);
    seq->views = ig_space_host(a, (size_t)s->n_kv_heads * sizeof *seq->views);
    seq->use = ig_space_host(a, ig_policy_heads(s) * sizeof *seq->use);
    if (seq->shares) seq->pieces = ig_space_host(a, ((size_t)s->n_ctx / IG_UNIT_SLOTS + 1) * sizeof *seq->pieces);
    seq->audit.layer_sum = ig_space_host(a, (size_t)s->n_layers * sizeof *seq->audit.layer_sum);
    seq->audit.layer_n = ig_space_host(a, (size_t)s->n_layers * sizeof *seq->audit.layer_n);
}

static ig_sequence begin(const ig_sequence_plan *p) {
    const ig_policy_shape *s = p->policy;
    const ig_cache_options *o = p->options;
    const ig_layer_heads heads = {.all = {s->n_heads, s->n_kv_heads, s->head_dim, s->scale},
                                  .local = s->local,
                                  .window = s->window,
                                  .index = s->index};
    return (ig_sequence){.kv = p->kv,
                         .space = {.dev = s->device},
                         .codec = {.kernels = s->kernels, .frames = p->frames, .heads = heads, .type = p->type},
                         .limit = p->limit,
                         .n_ctx = s->n_ctx,
                         .n_lists = ig_policy_lists(p->ops, s),
                         .n_chosen = p->ops->info.chooses_in_prompts ? IG_STEP_ROWS : 1 + s->n_ahead,
                         .late = {.most = most_chosen(p)},
                         .speculate = p->speculate,
                         .prefetch = !o->no_prefetch,
                         .trace = o->trace,
                         .trace_user = o->trace_user,
                         .audit = {.every = o->audit_every, .call = o->on_audit, .user = o->audit_user},
                         .shares = p->shares,
                         .shares_answers = o->memory.share_answers,
                         .root = p->root,
                         .keeper = p->keeper,
                         .dense_end = INT_MAX};
}

void ig_sequence_plan_bytes(uint64_t bytes[IG_PLACES], const ig_sequence_plan *p) {
    ig_sequence seq = begin(p);
    lay_out(&seq, p->policy);
    for (int i = 0; i < IG_PLACES; i++) bytes[i] += seq.space.at[i].used;
}

ig_status ig_sequence_open(ig_sequence *seq, const ig_sequence_plan *p, ig_error *err) {
    const ig_policy_shape *s = p->policy;
    *seq = begin(p);
    lay_out(seq, s);
    size_t bytes = ig_space_bytes(&seq->space);
    if (!ig_space_open(&seq->space)) return ig_fail_memory(err, "session", bytes);
    lay_out(seq, s);
    ig_kv_options shadow = {.type = p->type, .device = s->device};
    ig_status status = p->shadow ? ig_kv_open(&seq->shadow, p->shadow, &shadow, err) : IG_OK;
    if (!status && (p->limit || p->ops->limit)) status = ig_kv_may_drop(p->kv, err);
    if (!status) status = ig_policy_open(&seq->policy, p->ops, s, p->options, err);
    if (status || !p->limit) return status;
    return ig_usage_open(&seq->usage, p->evict, ig_policy_heads(s), (size_t)ig_policy_slots(s), err);
}

void ig_sequence_close(ig_sequence *seq) {
    ig_usage_close(&seq->usage);
    ig_kv_close(seq->shadow);
    ig_policy_close(seq->policy);
    ig_space_close(&seq->space);
}

/* ---- tokens come and go ------------------------------------------------------------ */

/* The token before n has come: what it used counts. */
static void settle_uses(ig_sequence *seq, int n) {
    ig_use_sums *row = &seq->row_uses[(n - 1) % IG_STEP_ROWS], *all = &seq->uses;
    all->shares += row->shares, all->fetched += row->fetched, all->blocks += row->blocks;
    all->n_shares += row->n_shares, all->n_fetched += row->n_fetched;
    all->used += row->used, all->seen += row->seen;
    *row = (ig_use_sums){0};
}

void ig_sequence_stepped(ig_sequence *seq, const int32_t *tokens, int n, bool dense) {
    ig_usage_settle(&seq->usage, false);
    ig_kv_go_on(seq->kv, n);
    if (!dense) seq->stepped_end = n, settle_uses(seq, n);
    ig_sequence_give(seq, tokens, n, dense);
}

ig_status ig_sequence_cut(ig_sequence *seq, int n, ig_error *err) {
    ig_status s = ig_kv_cut(seq->kv, n, err);
    int length = ig_kv_length(seq->kv);
    if (seq->shadow) ig_kv_cut(seq->shadow, length, NULL); /* in RAM: cannot fail */
    if (seq->stepped_end > length) seq->stepped_end = length;
    memset(seq->row_uses, 0, sizeof seq->row_uses);
    ig_sequence_take_back(seq, length);
    return s;
}

/* ---- the keys and values held ------------------------------------------------------ */

/* Rows [begin, end) of entries, for the policy to see: of all layers that are in RAM from `begin` on, or of one whose
 * rows pass by in pieces. */
typedef struct replay {
    ig_sequence *seq;
    int layer; /* of pieces */
    int begin, end;
} replay;

void ig_sequence_show(const ig_sequence *seq, int layer, int head, int slot, const ig_kv_row *row) {
    ig_policy *p = seq->policy;
    ig_kv_plain plain;
    if (p->ops->append) {
        ig_kv_read(&plain, &seq->codec, row, layer, head);
        p->ops->append(p, layer, head, slot, plain.key, plain.value);
    }
    if (p->ops->append_index && p->shape.index_layer[layer] == layer) {
        uint16_t share[IG_INDEX_DIMS];
        ig_kv_read_index(share, &seq->codec, row);
        p->ops->append_index(p, layer, head, slot, share);
    }
}

static void show_rows(const replay *r, int layer, int head, const ig_kv_view *view) {
    for (int i = r->begin; i < r->end && i < view->n; i++) {
        int slot = view->index ? view->index[i] : view->first + i;
        ig_kv_row row = ig_kv_view_at(view, slot);
        ig_sequence_show(r->seq, layer, head, slot, &row);
    }
}

/* Task: one KV head of a layer. */
static void replay_head(void *arg, int task, int thread) {
    const replay *r = arg;
    ig_kv *kv = r->seq->kv;
    int n_heads = r->seq->codec.heads.all.n_kv_heads, layer = task / n_heads, head = task % n_heads;
    (void)thread;
    if (ig_policy_is_dense(r->seq->policy, layer) || !ig_kv_in_ram(kv, layer, r->begin, INT_MAX)) return;
    ig_entries e = ig_kv_entries(kv, layer, head);
    ig_kv_view view = ig_kv_fetch(kv, layer, head, e.slot, 0, e.n);
    show_rows(r, layer, head, &view);
}

/* Task: one KV head's part of a piece. */
static void replay_piece(void *arg, int head, int thread) {
    const replay *r = arg;
    (void)thread;
    show_rows(r, r->layer, head, &r->seq->views[head]);
}

static ig_status replay_layer(ig_sequence *seq, ig_device *dev, int layer, int first, int n_tokens, ig_error *err) {
    replay r = {.seq = seq, .layer = layer};
    for (int unit = first / IG_ATTEND_UNIT * IG_ATTEND_UNIT; unit < n_tokens; unit += IG_ATTEND_UNIT) {
        ig_status status = ig_kv_stream(seq->kv, layer, unit, n_tokens, seq->views, err);
        if (status) return status;
        r.begin = unit > first ? unit : first;
        r.end = unit + IG_ATTEND_UNIT;
        dev->ops->parallel(dev, seq->codec.heads.all.n_kv_heads, replay_piece, &r);
    }
    return IG_OK;
}

ig_status ig_sequence_replay(ig_sequence *seq, ig_device *dev, int first, int n_tokens, ig_error *err) {
    const ig_policy *p = seq->policy;
    int n_layers = p->shape.n_layers;
    replay all = {.seq = seq, .begin = first, .end = seq->n_ctx};
    ig_status status = IG_OK;
    if (first >= n_tokens || !ig_policy_sees_rows(p->ops)) return IG_OK;
    dev->ops->parallel(dev, n_layers * seq->codec.heads.all.n_kv_heads, replay_head, &all);
    for (int l = 0; !status && l < n_layers; l++)
        if (!ig_policy_is_dense(p, l) && !ig_kv_in_ram(seq->kv, l, first, INT_MAX))
            status = replay_layer(seq, dev, l, first, n_tokens, err);
    return status;
}
