/* SPDX-License-Identifier: Apache-2.0
 *
 * Task files: the three forms, examples, and what is said about lines that are not right.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval/choice.h"
#include "eval/task.h"

static ig_eval_task *read_task(const char *text, size_t limit) {
    ig_eval_task *task;
    ig_error err = {0};
    if (ig_eval_task_open(&task, "t.jsonl", text, strlen(text), limit, &err)) fail_msg("%s", err.text);
    return task;
}

static void test_choices(void **state) {
    (void)state;
    ig_eval_task *task = read_task(
        "{\"id\": 0, \"query\": \"Two and two are\", \"choices\": [\" four\", \" five\", \" six\"], "
        "\"answer\": 2}\r\n\n  \n{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}",
        SIZE_MAX);
    assert_int_equal(task->form, IG_EVAL_CHOICES);
    assert_int_equal(task->n, 2);
    const ig_eval_question *q = task->questions;
    assert_int_equal(q[0].n_options, 3);
    assert_int_equal(q[0].answer, 2);
    assert_string_equal(q[0].options[1].context, "Two and two are");
    assert_string_equal(q[0].options[1].text, " five");
    assert_int_equal(q[1].line, 4);
    ig_eval_task_close(task);
}

static void test_prefixes(void **state) {
    (void)state;
    ig_eval_task *task =
        read_task("{\"prefixes\": [\"Ann\", \"Bob\"], \"suffix\": \" slept.\", \"answer\": 1}\n", SIZE_MAX);
    assert_int_equal(task->form, IG_EVAL_PREFIXES);
    const ig_eval_question *q = task->questions;
    assert_string_equal(q->options[0].context, "Ann");
    assert_string_equal(q->options[1].context, "Bob");
    assert_string_equal(q->options[0].text, " slept.");
    assert_string_equal(q->options[1].text, " slept.");
    assert_int_equal(q->answer, 1);
    ig_eval_task_close(task);
}

static void test_needles(void **state) {
    (void)state;
    ig_eval_task *task = read_task(
        "{\"prompt\": \"p\", \"answer\": \"12\", \"context_words\": 500, \"depth\": 0.5}\n"
        "{\"prompt\": \"p\", \"answer\": \"34\"}\n",
        SIZE_MAX);
    assert_int_equal(task->form, IG_EVAL_NEEDLE);
    assert_int_equal(task->questions[0].context_words, 500);
    assert_true(task->questions[0].depth == 0.5);
    assert_int_equal(task->questions[1].context_words, -1);
    assert_true(task->questions[1].depth < 0);
    assert_string_equal(task->questions[1].options[0].context, "p");
    assert_string_equal(task->questions[1].options[0].text, "34");
    ig_eval_task_close(task);
}

static void test_limit(void **state) {
    (void)state;
    ig_eval_task *task =
        read_task("{\"prompt\": \"p\", \"answer\": \"1\"}\n{\"prompt\": \"p\", \"answer\": \"2\"}\nnot JSON\n", 2);
    assert_int_equal(task->n, 2);
    ig_eval_task_close(task);
}

static void test_examples(void **state) {
    (void)state;
    ig_error err = {0};
    char *text;
    ig_eval_task *task = read_task(
        "{\"query\": \"A?\", \"choices\": [\" x\", \" y\"], \"answer\": 1}\n"
        "{\"query\": \"B?\", \"choices\": [\" x\", \" y\"], \"answer\": 0}\n",
        SIZE_MAX);
    assert_int_equal(ig_eval_task_examples(&text, task, 2, &err), IG_OK);
    assert_string_equal(text, "A? y\n\nB? x\n\n");
    free(text);
    assert_int_equal(ig_eval_task_examples(&text, task, 0, &err), IG_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(ig_eval_task_examples(&text, task, 3, &err), IG_E_FORMAT);
    assert_string_equal(err.text, "t.jsonl: has 2 examples, not 3");
    ig_eval_task_close(task);

    task = read_task("{\"prefixes\": [\"Ann\", \"Bob\"], \"suffix\": \" slept.\", \"answer\": 1}", SIZE_MAX);
    assert_int_equal(ig_eval_task_examples(&text, task, 1, &err), IG_OK);
    assert_string_equal(text, "Bob slept.\n\n");
    free(text);
    ig_eval_task_close(task);

    task = read_task("{\"prompt\": \"p\", \"answer\": \"1\"}", SIZE_MAX);
    assert_int_equal(ig_eval_task_examples(&text, task, 1, &err), IG_E_FORMAT);
    ig_eval_task_close(task);
}

static void test_malformed(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "t.jsonl: has no questions"},
        {"\n\n", "t.jsonl: has no questions"},
        {"{\"a\": 1}", "t.jsonl:1: has none of the keys \"choices\", \"prefixes\" and \"prompt\""},
        {"\n{\"query\": ", "t.jsonl:2: no JSON: "},
        {"[1]", "t.jsonl:1: is no JSON object"},
        {"{\"choices\": [\"a\", \"b\"], \"answer\": 0}", "t.jsonl:1: \"query\" is missing"},
        {"{\"query\": 7, \"choices\": [\"a\", \"b\"], \"answer\": 0}", "t.jsonl:1: \"query\" is not a string"},
        {"{\"query\": \"q\", \"choices\": \"ab\", \"answer\": 0}", "t.jsonl:1: \"choices\" is not an array"},
        {"{\"query\": \"q\", \"choices\": [\"a\"], \"answer\": 0}", "t.jsonl:1: \"choices\" is not an array of 2"},
        {"{\"query\": \"q\", \"choices\": [\"a\", 1], \"answer\": 0}", "t.jsonl:1: \"choices\" is not an array"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"\"], \"answer\": 0}", "t.jsonl:1: \"choices\" has an empty text"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"]}", "t.jsonl:1: \"answer\" is missing"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": \"0\"}",
         "t.jsonl:1: \"answer\" is not a whole number"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 2}", "t.jsonl:1: \"answer\" is not the index"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": -1}", "t.jsonl:1: \"answer\" is not the index"},
        {"{\"query\": \"q\", \"choices\": [\"a\", \"b\"], \"answer\": 0}\n{\"prompt\": \"p\", \"answer\": \"1\"}",
         "t.jsonl:2: \"query\" is missing"},
        {"{\"prefixes\": [\"a\", \"b\"], \"answer\": 0}", "t.jsonl:1: \"suffix\" is missing"},
        {"{\"prefixes\": [\"a\", \"b\"], \"suffix\": \"\", \"answer\": 0}", "t.jsonl:1: \"suffix\" has an empty text"},
        {"{\"prompt\": \"p\"}", "t.jsonl:1: \"answer\" is missing"},
        {"{\"prompt\": \"p\", \"answer\": 1}", "t.jsonl:1: \"answer\" is not a string"},
        {"{\"prompt\": \"\", \"answer\": \"1\"}", "t.jsonl:1: \"prompt\" is empty"},
        {"{\"prompt\": \"p\", \"answer\": \"\"}", "t.jsonl:1: \"answer\" is empty"},
        {"{\"prompt\": \"p\", \"answer\": \"1\", \"context_words\": 1.5}",
         "t.jsonl:1: \"context_words\" is not a whole"},
        {"{\"prompt\": \"p\", \"answer\": \"1\", \"depth\": 2}", "t.jsonl:1: \"depth\" is not between 0 and 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ig_eval_task *task;
        ig_error err = {0};
        ig_status status = ig_eval_task_open(&task, "t.jsonl", cases[i].text, strlen(cases[i].text), SIZE_MAX, &err);
        assert_int_equal(status, IG_E_FORMAT);
        assert_null(task);
        if (strncmp(err.text, cases[i].says, strlen(cases[i].says)) != 0)
            fail_msg("'%s' instead of '%s'", err.text, cases[i].says);
    }
}

static void test_shares(void **state) {
    (void)state;
    assert_true(ig_eval_share(3, 4) == 0.75);
    assert_true(ig_eval_share(0, 0) == 0);
    assert_true(ig_eval_share_error(2, 5) > 0.244948 && ig_eval_share_error(2, 5) < 0.244950); /* sqrt(0.24 / 4) */
    assert_true(ig_eval_share_error(1, 1) == 0);
}

static void test_choosing(void **state) {
    (void)state;
    assert_int_equal(ig_eval_characters(" four"), 4);
    assert_int_equal(ig_eval_characters("four"), 4);
    assert_int_equal(ig_eval_characters("  two"), 4); /* one blank is the separator */
    assert_int_equal(ig_eval_characters(" h\xc3\xa9"), 2);
    assert_int_equal(ig_eval_characters(" "), 1);
    assert_int_equal(ig_eval_argmax((double[]){-3, -1, -1, -2}, 4), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices), cmocka_unit_test(test_prefixes), cmocka_unit_test(test_needles),
        cmocka_unit_test(test_limit),   cmocka_unit_test(test_examples), cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_shares),  cmocka_unit_test(test_choosing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
