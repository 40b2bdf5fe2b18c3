/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of tools, thoughts and channels in answers: what is read of them, whole and byte by byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/answers.h"

static const ig_tool_format hermes = {.has_lists = true,
                                      .before = "<tool_call>\n{\"name\": \"",
                                      .middle = "\", \"arguments\": ",
                                      .after = "}\n</tool_call>",
                                      .between = "\n"};
static const ig_tool_format mistral = {.has_lists = true,
                                       .begin = "[TOOL_CALLS] [",
                                       .before = "{\"name\": \"",
                                       .middle = "\", \"arguments\": ",
                                       .after = ", \"id\": \"\1\"}",
                                       .between = ", ",
                                       .end = "]"};
static const ig_tool_format named = {
    .has_lists = true, .before = "[TOOL_CALLS]", .middle = "[CALL_ID]\1[ARGS]", .between = ""};
static const ig_tool_format llama = {
    .is_bare = true, .before = "{\"name\": \"", .middle = "\", \"parameters\": ", .after = "}"};
static const ig_tool_format pairs = {.has_lists = true,
                                     .has_pairs = true,
                                     .before = "<tool_call>",
                                     .middle = "\n",
                                     .after = "</tool_call>",
                                     .between = "\n",
                                     .key = "<key>",
                                     .value = "</key>\n<value>",
                                     .value_end = "</value>\n"};
static const ig_tool_format close_pairs = {.has_lists = true,
                                           .has_pairs = true,
                                           .before = "<tool_call>",
                                           .after = "</tool_call>",
                                           .key = "<key>",
                                           .value = "</key><value>",
                                           .value_end = "</value>"};
static const ig_tool_format open_pairs = {.has_lists = true,
                                          .has_pairs = true,
                                          .before = "<call ",
                                          .middle = ">",
                                          .between = "\n",
                                          .key = "<key>",
                                          .value = "=",
                                          .value_end = "</key>"};

static const ig_tool_format quotes = {
    .has_lists = true, .before = "<|call>call:", .after = "<call|>", .between = "", .quote = "<|\"|>"};

#define A "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": [1, \"}\\\"\"]}}\n</tool_call>"
#define B "<tool_call>\n{\"name\": \"b\", \"arguments\": {}}\n</tool_call>"

/* Without marks, of a strict function. */
#define STRICT(arguments) \
    { &hermes, "{\"name\": \"s\", \"arguments\": " arguments "}", "", "s" arguments ";" }
#define NO_STRICT(arguments)                                                                                           \
    {                                                                                                                  \
        &hermes, "{\"name\": \"s\", \"arguments\": " arguments "}", "{\"name\": \"s\", \"arguments\": " arguments "}", \
            ""                                                                                                         \
    }

static const struct {
    const ig_tool_format *format;
    const char *answer, *text, *calls; /* calls: name, arguments, a semicolon */
} cases[] = {
    {&hermes, "", "", ""},
    {&hermes, "a plain answer.\n", "a plain answer.\n", ""},
    {&hermes, " \n", " \n", ""},
    {&hermes, A, "", "a{\"x\": [1, \"}\\\"\"]};"},
    {&hermes, A "\n" B, "", "a{\"x\": [1, \"}\\\"\"]};b{};"},
    {&hermes, A B "\n ", "", "a{\"x\": [1, \"}\\\"\"]};b{};"},
    {&hermes, "Let me see.\n\n" A "\n" B "\nThat is all.\n", "Let me see.\nThat is all.",
     "a{\"x\": [1, \"}\\\"\"]};b{};"},
    {&hermes, "1 < 2 <tool <tool_call> is no call", "1 < 2 <tool <tool_call> is no call", ""},
    {&hermes, "So. <tool", "So. <tool", ""},
    {&hermes, "So. <tool_call>", "So.", ""}, /* cut off */
    {&named, "[TOOL_CALLS]a[CALL_ID]", "", ""},
    {&hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": ", "", ""},
    {&hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": {", "", "a{;"}, /* cut off */
    {&hermes, "So. <tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"\\", "So.", "a{\"x\": \"\\;"},
    {&hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"\xc3\xa9\xe2\x82\xac\": \"\xf0\x9f\x98\x80\"}}", "",
     "a{\"\xc3\xa9\xe2\x82\xac\": \"\xf0\x9f\x98\x80\"};"},
    {&hermes, "<tool_call>\n{\"name\": \"a b\", \"arguments\": {}}",
     "<tool_call>\n{\"name\": \"a b\", \"arguments\": {}}", ""},
    {&hermes, "<tool_call>\n{\"name\": \"c\", \"arguments\": [1]}",
     "<tool_call>\n{\"name\": \"c\", \"arguments\": [1]}", ""},
    {&hermes, "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}", "", "a{};"},
    {&hermes, "<<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>", "<", "a{};"},
    /* without marks, as some models have it: only at the beginning, and only what is a tool */
    {&hermes, "```json\n{\n  \"name\": \"a\",\n  \"arguments\": {\"x\": 1}\n}\n```", "", "a{\"x\": 1};"},
    {&hermes, "{\"name\": \"b\", \"parameters\": {}}\n{\"name\": \"a\", \"arguments\": {}}", "", "b{};a{};"},
    {&hermes, "```json\n{\"name\": \"a\", \"arguments\": {}}\n{\"name\": \"b\", \"arguments\": {}}\n```", "",
     "a{};b{};"},
    {&hermes, "```\n{\"name\": \"other\", \"arguments\": {}}\n```",
     "```\n{\"name\": \"other\", \"arguments\": {}}\n```", ""},
    {&hermes, "{\"name\": \"a\", \"age\": 3}", "{\"name\": \"a\", \"age\": 3}", ""},
    STRICT("{\"city\": \"Rome\"}"),
    STRICT("{\"city\": \"Rome\", \"unit\": \"c\", \"days\": [{\"n\": 1, \"then\": {\"n\": 1}}]}"),
    STRICT("{\"city\": \"Rome\", \"limit\": 4.0, \"either\": {\"a\": 1}}"),
    STRICT("{\"city\": \"Rome\", \"either\": null, \"pair\": [\"a\", 1]}"),
    NO_STRICT("{\"city\": \"R\"}"),
    NO_STRICT("{\"city\": \"Rome\", \"limit\": 4.5}"),
    NO_STRICT("{\"city\": \"Rome\", \"limit\": 11}"),
    NO_STRICT("{\"city\": \"Rome\", \"either\": {\"b\": 1}}"),
    NO_STRICT("{\"city\": \"Rome\", \"days\": []}"),
    NO_STRICT("{\"city\": \"Rome\", \"pair\": [1, 1]}"),
    NO_STRICT("{\"city\": \"Rome\", \"pair\": [\"a\", \"b\"]}"),
    NO_STRICT("{\"city\": [\"Rome\", \"Oslo\"]}"),
    NO_STRICT("{\"unit\": \"c\"}"),
    NO_STRICT("{\"city\": \"Rome\", \"unit\": \"k\"}"),
    NO_STRICT("{\"city\": \"Rome\", \"other\": 1}"),
    NO_STRICT("{\"city\": \"Rome\", \"days\": [{\"n\": 1, \"then\": {\"n\": 2}}]}"),
    NO_STRICT("{\"city\": \"Rome\", \"days\": [1]}"),
    {&hermes, "```python\nprint({\"name\": 3})\n```\n", "```python\nprint({\"name\": 3})\n```\n", ""},
    {&hermes, "So: {\"name\": \"a\", \"arguments\": {}}", "So: {\"name\": \"a\", \"arguments\": {}}", ""},
    {&mistral, "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {}, \"id\": \"Az09bcdef\"}]", "", "a{};"},
    {&mistral,
     "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {}, \"id\": \"1\"}, {\"name\": \"b\", \"arguments\": "
     "{\"y\": {}}, \"id\": \"2\"}] Done.",
     " Done.", "a{};b{\"y\": {}};"},
    {&mistral, "A list: [TOOL, 1]", "A list: [TOOL, 1]", ""},
    {&named, "[TOOL_CALLS]a[CALL_ID]123456789[ARGS]{\"x\": 1}[TOOL_CALLS]b[CALL_ID]x[ARGS]{}", "", "a{\"x\": 1};b{};"},
    {&named, "[TOOL_CALLS]a[CALL_ID][ARGS]{}", "[TOOL_CALLS]a[CALL_ID][ARGS]{}", ""},
    {&llama, "{\"name\": \"a\", \"parameters\": {\"x\": \"1\"}}", "", "a{\"x\": \"1\"};"},
    {&llama, " {\"type\": \"function\", \"name\": \"a\", \"parameters\": {\"x\": 1.5}}", "", "a{\"x\": 1.5};"},
    {&llama, "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {}}", "", "a{};b{};"},
    {&llama, "{\"name\": \"a\", \"parameters\": ", "{\"name\": \"a\", \"parameters\": ", ""},
    {&llama, "{\"name\": \"a\", \"parameters\": {\"x\": \xff}}", "{\"name\": \"a\", \"parameters\": {\"x\": \xff}}",
     ""},
    {&llama, "No {\"name\": \"a\", \"parameters\": {}}", "No {\"name\": \"a\", \"parameters\": {}}", ""},
#define PAIR(key, value) "<key>" key "</key>\n<value>" value "</value>\n"
    {&pairs, "<tool_call>b\n</tool_call>", "", "b{};"},
    {&pairs, "<tool_call>a\n" PAIR("n", "0.1") PAIR("\"\xc3\xa9", "\xff\xc3\xa9") "</tool_call>", "",
     "a{\"n\": 0.1, \"\\\"\xc3\xa9\": \"\xef\xbf\xbd\xc3\xa9\"};"},
    {&pairs,
     "So:\n<tool_call>a\n" PAIR("x", "1 <\n\"2\"") PAIR("n", "3") "</tool_call>\n<tool_call>b\n</tool_call>\nDone.",
     "So:\nDone.", "a{\"x\": \"1 <\\n\\\"2\\\"\", \"n\": 3};b{};"},
    {&pairs,
     "<tool_call>a\n" PAIR("text", "3") PAIR("number", "3") PAIR("list", "[1, {}]") PAIR("either", "null")
         PAIR("number", "x"),
     "", "a{\"text\": \"3\", \"number\": \"x\", \"list\": [1, {}], \"either\": null};"},
    {&pairs, "<tool_call>a\n" PAIR("either", "01234") PAIR("maybe", "5") PAIR("other", "5") "</tool_call>", "",
     "a{\"either\": \"01234\", \"maybe\": \"5\", \"other\": 5};"},
    {&pairs, "<tool_call>a\n" PAIR("either", "5") PAIR("maybe", "null") "</tool_call>", "",
     "a{\"either\": \"5\", \"maybe\": null};"},
    /* cut off */
    {&pairs, "<tool_call>a\n" PAIR("x", "y") "<key>n</key>\n<value>it goes", "",
     "a{\"x\": \"y\", \"n\": \"it goes\"};"},
    {&pairs, "<tool_call>a\n" PAIR("x", "y") "<key>n</ke", "", "a{\"x\": \"y\"};"},
    {&pairs, "<tool_call>a\n" PAIR("x", "y") "</tool_c", "", "a{\"x\": \"y\"};"},
    {&pairs, "<tool_call>a\n<", "", "a{};"},
    {&pairs, "<tool_call>a", "", ""},
    {&pairs, "<tool_call>a b\n</tool_call>", "<tool_call>a b\n</tool_call>", ""},
    {&close_pairs,
     "<tool_call>a<key>x</key><value>y</value><key>n</key><value>true</value></tool_call><tool_call>b</tool_call>", "",
     "a{\"x\": \"y\", \"n\": true};b{};"},
    {&close_pairs, "<tool_call>b</tool", "", ""},
/* with quotes */
#define Q "<|\"|>"
    {&quotes, "<|call>call:b{}<call|>", "", "b{};"},
    {&quotes, "So. <|call>call:a{x:" Q "a \"b\",\n}{c:<|" Q ",\"y z\":-1.50}<call|><|call>call:b{}<call|>\n", "So.",
     "a{\"x\": \"a \\\"b\\\",\\n}{c:<|\", \"\\\"y z\\\"\": -1.50};b{};"},
    {&quotes, "<|call>call:a{l:[1e5, true,[],{n:null , m:" Q Q "}],\xc3\xa9:None,z:012, t:false}<call|>Then.", "Then.",
     "a{\"l\": [1e5, true, [], {\"n\": null, \"m\": \"\"}], \"\xc3\xa9\": \"None\", \"z\": \"012\", \"t\": false};"},
    {&quotes, "<|call>call:a{x:" Q "\xff" Q "}", "", "a{\"x\": \"\xef\xbf\xbd\"};"},
    /* none, and cut off */
    {&quotes, "<|call>call:a {}<call|>", "<|call>call:a {}<call|>", ""},
    {&quotes, "<|call>call:a{x}<call|>", "<|call>call:a{x}<call|>", ""},
    {&quotes, "<|call>call:a{:1}<call|>", "<|call>call:a{:1}<call|>", ""},
    {&quotes, "<|call>call:a{x:}<call|>", "<|call>call:a{x:}<call|>", ""},
    {&quotes, "<|call>call:a{x:1 y:" Q Q "}", "", "a{\"x\": \"1 y:<|\\\"|><|\\\"|>\"};"},
    {&quotes, "<|call>call:a{x:[1}", "<|call>call:a{x:[1}", ""},
    {&quotes, "So. <|call>call:a", "So.", ""},
    {&quotes, "So. <|call>ca", "So.", ""},
    {&quotes, "So. <|call>is none <|cal", "So. <|call>is none <|cal", ""},
    {&quotes, "<|call>call:a{", "", "a{};"},
    {&quotes, "<|call>call:a{x:1,yy", "", "a{\"x\": 1};"},
    {&quotes, "<|call>call:a{x:1,yy: ", "", "a{\"x\": 1};"},
    {&quotes, "<|call>call:a{x:[" Q "a" Q ",<|", "", "a{\"x\": [\"a\", \"\"]};"},
    {&quotes, "<|call>call:a{x:{y:" Q "it goes", "", "a{\"x\": {\"y\": \"it goes\"}};"},
    {&quotes, "<|call>call:a{}<ca", "", "a{};"},
    {&open_pairs, "<call a><key>x=y</key><key>n=1</key>\n<call b><key>x=z</key>", "",
     "a{\"x\": \"y\", \"n\": 1};b{\"x\": \"z\"};"},
};

typedef struct taken {
    char text[512], calls[512];
} taken;

static void take(taken *t, const char *answer, const ig_part *p) {
    if (p->kind == IG_PART_TEXT || p->kind == IG_PART_ARGUMENTS) {
        strncat(p->kind == IG_PART_TEXT ? t->text : t->calls, answer + p->at, p->n);
        return;
    }
    const json_t *function = json_object_get(p->call, "function");
    assert_int_equal(strlen(json_string_value(json_object_get(p->call, "id"))), IG_TOOL_ID_BYTES);
    snprintf(t->calls + strlen(t->calls), sizeof t->calls - strlen(t->calls), "%s%s%s", *t->calls ? ";" : "",
             json_string_value(json_object_get(function, "name")),
             json_string_value(json_object_get(function, "arguments")));
    json_decref(p->call);
}

static void end_calls(taken *t) { strcat(t->calls, *t->calls ? ";" : ""); }

/* An answer that grows by `step` bytes. The reader sees a copy that ends where the answer does. */
static void read_answer(taken *t, const ig_tool_format *f, const char *answer, size_t step, bool is_single) {
    size_t n = strlen(answer), at = 0;
    json_t *tools = json_loads(
        "[{\"function\": {\"name\": \"a\", \"parameters\": {\"properties\": {\"text\": {\"type\": \"string\"}, "
        "\"number\": "
        "{\"$ref\": \"#/$defs/n\"}, \"either\": {\"type\": [\"string\", \"null\"]}, "
        "\"maybe\": {\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"null\"}]}}, \"$defs\": {\"n\": {\"type\": "
        "\"integer\"}}}}}, "
        "{\"function\": {\"name\": \"b\"}}, "
        "{\"function\": {\"name\": \"s\", \"strict\": true, \"parameters\": {\"additionalProperties\": false, "
        "\"properties\": {"
        "\"city\": {\"type\": \"string\", \"minLength\": 2}, \"unit\": {\"enum\": [\"c\", \"f\"]}, "
        "\"limit\": {\"type\": \"integer\", \"maximum\": 10}, "
        "\"either\": {\"anyOf\": [{\"type\": \"object\", \"required\": [\"a\"]}, {\"type\": \"null\"}]}, "
        "\"pair\": {\"type\": \"array\", \"prefixItems\": [{\"type\": \"string\"}], \"items\": {\"type\": "
        "[\"integer\"]}}, "
        "\"days\": {\"type\": \"array\", \"minItems\": 1, \"items\": {\"$ref\": \"#/$defs/day\"}}}, "
        "\"required\": [\"city\"], \"$defs\": {\"day\": {\"type\": \"object\", "
        "\"properties\": {\"n\": {\"const\": 1}, \"then\": {\"$ref\": \"#/$defs/day\"}}}}}}}]",
        0, NULL);
    ig_tool_reader r = {.is_single = is_single};
    ig_part p;
    *t = (taken){0};
    do {
        at = at + step < n ? at + step : n;
        char *copy = malloc(at + 1);
        assert_non_null(copy);
        memcpy(copy, answer, at);
        while ((p = ig_tool_next(&r, f, tools, copy, at, false)).kind != IG_PART_WAIT) take(t, copy, &p);
        free(copy);
    } while (at < n);
    while ((p = ig_tool_next(&r, f, tools, answer, n, true)).kind != IG_PART_WAIT) take(t, answer, &p);
    end_calls(t);
    json_decref(tools);
}

static void answers_are_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t step = 1; step <= 1000; step = step < 8 ? step + 1 : step + 992) {
            taken t;
            read_answer(&t, cases[i].format, cases[i].answer, step, false);
            if (strcmp(t.text, cases[i].text) != 0 || strcmp(t.calls, cases[i].calls) != 0)
                fail_msg("%s by %zu:\ntext '%s'\ncalls '%s'", cases[i].answer, step, t.text, t.calls);
        }
}

static void only_the_first_if_wanted(void **state) {
    taken t;
    (void)state;
    read_answer(&t, &hermes, "So. " B "\n" A "\n" B " End.", 1, true);
    assert_string_equal(t.calls, "b{};");
    assert_string_equal(t.text, "So. End.");
}

/* What is text by then is not held back until the end. */
static void text_is_not_held(void **state) {
    static const char answer[] = "One <tool two ";
    (void)state;
    ig_tool_reader r = {0};
    ig_part p = ig_tool_next(&r, &hermes, NULL, answer, 9, false);
    assert_int_equal(p.kind, IG_PART_TEXT);
    assert_int_equal(p.n, 3);
    p = ig_tool_next(&r, &hermes, NULL, answer, sizeof answer - 1, false);
    assert_int_equal(p.kind, IG_PART_TEXT);
    assert_int_equal(p.at + p.n, sizeof answer - 2);
}

/* Nor are arguments: a file that is to be written may be long. */
static void arguments_are_not_held(void **state) {
    static const char answer[] = "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": \"\xc3\xa9 and so on\"}}";
    const size_t begun = (size_t)(strchr(answer, '\xc3') - answer);
    (void)state;
    ig_tool_reader r = {0};
    assert_int_equal(ig_tool_next(&r, &hermes, NULL, answer, begun - 7, false).kind, IG_PART_WAIT);
    ig_part p = ig_tool_next(&r, &hermes, NULL, answer, begun + 1, false);
    assert_int_equal(p.kind, IG_PART_CALL);
    assert_string_equal(json_string_value(json_object_get(json_object_get(p.call, "function"), "arguments")),
                        "{\"x\": \"");
    json_decref(p.call);
    assert_int_equal(ig_tool_next(&r, &hermes, NULL, answer, begun + 1, false).kind, IG_PART_WAIT);
    p = ig_tool_next(&r, &hermes, NULL, answer, begun + 4, false);
    assert_int_equal(p.kind, IG_PART_ARGUMENTS);
    assert_int_equal(p.at, begun);
    assert_int_equal(p.n, 4);
    assert_int_equal(r.n_calls, 1);
}

typedef struct told {
    ig_thought_stage stage;
    const char *answer, *thoughts, *text, *calls;
} told;

static const told with_thoughts[] = {
    {IG_THOUGHTS_POSSIBLE, "", "", "", ""},
    {IG_THOUGHTS_POSSIBLE, "An answer. <think>", "", "An answer. <think>", ""},
    {IG_THOUGHTS_POSSIBLE, " <thin", "", " <thin", ""},
    {IG_THOUGHTS_POSSIBLE, "<think>\nOne, <two>\n\nand </think.\n</think>\n\nThe answer.\n",
     "One, <two>\n\nand </think.", "The answer.\n", ""},
    {IG_THOUGHTS_POSSIBLE, "\n<think>\n\n</think>\n\nThe answer.", "", "The answer.", ""},
    {IG_THOUGHTS_POSSIBLE, "<think>a</think>b</think>", "a", "b</think>", ""},
    {IG_THOUGHTS_POSSIBLE, "<think> cut off </thi", "cut off </thi", "", ""},
    {IG_THOUGHTS_POSSIBLE, "<think>a</think> \n", "a", "", ""},
    {IG_THOUGHTS_BEGUN, "Well, <think>\n</think>So.", "Well, <think>", "So.", ""},
    {IG_THOUGHTS_BEGUN, "</think>So.", "", "So.", ""},
    {IG_THOUGHTS_BEGUN, "No end \n", "No end", "", ""},
    {IG_THOUGHTS_OVER, "<think>a</think>b", "", "<think>a</think>b", ""},
    {IG_THOUGHTS_POSSIBLE, "<think>" A "</think>\n" B,
     "<tool_call>\n{\"name\": \"a\", \"arguments\": {\"x\": [1, \"}\\\"\"]}}\n</tool_call>", "", "b{};"},
    {IG_THOUGHTS_POSSIBLE, "<think>a</think>\n```json\n{\"name\": \"b\", \"arguments\": {}}\n```", "a", "", "b{};"},
};

/* Gemma 4's marks. */
static const told with_other_marks[] = {
    {IG_THOUGHTS_POSSIBLE, "<|channel>thought\nWell, <|channel|>\n<channel|>So.", "Well, <|channel|>", "So.", ""},
    {IG_THOUGHTS_POSSIBLE, "<|channel>thought<channel|>So.", "", "So.", ""},
    {IG_THOUGHTS_POSSIBLE, "<|channel>thought\na<channel|>" B, "a", "", "b{};"},
    {IG_THOUGHTS_POSSIBLE, "<|channel>text", "", "<|channel>text", ""},
    {IG_THOUGHTS_POSSIBLE, "<|channel>thought\ncut off", "cut off", "", ""},
};

#define THINK "<|channel|>analysis<|message|>"
#define FINAL "<|channel|>final<|message|>"
#define NEXT "<|end|><|start|>assistant"
#define CALL_A " to=functions.a<|channel|>commentary json<|message|>"
#define CALL_B "<|channel|>commentary to=functions.b <|constrain|>json<|message|>"

static const told with_channels[] = {
    {IG_THOUGHTS_POSSIBLE, "", "", "", ""},
    {IG_THOUGHTS_POSSIBLE, FINAL "An answer, 1 <|2.\n", "", "An answer, 1 <|2.\n", ""},
    {IG_THOUGHTS_POSSIBLE, THINK "Well <\n\n" NEXT FINAL " So.<|return|>", "Well <\n\n", " So.", ""},
    {IG_THOUGHTS_POSSIBLE, THINK "a" NEXT THINK "b" NEXT FINAL NEXT FINAL "c", "ab", "c", ""},
    {IG_THOUGHTS_POSSIBLE, "<|channel|>commentary to=assistant" THINK "a<|end|>\n", "a", "", ""},
    {IG_THOUGHTS_POSSIBLE, "<|start|>assistant<|channel|>final <|constrain|>json<|message|>{}", "", "{}", ""},
    /* calls, in both orders, and a preamble */
    {IG_THOUGHTS_POSSIBLE, THINK "Hm." NEXT CALL_B "{\"x\": \"\xc3\xa9<|\"}", "Hm.", "", "b{\"x\": \"\xc3\xa9<|\"};"},
    {IG_THOUGHTS_POSSIBLE, CALL_A "{}<|call|>", "", "", "a{};"},
    {IG_THOUGHTS_POSSIBLE, CALL_A "{\"x\": \"\\\"<|end|>\\\\\"}" NEXT CALL_B "{\"y\": \"<|call|>\"}<|call|>", "", "",
     "a{\"x\": \"\\\"<|end|>\\\\\"};b{\"y\": \"<|call|>\"};"},
    {IG_THOUGHTS_POSSIBLE, "<|channel|>commentary<|message|>Let me see." NEXT CALL_B, "", "Let me see.", "b;"},
    {IG_THOUGHTS_POSSIBLE, CALL_A "{" NEXT CALL_B "{}", "", "", "a{;b{};"},
    {IG_THOUGHTS_POSSIBLE, "<|channel|>analysis to=b code<|message|>{}", "", "", "b{};"},
    /* marks of others are words */
    {IG_THOUGHTS_POSSIBLE, FINAL "ends with <|eot|> or <|eom|>.<|return|>", "", "ends with <|eot|> or <|eom|>.", ""},
    {IG_THOUGHTS_POSSIBLE, " to=user<|message|>{}", "", "", "user{};"},
    /* cut off */
    {IG_THOUGHTS_POSSIBLE, THINK "a" NEXT "<|channel|>final", "a", "", ""},
    {IG_THOUGHTS_POSSIBLE, THINK "a<|en", "a<|en", "", ""},
    {IG_THOUGHTS_POSSIBLE, " to=functions.", "", "", ""},
    /* no heads */
    {IG_THOUGHTS_POSSIBLE, " too <", "", " too <", ""},
    {IG_THOUGHTS_POSSIBLE, "<", "", "<", ""},
    /* what an answer goes on with */
    {IG_THOUGHTS_OVER, " on." NEXT CALL_A "{}", "", " on.", "a{};"},
    {IG_THOUGHTS_BEGUN, " on." NEXT FINAL "a", " on.", "a", ""},
};

#define TO_SELF " to=self<|message|>"
#define TO_USER " to=user<|message|>"
#define NEXT_TO "<|eom|><|start|>assistant"

static const told with_recipients[] = {
    {IG_THOUGHTS_POSSIBLE, TO_USER "An <|answer.\n", "", "An <|answer.\n", ""},
    {IG_THOUGHTS_POSSIBLE, TO_SELF "Well <\n" NEXT_TO TO_USER "So.<|eot|>", "Well <\n", "So.", ""},
    {IG_THOUGHTS_POSSIBLE, TO_SELF "a" NEXT_TO TO_SELF "b" NEXT_TO "<|message|>c", "ab", "c", ""},
    {IG_THOUGHTS_POSSIBLE, TO_USER "<|end|>s with <|call|> or so<|eot|>", "", "<|end|>s with <|call|> or so", ""},
    {IG_THOUGHTS_POSSIBLE, TO_SELF "a<|eo", "a<|eo", "", ""},
    {IG_THOUGHTS_POSSIBLE, TO_SELF "a" NEXT_TO " to=us", "a", "", ""},
    {IG_THOUGHTS_BEGUN, " on." NEXT_TO TO_USER "a", " on.", "a", ""},
};

#define BODY(name, arguments) \
    "<atem:function_calls>\n<atem:invoke name=\"" name "\">\n" arguments "</atem:invoke>\n</atem:function_calls>"

static const told with_named_recipients[] = {
    {IG_THOUGHTS_POSSIBLE, " to=a<|message|>" BODY("a", ""), "", "", "a{};"},
    {IG_THOUGHTS_POSSIBLE,
     TO_SELF "Hm." NEXT_TO
             " to=a<|message|>" BODY("a", "<atem:parameter name=\"x\">5\" <b></atem:parameter>\n") "<|eot|>",
     "Hm.", "", "a{\"x\": \"5\\\" <b>\"};"},
    {IG_THOUGHTS_POSSIBLE,
     TO_USER "c" NEXT_TO " to=x.b<|message|>" BODY("b", "") NEXT_TO " to=a<|message|>" BODY("a", ""), "", "c",
     "b{};a{};"},
    /* cut off, or something else */
    {IG_THOUGHTS_POSSIBLE,
     " to=a<|message|><atem:function_calls>\n<atem:invoke name=\"a\">\n<atem:parameter name=\"x\">y", "", "",
     "a{\"x\": \"y\"};"},
    {IG_THOUGHTS_POSSIBLE, " to=a<|message|>{}" NEXT_TO TO_USER "c", "", "{}c", ""},
    {IG_THOUGHTS_POSSIBLE, " to=a<|message|>" NEXT_TO TO_USER "c", "", "c", ""},
};

/* As these are, or with no tools and thoughts that are not looked for. */
static const told with_less[] = {
    {IG_THOUGHTS_POSSIBLE, THINK "a" NEXT FINAL "b", "", THINK "a<|end|>b", ""},
    {IG_THOUGHTS_POSSIBLE, THINK "a<|end|>", "", THINK "a<|end|>", ""},
    {IG_THOUGHTS_POSSIBLE, CALL_A NEXT CALL_B "{}" NEXT FINAL "b", "", "{}b", ""},
    {IG_THOUGHTS_BEGUN, "a" NEXT FINAL "b", "", "a<|end|>b", ""},
};

/* The same of an exchange. */
static void check_told(ig_exchange *x, const told *want, json_t *tools) {
    for (size_t step = 1; step <= 1000; step = step < 8 ? step + 1 : step + 992) {
        const char *answer = want->answer;
        size_t n = strlen(answer), at = 0;
        ig_part_reader r = {.stage = want->stage};
        taken t = {0}, thoughts = {0};
        x->tools.list = *want->calls ? tools : NULL;
        do {
            at = at + step < n ? at + step : n;
            char *copy = malloc(at + 1);
            assert_non_null(copy);
            memcpy(copy, answer, at);
            for (ig_part p; (p = ig_part_next(&r, x, copy, at, at == n)).kind != IG_PART_WAIT;) {
                assert_true(p.at + p.n <= at && (p.n || p.kind == IG_PART_CALL));
                taken *to = p.kind == IG_PART_THOUGHT ? &thoughts : &t;
                if (p.kind == IG_PART_THOUGHT) p.kind = IG_PART_TEXT;
                take(to, copy, &p);
            }
            free(copy);
        } while (at < n);
        end_calls(&t);
        if (strcmp(thoughts.text, want->thoughts) != 0 || strcmp(t.text, want->text) != 0 ||
            strcmp(t.calls, want->calls) != 0)
            fail_msg("%s by %zu:\nthoughts '%s'\ntext '%s'\ncalls '%s'", answer, step, thoughts.text, t.text, t.calls);
    }
}

static void parts_are_told_apart(void **state) {
    ig_tool_format format = hermes;
    ig_server server = {.tool_format = &format};
    ig_call call = {.server = &server};
    ig_exchange x = {.call = &call, .thoughts = ig_thought_marks_find("{{ '</think>' }}")},
                channels = {
                    .call = &call, .thoughts = ig_thought_marks_find("{{ '" THINK "' }}"), .has_channels = true};
    json_t *tools = json_loads("[{\"function\": {\"name\": \"a\"}}, {\"function\": {\"name\": \"b\"}}]", 0, NULL);
    (void)state;
    for (size_t i = 0; i < sizeof with_thoughts / sizeof *with_thoughts; i++) check_told(&x, &with_thoughts[i], tools);
    x.thoughts = ig_thought_marks_find("{{ '<|channel>thought\\n<channel|>' }}");
    for (size_t i = 0; i < sizeof with_other_marks / sizeof *with_other_marks; i++)
        check_told(&x, &with_other_marks[i], tools);
    for (size_t i = 0; i < sizeof with_channels / sizeof *with_channels; i++)
        check_told(&channels, &with_channels[i], tools);
    channels.thoughts = ig_thought_marks_find("{{ '<|start|>assistant" TO_SELF "' + t }}");
    assert_true(channels.thoughts->channels == &ig_channels_recipients);
    for (size_t i = 0; i < sizeof with_recipients / sizeof *with_recipients; i++)
        check_told(&channels, &with_recipients[i], tools);
    format = ig_tool_to_recipients;
    for (size_t i = 0; i < sizeof with_named_recipients / sizeof *with_named_recipients; i++)
        check_told(&channels, &with_named_recipients[i], tools);
    format = hermes;
    server.thoughts = ig_thought_marks_find("{{ '" THINK "' }}");
    channels.thoughts = NULL;
    for (size_t i = 0; i < sizeof with_less / sizeof *with_less; i++) check_told(&channels, &with_less[i], tools);
    json_decref(tools);
}

/* What never gets a head is told as it comes, once it cannot have one. */
static void heads_are_not_waited_for(void **state) {
    char answer[1024] = FINAL "a<|end|>";
    size_t n = strlen(answer);
    ig_channel_reader r = {.form = &ig_channels_harmony};
    (void)state;
    assert_int_equal(ig_channel_next(&r, answer, n, false).n, 1);
    memset(answer + n, 'b', sizeof answer - n);
    assert_int_equal(ig_channel_next(&r, answer, n + 500, false).kind, IG_CHANNEL_NONE);
    ig_channel_part p = ig_channel_next(&r, answer, sizeof answer, false);
    assert_true(p.kind == IG_CHANNEL_TEXT && p.at == n && p.n == sizeof answer - n);
}

static void where_answers_begin(void **state) {
    const ig_thought_marks *m = ig_thought_marks_find("[/THINK]");
    (void)state;
    assert_null(ig_thought_marks_find("{{ x }}"));
    assert_null(ig_thought_marks_find(NULL));
    assert_int_equal(ig_thoughts_after(NULL, "a", 1), IG_THOUGHTS_OVER);
    assert_int_equal(ig_thoughts_after(m, "a", 1), IG_THOUGHTS_POSSIBLE);
    assert_int_equal(ig_thoughts_after(m, "", 0), IG_THOUGHTS_POSSIBLE);
    assert_int_equal(ig_thoughts_after(m, "a[THINK]\n", 9), IG_THOUGHTS_BEGUN);
    assert_int_equal(ig_thoughts_after(m, "[THINK]\n[/THINK]\n\n", 18), IG_THOUGHTS_OVER);
    assert_int_equal(ig_thoughts_within(NULL, "[THINK]"), IG_THOUGHTS_OVER);
    assert_int_equal(ig_thoughts_within(m, "Well"), IG_THOUGHTS_OVER);
    assert_int_equal(ig_thoughts_within(m, "[THINK]Well"), IG_THOUGHTS_BEGUN);
    assert_int_equal(ig_thoughts_within(m, "[THINK]Well[/THINK]So"), IG_THOUGHTS_OVER);
    assert_int_equal(ig_thoughts_within(m, "[THINK]Well[/THINK]So [THINK]"), IG_THOUGHTS_BEGUN);
    m = ig_thought_marks_find("<channel|>");
    assert_int_equal(ig_thoughts_after(m, "<|turn>model\n", 13), IG_THOUGHTS_POSSIBLE);
    assert_int_equal(ig_thoughts_after(m, "<|channel>thought\n<channel|>", 28), IG_THOUGHTS_OVER);
    assert_int_equal(ig_thoughts_within(m, "<|channel>thought\nWell"), IG_THOUGHTS_BEGUN);
    m = ig_thought_marks_find(THINK);
    const struct {
        const char *prompt;
        ig_thought_stage stage;
    } prompts[] = {{"", IG_THOUGHTS_POSSIBLE},
                   {"<|start|>user<|message|>a" NEXT, IG_THOUGHTS_POSSIBLE},
                   {"<|start|>user<|message|>a<|end|>", IG_THOUGHTS_POSSIBLE},
                   {"<|start|>assistant" THINK "a" NEXT FINAL "b", IG_THOUGHTS_OVER},
                   {"<|start|>assistant" THINK, IG_THOUGHTS_BEGUN}};
    for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++)
        assert_int_equal(ig_thoughts_after(m, prompts[i].prompt, strlen(prompts[i].prompt)), prompts[i].stage);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_read),     cmocka_unit_test(only_the_first_if_wanted),
        cmocka_unit_test(text_is_not_held),     cmocka_unit_test(arguments_are_not_held),
        cmocka_unit_test(parts_are_told_apart), cmocka_unit_test(heads_are_not_waited_for),
        cmocka_unit_test(where_answers_begin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
