/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values in a mapped file that the system pages: the bits are those of RAM, with whatever policy, and no more
 * of the file stays in RAM than was allowed.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "golden/tiny_session.h"

enum { N_CTX = 700, N_PROMPT = 500, N_STEPS = 6 };

static int32_t ids[N_CTX];

static ig_session_options options(const char *policy, const char *type) {
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.n_batch = 64;
    o.cache.policy = policy;
    o.cache.memory.type = type;
    o.cache.budget = 0.2;
    return o;
}

static ig_session_options mapped(ig_session_options o, uint64_t ram) {
    o.cache.memory.map = true;
    o.cache.memory.disk_path = folder;
    o.cache.memory.ram_bytes = ram;
    return o;
}

static uint64_t least_of(ig_session_options o) {
    ig_session *s;
    ig_error err = {0};
    o = mapped(o, 1);
    assert_int_equal(ig_session_open(&s, model, &o, &err), IG_E_LIMIT);
    return strtoull(strstr(err.text, "at least ") + strlen("at least "), NULL, 10);
}

static void is_like_ram(void **state) {
    static const struct {
        const char *policy, *type;
    } kinds[] = {{"full", "f16"}, {"h2o", "f16"}, {"snapkv", "f16"}, {"infinigen", "q8"}, {"full", "q2"}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        ig_session_options in_ram = options(kinds[k].policy, kinds[k].type), o = mapped(in_ram, least_of(in_ram));
        ig_cache_plan_info plan;
        ig_error err = {0};
        expect_ok(ig_cache_plan(&plan, model, &o, &err), &err);
        assert_true(plan.kv <= o.cache.memory.ram_bytes);
        ig_session *a = open_session(&in_ram), *b = open_session(&o);
        static const int lengths[] = {N_PROMPT, 233, N_PROMPT + 40};
        for (int c = 0; c < 3; c++) {
            put(a, ids, lengths[c]), put(b, ids, lengths[c]);
            same(a, b);
            for (int i = 0; i < N_STEPS; i++) {
                int at = ig_session_tokens(a, NULL);
                step(a, ids[at]), step(b, ids[at]);
                same(a, b);
            }
        }
        ig_session_stats st;
        ig_session_get_stats(b, &st);
        if (st.kv_bytes > o.cache.memory.ram_bytes)
            fail_msg("%s: %llu bytes of %llu", kinds[k].policy, (unsigned long long)st.kv_bytes,
                     (unsigned long long)o.cache.memory.ram_bytes);
        if (strcmp(kinds[k].policy, "full") == 0 && strcmp(kinds[k].type, "f16") == 0)
            assert_true(st.read_bytes > 0 && st.written_bytes > 0 && st.demoted > 0);
        ig_session_close(a), ig_session_close(b);
    }
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    ig_session *s;
    ig_error err = {0};
    ig_session_options o = options("full", NULL), least = mapped(o, least_of(o)), wrong[3] = {least, least, least};
    wrong[0].cache.memory.ram_bytes = 0;
    wrong[1].cache.memory.disk_bytes = 1 << 20;
    wrong[2].cache.memory.disk_path = NULL;
    for (int i = 0; i < 3; i++) assert_int_equal(ig_session_open(&s, model, &wrong[i], &err), IG_E_ARG);
    least.cache.memory.ram_bytes--;
    assert_int_equal(ig_session_open(&s, model, &least, &err), IG_E_LIMIT);
    least.cache.memory.ram_bytes++;
    least.cache.memory.disk_path = "/nowhere";
    assert_int_equal(ig_session_open(&s, model, &least, &err), IG_E_NOT_FOUND);
}

/* A folder in RAM cannot be paged out to; it is refused, and there is nothing to test. */
static bool is_memory(void) {
    ig_session_options o = mapped(options("full", NULL), 1 << 30);
    ig_session *s = NULL;
    ig_error err = {0};
    open_tiny(TINY_LLAMA, 2);
    bool refused = ig_session_open(&s, model, &o, &err) && strstr(err.text, "lies in RAM");
    if (refused) printf("skipped: %s\n", err.text);
    ig_session_close(s);
    close_tiny(NULL);
    return refused;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_like_ram),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    for (int i = 0; i < N_CTX; i++) ids[i] = i * 7919 % N_VOCAB;
    if (!mkdtemp(folder)) return 1;
    if (is_memory()) {
        rmdir(folder);
        return 77;
    }
    int failed = cmocka_run_group_tests_name("mapped", tests, open_tiny_llama, close_tiny);
    if (rmdir(folder)) failed++; /* nothing may be left in it */
    return failed;
}
