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
        "{\"prompt\": \"p\", \"answer\": \" \\n34 5\"}\n",
        SIZE_MAX);
    assert_int_equal(task->form, IG_EVAL_GENERATED);
    assert_int_equal(task->questions[0].context_words, 500);
    assert_true(task->questions[0].depth == 0.5);
    assert_int_equal(task->questions[1].context_words, -1);
    assert_true(task->questions[1].depth < 0);
    const ig_eval_question *q = task->questions;
    assert_string_equal(q->context, "p");
    assert_false(q->is_apart);
    assert_int_equal(q->n_turns, 1);
    assert_int_equal(q->turns->match, IG_EVAL_BEGIN);
    assert_string_equal(q->turns->question, "");
    assert_string_equal(q[1].turns->answers[0], "34 5"); /* blanks of the output before it are passed over too */
    assert_int_equal(q->turns->max_tokens, 10);
    assert_int_equal(q[1].turns->max_tokens, 12);
    ig_eval_task_close(task);
}

/* What answers must hold, several questions, and a line that expects nothing. */
static void test_generated(void **state) {
    (void)state;
    ig_eval_task *task = read_task(
        "{\"context\": \"c\", \"question\": \"q\", \"answer_prefix\": \"It is\", \"answers\": [\"a\", \"b\"], "
        "\"max_tokens\": 7, \"task\": \"vt\", \"length\": 4096}\n"
        "{\"prompt\": \"p\", \"answers\": [\"a\"], \"match\": \"any\"}\n"
        "{\"context\": \"c\", \"questions\": [{\"question\": \"q1\", \"answer\": \"x\"}, "
        "{\"question\": \"q2\", \"answers\": [\"y\"], \"match\": \"all\"}]}\n"
        "{\"prompt\": \"p\", \"max_tokens\": 4000}\n",
        SIZE_MAX);
    const ig_eval_question *q = task->questions;
    assert_int_equal(task->n, 4);
    assert_true(q[0].is_apart);
    assert_string_equal(q[0].turns->question, "q");
    assert_string_equal(q[0].turns->prefix, "It is");
    assert_string_equal(q[0].turns->answers[1], "b");
    assert_int_equal(q[0].turns->n_answers, 2);
    assert_int_equal(q[0].turns->match, IG_EVAL_ALL);
    assert_int_equal(q[0].turns->max_tokens, 7);
    assert_string_equal(q[0].task, "vt");
    assert_int_equal(q[0].length, 4096);
    assert_int_equal(q[1].turns->match, IG_EVAL_ANY);
    assert_int_equal(q[1].turns->max_tokens, 128);
    assert_null(q[1].task);
    assert_int_equal(q[1].length, -1);
    assert_int_equal(q[2].n_turns, 2);
    assert_int_equal(q[2].turns[0].match, IG_EVAL_BEGIN);
    assert_string_equal(q[2].turns[1].question, "q2");
    assert_int_equal(q[3].turns->n_answers, 0);
    assert_int_equal(q[3].turns->max_tokens, 4000);
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
        {"{\"a\": 1}", "t.jsonl:1: has none of the keys \"choices\", \"prefixes\", \"prompt\" and \"context\""},
        {"\n{\"query\": ", "t.jsonl:2: no JSON: "},
        {"[1]", "t.jsonl:1: is no JSON object"},
        {"{\"choices\": [\"a\", \"b\"], \"answer\": 0}", "t.jsonl:1: \"query\" is missing"},
        {"{\"context\": \"c\", \"answers\": [\"a\"]}", "t.jsonl:1: \"question\" is missing"},
        {"{\"context\": \"c\", \"question\": \"\", \"answers\": [\"a\"]}", "t.jsonl:1: \"question\" is empty"},
        {"{\"context\": 7, \"question\": \"q\", \"answers\": [\"a\"]}", "t.jsonl:1: \"context\" is not a string"},
        {"{\"context\": \"c\", \"question\": \"q\"}", "t.jsonl:1: \"answer\" is missing"},
        {"{\"prompt\": \"p\", \"answers\": []}", "t.jsonl:1: \"answers\" is not an array of 1 to 100000 strings"},
        {"{\"prompt\": \"p\", \"answers\": {\"a\": 1}}", "t.jsonl:1: \"answers\" is not an array"},
        {"{\"prompt\": \"p\", \"answers\": [\"a\", \"\"]}", "t.jsonl:1: \"answers\" is not an array"},
        {"{\"prompt\": \"p\", \"answers\": [\"a\"], \"match\": \"some\"}",
         "t.jsonl:1: \"match\" is none of \"all\", \"any\" and \"number\""},
        {"{\"prompt\": \"p\", \"answers\": [\"a\"], \"max_tokens\": 0}",
         "t.jsonl:1: \"max_tokens\" is not a whole number from 1 to 1048576"},
        {"{\"prompt\": \"p\", \"answer\": \"a\", \"max_tokens\": 1e9}",
         "t.jsonl:1: \"max_tokens\" is not a whole number"},
        {"{\"prompt\": \"p\", \"answer\": \"a\", \"length\": -1}",
         "t.jsonl:1: \"length\" is not a whole number from 0"},
        {"{\"prompt\": \"p\", \"answer\": \"a\", \"task\": \"a b\"}", "t.jsonl:1: \"task\" is not a word"},
        {"{\"prompt\": \"p\", \"answer\": \"a\", \"answer_prefix\": 7}",
         "t.jsonl:1: \"answer_prefix\" is not a string"},
        {"{\"context\": \"c\", \"questions\": []}", "t.jsonl:1: \"questions\" is not an array of 1 to 256 objects"},
        {"{\"context\": \"c\", \"questions\": [1]}", "t.jsonl:1: \"questions\" is not an array of 1 to 256 objects"},
        {"{\"context\": \"c\", \"questions\": \"q\"}", "t.jsonl:1: \"questions\" is not an array of 1 to 256 objects"},
        {"{\"context\": \"c\", \"questions\": [{\"question\": \"q\"}]}", "t.jsonl:1: \"answer\" is missing"},
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
        {"{\"prompt\": \"p\", \"answer\": \" \\t\"}", "t.jsonl:1: \"answer\" is empty"},
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

static void test_means(void **state) {
    (void)state;
    assert_true(ig_eval_mean(3, 4) == 0.75);
    assert_true(ig_eval_mean(0, 0) == 0);
    double error = ig_eval_mean_error(2, 2, 5);
    assert_true(error > 0.244948 && error < 0.244950); /* sqrt(0.24 / 4) */
    assert_true(ig_eval_mean_error(1, 1, 1) == 0);
    assert_true(ig_eval_mean_error(0.75, 0.1875, 3) == 0); /* all alike */
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
        cmocka_unit_test(test_choices),   cmocka_unit_test(test_prefixes), cmocka_unit_test(test_needles),
        cmocka_unit_test(test_generated), cmocka_unit_test(test_limit),    cmocka_unit_test(test_examples),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_means),    cmocka_unit_test(test_choosing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
