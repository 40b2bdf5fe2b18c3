/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to text, as far as it is certain.
 */
#include "engine/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/ranges.h"
#include "engine/sampler.h"

ig_status ig_answer_check(const ig_generate_options *o, const ig_model *m, ig_error *err) {
    ig_status status = ig_check_generate_options(o, err);
    if (status || !o->n_expected) return status;
    return ig_model_check_ids(m, o->expected, 0, (int)o->n_expected, err);
}

static bool is_end_token(const ig_answer *a, int32_t id) {
    const ig_generate_options *o = a->o;
    for (size_t i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] == id) return true;
    return !o->ignore_end && ig_token_is_end(a->session->model, id);
}

/* is_end[id] of each of the n_vocab tokens; returns how many there are. */
static size_t mark_ends(const ig_answer *a, bool *is_end, int n_vocab) {
    const ig_generate_options *o = a->o;
    size_t n = 0;
    for (int32_t id = 0; id < n_vocab; id++) is_end[id] = !o->ignore_end && ig_token_is_end(a->session->model, id);
    for (size_t i = 0; i < o->n_stop_ids; i++)
        if (o->stop_ids[i] >= 0 && o->stop_ids[i] < n_vocab) is_end[o->stop_ids[i]] = true;
    for (int32_t id = 0; id < n_vocab; id++) n += is_end[id];
    return n;
}

/* All of them, for as long as none may come. Both lists may be long: neither is gone through for each of the other. */
static bool list_ends(ig_answer *a) {
    int n_vocab = a->session->model->config.n_vocab;
    bool *is_end = malloc((size_t)n_vocab * sizeof *is_end);
    size_t n = is_end ? mark_ends(a, is_end, n_vocab) : 0;
    if (is_end) a->ends = malloc((n ? n : 1) * sizeof *a->ends);
    for (int32_t id = 0; id < n_vocab && a->ends; id++)
        if (is_end[id]) a->ends[a->n_ends++] = id;
    free(is_end);
    return a->ends != NULL;
}

ig_status ig_answer_open(ig_answer *a, ig_error *err) {
    size_t longest = 0;
    for (size_t k = 0; k < a->o->n_stops; k++) {
        size_t n = strlen(a->o->stops[k]);
        if (n > longest) longest = n;
    }
    a->detok.started = true; /* it continues a text: a leading blank is part of it */
    ig_sampler_restart(a->sampler);
    a->finish = IG_FINISH_LENGTH;
    if (a->o->n_least > 0 && !list_ends(a)) return ig_fail_memory(err, "generation", sizeof *a->ends);
    a->held = malloc(longest + 2 * IG_TOKEN_BYTES_MAX);
    return a->held ? IG_OK : ig_fail_memory(err, "generation", longest + 2 * IG_TOKEN_BYTES_MAX);
}

void ig_answer_close(ig_answer *a) {
    if (a->session) ig_drafter_expect(&a->session->drafter, a->session->n_tokens, NULL, 0);
    free(a->ends);
    free(a->held);
    a->ends = NULL;
    a->held = NULL;
}

static void show(ig_answer *a, size_t n) {
    if (a->o->on_text && !a->is_interrupted) a->is_interrupted = a->o->on_text(a->o->user, a->held, n);
    memmove(a->held, a->held + n, a->n_held - n);
    a->n_held -= n;
}

/* Adds text; true if a stop string is complete (what precedes it has been shown). */
static bool push_text(ig_answer *a, const char *text, size_t n) {
    memcpy(a->held + a->n_held, text, n);
    a->n_held += n;
    size_t keep = a->n_held; /* first byte that may belong to a stop string */
    for (size_t i = 0; i < a->n_held; i++)
        for (size_t k = 0; k < a->o->n_stops; k++) {
            size_t len = strlen(a->o->stops[k]), left = a->n_held - i;
            if (!len || memcmp(a->held + i, a->o->stops[k], len < left ? len : left) != 0) continue;
            if (len <= left && a->n_tokens <= a->o->n_least) continue; /* too early to end */
            if (len <= left) {
                a->stop = (int)k;
                show(a, a->o->shows_stop ? i + len : i);
                return true;
            }
            if (i < keep) keep = i;
        }
    show(a, keep);
    return false;
}

bool ig_answer_is_full(const ig_answer *a) { return a->o->n_predict >= 0 && a->n_tokens >= a->o->n_predict; }

ig_status ig_answer_next(ig_answer *a, int32_t *id, bool *has_ended, ig_error *err) {
    char text[IG_TOKEN_BYTES_MAX];
    ig_session *s = a->session;
    *has_ended = true;
    if (a->n_tokens == 0) ig_drafter_expect(&s->drafter, s->n_tokens, a->o->expected, (int)a->o->n_expected);
    ig_status status = ig_sampler_take(id, a->sampler, s, a->ends, a->n_tokens < a->o->n_least ? a->n_ends : 0, err);
    if (status) return status;
    bool is_end = is_end_token(a, *id);
    if (a->on_token) a->on_token(a->token_user, *id, is_end);
    if (is_end) {
        a->finish = IG_FINISH_END;
        return IG_OK;
    }
    a->n_tokens++;
    if (push_text(a, text, ig_detok_push(&a->detok, s->model, *id, a->o->special, text, sizeof text))) {
        a->n_held = 0;
        a->finish = IG_FINISH_STOP;
    } else if (a->is_interrupted) {
        a->finish = IG_FINISH_INTERRUPTED;
    } else if (ig_sampler_is_done(a->sampler)) {
        a->finish = IG_FINISH_END;
    } else if (s->n_tokens == s->options.n_ctx) {
        a->finish = IG_FINISH_CONTEXT;
    } else {
        *has_ended = false;
    }
    return IG_OK;
}

void ig_answer_finish(ig_answer *a) {
    char text[IG_TOKEN_BYTES_MAX];
    if (a->finish == IG_FINISH_STOP || a->is_interrupted) return;
    if (!a->no_replacement && push_text(a, text, ig_detok_flush(&a->detok, text, sizeof text)))
        a->finish = IG_FINISH_STOP;
    else
        show(a, a->n_held);
}
