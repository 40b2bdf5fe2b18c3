/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: what a request gets is what it gets alone, bit by bit, whatever runs beside it; who waits for whom,
 * and for room; what is refused, cancelled, cut into pieces.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>

#include "base/compiler.h"
#include "engine/session.h"
#include "golden/tiny_session.h"

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
    ig_request_result result;
    int rank; /* how many had ended before */
} asked;

static void submit(asked *a);

static void on_token(void *user, const ig_request_token *t) {
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

static void on_end(void *user, const ig_request_result *result) {
    asked *a = user;
    pthread_mutex_lock(&lock);
    a->result = *result;
    a->rank = n_ended++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for(int n) {
    pthread_mutex_lock(&lock);
    while (n_ended < n) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* A prompt of n tokens; those of the same seed begin alike. */
static asked *ask(int seed, int n, int n_predict) {
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
    a->o.on_token = on_token;
    a->o.on_end = on_end;
    a->o.user = a;
    return a;
}

static void submit(asked *a) {
    ig_error err = {0};
    a->o.cache = &a->cache;
    expect_ok(ig_scheduler_submit(&a->request, NULL, scheduler, &a->o, 1, &err), &err);
}

static void done(asked *a) {
    ig_request_close(a->request);
    free(a);
}

static const char *cache_policy; /* of the scheduler's sessions; NULL: the default */

static void open_scheduler(int n_places, int n_batch, int n_queue, double piece_seconds) {
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

/* ---- what a request gets ------------------------------------------------------------ */

static bool keep_scores(void *user, int first, int n_rows, const float *logits) {
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
static void check_alone(const asked *a, int n_batch) {
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

static void same_as_alone(void **state) {
    (void)state;
    static const char *const names[] = {"infinigen", "full", "window", "quest", "h2o", "infinigen-osdi24"};
    enum { N = 18, N_BATCH = 24 };
    asked *all[N];
    for (int round = 0; round < 2; round++) {
        open_scheduler(round ? 1 : 5, N_BATCH, 64, round ? 0.1 : 0.001);
        for (int i = 0; i < N; i++) {
            asked *a = all[i] = ask(i / 2, 5 + 23 * i, 3 + i * 5 % 17);
            a->cache.policy = names[i % (int)IG_COUNT(names)];
            a->cache.budget_entries = 8 + i;
            a->o.owner = (uint64_t)i % 3;
            a->o.n_top = i % 4;
            a->o.score_prompt = i % 5 == 0;
            a->o.sampler.temperature = i % 3 ? 0 : 1.5F;
            a->o.sampler.seed = (uint64_t)i;
            a->o.sampler.repeat_penalty = 1.1F;
            if (i % 6 == 4) a->cache.policy = "full"; /* h2o wants a cache that drops */
            submit(a);
        }
        wait_for(N);
        for (int i = 0; i < N; i++) {
            check_alone(all[i], N_BATCH);
            assert_int_equal(all[i]->n_prompt_scores, i % 5 ? 0 : all[i]->n_prompt);
            done(all[i]);
        }
        ig_scheduler_close(scheduler);
    }
}

/* The context ends an answer as it does alone. */
/* Policies whose results depend on the pieces of a prompt: they are those of a session alone. */
static void same_as_alone_where_entries_are_dropped(void **state) {
    static const char *const names[] = {"h2o", "snapkv", "pyramidkv"};
    enum { N = 6, N_BATCH = 24 };
    (void)state;
    for (size_t k = 0; k < IG_COUNT(names); k++) {
        asked *all[N];
        cache_policy = names[k];
        open_scheduler(3, N_BATCH, 64, 0.001);
        cache_policy = NULL;
        for (int i = 0; i < N; i++) {
            all[i] = ask(i, 40 + 25 * i, 5 + 3 * i);
            all[i]->cache.policy = names[k];
            all[i]->cache.budget_entries = 38;
            submit(all[i]);
        }
        wait_for(N);
        for (int i = 0; i < N; i++) {
            check_alone(all[i], N_BATCH);
            done(all[i]);
        }
        ig_scheduler_close(scheduler);
    }
}

/* What a request points to may go when it was submitted. */
static void keeps_what_it_needs(void **state) {
    (void)state;
    asked *a = ask(1, 60, 12), *plain = ask(1, 60, 12);
    char *breakers[] = {strdup("\n"), strdup("a")};
    static const char *const same[] = {"\n", "a"};
    open_scheduler(1, 24, 8, 0.1);
    a->o.sampler.dry_multiplier = plain->o.sampler.dry_multiplier = 2;
    a->o.sampler.dry_breakers = (const char *const *)breakers;
    plain->o.sampler.dry_breakers = same;
    a->o.sampler.n_dry_breakers = plain->o.sampler.n_dry_breakers = 2;
    pthread_mutex_lock(&lock); /* nothing is begun before */
    submit(plain);
    submit(a);
    for (int i = 0; i < 2; i++) {
        memset(breakers[i], 'x', strlen(breakers[i]));
        free(breakers[i]);
    }
    pthread_mutex_unlock(&lock);
    wait_for(2);
    assert_int_equal(a->n, plain->n);
    assert_memory_equal(a->ids, plain->ids, (size_t)a->n * sizeof *a->ids);
    done(a);
    done(plain);
    ig_scheduler_close(scheduler);
}

static void full_context(void **state) {
    (void)state;
    open_scheduler(2, 64, 8, 0.1);
    asked *a = ask(1, N_CTX - 3, -1), *b = ask(2, N_CTX, 0), *c = ask(3, N_CTX, 5);
    submit(a);
    submit(b);
    submit(c);
    wait_for(3);
    assert_int_equal(a->result.finish, IG_FINISH_CONTEXT);
    check_alone(a, 64);
    assert_int_equal(b->result.n_tokens, 0);
    check_alone(b, 64);
    check_alone(c, 64);
    done(a);
    done(b);
    done(c);
    ig_scheduler_close(scheduler);
}

/* ---- prefixes ------------------------------------------------------------------------- */

static void takes_prefixes(void **state) {
    (void)state;
    open_scheduler(2, 64, 8, 0.1);
    asked *a = ask(1, 300, 6), *b = ask(1, 300, 6), *salted = ask(1, 300, 6), *scored = ask(1, 300, 1);
    submit(a);
    submit(b); /* at the same time: it waits for its turn, and takes what the first one has computed */
    wait_for(2);
    assert_int_equal(a->result.n_cached, 0);
    assert_true(b->result.n_cached >= 256);
    assert_int_equal(b->result.stats.n_prefilled, 300 - b->result.n_cached);
    salted->cache.salt = "somebody else";
    scored->o.score_prompt = true;
    submit(salted);
    submit(scored);
    wait_for(4);
    assert_int_equal(salted->result.n_cached, 0);
    assert_int_equal(scored->result.n_cached, 0);
    assert_int_equal(scored->n_prompt_scores, 300);
    assert_true(isnan(scored->prompt_scores[0]));
    assert_memory_equal(a->ids, b->ids, 6 * sizeof *a->ids);
    assert_memory_equal(a->scores, b->scores, 6 * sizeof *a->scores);
    assert_memory_equal(a->scores, salted->scores, 6 * sizeof *a->scores);
    ig_scheduler_stats st;
    ig_scheduler_get_stats(scheduler, &st);
    assert_int_equal(st.n_requests, 4);
    assert_int_equal(st.prompt_tokens, 1200);
    assert_int_equal(st.cached_tokens, b->result.n_cached);
    assert_int_equal(st.answer_tokens, 19);
    assert_int_equal(st.n_running + st.n_waiting, 0);
    done(a);
    done(b);
    done(salted);
    done(scored);
    ig_scheduler_close(scheduler);
}

/* ---- who waits -------------------------------------------------------------------------- */

/* A running answer goes on while a long prompt is computed. */
static void pieces(void **state) {
    (void)state;
    open_scheduler(2, 512, 8, 0.001);
    asked *a = ask(1, 4, 600), *b = ask(2, 512, 1);
    a->follow = b;
    b->leader = a;
    submit(a);
    wait_for(2);
    assert_true(a->seen_by_follow >= 4);
    check_alone(b, 512);
    done(a);
    done(b);
    ig_scheduler_close(scheduler);
}

/* One place: of an owner who wants much and one who wants little the second is not last. Of one owner the order is that
 * of arrival. */
static void fair(void **state) {
    (void)state;
    enum { N = 6 };
    asked *all[N];
    open_scheduler(2, 64, 16, 0.1);
    for (int i = 0; i < N; i++) {
        all[i] = ask(i, 8, 40);
        all[i]->o.owner = i == N - 1;
    }
    asked *first = ask(9, 8, 60); /* has a place while the others are handed over */
    submit(first);
    for (int i = 0; i < N; i++) submit(all[i]);
    wait_for(N + 1);
    for (int i = 1; i + 1 < N; i++) assert_true(all[i]->result.wait_seconds >= all[i - 1]->result.wait_seconds - 0.1);
    assert_true(all[N - 1]->rank < all[N - 2]->rank);
    assert_true(all[N - 1]->rank < all[N - 3]->rank);
    for (int i = 0; i < N; i++) done(all[i]);
    done(first);
    ig_scheduler_close(scheduler);
}

/* A short and a longer prompt of two other owners, handed over while long ones of one owner are computed beside an
 * answer: they get their turns before the first of these is whole, and nothing else changes. */
static void owners_take_turns(void **state) {
    (void)state;
    enum { N = 6, N_FIRST = 4, N_BATCH = 32 };
    static const int lengths[N] = {4, 500, 510, 520, 3, 160};
    static const uint64_t owners[N] = {1, 1, 1, 1, 2, 3};
    asked *all[N];
    ig_request *requests[N_FIRST];
    ig_request_options o[N_FIRST];
    ig_error err = {0};
    open_scheduler(N, N_BATCH, 16, 0.001);
    for (int i = 0; i < N; i++) {
        all[i] = ask(20 + i, lengths[i], i ? 1 : 100);
        all[i]->o.owner = owners[i];
        if (i < N_FIRST) o[i] = all[i]->o;
    }
    all[0]->follow = all[4];
    all[4]->follow = all[5];
    expect_ok(ig_scheduler_submit(requests, NULL, scheduler, o, N_FIRST, &err), &err);
    for (int i = 0; i < N_FIRST; i++) all[i]->request = requests[i];
    wait_for(N);
    static const int order[] = {4, 5, 1, 2, 3};
    for (int i = 1; i < N - 1; i++) assert_true(all[order[i - 1]]->rank < all[order[i]]->rank);
    for (int i = 0; i < N; i++) check_alone(all[i], N_BATCH);
    for (int i = 0; i < N; i++) done(all[i]);
    ig_scheduler_close(scheduler);
}

static void cancels(void **state) {
    (void)state;
    open_scheduler(1, 64, 8, 0.1);
    asked *a = ask(1, 8, 500), *b = ask(2, 8, 500);
    a->cancel_at = 3;
    submit(a);
    submit(b);
    ig_request_cancel(b->request);
    wait_for(2);
    assert_int_equal(a->result.finish, IG_FINISH_INTERRUPTED);
    assert_int_equal(a->n, 3);
    assert_int_equal(b->result.finish, IG_FINISH_INTERRUPTED);
    ig_scheduler_stats st;
    do /* the cache is looked at after the last callback */
        ig_scheduler_get_stats(scheduler, &st);
    while (st.cache.n_sessions);
    assert_int_equal(st.n_cancelled, 2);
    done(a);
    done(b);
    asked *c = ask(3, 8, 500); /* closed while it runs */
    submit(c);
    done(c);
    ig_scheduler_close(scheduler);
}

/* A sink holds up the steps of all sessions of the model, and asks meanwhile. */
static bool ask_for_stats(void *user, int first, int n_rows, const float *logits) {
    (void)first, (void)n_rows, (void)logits;
    ig_scheduler_place place;
    ig_scheduler_get_stats(scheduler, user);
    return !ig_scheduler_get_place(scheduler, 0, &place);
}

static void a_sink_may_ask(void **state) {
    (void)state;
    open_scheduler(1, 64, 8, 0.1);
    ig_session_options o = ig_session_defaults();
    ig_scheduler_stats st = {0};
    ig_error err = {0};
    o.n_ctx = 8;
    o.n_batch = 8;
    ig_session *s = open_session(&o);
    asked *a = ask(1, 8, 500);
    submit(a);
    while (st.n_ended < 1) {
        expect_ok(ig_session_cut(s, 0, &err), &err);
        expect_ok(ig_session_sync_logits(s, a->prompt, 2, ask_for_stats, &st, &err), &err);
    }
    wait_for(1);
    ig_session_close(s);
    done(a);
    ig_scheduler_close(scheduler);
}

/* ---- a disk tier that is short ---------------------------------------------------------------- */

static const char *const policies[] = {"infinigen", "full", "quest", "window", "infinigen-osdi24"};

/* One that holds so many contexts, and RAM for hardly more than a layer. */
static ig_status open_short(double n_contexts, ig_error *err) {
    ig_scheduler_options o = ig_scheduler_defaults();
    ig_cache_plan_info plan;
    o.session.n_ctx = N_CTX;
    o.session.n_batch = 64;
    o.session.n_draft = n_draft;
    expect_ok(ig_cache_plan(&plan, model, &o.session, err), err);
    o.session.cache.memory.n_sessions = 12;
    o.session.cache.memory.disk_path = folder;
    o.session.cache.memory.disk_bytes = 64 << 20;
    o.session.cache.memory.ram_bytes = least_ram(o.session);
    o.session.cache.memory.disk_bytes = (uint64_t)(n_contexts * (double)plan.kv);
    n_ended = 0;
    return ig_scheduler_open(&scheduler, model, &o, err);
}

/* None fails, and none computes anything again. */
static void ask_many(int n_policies, int n_cached) {
    enum { N = 12 };
    asked *all[N];
    n_ended = 0;
    for (int i = 0; i < N; i++) {
        asked *a = all[i] = ask(i, 520 - 7 * i, i == 4 ? -1 : 20 + i);
        a->cache.policy = policies[i % n_policies];
        a->cache.budget = 0.9;
        a->o.owner = (uint64_t)i % 4;
        a->o.score_prompt = n_policies > 1 && i % 7 == 6;
        submit(a);
    }
    wait_for(N);
    for (int i = 0; i < N; i++) {
        check_alone(all[i], 64);
        assert_int_equal(all[i]->result.stats.n_prefilled, all[i]->n_prompt - all[i]->result.n_cached);
        assert_true(all[i]->result.stats.n_decoded <= (uint64_t)all[i]->n);
        assert_true(all[i]->result.n_cached >= n_cached);
        done(all[i]);
    }
}

/* Requests that want several times what there is stand still in turn. */
static void waits_for_room(void **state) {
    (void)state;
    ig_error err = {0};
    expect_ok(open_short(1.1, &err), &err);
    ask_many(IG_COUNT(policies), 0);
    ig_scheduler_close(scheduler);
}

/* With room for all on disk, and what one step wants of a layer is more than there is RAM for. */
static void leaves_ram(void **state) {
    (void)state;
    ig_error err = {0};
    expect_ok(open_short(20, &err), &err);
    ask_many(1, 0);
    ask_many(1, 400); /* all decode at once */
    ig_scheduler_close(scheduler);
}

/* What can never have room is refused, and an answer that comes to the end of the room ends. */
static void room_is_the_context(void **state) {
    (void)state;
    ig_error err = {0};
    expect_ok(open_short(0.5, &err), &err);
    int n_ctx = ig_scheduler_ctx(scheduler);
    assert_true(n_ctx > N_CTX / 3 && n_ctx < N_CTX);
    asked *a = ask(1, n_ctx + 1, 1), *b = ask(2, n_ctx - 2, 1), *c = ask(3, 100, -1);
    a->o.cache = &a->cache;
    assert_int_equal(ig_scheduler_submit(&a->request, NULL, scheduler, &a->o, 1, &err), IG_E_LIMIT);
    submit(b);
    submit(c);
    wait_for(2);
    check_alone(b, 64);
    assert_int_equal(c->result.finish, IG_FINISH_CONTEXT);
    assert_int_equal(c->n_prompt + c->n, n_ctx + 1); /* the last one is told, and not held */
    free(a);
    done(b);
    done(c);
    ig_scheduler_close(scheduler);
    assert_int_equal(open_short(0.02, &err), IG_E_LIMIT);
    assert_non_null(strstr(err.text, "no room"));
}

/* ---- what is refused ------------------------------------------------------------------------ */

/* A named owner leaves an eighth of the queue, wherever its requests stand among those that are handed over. */
static void owners_have_shares(void **state) {
    (void)state;
    enum { N = 16 };
    ig_error err = {0};
    ig_request *out[N];
    ig_request_options o[N];
    size_t refused;
    open_scheduler(1, 64, N, 0.1);
    asked *a = ask(1, 8, 1);
    for (int i = 0; i < N; i++) {
        o[i] = a->o;
        o[i].on_end = NULL, o[i].on_token = NULL, o[i].generate.on_text = NULL;
        o[i].owner = i == 0 ? 1 : 2;
    }
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, N, &err), IG_E_LIMIT);
    assert_int_equal(refused, N);
    assert_non_null(strstr(err.text, "15 requests of one client would wait, and at most 14 may"));
    o[N - 1].owner = 1;
    expect_ok(ig_scheduler_submit(out, &refused, scheduler, o, N, &err), &err);
    for (int i = 0; i < N; i++) ig_request_close(out[i]);
    free(a);
    ig_scheduler_close(scheduler);
}

static void refuses(void **state) {
    (void)state;
    ig_error err = {0};
    ig_request *out[3];
    size_t refused = 9;
    open_scheduler(1, 64, 2, 0.1);
    asked *a = ask(1, 8, 1);
    ig_request_options o[3] = {a->o, a->o, a->o};
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, 3, &err), IG_E_LIMIT);
    assert_int_equal(refused, 3);
    static const int32_t bad[] = {1, N_VOCAB};
    o[1].ids = bad;
    o[1].n_ids = 2;
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, 2, &err), IG_E_ARG);
    assert_int_equal(refused, 1);
    assert_non_null(strstr(err.text, "512"));
    o[0].n_ids = N_CTX + 1;
    assert_int_equal(ig_scheduler_submit(out, &refused, scheduler, o, 1, &err), IG_E_LIMIT);
    assert_int_equal(refused, 0);
    o[0] = a->o;
    o[0].sampler.top_p = NAN;
    assert_int_equal(ig_scheduler_submit(out, NULL, scheduler, o, 1, &err), IG_E_ARG);
    o[0] = a->o;
    o[0].n_top = IG_REQUEST_TOP_MAX + 1;
    assert_int_equal(ig_scheduler_submit(out, NULL, scheduler, o, 1, &err), IG_E_ARG);
    o[0] = a->o;
    a->cache.policy = "nonsense";
    o[0].cache = &a->cache;
    assert_int_equal(ig_scheduler_submit(out, NULL, scheduler, o, 1, &err), IG_E_ARG);
    assert_int_equal(ig_scheduler_submit(out, NULL, NULL, o, 1, &err), IG_E_ARG);
    assert_int_equal(n_ended, 0);
    free(a);
    ig_scheduler_close(scheduler);

    ig_scheduler_options w = ig_scheduler_defaults();
    w.n_queue = 0;
    assert_int_equal(ig_scheduler_open(&scheduler, model, &w, &err), IG_E_ARG);
    w = ig_scheduler_defaults();
    w.piece_seconds = NAN;
    assert_int_equal(ig_scheduler_open(&scheduler, model, &w, &err), IG_E_ARG);
    w = ig_scheduler_defaults();
    w.session.n_batch = w.session.cache.memory.n_sessions = 4;
    assert_int_equal(ig_scheduler_open(&scheduler, model, &w, &err), IG_E_ARG);
    assert_null(scheduler);
}

/* Answers that are computed ahead of themselves are the same, and need no more room in the end. */
static void guesses_change_nothing(void **state) {
    ig_error err = {0};
    n_draft = IG_DRAFT_MAX;
    model->batch.costs.are_nothing = true;
    same_as_alone(state);
    full_context(state);
    takes_prefixes(state);
    waits_for_room(state);
    expect_ok(open_short(20, &err), &err);
    static const ig_logit_bias few[] = {{40, 100}, {41, 100}, {42, 100}};
    asked *a = ask(1, 100, 300);
    a->o.sampler.logit_bias = few;
    a->o.sampler.n_logit_bias = IG_COUNT(few);
    submit(a);
    wait_for(1);
    check_alone(a, 64);
    const ig_session_stats *st = &a->result.stats;
    assert_true(st->n_draft_hits > 50 && st->n_draft_hits <= st->n_drafted);
    assert_true(st->n_decoded == 299 || st->n_decoded == 300);
    done(a);
    ig_scheduler_close(scheduler);
    n_draft = 0;
}

/* Nor do those of a model that is as good as can be. */
static void a_draft_model_changes_nothing(void **state) {
    ig_error err = {0};
    n_draft = IG_DRAFT_MAX;
    model->batch.costs.are_nothing = true;
    expect_ok(ig_model_open(&draft_model, ctx, TINY_LLAMA, NULL, &err), &err);
    same_as_alone(state);
    full_context(state);
    takes_prefixes(state);
    ig_model_close(draft_model);
    draft_model = NULL;
    n_draft = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(same_as_alone, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(same_as_alone_where_entries_are_dropped, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(keeps_what_it_needs, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(full_context, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(takes_prefixes, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(pieces, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(fair, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(owners_take_turns, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(cancels, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(a_sink_may_ask, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(waits_for_room, open_tiny_and_folder, close_tiny_and_folder),
        cmocka_unit_test_setup_teardown(leaves_ram, open_tiny_and_folder, close_tiny_and_folder),
        cmocka_unit_test_setup_teardown(room_is_the_context, open_tiny_and_folder, close_tiny_and_folder),
        cmocka_unit_test_setup_teardown(a_draft_model_changes_nothing, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(guesses_change_nothing, open_tiny_and_folder, close_tiny_and_folder),
        cmocka_unit_test_setup_teardown(owners_have_shares, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(refuses, open_tiny_llama, close_tiny),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
