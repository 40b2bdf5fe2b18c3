/* SPDX-License-Identifier: Apache-2.0
 *
 * States of a prompt's tokens: logits are the products of the head with them, however the prompt is cut; by a session,
 * by a scheduler beside answers, and what they need.
 */
#define _GNU_SOURCE
#include <math.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/tiny_session.h"
#include "infinigen_requests.h"
#include "kernel/kernel.h"
#include "model/model.h"

enum { N = 150, STOPS_AT = 40 };

typedef struct rows {
    float *v; /* [N][width] */
    int n, width, n_calls;
    bool stops;
} rows;

static bool keep(void *user, int first, int n_rows, const float *x) {
    rows *r = user;
    assert_int_equal(first, r->n);
    assert_in_range(first + n_rows, 1, N);
    memcpy(r->v + (size_t)first * (size_t)r->width, x, (size_t)n_rows * (size_t)r->width * sizeof *x);
    r->n += n_rows;
    r->n_calls++;
    return r->stops && r->n >= STOPS_AT;
}

static rows take_rows(int width) { return (rows){.v = calloc(N, (size_t)width * sizeof(float)), .width = width}; }

static void fill(int32_t *ids) {
    for (int i = 0; i < N; i++) ids[i] = (i * 29 + 3) % N_VOCAB;
}

static ig_session *open_in_steps(int n_batch) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = 256;
    o.n_batch = n_batch;
    return open_session(&o);
}

/* The head, row by row, in double precision. */
static void check_logits(const rows *states, const rows *logits) {
    const ig_matrix *head = &model->weights.head;
    float *row = malloc((size_t)head->n_in * sizeof *row);
    for (int o = 0; o < N_VOCAB; o++) {
        ig_kernels_get(IG_CPU_SCALAR)
            ->dequantize[head->type](row, (const uint8_t *)head->w + (size_t)o * head->row_bytes, head->n_in);
        for (int t = 0; t < N; t += 7) {
            const float *x = states->v + (size_t)t * (size_t)states->width;
            double sum = 0;
            for (int i = 0; i < head->n_in; i++) sum += (double)row[i] * (double)x[i];
            double got = (double)logits->v[(size_t)t * (size_t)logits->width + (size_t)o];
            if (!(fabs(sum - got) < 2e-3)) fail_msg("token %d, logit %d: %g, not %g", t, o, got, sum);
        }
    }
    free(row);
}

static void logits_are_made_of_them(void **state) {
    (void)state;
    ig_error err = {0};
    int32_t ids[N];
    fill(ids);
    int d = model->config.d_model;
    rows whole = take_rows(d), pieces = take_rows(d), logits = take_rows(N_VOCAB);
    ig_session *a = open_in_steps(256), *b = open_in_steps(37);
    expect_ok(ig_session_sync_states(a, ids, N, keep, &whole, &err), &err);
    expect_ok(ig_session_sync_states(b, ids, N, keep, &pieces, &err), &err);
    assert_int_equal(whole.n_calls, 1);
    assert_int_equal(pieces.n_calls, (N + 36) / 37);
    assert_memory_equal(whole.v, pieces.v, (size_t)N * (size_t)d * sizeof *whole.v);
    assert_null(ig_session_logits(a));
    assert_int_equal(ig_session_tokens(a, NULL), N);
    expect_ok(ig_session_cut(b, 0, &err), &err);
    expect_ok(ig_session_sync_logits(b, ids, N, keep, &logits, &err), &err);
    check_logits(&whole, &logits);
    expect_ok(ig_session_sync(a, ids, N, &err), &err); /* of which the last token is computed again */
    same(a, b);
    ig_session_close(a);
    ig_session_close(b);
    free(whole.v), free(pieces.v), free(logits.v);
}

static void a_sink_may_have_enough(void **state) {
    (void)state;
    ig_error err = {0};
    int32_t ids[N];
    fill(ids);
    rows r = take_rows(model->config.d_model);
    r.stops = true;
    ig_session *s = open_in_steps(16);
    assert_int_equal(ig_session_sync_states(s, ids, N, keep, &r, &err), IG_E_INTERRUPTED);
    assert_int_equal(r.n, 48);
    assert_int_equal(ig_session_sync_states(s, ids, N, NULL, NULL, &err), IG_E_ARG);
    ig_session_close(s);
    free(r.v);
}

/* Of two in one step one has enough, which the other does not notice: its session is as it was. */
static void a_sink_in_a_step(void **state) {
    (void)state;
    ig_error err = {0};
    int32_t ids[N];
    fill(ids);
    int d = model->config.d_model;
    rows alone = take_rows(d), stopped = take_rows(d), whole = take_rows(d);
    stopped.stops = true;
    ig_session *a = open_in_steps(256), *b = open_in_steps(256), *c = open_in_steps(256);
    expect_ok(ig_session_sync_states(c, ids, 90, keep, &alone, &err), &err);
    ig_batch_item x[] = {
        {.session = a, .ids = ids, .n = 50, .prompt = true, .on_states = keep, .user = &stopped},
        {.session = b, .ids = ids, .n = 90, .prompt = true, .on_states = keep, .user = &whole},
    };
    expect_ok(ig_batch_step(x, 2, &err), &err);
    assert_int_equal(x[0].status, IG_E_INTERRUPTED);
    assert_int_equal(x[1].status, IG_OK);
    assert_int_equal(ig_session_tokens(a, NULL), 0);
    assert_int_equal(ig_session_tokens(b, NULL), 90);
    assert_null(ig_session_logits(b));
    assert_memory_equal(whole.v, alone.v, (size_t)90 * (size_t)d * sizeof *alone.v);
    ig_session_close(a);
    ig_session_close(b);
    ig_session_close(c);
    free(alone.v), free(stopped.v), free(whole.v);
}

/* ---- by a scheduler ----------------------------------------------------------------------- */

typedef struct asked {
    rows rows; /* first, as on_states gets it */
    ig_request_result result;
} asked;

static bool keep_of_request(void *user, int first, int n_rows, const float *x) { return keep(user, first, n_rows, x); }

static sem_t n_ended;

static void note_end(void *user, const ig_request_result *result) {
    ((asked *)user)->result = *result;
    sem_post(&n_ended);
}

static void requests_for_states(void **state) {
    enum { REQUESTS = 5 };
    (void)state;
    ig_error err = {0};
    int32_t ids[N];
    fill(ids);
    int d = model->config.d_model;
    ig_session *s = open_in_steps(256);
    rows alone = take_rows(d);
    expect_ok(ig_session_sync_states(s, ids, N, keep, &alone, &err), &err);
    sem_init(&n_ended, 0, 0);
    ig_scheduler_options o = ig_scheduler_defaults();
    o.session.cache.memory.n_sessions = 3;
    o.session.n_ctx = 256;
    o.session.n_batch = 64;
    ig_scheduler *c;
    expect_ok(ig_scheduler_open(&c, model, &o, &err), &err);
    asked of[REQUESTS] = {0};
    ig_request_options requests[REQUESTS];
    ig_request *r[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        of[i].rows = take_rows(d);
        requests[i] = ig_request_defaults();
        requests[i].ids = ids;
        requests[i].n_ids = N - 10 * i;
        requests[i].generate.n_predict = 12;
        requests[i].on_states = i == 1 ? NULL : keep_of_request; /* one of them is for an answer */
        requests[i].on_end = note_end;
        requests[i].user = &of[i];
    }
    expect_ok(ig_scheduler_submit(r, NULL, c, requests, REQUESTS, &err), &err);
    for (int i = 0; i < REQUESTS; i++) sem_wait(&n_ended);
    for (int i = 0; i < REQUESTS; i++) ig_request_close(r[i]);
    for (int i = 0; i < REQUESTS; i++) {
        assert_int_equal(of[i].result.error.status, IG_OK);
        assert_int_equal(of[i].result.n_prompt, N - 10 * i);
        assert_int_equal(of[i].result.n_tokens, i == 1 ? 12 : 0);
        assert_int_equal(of[i].rows.n, i == 1 ? 0 : N - 10 * i);
        assert_memory_equal(of[i].rows.v, alone.v, (size_t)of[i].rows.n * (size_t)d * sizeof *alone.v);
        free(of[i].rows.v);
    }
    ig_scheduler_close(c);
    ig_session_close(s);
    free(alone.v);
}

static int open_model(void **state) {
    open_tiny(*state, 2);
    return 0;
}

#define OF(test, name) \
    { #test ", " name, test, open_model, close_tiny, "tests/golden/models/" name }

int main(void) {
    const struct CMUnitTest tests[] = {
        OF(logits_are_made_of_them, "llama31"), OF(logits_are_made_of_them, "olmo3"), /* windows */
        OF(logits_are_made_of_them, "lfm2"),                                          /* states of layers */
        OF(a_sink_may_have_enough, "llama31"),  OF(requests_for_states, "llama31"),   OF(a_sink_in_a_step, "llama31"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
