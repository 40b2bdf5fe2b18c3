/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to a scheduler, what comes of them, and the same from a session alone.
 */
#ifndef TESTS_SCHEDULER_ASKS_H
#define TESTS_SCHEDULER_ASKS_H

#include <math.h>
#include <pthread.h>

#include "base/compiler.h"
#include "engine/session.h"
#include "golden/tiny_session.h"
#include "infinigen_requests.h"

enum { N_CTX = 640, MOST = 700 };

static ig_scheduler *scheduler;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int n_ended, n_draft;
static ig_model *draft_model;

/* One request and what came of it. */
typedef struct asked {
    ig_request *request;
    int32_t prompt[MOST];
    int n_prompt;
    ig_cache_options cache;
    ig_request_options o;
    int32_t ids[MOST];
    double scores[MOST], prompt_scores[MOST];
    int n, n_prompt_scores;
    int cancel_at;        /* token at which the callback cancels it; 0: never */
    struct asked *follow; /* handed over with the first token */
    int seen_by_follow;   /* tokens there were as the one that follows it had its first */
    struct asked *leader;
    ig_request_progress progress;
    ig_request_result result;
    int rank; /* how many had ended before */
} asked;

static inline void submit(asked *a);

static inline void on_token(void *user, const ig_request_token *t) {
    asked *a = user;
    if (t->is_prompt) {
        a->prompt_scores[a->n_prompt_scores++] = t->token.logprob;
        return;
    }
    if (t->is_end) return;
    a->ids[a->n] = t->token.id;
    a->scores[a->n++] = t->token.logprob;
    if (a->n == 1 && a->leader) a->leader->seen_by_follow = a->leader->n;
    if (a->n == 1 && a->follow) submit(a->follow);
    if (a->n == a->cancel_at) ig_request_cancel(a->request);
}

static inline void on_progress(void *user, const ig_request_progress *p) {
    asked *a = user;
    assert_true(p->n_held > a->progress.n_held && p->n_held <= p->n_prompt && p->n_prompt == a->o.n_ids);
    assert_true(p->n_cached >= 0 && p->n_cached <= p->n_held && p->seconds >= a->progress.seconds && !a->n);
    a->progress = *p;
}

static inline void on_end(void *user, const ig_request_result *result) {
    asked *a = user;
    pthread_mutex_lock(&lock);
    a->result = *result;
    if (result->n_tokens) assert_int_equal(a->progress.n_held, result->n_prompt);
    a->rank = n_ended++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static inline void wait_for(int n) {
    pthread_mutex_lock(&lock);
    while (n_ended < n) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* A prompt of n tokens; those of the same seed begin alike. */
static inline asked *ask(int seed, int n, int n_predict) {
    asked *a = calloc(1, sizeof *a);
    assert_non_null(a);
    for (int i = 0; i < n; i++) a->prompt[i] = (i * 7919 + seed * 31 + i / 3) % N_VOCAB;
    a->n_prompt = n;
    a->cache = ig_cache_defaults();
    a->o = ig_request_defaults();
    a->o.ids = a->prompt;
    a->o.n_ids = n;
    a->o.has_scores = true;
    a->o.generate.n_predict = n_predict;
    a->o.generate.ignore_end = true;
    a->o.on_progress = on_progress;
    a->o.on_token = on_token;
    a->o.on_end = on_end;
    a->o.user = a;
    return a;
}

static inline void submit(asked *a) {
    ig_error err = {0};
    a->o.cache = &a->cache;
    expect_ok(ig_scheduler_submit(&a->request, NULL, scheduler, &a->o, 1, &err), &err);
}

static inline void done(asked *a) {
    ig_request_close(a->request);
    free(a);
}

static const char *cache_policy; /* of the scheduler's sessions; NULL: the default */

static inline void open_scheduler(int n_places, int n_batch, int n_queue, double piece_seconds) {
    ig_scheduler_options o = ig_scheduler_defaults();
    ig_error err = {0};
    o.session.n_ctx = N_CTX;
    o.session.n_batch = n_batch;
    o.session.n_draft = n_draft;
    o.session.draft_model = draft_model;
    o.session.cache.memory.n_sessions = n_places;
    if (cache_policy) o.session.cache.policy = cache_policy;
    o.n_queue = n_queue;
    o.piece_seconds = piece_seconds;
    n_ended = 0;
    expect_ok(ig_scheduler_open(&scheduler, model, &o, &err), &err);
}

static inline bool keep_scores(void *user, int first, int n_rows, const float *logits) {
    asked *a = user;
    for (int r = 0; r < n_rows && first + r + 1 < a->n_prompt; r++) {
        const float *row = logits + (size_t)r * N_VOCAB;
        double sum = 0;
        for (int i = 0; i < N_VOCAB; i++) sum += exp((double)row[i]);
        a->prompt_scores[first + r + 1] = (double)row[a->prompt[first + r + 1]] - log(sum);
    }
    return false;
}

/* The same request in a session of its own. */
static inline void check_alone(const asked *a, int n_batch) {
    static asked alone;
    ig_session_options o = ig_session_defaults();
    ig_error err = {0};
    ig_sampler *sampler;
    ig_generate_result r;
    const int32_t *ids;
    o.n_ctx = N_CTX;
    o.n_batch = n_batch;
    o.cache = a->cache;
    o.cache.memory.n_sessions = 0;
    o.cache.salt = NULL;
    ig_session *s = open_session(&o);
    alone = (asked){.n_prompt = a->n_prompt};
    memcpy(alone.prompt, a->prompt, sizeof a->prompt);
    expect_ok(ig_session_sync_logits(s, a->prompt, a->n_prompt, keep_scores, &alone, &err), &err);
    expect_ok(ig_sampler_open(&sampler, model, &a->o.sampler, &err), &err);
    expect_ok(ig_generate(&r, s, sampler, &a->o.generate, &err), &err);
    expect_ok(a->result.error.status, &a->result.error);
    assert_int_equal(a->result.finish, r.finish);
    assert_int_equal(a->n, r.n_tokens);
    assert_int_equal(a->result.n_tokens, r.n_tokens);
    int n = ig_session_tokens(s, &ids);
    int kept = n - a->n_prompt < a->n ? n - a->n_prompt : a->n; /* a full context has no room for the last one */
    assert_true(kept >= a->n - 1);
    assert_memory_equal(a->ids, ids + a->n_prompt, (size_t)kept * sizeof *ids);
    for (int i = 1; i < a->n_prompt_scores; i++) assert_true(fabs(a->prompt_scores[i] - alone.prompt_scores[i]) < 1e-5);
    ig_sampler_close(sampler);
    ig_session_close(s);
}

#endif
