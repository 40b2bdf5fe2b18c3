/* SPDX-License-Identifier: Apache-2.0
 *
 * A prompt's rows, and the steps that follow, have the same bits however the prompt was cut into pieces.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "golden/tiny_session.h"

enum { N_CTX = 128, N_PROMPT = 100, N_STEPS = 4 };

static int32_t ids[N_CTX];

/* Logits of every token of the prompt, [N_PROMPT][N_VOCAB]. */
static bool keep_rows(void *user, int first, int n_rows, const float *logits) {
    memcpy((float *)user + (size_t)first * N_VOCAB, logits, (size_t)n_rows * N_VOCAB * sizeof *logits);
    return false;
}

static ig_session *run(const ig_session_options *o, int n_batch, float *rows) {
    ig_session_options cut = *o;
    ig_error err = {0};
    cut.n_batch = n_batch;
    ig_session *s = open_session(&cut);
    expect_ok(ig_session_sync_logits(s, ids, N_PROMPT, keep_rows, rows, &err), &err);
    return s;
}

static void check(const char *policy, const char *type) {
    static const int pieces[] = {1, 3, 8, 9, 33};
    static float whole_rows[N_PROMPT * N_VOCAB], rows[N_PROMPT * N_VOCAB];
    ig_session_options o = ig_session_defaults();
    o.n_ctx = N_CTX;
    o.cache.policy = policy;
    o.cache.memory.type = type;
    ig_session *whole = run(&o, N_PROMPT, whole_rows), *cut[IG_COUNT(pieces)];
    for (size_t i = 0; i < IG_COUNT(pieces); i++) {
        cut[i] = run(&o, pieces[i], rows);
        for (int t = 0; t < N_PROMPT; t++)
            if (memcmp(whole_rows + (size_t)t * N_VOCAB, rows + (size_t)t * N_VOCAB, N_VOCAB * sizeof *rows) != 0)
                fail_msg("%s, %s, pieces of %d: token %d differs", policy, type, pieces[i], t);
        same(whole, cut[i]);
    }
    for (int k = 0; k < N_STEPS; k++) {
        step(whole, ids[N_PROMPT + k]);
        for (size_t i = 0; i < IG_COUNT(pieces); i++) {
            step(cut[i], ids[N_PROMPT + k]);
            same(whole, cut[i]);
        }
    }
    ig_session_close(whole);
    for (size_t i = 0; i < IG_COUNT(pieces); i++) ig_session_close(cut[i]);
}

static void same_bits(void **state) {
    (void)state;
    for (int i = 0; i < N_CTX; i++) ids[i] = (i * 7919 + i / 3) % N_VOCAB;
    check("full", "f16");
    check("full", "q8");
    check("infinigen", "q4");
    check("infinigen", "q1");
    check("infinigen", "f16");
    check("infinigen-osdi24", "f16");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        {"llama: same_bits", same_bits, open_tiny_llama, close_tiny, NULL},
        {"mistral, a sliding window: same_bits", same_bits, open_tiny_mistral, close_tiny, NULL},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
