/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions: opening, cutting, syncing a prefix, statistics.
 */
#include "engine/cache.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

/* ---- opening ------------------------------------------------------------------- */

/* Returns room for scales of adapters. */
static float *lay_out(ig_session *s, const ig_config *c, int n_ctx, int n_draft) {
    s->tokens = ig_arena_take(&s->arena, (size_t)n_ctx * sizeof *s->tokens);
    s->all_logits = ig_arena_take(&s->arena, (size_t)(1 + n_draft) * (size_t)c->n_vocab * sizeof *s->all_logits);
    s->logits = s->all_logits;
    return ig_arena_take(&s->arena, (size_t)c->n_adapters * sizeof(float));
}

static ig_sequence_plan sequence_of(const ig_session_plan *p, const ig_model *m, ig_kv *kv) {
    return (ig_sequence_plan){.kv = kv,
                              .has_disk = p->tiers.disk_bytes != 0,
                              .ops = p->ops,
                              .policy = &p->policy,
                              .options = &p->o.cache,
                              .frames = m->key_frames.layers,
                              .shadow = ig_session_has_shadow(p) ? &p->kv : NULL,
                              .type = p->tiers.type,
                              .evict = p->tiers.evict,
                              .limit = p->tiers.limit,
                              .speculate = p->speculate,
                              .shares = p->o.shared && p->tiers.share && !p->o.cache.no_share &&
                                        ig_sequence_can_share(p->ops, p->tiers.limit)};
}

void ig_session_plan_bytes(uint64_t bytes[IG_PLACES], const ig_session_plan *p, const ig_model *m) {
    ig_session s = {0};
    ig_sequence_plan seq = sequence_of(p, m, NULL);
    lay_out(&s, &m->config, p->o.n_ctx, p->n_draft);
    bytes[IG_PLACE_HOST] += s.arena.used;
    ig_sequence_plan_bytes(bytes, &seq);
}

ig_status ig_session_equip(ig_session *s, ig_session_plan *p, ig_kv *kv, ig_error *err) {
    ig_model *m = s->model;
    p->policy.home = ig_kv_home_of(kv);
    ig_sequence_plan seq = sequence_of(p, m, kv);
    if (seq.shares) {
        seq.root = ig_cache_root(p->o.shared, &p->o);
        seq.keeper = p->o.shared->keeper.store ? &p->o.shared->keeper : NULL;
    }
    s->sketch = p->sketch;
    s->options = p->o;
    s->tiers = p->tiers;
    lay_out(s, &m->config, p->o.n_ctx, p->n_draft);
    size_t bytes = s->arena.used;
    if (!ig_arena_open(&s->arena)) return ig_fail_memory(err, "session", bytes);
    float *scales = lay_out(s, &m->config, p->o.n_ctx, p->n_draft);
    if (p->o.adapter_scales)
        s->options.adapter_scales = memcpy(scales, p->o.adapter_scales, (size_t)m->n_adapters * sizeof *scales);
    s->n_draft = p->n_draft;
    s->most_tokens = p->o.n_ctx;
    ig_status status = ig_batch_begin(&m->batch, err);
    if (status) return status;
    status = ig_sequence_open(&s->seq, &seq, err); /* tables of the memory */
    ig_batch_end(&m->batch);
    if (!status) status = ig_batch_reserve(&m->batch, m->ctx, &m->config, &p->scratch, err);
    if (status) return status;
    ig_session_forget_names(&s->options.cache, p->ops->info.name);
    ig_session_forget_names(&s->seq.policy->options, p->ops->info.name);
    s->tiers.disk_path = NULL;
    return IG_OK;
}

void ig_session_strip(ig_session *s) {
    ig_batch *turn = ig_batch_enter(&s->model->batch); /* tables of the memory */
    ig_sequence_close(&s->seq);
    ig_batch_end(turn);
    ig_session_give_sketch(s->model, s->sketch);
    ig_arena_close(&s->arena);
}

/* In the cache of the options, or with a memory of its own. */
static ig_status open_kv(ig_kv **out, ig_model *m, const ig_session_plan *p, ig_error *err) {
    if (!p->o.shared) return ig_kv_open(out, &p->kv, &p->tiers, err);
    ig_status status = ig_batch_begin(&m->batch, err);
    if (status) return status;
    status = ig_kv_open_in(out, p->o.shared->memory, err);
    ig_batch_end(&m->batch);
    return status;
}

/* As planned; takes the plan's sketch file. */
static ig_status open_session(ig_session **out, ig_model *m, ig_session_plan *p, ig_error *err) {
    ig_session *s = calloc(1, sizeof *s);
    if (!s) {
        ig_session_give_sketch(m, p->sketch);
        return ig_fail_memory(err, "session", sizeof *s);
    }
    s->model = m;
    if (!p->o.shared) ig_session_warn_of_size(p, m);
    if (p->o.n_ctx > m->config.n_ctx_train)
        ig_log(m->ctx, IG_LOG_WARN, "context of %d tokens is more than the %d the model was trained for", p->o.n_ctx,
               m->config.n_ctx_train);
    ig_status status = open_kv(&s->seq.kv, m, p, err);
    if (status) {
        ig_session_give_sketch(m, p->sketch);
        free(s);
        return status;
    }
    status = ig_session_equip(s, p, s->seq.kv, err);
    if (!status && p->n_draft && p->o.draft_model) ig_draft_model_open(s, p);
    if (status)
        ig_session_close(s);
    else
        *out = s;
    return status;
}

/* A store of prefixes is a cache's: a session that asks for one has a cache to itself. */
static ig_status open_with_cache(ig_session **out, ig_model *m, ig_session_options o, ig_error *err) {
    ig_status status = ig_cache_open(&o.shared, m, &o, err);
    if (status) return status;
    ig_cache *own = o.shared;
    own->tiers.n_dropping = INT_MAX; /* whatever policy follows: sizes are planned anew then */
    own->least_dropping = 0;
    status = ig_session_open(out, m, &o, err);
    if (status)
        ig_cache_close(own);
    else
        (*out)->own_cache = own;
    return status;
}

ig_status ig_session_open(ig_session **out, ig_model *m, const ig_session_options *options, ig_error *err) {
    if (out) *out = NULL;
    if (!out || !m) return ig_fail(err, IG_E_ARG, "ig_session_open: model and result are needed");
    if (options && options->cache.memory.store_path && !options->shared) return open_with_cache(out, m, *options, err);
    ig_session_plan p;
    ig_status status = ig_session_make_plan(&p, m, options, err);
    return status ? status : open_session(out, m, &p, err);
}

void ig_session_close(ig_session *s) {
    if (!s) return;
    ig_kv *kv = s->seq.kv;
    ig_draft_model_close(&s->draft);
    ig_session_strip(s);
    ig_batch *turn = ig_batch_enter(&s->model->batch);
    ig_kv_close(kv);
    ig_batch_end(turn);
    ig_cache_close(s->own_cache);
    free(s);
}

int ig_session_ctx(const ig_session *s) { return s ? s->options.n_ctx : 0; }

int ig_session_tokens(const ig_session *s, const int32_t **ids) {
    if (ids) *ids = s ? s->tokens : NULL;
    return s ? s->n_tokens : 0;
}

const float *ig_session_logits(const ig_session *s) { return s && s->has_logits ? s->logits : NULL; }

/* The policy is shown again what the session holds from token `first` on. If that cannot be read, the session ends
 * there. */
static ig_status show_again(ig_session *s, int first, ig_error *err) {
    ig_status status = ig_sequence_replay(&s->seq, s->model->ctx->device, first, s->n_tokens, err);
    if (!status) return IG_OK;
    ig_sequence_cut(&s->seq, first, NULL);
    int length = ig_kv_length(s->seq.kv);
    s->n_tokens = length < first ? length : first;
    return status;
}

/* The KV holds n tokens at most from here on, none ahead, and the session what is left. The policy has seen more: one
 * that drops entries cannot take that back. */
static ig_status cut(ig_session *s, int n, ig_error *err) {
    ig_batch *turn = s->options.shared ? ig_batch_enter(&s->model->batch) : NULL;
    if (s->seq.policy->ops->limit) n = 0;
    ig_status status = ig_sequence_cut(&s->seq, n, err);
    int length = ig_kv_length(s->seq.kv);
    s->n_tokens = length < n ? length : n;
    s->n_ahead = 0;
    ig_status shown = IG_OK;
    if (s->seq.policy->ops->sums_up) /* units of tokens, and has seen more of the last one than is left */
        shown = show_again(s, s->n_tokens / IG_UNIT_SLOTS * IG_UNIT_SLOTS, status ? NULL : err);
    ig_batch_end(turn);
    return status ? status : shown;
}

/* The same where no step has failed, of fewer tokens than there are; of none if the policy can't go on from there. */
static ig_status cut_back(ig_session *s, int n, ig_error *err) {
    const ig_policy_ops *ops = s->seq.policy->ops;
    ig_status status = cut(s, n, err);
    if (!ops->cut || ops->cut(s->seq.policy, s->n_tokens) == s->n_tokens) return status;
    ig_status again = cut(s, 0, status ? NULL : err);
    return status ? status : again;
}

ig_status ig_session_cut(ig_session *s, int n, ig_error *err) {
    if (!s || n < 0) return ig_fail(err, IG_E_ARG, "ig_session_cut: a session and a number of tokens are needed");
    if (n >= s->n_tokens) return IG_OK;
    ig_status status = ig_batch_begin(&s->model->batch, err);
    if (status) return status;
    s->has_logits = false;
    status = ig_session_drop_ahead(s, err); /* as if it had never been there: then tokens that were are cut */
    ig_status cut = cut_back(s, n, status ? NULL : err);
    ig_batch_end(&s->model->batch);
    return status ? status : cut;
}

/* Tokens from n on have not come. The batch's turn. */
static ig_status take_back(ig_session *s, int n, ig_error *err) {
    const ig_policy_ops *ops = s->seq.policy->ops;
    ig_status status = cut(s, n, err);
    if (s->n_tokens == n && ops->undo && ops->undo(s->seq.policy, n)) status = show_again(s, 0, status ? NULL : err);
    if (s->n_tokens < n) s->has_logits = false;
    return status;
}

void ig_session_roll_back(ig_session *s, int n, ig_status why) {
    ig_batch *turn = ig_batch_enter(&s->model->batch);
    if (why == IG_E_IO) ig_sequence_withdraw(&s->seq, 0);
    ig_usage_settle(&s->seq.usage, true);
    take_back(s, n, NULL);
    ig_batch_end(turn);
}

/* ---- tokens ahead ------------------------------------------------------------------ */

bool ig_session_foresaw(const ig_session *s, int32_t id) { return s->n_ahead && s->tokens[s->n_tokens] == id; }

void ig_session_take_ahead(ig_session *s) {
    s->n_ahead--;
    s->n_tokens++;
    s->logits += s->model->config.n_vocab;
    s->n_decoded++;
    s->n_draft_hits++;
    s->n_expected_hits += s->is_expected;
    ig_sequence_stepped(&s->seq, s->tokens, s->n_tokens, false);
    ig_drafter_see(&s->drafter, s->tokens, s->n_tokens);
    ig_draft_model_see(&s->draft, s->tokens, s->n_tokens);
}

/* What could not be written is written again when the session goes on: only tokens that are lost are a failure. */
ig_status ig_session_drop_ahead(ig_session *s, ig_error *err) {
    ig_error own;
    int n = s->n_tokens;
    if (!s->n_ahead) return IG_OK;
    ig_batch *turn = ig_batch_enter(&s->model->batch);
    double start = ig_clock_seconds();
    ig_status status = take_back(s, n, &own);
    ig_row_costs_went_back(&s->model->batch.costs, ig_clock_seconds() - start); /* a draft session has none ahead */
    ig_batch_end(turn);
    if (s->n_tokens == n) return IG_OK;
    if (err) *err = own;
    return status;
}

/* ---- prefill ---------------------------------------------------------------------- */

/* A prompt on its way into a session. */
typedef struct prefill {
    const int32_t *ids; /* [n] */
    int n, n_all;       /* tokens that the session is to hold now, and in the end */
    ig_prompt_sink sink;
    float *states; /* [n_batch][d_model] */
    bool stop;     /* the sink has had enough */
} prefill;

/* Gives the sink the logits of the last batch's rows, as many at a time as there is room for, or their states. */
static ig_status hand_over(ig_session *s, prefill *p, int first, int n, ig_error *err) {
    ig_batch *b = &s->model->batch;
    ig_status status = IG_OK;
    if (p->states) {
        status = ig_forward_states(p->states, s->model, b, 0, n, err);
        if (!status) p->stop = p->sink.fn(p->sink.user, first, n, p->states);
        return status;
    }
    for (int row = 0; p->sink.fn && !p->stop && !status && row < n; row += b->logit_rows) {
        int rows = n - row < b->logit_rows ? n - row : b->logit_rows;
        const float *logits;
        status = ig_forward_logits(&logits, s->model, b, 0, row, rows, err);
        if (!status) p->stop = p->sink.fn(p->sink.user, first + row, rows, logits);
    }
    return status;
}

/* The next n tokens; if they are the last ones, their logits are the current ones. The batch's turn. */
static ig_status compute(ig_session *s, prefill *p, int n, ig_error *err) {
    ig_batch *b = &s->model->batch;
    int first = s->n_tokens;
    b->segments[0] = (ig_segment){.seq = &s->seq,
                                  .ids = p->ids + first,
                                  .first = first,
                                  .n = n,
                                  .dense = true,
                                  .n_to_come = p->n_all - first - n,
                                  .shares = s->options.adapter_scales,
                                  .n_asked = p->sink.fn ? n : first + n == p->n,
                                  .wants_states = p->states != NULL,
                                  .err = err};
    ig_status status = ig_forward(s->model, b, 1, err);
    if (!status) status = b->segments[0].status;
    if (status) return status;
    ig_session_take_tokens(s, &b->segments[0]);
    status = hand_over(s, p, first, n, err);
    if (status || s->n_tokens < p->n || p->states) return status;
    status = ig_session_take_logits(s->model, err);
    if (!status) status = b->segments[0].status;
    s->has_logits = !status;
    return status;
}

/* Computes the next tokens, as many as a batch takes. */
static ig_status compute_batch(ig_session *s, prefill *p, ig_error *err) {
    int first = s->n_tokens, n = p->n - first < s->options.n_batch ? p->n - first : s->options.n_batch;
    ig_status status = ig_batch_begin(&s->model->batch, err);
    if (status) return status;
    status = compute(s, p, n, err);
    ig_batch_end(&s->model->batch);
    if (status) {
        ig_session_roll_back(s, first, status);
        return status;
    }
    s->n_prefilled += (uint64_t)n;
    if (!p->states) ig_draft_model_follow(s, s->options.n_batch);
    return IG_OK;
}

/* Tokens [0, n) of ids are taken over from others or the store, as far as these have more of them than the session. The
 * batch's turn. */
static ig_status take(bool *is_cut, ig_session *s, const int32_t *ids, int n, int most_read, ig_error *err) {
    int before = s->n_tokens;
    if (!s->seq.shares) return IG_OK;
    ig_status status = ig_sequence_take(is_cut, &s->seq, s->model->ctx->device, ids, n, most_read, err);
    s->n_tokens = ig_kv_length(s->seq.kv);
    memcpy(s->tokens, ids, (size_t)s->n_tokens * sizeof *ids);
    if (s->n_tokens > before) {
        s->n_taken += (uint64_t)(s->n_tokens - before);
        s->options.shared->taken_tokens += (uint64_t)(s->n_tokens - before);
    }
    return status;
}

ig_status ig_session_reuse(int *n_held, ig_session *s, const int32_t *ids, int n, ig_error *err) {
    bool is_cut;
    return ig_session_reuse_some(n_held, &is_cut, s, ids, n, INT_MAX, err);
}

ig_status ig_session_reuse_some(int *n_held, bool *is_cut, ig_session *s, const int32_t *ids, int n, int most_read,
                                ig_error *err) {
    *is_cut = false;
    if (!s || !ids || n < 1 || !n_held)
        return ig_fail(err, IG_E_ARG, "ig_session_reuse: session, tokens and result are needed");
    int held = 0, most = n < s->options.n_ctx ? n : s->options.n_ctx;
    while (held < most && held < s->n_tokens && s->tokens[held] == ids[held]) held++;
    *n_held = n;
    if (held == n && s->n_tokens == n && s->has_logits) return IG_OK;
    if (held == n) held--; /* the last token is computed again for its logits */
    ig_status status = ig_batch_begin(&s->model->batch, err);
    if (status) return status;
    s->has_logits = false;
    status = ig_session_drop_ahead(s, err);
    if (!status && held < s->n_tokens) status = cut_back(s, held, err);
    if (!status) status = take(is_cut, s, ids, most - (most == n), most_read, err);
    *n_held = s->n_tokens;
    ig_batch_end(&s->model->batch);
    return status;
}

ig_status ig_session_sync_some(ig_session *s, const int32_t *ids, int n, int n_all, ig_prompt_sink sink,
                               ig_error *err) {
    if (!s || !ids || n < 1) return ig_fail(err, IG_E_ARG, "ig_session_sync: at least one token is needed");
    if (n > s->options.n_ctx)
        return ig_fail(err, IG_E_LIMIT, "%d tokens are more than the context of %d", n, s->options.n_ctx);
    ig_status status = ig_model_check_ids(s->model, ids, 0, n, err);
    if (status) return status;

    double start = ig_clock_seconds();
    int held;
    status = ig_session_reuse(&held, s, ids, n, err);
    if (status || held == n) return status;
    prefill p = {.ids = ids, .n = n, .n_all = n_all, .sink = sink};
    int from = s->n_tokens;
    size_t bytes = (size_t)s->options.n_batch * (size_t)s->model->config.d_model * sizeof *p.states;
    if (sink.are_states && !(p.states = malloc(bytes))) return ig_fail_memory(err, "states of a prompt", bytes);
    while (!status && s->n_tokens < n) {
        status = compute_batch(s, &p, err);
        if (status) break;
        ig_progress_fn progress = s->options.progress;
        uint64_t done = (uint64_t)(s->n_tokens - from), total = (uint64_t)(n - from);
        bool stop = progress && progress(s->options.progress_user, done, total) && s->n_tokens < n;
        if (p.stop || stop)
            status = ig_fail(err, IG_E_INTERRUPTED, "interrupted after %d of %d tokens", s->n_tokens, n);
    }
    free(p.states);
    s->prefill_seconds += ig_clock_seconds() - start;
    return status;
}

ig_status ig_session_sync_logits(ig_session *s, const int32_t *ids, int n, ig_logits_fn sink, void *user,
                                 ig_error *err) {
    return ig_session_sync_some(s, ids, n, n, (ig_prompt_sink){sink, user, false}, err);
}

ig_status ig_session_sync_states(ig_session *s, const int32_t *ids, int n, ig_logits_fn sink, void *user,
                                 ig_error *err) {
    if (!sink) return ig_fail(err, IG_E_ARG, "ig_session_sync_states: states need somebody who takes them");
    return ig_session_sync_some(s, ids, n, n, (ig_prompt_sink){sink, user, true}, err);
}

ig_status ig_session_sync(ig_session *s, const int32_t *ids, int n, ig_error *err) {
    return ig_session_sync_logits(s, ids, n, NULL, NULL, err);
}

/* ---- statistics ----------------------------------------------------------------------- */

/* The mass that 99 of 100 audited heads reach. */
static double first_percentile(const ig_audit *a) {
    uint64_t below = 0;
    int bin = 0;
    while (bin < IG_AUDIT_BINS && (below += a->bins[bin]) * 100 <= a->n) bin++;
    return (double)bin / IG_AUDIT_BINS;
}

static double audit_mean(const ig_audit *a, double sum) { return a->n_queries ? sum / (double)a->n_queries : 0; }

double ig_session_audit(const ig_session *s, int layer) {
    const ig_audit *a = s ? &s->seq.audit : NULL;
    if (!a || layer < 0 || layer >= s->seq.policy->shape.n_layers || !a->layer_n[layer]) return -1;
    return a->layer_sum[layer] / (double)a->layer_n[layer];
}

void ig_session_get_stats(const ig_session *s, ig_session_stats *out) {
    if (!out) return;
    if (!s) {
        *out = (ig_session_stats){.policy = "", .kv_type = ""};
        return;
    }
    const ig_sequence *q = &s->seq;
    const ig_use_sums *u = &q->uses;
    ig_device *d = s->model->ctx->device;
    ig_kv_stats kv;
    ig_batch *turn = s->options.shared ? ig_batch_enter(&s->model->batch) : NULL;
    ig_kv_get_stats(q->kv, &kv);
    ig_batch_end(turn);
    int most = ig_policy_slots(&q->policy->shape), n_slots = s->n_tokens < most ? s->n_tokens : most;
    *out = (ig_session_stats){
        .policy = s->options.cache.policy,
        .kv_type = ig_kv_type_name(q->codec.type),
        .n_prefilled = s->n_prefilled,
        .n_decoded = s->n_decoded,
        .n_taken = s->n_taken,
        .n_drafted = s->n_drafted,
        .n_draft_hits = s->n_draft_hits,
        .n_expected = s->n_expected,
        .n_expected_hits = s->n_expected_hits,
        .shares = q->shares,
        .prefill_seconds = s->prefill_seconds,
        .decode_seconds = s->decode_seconds,
        .draft_seconds = s->draft_seconds,
        .kv_bytes = kv.ram_bytes,
        .disk_bytes = kv.disk_bytes,
        .read_bytes = kv.read_bytes,
        .written_bytes = kv.written_bytes,
        .demoted = kv.demoted,
        .recalled = kv.recalled,
        .prefetch_hits = kv.prefetch_hits,
        .prefetch_misses = kv.prefetch_misses,
        .stall_seconds = kv.stall_seconds,
        .vram_bytes = kv.vram_bytes,
        .vram_hits = kv.bus.hits,
        .vram_copied = kv.bus.copied,
        .vram_rows = kv.bus.rows,
        .vram_read_bytes = kv.bus.bytes,
        .decode_vram_read_bytes = s->decode_vram_read_bytes,
        .decode_read_bytes = s->decode_read_bytes,
        .decode_stall_seconds = s->decode_stall_seconds,
        .sketch_bytes = ig_policy_bytes(q->policy, n_slots),
        .scratch_bytes = atomic_load(&s->model->batch.bytes) + s->arena.size + ig_space_bytes(&q->space) +
                         d->ops->scratch_bytes(d) +
                         ig_usage_plan(q->usage.rule, q->usage.heads.n_heads, q->usage.n_slots),
        .n_entries = kv.entries,
        .dropped = kv.dropped,
        .selected_share = u->n_shares ? u->shares / (double)u->n_shares : 1,
        .fetched_share = u->n_fetched ? u->fetched / (double)u->n_fetched : 1,
        .block_share = u->n_fetched ? u->blocks / (double)u->n_fetched : 1,
        .n_audits = q->audit.n,
        .mass_mean = q->audit.n ? q->audit.sum / (double)q->audit.n : 0,
        .mass_p1 = q->audit.n ? first_percentile(&q->audit) : 0,
        .cosine_mean = audit_mean(&q->audit, q->audit.cosine),
        .output_cosine_mean = audit_mean(&q->audit, q->audit.output_cosine),
        .needed_mean = audit_mean(&q->audit, q->audit.needed),
        .used_entries = u->used,
        .seen_entries = u->seen,
    };
    memcpy(out->parts, s->parts, sizeof out->parts);
}
