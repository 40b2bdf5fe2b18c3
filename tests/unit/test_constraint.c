/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens may come under a grammar: those with which the text so far still begins one of the grammar's, found by
 * trying every token of small vocabularies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "grammar/automaton.h"
#include "grammar/constraint.h"
#include "unit/count_memory.h"

enum { N_VOCAB = 700 }; /* more than any of them has */

/* 0: no text of the grammar begins with this one; 1: some do; 2: it is one itself. */
static int judge(ig_automaton *a, const char *text, size_t n) {
    uint16_t at = ig_automaton_start(a);
    for (size_t i = 0; i < n && at != IG_STATE_DEAD; i++) at = ig_automaton_step(a, at, (uint8_t)text[i]);
    assert_int_not_equal(at, IG_STATE_FULL);
    return at == IG_STATE_DEAD ? 0 : ig_automaton_accepts(a, at) ? 2 : 1;
}

/* How many tokens the mask has, after comparing each. */
static int check_mask(const ig_tokenizer *t, const uint64_t *mask, ig_automaton *a, const char *text, size_t n) {
    int n_set = 0;
    for (int32_t id = 0; id < N_VOCAB; id++) {
        char longer[4096];
        memcpy(longer, text, n);
        size_t size = ig_tokenizer_piece(t, id, false, longer + n, sizeof longer - n);
        bool wanted = ig_tokenizer_is_end(t, id) ? judge(a, text, n) == 2 : size && judge(a, longer, n + size);
        bool has = mask[id / 64] >> id % 64 & 1;
        if (has != wanted) fail_msg("token %d after '%.*s': %d", id, (int)n, text, has);
        n_set += has;
    }
    return n_set;
}

/* Follows random tokens of the masks, and compares each mask. */
static void check_vocabulary(const char *name, const char *gbnf, uint64_t seed) {
    ig_error err;
    char path[128];
    ig_tokenizer *t;
    ig_words words;
    ig_constraint *c;
    ig_rules rules;
    ig_automaton *a = NULL;
    snprintf(path, sizeof path, "tests/data/tokenizers/%s", name);
    ig_words_init(&words);
    if (ig_tokenizer_from_hf(&t, path, 0, &err) || ig_words_make(&words, t, N_VOCAB, &err) ||
        ig_words_make(&words, t, N_VOCAB, &err) || ig_constraint_open(&c, &words, gbnf, &err) ||
        ig_rules_parse(&rules, gbnf, &err) || ig_automaton_open(&a, &rules, &err))
        fail_msg("%s", err.text);
    ig_automaton_allow(a, UINT64_MAX);
    ig_random random = {.state = seed};
    for (int answer = 0; answer < 3; answer++) {
        char text[2048];
        size_t n = 0;
        ig_constraint_restart(c);
        for (int step = 0; step < 40 && !ig_constraint_is_done(c); step++) {
            const uint64_t *mask;
            if (ig_constraint_mask(c, &mask, &err)) fail_msg("%s", err.text);
            int n_set = check_mask(t, mask, a, text, n), pick = (int)(ig_random_u64(&random) % (uint64_t)n_set);
            int32_t id = -1;
            while (pick >= 0) id++, pick -= mask[id / 64] >> id % 64 & 1;
            ig_constraint_take(c, id);
            if (ig_tokenizer_is_end(t, id)) break;
            n += ig_tokenizer_piece(t, id, false, text + n, sizeof text - n);
            assert_true(n < sizeof text / 2);
        }
        if (ig_constraint_is_done(c)) assert_int_equal(judge(a, text, n), 2);
    }
    ig_automaton_close(a);
    ig_constraint_close(c);
    ig_words_close(&words);
    ig_tokenizer_close(t);
}

static void masks_are_what_trying_finds(void **state) {
    static const char *const grammars[] = {
        "root ::= \"{\" (pair (\",\" pair)*)? \"}\"\npair ::= \"\\\"\" [a-z]{1,4} \"\\\":\" (root | [0-9]+)",
        "root ::= [^\\x00]*",
        "root ::= (\"the\" | \"a\") \" \" [a-z]+ (\" \" [^ ]{1,6}){0,3} \".\"",
        "root ::= [\\u0400-\\u04ff\\U00010000-\\U0010ffff]+",
    };
    static const char *const models[] = {"llama2", "llama3", "opt", "qwen2", "smollm"};
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (size_t g = 0; g < sizeof grammars / sizeof *grammars; g++)
            check_vocabulary(models[i], grammars[g], 100 * i + g);
}

/* More states than are kept: which one it is at is never lost. */
static void states_are_forgotten(void **state) {
    enum { LONGEST = 9000 };
    const uint64_t *mask;
    ig_tokenizer *t;
    ig_words words;
    ig_constraint *c;
    ig_error err;
    (void)state;
    ig_words_init(&words);
    if (ig_tokenizer_from_hf(&t, "tests/data/tokenizers/qwen2", 0, &err) || ig_words_make(&words, t, N_VOCAB, &err) ||
        ig_constraint_open(&c, &words, "root ::= \"(\"? ([a-z] | [a-z] [0-9]){0,9000} \"!\"", &err))
        fail_msg("%s", err.text);
    int n = 0;
    int32_t letter = 0, end = 0;
    for (int32_t id = 0; id < N_VOCAB; id++) {
        if (words.of[id] && words.of[id]->size == 1 && words.of[id]->text[0] == 'x') letter = id;
        if (words.of[id] && words.of[id]->size == 1 && words.of[id]->text[0] == '!') end = id;
    }
    for (int answer = 0; answer < 2; answer++) {
        ig_constraint_restart(c);
        for (n = 0;; n++) {
            if (ig_constraint_mask(c, &mask, &err)) fail_msg("%s", err.text);
            assert_true(mask[end / 64] >> end % 64 & 1);
            if (!(mask[letter / 64] >> letter % 64 & 1)) break;
            ig_constraint_take(c, letter);
        }
        assert_int_equal(n, LONGEST);
        ig_constraint_take(c, end);
        assert_true(ig_constraint_is_done(c));
    }
    ig_constraint_close(c);
    ig_words_close(&words);
    ig_tokenizer_close(t);
}

static bool is_control(const ig_words *w, int32_t id) {
    return w->of[id] && (uint8_t)w->of[id]->text[0] == IG_RULE_TOKEN_MARK;
}

static void expect_refused(const ig_words *w, const char *format, int32_t id) {
    char gbnf[128];
    ig_constraint *c;
    ig_error err;
    snprintf(gbnf, sizeof gbnf, format, (int)id);
    ig_status s = ig_constraint_open(&c, w, gbnf, &err); /* a number that none has is no grammar at all */
    assert_true(s == IG_E_ARG || s == IG_E_FORMAT);
}

/* They come where the rules name them, and nowhere else. */
static void tokens_without_a_text(void **state) {
    const uint64_t *mask;
    ig_tokenizer *t;
    ig_words words;
    ig_constraint *c;
    ig_error err;
    char gbnf[128];
    int32_t control = -1, letter = -1;
    (void)state;
    ig_words_init(&words);
    if (ig_tokenizer_from_hf(&t, "tests/data/tokenizers/llama3", 0, &err) || ig_words_make(&words, t, N_VOCAB, &err))
        fail_msg("%s", err.text);
    for (int32_t id = 0; id < N_VOCAB; id++) {
        if (is_control(&words, id)) control = id;
        if (words.of[id] && words.of[id]->size == 1 && words.of[id]->text[0] == 'x') letter = id;
    }
    assert_true(control >= 0 && letter >= 0);
    snprintf(gbnf, sizeof gbnf, "root ::= [^y]* (<[%d]> \"x\"){1,2}", (int)control);
    if (ig_constraint_open(&c, &words, gbnf, &err)) fail_msg("%s", err.text);
    for (int step = 0; step < 5; step++) { /* x, control, x, control, x */
        bool wants_control = step != 2 && step != 4, wants_letter = step % 2 == 0;
        if (ig_constraint_mask(c, &mask, &err)) fail_msg("%s", err.text);
        for (int32_t id = 0; id < N_VOCAB; id++)
            if (is_control(&words, id)) assert_int_equal(mask[id / 64] >> id % 64 & 1, id == control && wants_control);
        assert_int_equal(mask[letter / 64] >> letter % 64 & 1, wants_letter || step == 1);
        ig_constraint_take(c, wants_letter ? letter : control);
    }
    assert_true(ig_constraint_is_done(c));
    ig_constraint_close(c);
    for (int32_t id = 0; id < N_VOCAB; id++) { /* whatever its number */
        if (!is_control(&words, id)) continue;
        snprintf(gbnf, sizeof gbnf, "root ::= \"x\" <[%d]> \"y\" | <[%d]>", (int)id, (int)id);
        if (ig_constraint_open(&c, &words, gbnf, &err)) fail_msg("%d: %s", (int)id, err.text);
        ig_constraint_close(c);
    }
    expect_refused(&words, "root ::= <[%d]>", letter);
    expect_refused(&words, "root ::= \"x\" | <[%d]>", 1000000);
    expect_refused(&words, "root ::= <[%d00]>", 1000000);
    expect_refused(&words, "root ::= <[]> [%d]", 1);
    expect_refused(&words, "root ::= <[%d>", 1);
    ig_words_close(&words);
    ig_tokenizer_close(t);
}

/* Each allocation in turn fails: that is an error, nothing stays behind, and the next call has everything anew, whether
 * the words were closed or not. */
static void fail_in_turn(bool closes) {
#ifdef MEMORY_IS_COUNTED
    static const char gbnf[] = "root ::= (a | [b-z]{2,5})*\na ::= \"a\" b\nb ::= \"\"";
    const uint64_t *mask;
    ig_tokenizer *t;
    ig_words words;
    ig_error err;
    if (ig_tokenizer_from_hf(&t, "tests/data/tokenizers/smollm", 0, &err)) fail_msg("%s", err.text);
    ig_words_init(&words);
    for (long fail_at = 0;; fail_at++) {
        ig_constraint *c = NULL;
        err = (ig_error){0};
        memory_count_start(fail_at);
        ig_status s = ig_words_make(&words, t, N_VOCAB, &err);
        if (!s) s = ig_constraint_open(&c, &words, gbnf, &err);
        bool has_failed = memory_count.fail_at < 0;
        if (!s) s = ig_constraint_mask(c, &mask, &err);
        ig_constraint_close(c);
        memory_count_stop();
        if (s && (s != IG_E_MEMORY || err.status != s)) fail_msg("allocation %ld: %s", fail_at, err.text);
        if (!has_failed) {
            assert_int_equal(s, IG_OK);
            assert_true(fail_at > 15);
            break;
        }
        if (closes) ig_words_close(&words), ig_words_init(&words);
    }
    ig_words_close(&words);
    ig_tokenizer_close(t);
#else
    (void)closes;
    skip();
#endif
}

static void memory_that_fails(void **state) {
    (void)state;
    fail_in_turn(false);
    fail_in_turn(true);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_are_what_trying_finds),
                                       cmocka_unit_test(states_are_forgotten), cmocka_unit_test(tokens_without_a_text),
                                       cmocka_unit_test(memory_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
