/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: answers with calls of tools. An input is a letter for the form that calls have, a digit for the bytes
 * that come at once, and the answer. Read whole it has the same text and calls as when it grows.
 */
#include <stdlib.h>
#include <string.h>

#include "server/answers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static const ig_tool_format formats[] = {
    {.has_lists = true,
     .before = "<tool_call>\n{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .after = "}\n</tool_call>",
     .between = "\n"},
    {.has_lists = true,
     .begin = "[TOOL_CALLS] [",
     .before = "{\"name\": \"",
     .middle = "\", \"arguments\": ",
     .after = ", \"id\": \"\1\"}",
     .between = ", ",
     .end = "]"},
    {.has_lists = true, .before = "<<", .middle = "[\1]", .after = ">>"},
    {.is_bare = true, .before = "{\"name\": \"", .middle = "\", \"parameters\": "},
    {.has_channels = true},
    {.has_lists = true,
     .has_pairs = true,
     .before = "<tool_call>",
     .middle = "\n",
     .after = "</tool_call>",
     .between = "\n<tool_call>",
     .key = "<arg_key>",
     .value = "</arg_key>\n<arg_value>",
     .value_end = "</arg_value>\n"},
    {.has_lists = true, .before = "<|tool_call>call:", .after = "<tool_call|>", .between = "", .quote = "<|\"|>"},
    {.has_recipients = true,
     .has_pairs = true,
     .has_lists = true,
     .begin = "<c>",
     .before = "<n=\"",
     .middle = "\">\n",
     .key = "<k=\"",
     .value = "\">",
     .value_end = "</k>\n",
     .after = "</n>\n",
     .end = "</c>"}};

typedef struct parts {
    char *text; /* the answer's text, then that of its calls */
    size_t n;
} parts;

static void add(parts *p, const char *text, size_t n) {
    p->text = realloc(p->text, p->n + n + 1);
    if (!p->text) abort();
    if (n) memcpy(p->text + p->n, text, n);
    p->n += n;
}

static void add_call(parts *p, json_t *call, bool is_any_name) {
    const json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name"),
                 *arguments = json_object_get(function, "arguments");
    if (!json_is_string(name) || !json_is_string(arguments)) abort();
    if (!is_any_name && !ig_tool_is_name(json_string_value(name), json_string_length(name))) abort();
    add(p, ";", 1);
    add(p, json_string_value(name), json_string_length(name));
    add(p, json_string_value(arguments), json_string_length(arguments));
    json_decref(call);
}

/* Of each kind. */
typedef struct all_parts {
    parts thoughts, text, calls;
} all_parts;

static void add_bytes(all_parts *to, const ig_part *p, const char *answer) {
    if (p->kind == IG_PART_ARGUMENTS) {
        json_t *text = ig_text_stringn(answer + p->at, p->n);
        if (!text) abort();
        add(&to->calls, json_string_value(text), json_string_length(text));
        json_decref(text);
    } else {
        add(p->kind == IG_PART_TEXT ? &to->text : &to->thoughts, answer + p->at, p->n);
    }
}

static void take_all(all_parts *to, ig_part_reader *r, const ig_exchange *x, const char *answer, size_t n,
                     bool is_whole) {
    char *copy = malloc(n + 1); /* of this size, but for one byte that may not be read */
    if (!copy) abort();
    if (n) memcpy(copy, answer, n);
    copy[n] = '}';
    for (ig_part p; (p = ig_part_next(r, x, copy, n, is_whole)).kind != IG_PART_WAIT;) {
        if (p.kind == IG_PART_CALL)
            add_call(&to->calls, p.call, x->has_channels);
        else if (!p.n || p.at + p.n > n)
            abort();
        else
            add_bytes(to, &p, copy);
    }
    if (ig_part_told(r) > n) abort();
    free(copy);
}

static void read_answer(all_parts *to, const ig_exchange *x, const char *answer, size_t n, size_t step) {
    ig_part_reader r = {.stage = x->stage};
    for (size_t at = step; at < n; at += step) take_all(to, &r, x, answer, at, false);
    take_all(to, &r, x, answer, n, true);
}

static void compare(parts *a, parts *b) {
    if (a->n != b->n || (a->n && memcmp(a->text, b->text, a->n) != 0)) abort();
    free(a->text);
    free(b->text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static json_t *tools;
    if (!tools) tools = json_loads("[{\"function\":{\"name\":\"a\"}},{\"function\":{\"name\":\"b\"}}]", 0, NULL);
    if (n_bytes < 2 || n_bytes > 2000) return 0;
    ig_tool_format format = formats[data[0] % (sizeof formats / sizeof *formats)];
    ig_server server = {.tool_format = &format};
    ig_call call = {.server = &server};
    ig_exchange x = {.call = &call,
                     .tools = {.list = tools},
                     .thoughts = ig_thought_marks_find(format.has_channels     ? ig_channels_harmony.thinks
                                                       : format.has_recipients ? ig_channels_recipients.thinks
                                                                               : "</think>"),
                     .has_channels = format.has_channels || format.has_recipients,
                     .stage = (ig_thought_stage)(data[1] / 8 % 3)};
    const char *answer = (const char *)data + 2;
    for (size_t i = 2; i < n_bytes && x.has_channels; i++)
        if (data[i] > 0x7f)
            return 0; /* arguments may be cut anywhere: of those that are, text comes in whole characters */
    all_parts whole = {0}, grown = {0};
    read_answer(&whole, &x, answer, n_bytes - 2, n_bytes);
    read_answer(&grown, &x, answer, n_bytes - 2, 1 + data[1] % 8);
    compare(&whole.thoughts, &grown.thoughts);
    compare(&whole.text, &grown.text);
    compare(&whole.calls, &grown.calls);
    return 0;
}
