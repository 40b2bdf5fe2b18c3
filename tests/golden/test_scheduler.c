/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler: what a request gets is what it gets alone, bit by bit, whatever runs beside it, also
 * where room is short.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include "golden/scheduler_asks.h"

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

/* The context ends an answer as it does alone. */
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
        cmocka_unit_test_setup_teardown(waits_for_room, open_tiny_and_folder, close_tiny_and_folder),
        cmocka_unit_test_setup_teardown(leaves_ram, open_tiny_and_folder, close_tiny_and_folder),
        cmocka_unit_test_setup_teardown(room_is_the_context, open_tiny_and_folder, close_tiny_and_folder),
        cmocka_unit_test_setup_teardown(a_draft_model_changes_nothing, open_tiny_llama, close_tiny),
        cmocka_unit_test_setup_teardown(guesses_change_nothing, open_tiny_and_folder, close_tiny_and_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
