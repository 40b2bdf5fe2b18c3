/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures by the clock what ig_session_sync and ig_session_decode take.
 * Cutting a session back to its depth is not part of any time.
 */
#define _GNU_SOURCE
#include "eval/speed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ig_eval_speed {
    ig_model *model;
    ig_eval_speed_options options;
    ig_session **sessions; /* [max_batch], the first n_sessions open */
    int n_sessions;
    int32_t *ids;  /* [depth + room] of one session; refilled for each from its own seed */
    int32_t *step; /* [max_batch] */
    int n_vocab;
    uint64_t random; /* of the tokens that are generated */
};

static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ig_status fail(ig_error *err, ig_status status, const char *text) {
    if (err) {
        err->status = status;
        strcpy(err->text, text);
    }
    return status;
}

ig_status ig_eval_speed_open(ig_eval_speed **out, ig_model *model, const ig_eval_speed_options *options,
                             ig_error *err) {
    ig_eval_speed *speed = calloc(1, sizeof *speed);
    *out = NULL;
    if (!speed) return fail(err, IG_E_MEMORY, "out of memory");
    ig_model_info info;
    ig_model_get_info(model, &info);
    speed->model = model;
    speed->options = *options;
    speed->options.session.n_ctx = options->depth + options->room + 1;
    speed->n_vocab = info.n_vocab;
    speed->sessions = calloc((size_t)options->max_batch, sizeof *speed->sessions);
    speed->step = calloc((size_t)options->max_batch, sizeof *speed->step);
    speed->ids = calloc((size_t)speed->options.session.n_ctx, sizeof *speed->ids);
    if (!speed->sessions || !speed->ids || !speed->step) {
        ig_eval_speed_close(speed);
        return fail(err, IG_E_MEMORY, "out of memory");
    }
    *out = speed;
    return IG_OK;
}

void ig_eval_speed_close(ig_eval_speed *speed) {
    if (!speed) return;
    for (int i = 0; i < speed->n_sessions; i++) ig_session_close(speed->sessions[i]);
    free(speed->sessions);
    free(speed->ids);
    free(speed->step);
    free(speed);
}

/* The tokens of session i: always the same ones. */
static void fill_ids(ig_eval_speed *speed, int i) {
    uint64_t state = 42 + (uint64_t)i;
    for (int k = 0; k < speed->options.session.n_ctx; k++)
        speed->ids[k] = (int32_t)(next_random(&state) % (uint64_t)speed->n_vocab);
}

/* Brings the first n sessions to the depth, opening those that are not there yet. A session cannot be empty:
 * at depth 0 it holds one token. */
static ig_status rewind_sessions(ig_eval_speed *speed, int n, ig_error *err) {
    int depth = speed->options.depth > 0 ? speed->options.depth : 1;
    for (int i = 0; i < n; i++) {
        ig_status status = IG_OK;
        if (i == speed->n_sessions) {
            status = ig_session_open(&speed->sessions[i], speed->model, &speed->options.session, err);
            if (status) return status;
            speed->n_sessions++;
        }
        fill_ids(speed, i);
        status = ig_session_sync(speed->sessions[i], speed->ids, depth, err);
        if (status) return status;
    }
    return IG_OK;
}

ig_status ig_eval_speed_prompt(double *seconds, ig_eval_speed *speed, int n, ig_error *err) {
    if (n > speed->options.room) return fail(err, IG_E_ARG, "the prompt is longer than the room");
    ig_status status = rewind_sessions(speed, 1, err);
    if (status) return status;
    fill_ids(speed, 0);
    /* At depth 0 nothing must be reused: another first token sees to it. */
    if (speed->options.depth == 0) speed->ids[0] = (speed->ids[0] + 1) % speed->n_vocab;
    double start = seconds_now();
    status = ig_session_sync(speed->sessions[0], speed->ids, speed->options.depth + n, err);
    *seconds = seconds_now() - start;
    return status;
}

ig_status ig_eval_speed_generate(double *seconds, double *selected_share, ig_eval_speed *speed, int n, int batch,
                                 ig_error *err) {
    if (n > speed->options.room || batch > speed->options.max_batch)
        return fail(err, IG_E_ARG, "the generation is larger than the room");
    ig_session_stats before, after;
    ig_status status = rewind_sessions(speed, batch, err);
    if (status) return status;
    ig_session_get_stats(speed->sessions[0], &before);
    double start = seconds_now();
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < batch; k++)
            speed->step[k] = (int32_t)(next_random(&speed->random) % (uint64_t)speed->n_vocab);
        status = ig_session_decode(speed->sessions, speed->step, batch, err);
        if (status) return status;
        if (speed->options.stopped && speed->options.stopped()) return fail(err, IG_E_INTERRUPTED, "interrupted");
    }
    *seconds = seconds_now() - start;
    ig_session_get_stats(speed->sessions[0], &after);
    /* The share is a mean over all steps of the session: take the earlier ones out again. */
    *selected_share =
        (after.selected_share * (double)after.n_decoded - before.selected_share * (double)before.n_decoded) /
        (double)(after.n_decoded - before.n_decoded);
    return IG_OK;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

ig_eval_summary ig_eval_summarize(const double *samples, int n) {
    double sorted[1000], sum = 0, squares = 0;
    ig_eval_summary s = {0};
    if (n < 1 || n > 1000) return s;
    memcpy(sorted, samples, (size_t)n * sizeof *samples);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    s.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    for (int i = 0; i < n; i++) sum += samples[i];
    s.mean = sum / n;
    for (int i = 0; i < n; i++) squares += (samples[i] - s.mean) * (samples[i] - s.mean);
    s.deviation = n > 1 ? sqrt(squares / (n - 1)) : 0;
    return s;
}
