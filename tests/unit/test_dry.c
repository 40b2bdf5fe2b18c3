/* SPDX-License-Identifier: Apache-2.0
 *
 * Repetitions that sampling turns away from, against their definition word by word.
 */
#define _GNU_SOURCE /* memmem() */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "engine/dry.h"

enum { N_MOST = 200, TEXT_MOST = 8 * N_MOST };

static ig_tokenizer *tokenizer;

static int open_tokenizer(void **state) {
    ig_error err = {0};
    (void)state;
    if (ig_tokenizer_from_hf(&tokenizer, "tests/data/tokenizers/smollm", 0, &err)) fail_msg("%s", err.text);
    return 0;
}

static int close_tokenizer(void **state) {
    (void)state;
    ig_tokenizer_close(tokenizer);
    return 0;
}

static int32_t token(const char *text) {
    int32_t id[8];
    ig_ids out = {.ids = id, .cap = 8};
    ig_error err = {0};
    if (ig_tokenizer_encode(tokenizer, &out, text, strlen(text), 0, &err)) fail_msg("%s", err.text);
    assert_int_equal(out.n, 1);
    return id[0];
}

static size_t add_text(char *text, size_t at, int32_t id) {
    return at + ig_tokenizer_piece(tokenizer, id, true, text + at, TEXT_MOST - at);
}

static bool has(const ig_sampler_options *o, const char *text, size_t begin, size_t end, size_t size) {
    for (size_t i = 0; i < o->n_dry_breakers; i++)
        for (size_t at = begin; at < end; at++) {
            size_t n = strlen(o->dry_breakers[i]);
            if (at + n <= size && memcmp(text + at, o->dry_breakers[i], n) == 0) return true;
        }
    return false;
}

/* Tokens behind which no breaker begins, of all that count. */
static int unbroken(const ig_sampler_options *o, const int32_t *tokens, int n) {
    char text[TEXT_MOST];
    size_t begin[N_MOST + 1], at = 0;
    for (int i = 0; i < n; i++) {
        begin[i] = at;
        at = add_text(text, at, tokens[i]);
    }
    begin[n] = at;
    for (int i = n - 1; i >= 0; i--)
        if (has(o, text, begin[i], begin[i + 1], at)) return n - 1 - i;
    return n;
}

/* What a token loses. */
static double lowered(const ig_sampler_options *o, int32_t id, const int32_t *tokens, int n) {
    char text[TEXT_MOST];
    size_t size = add_text(text, 0, id);
    int most = unbroken(o, tokens, n), longest = 0;
    if (n <= o->dry_allowed_length || has(o, text, 0, size, size)) return 0;
    for (int p = 0; p < n; p++) {
        int k = 0;
        if (tokens[p] != id) continue;
        while (k < p && k < most && tokens[p - 1 - k] == tokens[n - 1 - k]) k++;
        if (k > longest) longest = k;
    }
    if (longest < o->dry_allowed_length) return 0;
    return (double)o->dry_multiplier * pow((double)o->dry_base, longest - o->dry_allowed_length);
}

static int check(const ig_sampler_options *o, const int32_t *tokens, int n) {
    int n_vocab = ig_tokenizer_n_vocab(tokenizer), n_lowered = 0, first = 0;
    float *logits = calloc((size_t)n_vocab, sizeof *logits);
    int32_t *zeros = calloc((size_t)n_vocab, sizeof *zeros);
    ig_error err = {0};
    ig_dry d;
    if (ig_dry_open(&d, o, tokenizer, &err)) fail_msg("%s", err.text);
    if (ig_dry_lower(&d, logits, zeros, tokens, n, &err)) fail_msg("%s", err.text);
    if (o->dry_last_n >= 0 && n > o->dry_last_n) first = n - o->dry_last_n;
    for (int id = 0; id < n_vocab; id++) {
        bool came = false;
        assert_int_equal(zeros[id], 0);
        for (int i = first; i < n; i++) came = came || tokens[i] == id;
        double expected = came ? lowered(o, id, tokens + first, n - first) : 0;
        if (!(fabs((double)logits[id] + expected) <= 1e-5 * expected))
            fail_msg("token %d of %d: %g, not %g", id, n, (double)logits[id], -expected);
        n_lowered += expected > 0;
    }
    ig_dry_close(&d);
    free(logits);
    free(zeros);
    return n_lowered;
}

/* Few words, so that much repeats; breakers in a token, at its end, and over two or three. */
static void as_defined(void **state) {
    (void)state;
    static const char *const words[] = {" a", " b", " c", "\n", ":", " the"};
    static const char *const breakers[] = {"\n", "h", " a b", "b c a", "e a"};
    ig_random random = {3};
    int n_lowered = 0;
    for (int trial = 0; trial < 400; trial++) {
        ig_sampler_options o = ig_sampler_defaults();
        int32_t tokens[N_MOST];
        int n = (int)(ig_random_u64(&random) % N_MOST), n_words = trial % 2 ? 3 : 6;
        for (int i = 0; i < n; i++) {
            int back = 1 + (int)(ig_random_u64(&random) % 9); /* often as it was so many tokens before */
            bool repeats = i > back && ig_random_u64(&random) % 4;
            tokens[i] = repeats ? tokens[i - back] : token(words[ig_random_u64(&random) % (uint64_t)n_words]);
        }
        o.dry_multiplier = 0.8f;
        o.dry_base = trial % 3 ? 1.75f : 1;
        o.dry_allowed_length = 1 + trial % 4;
        o.dry_last_n = trial % 5 ? -1 : (int)(ig_random_u64(&random) % 60);
        o.dry_breakers = breakers;
        o.n_dry_breakers = ig_random_u64(&random) % (IG_COUNT(breakers) + 1);
        n_lowered += check(&o, tokens, n);
    }
    assert_in_range(n_lowered, 300, 100000);
}

/* Alike from beginning to end: a finite number, in no more time than the length. */
static void one_word(void **state) {
    (void)state;
    enum { N = 300000 };
    ig_sampler_options o = ig_sampler_defaults();
    int32_t *tokens = malloc(N * sizeof *tokens), id = token(" a");
    int n_vocab = ig_tokenizer_n_vocab(tokenizer);
    float *logits = calloc((size_t)n_vocab, sizeof *logits);
    int32_t *zeros = calloc((size_t)n_vocab, sizeof *zeros);
    ig_error err = {0};
    ig_dry d;
    for (int i = 0; i < N; i++) tokens[i] = id;
    o.dry_multiplier = 1;
    assert_int_equal(ig_dry_open(&d, &o, tokenizer, &err), IG_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(ig_dry_lower(&d, logits, zeros, tokens, N, &err), IG_OK);
    assert_true(isfinite(logits[id]) && logits[id] < -1e29f);
    ig_dry_close(&d);
    free(tokens);
    free(logits);
    free(zeros);
}

/* The usual ones, if none are named. */
static void usual_breakers(void **state) {
    (void)state;
    static const char *const breaking[] = {"\n", ":", "\"", "*"};
    ig_sampler_options o = ig_sampler_defaults();
    int32_t tokens[] = {token(" a"), token(" b"), 0, token(" c"), token(" a"), token(" b"), 0};
    float *logits = calloc((size_t)ig_tokenizer_n_vocab(tokenizer), sizeof *logits);
    int32_t *zeros = calloc((size_t)ig_tokenizer_n_vocab(tokenizer), sizeof *zeros);
    ig_error err = {0};
    o.dry_multiplier = 1;
    for (size_t i = 0; i <= IG_COUNT(breaking); i++) {
        ig_dry d;
        tokens[2] = tokens[6] = i < IG_COUNT(breaking) ? token(breaking[i]) : token(" the");
        assert_int_equal(ig_dry_open(&d, &o, tokenizer, &err), IG_OK);
        assert_int_equal(ig_dry_lower(&d, logits, zeros, tokens, 7, &err), IG_OK);
        assert_true((logits[tokens[3]] < 0) == (i == IG_COUNT(breaking)));
        ig_dry_close(&d);
    }
    free(logits);
    free(zeros);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_defined), cmocka_unit_test(one_word),
                                       cmocka_unit_test(usual_breakers)};
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
