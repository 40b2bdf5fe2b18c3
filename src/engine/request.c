/* SPDX-License-Identifier: Apache-2.0
 *
 * One request of a scheduler: checked and copied where it is handed over, then a session, a prompt, an answer.
 */
#define _GNU_SOURCE
#include "engine/scheduler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "engine/sampler.h"

ig_request_options ig_request_defaults(void) {
    return (ig_request_options){.sampler = ig_sampler_defaults(), .generate = ig_generate_defaults()};
}

/* ---- checking and copying ----------------------------------------------------------- */

static ig_status check_prompt(const ig_scheduler *c, const ig_request_options *o, ig_error *err) {
    int n_ctx = c->o.session.n_ctx;
    if (!o->ids || o->n_ids < 1) return ig_fail(err, IG_E_ARG, "the prompt has no tokens");
    if (o->n_ids > n_ctx)
        return ig_fail(err, IG_E_LIMIT, "the prompt has %d tokens, but the context holds %d", o->n_ids, n_ctx);
    return ig_model_check_ids(c->model, o->ids, 0, o->n_ids, err);
}

static ig_status check(const ig_request *r, const ig_request_options *o, ig_error *err) {
    const ig_scheduler *c = r->scheduler;
    ig_session_plan plan;
    ig_status s = check_prompt(c, o, err);
    if (!s) s = ig_answer_check(&o->generate, c->model, err);
    if (!s) s = ig_sampler_check(&o->sampler, c->model, err);
    if (!s && (o->n_top < 0 || o->n_top > IG_REQUEST_TOP_MAX))
        s = ig_fail(err, IG_E_ARG, "ig_request_options.n_top is %d, but goes from 0 to %d", o->n_top,
                    IG_REQUEST_TOP_MAX);
    if (s) return s;
    s = ig_session_make_plan(&plan, c->model, &r->want, err);
    if (!s) ig_session_give_sketch(c->model, plan.sketch);
    return s;
}

/* *text becomes a copy, kept in *kept. */
static bool copy_text(char **kept, const char **text) {
    if (!*text) return true;
    *text = *kept = strdup(*text);
    return *kept != NULL;
}

static bool copy_texts(const char *const **out, size_t *n_out, const char *const *from, size_t n) {
    char **texts = from ? calloc(n ? n : 1, sizeof *texts) : NULL; /* none is not the same as an empty list */
    *out = (const char *const *)texts;
    *n_out = texts ? n : 0;
    for (size_t i = 0; texts && i < n; i++)
        if (!(texts[i] = strdup(from[i]))) return false;
    return texts || !from;
}

static void free_texts(const char *const *texts, size_t n) {
    for (size_t i = 0; i < n; i++) free((char *)texts[i]);
    free((void *)texts);
}

static bool copy_array(const void **out, const void *from, size_t n_bytes) {
    void *copy = n_bytes ? malloc(n_bytes) : NULL;
    if (copy) memcpy(copy, from, n_bytes);
    *out = copy;
    return copy || !n_bytes;
}

/* All that *from points to and the request keeps. */
static bool copy(ig_request *r, const ig_request_options *from) {
    ig_cache_options *k = &r->want.cache;
    r->o = *from;
    r->o.cache = NULL;
    const void *ids, *bias;
    bool ok = copy_array(&ids, from->ids, (size_t)from->n_ids * sizeof *from->ids);
    ok &= copy_array(&bias, from->sampler.logit_bias, from->sampler.n_logit_bias * sizeof *from->sampler.logit_bias);
    r->o.ids = ids;
    r->o.sampler.logit_bias = bias;
    ok &= copy_texts(&r->o.generate.stops, &r->o.generate.n_stops, from->generate.stops, from->generate.n_stops);
    ok &= copy_texts(&r->o.sampler.dry_breakers, &r->o.sampler.n_dry_breakers, from->sampler.dry_breakers,
                     from->sampler.n_dry_breakers);
    const void *scales;
    size_t n_scales = from->adapter_scales ? (size_t)r->scheduler->model->n_adapters : 0;
    ok &= copy_array(&scales, from->adapter_scales, n_scales * sizeof *from->adapter_scales);
    r->o.adapter_scales = scales;
    if (from->adapter_scales) r->want.adapter_scales = scales;
    const void *stop_ids;
    ok &= copy_array(&stop_ids, from->generate.stop_ids, from->generate.n_stop_ids * sizeof(int32_t));
    r->o.generate.stop_ids = stop_ids;
    const void *expected;
    ok &= copy_array(&expected, from->generate.expected, from->generate.n_expected * sizeof(int32_t));
    r->o.generate.expected = expected;
    const char **names[IG_REQUEST_NAMES] = {&k->policy, &k->sketch, &k->salt, &k->speculate, &r->o.sampler.grammar};
    for (int i = 0; i < IG_REQUEST_NAMES; i++) ok &= copy_text(&r->names[i], names[i]);
    return ok;
}

/* The scheduler's session in its cache, with what the request may choose for itself. */
static ig_session_options wanted(const ig_scheduler *c, const ig_request_options *o) {
    ig_session_options w = c->o.session;
    if (o->cache) w.cache = *o->cache;
    if (o->adapter_scales) w.adapter_scales = o->adapter_scales;
    w.shared = c->cache;
    w.cache.memory.store_path = NULL;
    w.cache.no_share |= o->score_prompt || o->on_states;
    return w;
}

ig_status ig_request_open(ig_request **out, ig_scheduler *c, const ig_request_options *o, ig_error *err) {
    ig_request *r = *out = calloc(1, sizeof *r);
    if (!r) return ig_fail_memory(err, "request", sizeof *r);
    r->scheduler = c;
    r->want = wanted(c, o);
    ig_status s = check(r, o, err);
    if (!s && !copy(r, o)) s = ig_fail_memory(err, "request", (size_t)o->n_ids * sizeof *o->ids);
    if (s) {
        ig_request_free(r);
        *out = NULL;
    }
    return s;
}

void ig_request_free(ig_request *r) {
    if (!r) return;
    free_texts(r->o.generate.stops, r->o.generate.n_stops);
    free_texts(r->o.sampler.dry_breakers, r->o.sampler.n_dry_breakers);
    free((void *)r->o.generate.stop_ids);
    free((void *)r->o.generate.expected);
    free((void *)r->o.sampler.logit_bias);
    free((void *)r->o.adapter_scales);
    free((void *)r->o.ids);
    for (int i = 0; i < IG_REQUEST_NAMES; i++) free(r->names[i]);
    free(r);
}

/* ---- scores --------------------------------------------------------------------------- */

/* The n likeliest, of equals the first; without those that cannot come. */
static int find_top(ig_token_score *top, int n, const float *logits, int n_vocab) {
    int have = 0;
    for (int id = 0; id < n_vocab && n; id++) {
        double least = have == n ? top[n - 1].logprob : -INFINITY;
        if (!((double)logits[id] > least)) continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && (double)logits[id] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (ig_token_score){id, (double)logits[id]};
    }
    return have;
}

/* `logits`: that the token comes after; NULL: there are none. */
static void tell_token(ig_request *r, int32_t id, const float *logits, bool is_prompt, bool is_end) {
    ig_token_score top[IG_REQUEST_TOP_MAX];
    ig_request_token token = {.token = {id, NAN}, .is_prompt = is_prompt, .is_end = is_end, .top = top};
    int n_vocab = r->session->model->config.n_vocab;
    if (logits && r->o.has_scores) {
        double total = ig_log_sum(logits, (size_t)n_vocab);
        token.token.logprob = (double)logits[id] - total;
        token.n_top = find_top(top, r->o.n_top, logits, n_vocab);
        for (int i = 0; i < token.n_top; i++) top[i].logprob -= total;
    }
    if (r->o.on_token) r->o.on_token(r->o.user, &token);
}

static void on_answer_token(void *user, int32_t id, bool is_end) {
    ig_request *r = user;
    tell_token(r, id, r->o.has_scores ? ig_sampler_possible(r->sampler, r->session) : NULL, false, is_end);
}

/* An ig_logits_fn: row i is of the token at first + i, and says what the one after it is worth. */
static bool on_prompt_logits(void *user, int first, int n_rows, const float *logits) {
    ig_request *r = user;
    size_t n_vocab = (size_t)r->session->model->config.n_vocab;
    if (first == 0) tell_token(r, r->o.ids[0], NULL, true, false);
    for (int i = 0; i < n_rows && first + i + 1 < r->o.n_ids; i++)
        tell_token(r, r->o.ids[first + i + 1], logits + (size_t)i * n_vocab, true, false);
    return atomic_load(&r->is_cancelled);
}

/* ---- its course ------------------------------------------------------------------------ */

/* Whether what is computed depends on how the prompt is cut, so that it is cut as ig_session_sync() does. */
static bool depends_on_pieces(const ig_session *s) { return s->seq.policy->ops->limit || s->tiers.limit; }

ig_status ig_request_begin(ig_request *r, ig_error *err) {
    r->begun = ig_clock_seconds();
    ig_status s = ig_session_open(&r->session, r->scheduler->model, &r->want, err);
    if (!s) s = ig_sampler_open(&r->sampler, r->scheduler->model, &r->o.sampler, err);
    if (s) return s;
    r->answer = (ig_answer){.session = r->session,
                            .sampler = r->sampler,
                            .o = &r->o.generate,
                            .on_token = on_answer_token,
                            .token_user = r,
                            .no_replacement = r->o.whole_characters};
    r->is_alone = r->o.score_prompt || depends_on_pieces(r->session);
    return ig_answer_open(&r->answer, err);
}

/* If what others have cannot be read, it is computed. What the store has comes in portions, between which others'
 * answers go on. */
int ig_request_rest(ig_request *r) {
    enum { PORTION = 512 };
    bool is_cut = false;
    int held = r->session->n_tokens, end = r->most < r->o.n_ids ? r->most : r->o.n_ids;
    if (held >= end) return 0;
    /* The last one of those that are asked for is never taken over. */
    if (!r->is_alone)
        ig_session_reuse_some(&held, &is_cut, r->session, r->o.ids, end + (end < r->o.n_ids), PORTION, NULL);
    if (is_cut) return 0;
    bool is_whole = end == r->o.n_ids || end - held >= r->session->options.n_batch;
    return depends_on_pieces(r->session) && !is_whole ? 0 : end - held;
}

ig_status ig_request_compute(ig_request *r, int n, ig_error *err) {
    if (depends_on_pieces(r->session)) n = r->session->options.n_batch;
    int end = r->session->n_tokens + n;
    ig_prompt_sink sink = {0};
    if (r->o.on_states)
        sink = (ig_prompt_sink){r->o.on_states, r->o.user, true};
    else if (r->o.score_prompt)
        sink = (ig_prompt_sink){on_prompt_logits, r, false};
    return ig_session_sync_some(r->session, r->o.ids, ig_min_int(end, r->o.n_ids), r->o.n_ids, sink, err);
}

static void tell_progress(const ig_request *r) {
    ig_request_progress p = {.n_prompt = r->o.n_ids,
                             .n_cached = (int)r->session->n_taken,
                             .n_held = r->session->n_tokens,
                             .seconds = ig_clock_seconds() - r->begun};
    if (r->o.on_progress) r->o.on_progress(r->o.user, &p);
}

bool ig_request_advance(ig_request *r) {
    if (!r->is_answering) {
        tell_progress(r);
        if (r->session->n_tokens < r->o.n_ids) return false;
        r->is_answering = true;
        r->answered = ig_clock_seconds();
        if (r->o.on_states) return true;
    }
    for (;;) {
        bool has_ended = ig_answer_is_full(&r->answer);
        ig_status s = IG_OK;
        if (!has_ended) s = ig_answer_next(&r->answer, &r->next_id, &has_ended, &r->result.error);
        if (s || has_ended || ig_answer_is_full(&r->answer)) return true;
        if (!ig_session_foresaw(r->session, r->next_id)) return false;
        ig_session_take_ahead(r->session);
    }
}

void ig_request_end(ig_request *r) {
    ig_request_result *out = &r->result;
    double now = ig_clock_seconds();
    bool is_cancelled = atomic_load(&r->is_cancelled);
    if (is_cancelled) r->answer.finish = IG_FINISH_INTERRUPTED;
    if (r->answer.held && !out->error.status && !is_cancelled) ig_answer_finish(&r->answer);
    out->finish = r->answer.finish;
    out->stop = r->answer.stop;
    out->n_prompt = r->o.n_ids;
    out->n_tokens = r->answer.n_tokens;
    out->seconds = now - r->arrived;
    out->wait_seconds = (r->begun > 0 ? r->begun : now) - r->arrived;
    out->prompt_seconds = r->begun > 0 ? (r->answered > 0 ? r->answered : now) - r->begun : 0;
    if (r->session) ig_session_drop_ahead(r->session, NULL);
    ig_session_get_stats(r->session, &out->stats);
    out->n_cached = (int)out->stats.n_taken;
    ig_answer_close(&r->answer);
    ig_sampler_close(r->sampler);
    ig_session_close(r->session);
    r->session = NULL;
    r->sampler = NULL;
}
