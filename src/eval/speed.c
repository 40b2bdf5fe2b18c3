/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures by the clock what ig_session_sync and ig_session_decode take.
 * Cutting a session back to its depth is not part of any time.
 */
#include "eval/speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/compare.h"
#include "eval/random.h"
#include "eval/numbers.h"
#include "text/text.h"
#include "text/clock.h"

struct ig_eval_speed {
    ig_model *model;
    ig_eval_speed_options options;
    ig_cache *cache;       /* of several sessions, or with a store; else NULL */
    ig_session **sessions; /* [max_batch], the first n_sessions open */
    int n_sessions;
    int32_t *ids;  /* [n_ctx] of one session; refilled for each */
    int32_t *step; /* [max_batch] */
    int n_vocab;
    ig_eval_random random; /* of the tokens that are generated */
};

int ig_eval_speed_tokens(int depth, int n_prompt, int n_gen) {
    int n_before = depth > 0 ? depth : 1;
    return depth + n_prompt > n_before + n_gen ? depth + n_prompt : n_before + n_gen;
}

/* ---- sessions ------------------------------------------------------------------ */

/* Without a store nothing is shared. With one what stands before a test is, and no more: see begin_session(). */
static void take_options(ig_eval_speed *speed, const ig_cache_options *cache) {
    ig_cache_options *c = &speed->options.session.cache;
    *c = *cache;
    c->no_share = !c->memory.store_path;
    c->memory.n_sessions = speed->options.max_batch;
}

static ig_status open_cache(ig_eval_speed *speed, ig_error *err) {
    ig_session_options *o = &speed->options.session;
    if (speed->cache || (speed->options.max_batch == 1 && !o->cache.memory.store_path)) return IG_OK;
    ig_status status = ig_cache_open(&speed->cache, speed->model, o, err);
    o->shared = speed->cache;
    return status;
}

static void close_sessions(ig_eval_speed *speed) {
    for (int i = 0; i < speed->n_sessions; i++) ig_session_close(speed->sessions[i]);
    speed->n_sessions = 0;
    ig_cache_close(speed->cache);
    speed->cache = speed->options.session.shared = NULL;
}

/* With the policy of the options, and alone: what is measured is computed. */
static ig_status set_cache(ig_eval_speed *speed, ig_session *s, ig_error *err) {
    ig_cache_options apart = speed->options.session.cache;
    apart.no_share = true;
    return ig_session_set_cache(s, &apart, err);
}

ig_status ig_eval_speed_set_cache(ig_eval_speed *speed, const ig_cache_options *cache, ig_error *err) {
    bool keep = ig_eval_same_store(&speed->options.session.cache.memory, &cache->memory);
    take_options(speed, cache);
    for (int i = 0; keep && i < speed->n_sessions; i++) keep = !set_cache(speed, speed->sessions[i], err);
    if (keep) return IG_OK;
    close_sessions(speed);
    return open_cache(speed, err);
}

ig_status ig_eval_speed_open(ig_eval_speed **out, ig_model *model, const ig_eval_speed_options *options,
                             ig_error *err) {
    ig_eval_speed *speed = calloc(1, sizeof *speed);
    *out = NULL;
    if (!speed) return ig_text_fail(err, IG_E_MEMORY, "out of memory");
    ig_model_info info;
    ig_model_get_info(model, &info);
    speed->model = model;
    speed->options = *options;
    speed->options.session.n_ctx = ig_eval_speed_tokens(options->depth, options->n_prompt, options->n_gen);
    if (options->ids && options->n_ids < speed->options.session.n_ctx) {
        free(speed);
        return ig_text_fail(err, IG_E_ARG, "the text is too short");
    }
    speed->n_vocab = info.n_vocab;
    speed->sessions = calloc((size_t)options->max_batch, sizeof *speed->sessions);
    speed->step = calloc((size_t)options->max_batch, sizeof *speed->step);
    speed->ids = calloc((size_t)speed->options.session.n_ctx, sizeof *speed->ids);
    if (!speed->sessions || !speed->ids || !speed->step) {
        ig_eval_speed_close(speed);
        return ig_text_fail(err, IG_E_MEMORY, "out of memory");
    }
    take_options(speed, &options->session.cache);
    ig_status status = open_cache(speed, err);
    if (status) {
        ig_eval_speed_close(speed);
        return status;
    }
    *out = speed;
    return IG_OK;
}

void ig_eval_speed_close(ig_eval_speed *speed) {
    if (!speed) return;
    close_sessions(speed);
    free(speed->sessions);
    free(speed->ids);
    free(speed->step);
    free(speed);
}

static int32_t random_token(ig_eval_random *random, const ig_eval_speed *speed) {
    return (int32_t)ig_eval_random_below(random, (uint64_t)speed->n_vocab);
}

/* Where session i begins in the text: one after the other as far as the text goes, then over again, elsewhere. */
static const int32_t *text_of(const ig_eval_speed *speed, int i) {
    const ig_eval_speed_options *o = &speed->options;
    return o->ids + (uint64_t)i * (uint64_t)o->session.n_ctx % (uint64_t)(o->n_ids - o->session.n_ctx + 1);
}

/* The tokens of session i: always the same ones. */
static void fill_ids(ig_eval_speed *speed, int i) {
    const ig_eval_speed_options *o = &speed->options;
    ig_eval_random random = {42 + (uint64_t)i};
    if (o->ids) {
        memcpy(speed->ids, text_of(speed, i), (size_t)o->session.n_ctx * sizeof *speed->ids);
        if (o->bos >= 0) speed->ids[0] = o->bos;
        return;
    }
    for (int k = 0; k < o->session.n_ctx; k++) speed->ids[k] = random_token(&random, speed);
}

/* What session i is given next. */
static int32_t next_token(ig_eval_speed *speed, int i) {
    if (!speed->options.ids) return random_token(&speed->random, speed);
    return text_of(speed, i)[ig_session_tokens(speed->sessions[i], NULL)];
}

/* What stands before a test. At depth 0 it is one token. */
static ig_status sync_depth(ig_eval_speed *speed, int i, ig_error *err) {
    fill_ids(speed, i);
    return ig_session_sync(speed->sessions[i], speed->ids, speed->options.depth > 0 ? speed->options.depth : 1, err);
}

/* The next session, at the depth, which is read from the store, or computed and kept there. */
static ig_status begin_session(ig_eval_speed *speed, ig_error *err) {
    int i = speed->n_sessions;
    ig_status status = open_cache(speed, err);
    if (!status) status = ig_session_open(&speed->sessions[i], speed->model, &speed->options.session, err);
    if (status) return status;
    speed->n_sessions++;
    status = sync_depth(speed, i, err);
    ig_session_stats stats;
    ig_session_get_stats(speed->sessions[i], &stats);
    return !status && stats.shares ? set_cache(speed, speed->sessions[i], err) : status;
}

/* Brings the first n sessions to the depth. What is generated from there are always the same tokens. */
static ig_status rewind_sessions(ig_eval_speed *speed, int n, ig_error *err) {
    ig_status status = IG_OK;
    speed->random = (ig_eval_random){0};
    for (int i = 0; i < n && !status; i++)
        status = i < speed->n_sessions ? sync_depth(speed, i, err) : begin_session(speed, err);
    return status;
}

ig_status ig_eval_speed_prompt(double *seconds, ig_eval_speed *speed, int n, ig_error *err) {
    if (n > speed->options.n_prompt) return ig_text_fail(err, IG_E_ARG, "the prompt is longer than was said");
    ig_status status = rewind_sessions(speed, 1, err);
    if (status) return status;
    fill_ids(speed, 0);
    if (speed->options.depth == 0) status = ig_session_cut(speed->sessions[0], 0, err);
    if (status) return status;
    double start = ig_text_seconds();
    status = ig_session_sync(speed->sessions[0], speed->ids, speed->options.depth + n, err);
    *seconds = ig_text_seconds() - start;
    return status;
}

/* The prompt in a session and a cache that are opened for it, and closed again; the others are closed, since one cache
 * alone writes to a store. Nothing is done for a policy that takes nothing from one. */
static ig_status sync_stored(double *seconds, ig_session_stats *stats, ig_eval_speed *speed, int n, ig_error *err) {
    ig_session *s;
    ig_session_options o = speed->options.session;
    if (!o.cache.memory.store_path || n > speed->options.n_prompt)
        return ig_text_fail(err, IG_E_ARG, "there is no store, or the prompt is longer than was said");
    close_sessions(speed);
    o.shared = NULL;
    o.cache.memory.n_sessions = 1;
    ig_status status = ig_session_open(&s, speed->model, &o, err);
    if (status) return status;
    ig_session_get_stats(s, stats);
    fill_ids(speed, 0);
    double start = ig_text_seconds();
    if (stats->shares) status = ig_session_sync(s, speed->ids, speed->options.depth + n, err);
    *seconds = ig_text_seconds() - start;
    ig_session_get_stats(s, stats);
    ig_session_close(s);
    return status;
}

ig_status ig_eval_speed_store(ig_eval_speed *speed, int n, ig_error *err) {
    ig_session_stats stats;
    double seconds;
    return sync_stored(&seconds, &stats, speed, n, err);
}

ig_status ig_eval_speed_stored(double *seconds, ig_eval_speed *speed, int n, ig_error *err) {
    ig_session_stats stats = {0};
    ig_status status = sync_stored(seconds, &stats, speed, n, err);
    if (!status && (!stats.shares || stats.n_taken < stats.n_prefilled)) *seconds = -1;
    return status;
}

/* Adds, or takes away again, what the sessions have done so far. */
static void count_work(ig_eval_generation *out, const ig_eval_speed *speed, int batch, int sign) {
    for (int i = 0; i < batch; i++) {
        ig_session_stats st;
        ig_session_get_stats(speed->sessions[i], &st);
        out->read_bytes += sign * (double)st.decode_read_bytes;
        out->vram_read_bytes += sign * (double)st.decode_vram_read_bytes;
        out->stall_seconds += sign * st.decode_stall_seconds;
        out->used_entries += sign * (double)st.used_entries;
        out->seen_entries += sign * (double)st.seen_entries;
        for (int p = 0; p < IG_STEP_PARTS; p++) ig_part_work_add(&out->parts[p], &st.parts[p], sign);
    }
    ig_weight_stats weights;
    ig_model_get_weight_stats(speed->model, &weights);
    out->weight_seconds += sign * weights.wait_seconds;
}

/* What went on between steps is no part of any: all parts together are the time. */
static void count_rest(ig_eval_generation *out) {
    double parts = 0;
    for (int p = 0; p < IG_STEP_PARTS; p++) parts += out->parts[p].seconds;
    out->parts[IG_STEP_OTHER].seconds += out->seconds - parts;
}

ig_status ig_eval_speed_generate(ig_eval_generation *out, ig_eval_speed *speed, int n, int batch, ig_error *err) {
    if (n > speed->options.n_gen || batch > speed->options.max_batch)
        return ig_text_fail(err, IG_E_ARG, "the generation is larger than was said");
    ig_session_stats before, after;
    ig_status status = rewind_sessions(speed, batch, err);
    if (status) return status;
    *out = (ig_eval_generation){0};
    count_work(out, speed, batch, -1);
    ig_session_get_stats(speed->sessions[0], &before);
    double start = ig_text_seconds();
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < batch; k++) speed->step[k] = next_token(speed, k);
        status = ig_session_decode(speed->sessions, speed->step, batch, err);
        if (status) return status;
        if (speed->options.stopped && speed->options.stopped())
            return ig_text_fail(err, IG_E_INTERRUPTED, "interrupted");
    }
    out->seconds = ig_text_seconds() - start;
    count_work(out, speed, batch, 1);
    count_rest(out);
    ig_session_get_stats(speed->sessions[0], &after);
    /* The share is a mean over all steps of the session: take the earlier ones out again. */
    out->selected_share =
        (after.selected_share * (double)after.n_decoded - before.selected_share * (double)before.n_decoded) /
        (double)(after.n_decoded - before.n_decoded);
    return IG_OK;
}

ig_eval_summary ig_eval_summarize(const double *samples, int n) {
    double sorted[1000], sum = 0, squares = 0;
    ig_eval_summary s = {0};
    if (n < 1 || n > 1000) return s;
    memcpy(sorted, samples, (size_t)n * sizeof *samples);
    qsort(sorted, (size_t)n, sizeof *sorted, ig_eval_compare);
    s.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    for (int i = 0; i < n; i++) sum += samples[i];
    s.mean = sum / n;
    for (int i = 0; i < n; i++) squares += (samples[i] - s.mean) * (samples[i] - s.mean);
    s.deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
    return s;
}
