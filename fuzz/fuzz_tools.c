/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: answers with calls of tools. An input is a letter for the form that calls have, a digit for the bytes
 * that come at once, and the answer. Read whole it has the same text and calls as when it grows.
 */
#include <stdlib.h>
#include <string.h>

#include "server/tools.h"

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
    {.is_bare = true, .before = "{\"name\": \"", .middle = "\", \"parameters\": "}};

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

static void add_call(parts *p, json_t *call) {
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name")),
               *arguments = json_string_value(json_object_get(function, "arguments"));
    if (!ig_tool_is_name(name, name ? strlen(name) : 0) || !arguments) abort();
    json_t *object = json_loads(arguments, 0, NULL);
    if (!json_is_object(object)) abort();
    json_decref(object);
    add(p, name, strlen(name));
    add(p, arguments, strlen(arguments));
    add(p, ";", 1);
    json_decref(call);
}

static void take_all(parts *text, parts *calls, ig_tool_reader *r, const ig_tool_format *f, const char *answer,
                     size_t n, bool is_whole) {
    char *copy = malloc(n + 1); /* of this size, but for one byte that may not be read */
    if (!copy) abort();
    if (n) memcpy(copy, answer, n);
    copy[n] = '}';
    for (ig_tool_part p; (p = ig_tool_next(r, f, NULL, copy, n, is_whole)).kind != IG_TOOL_WAIT;) {
        if (p.kind == IG_TOOL_CALL)
            add_call(calls, p.call);
        else if (!p.n || p.at + p.n > n)
            abort();
        else
            add(text, copy + p.at, p.n);
    }
    free(copy);
}

static void read_answer(parts *text, parts *calls, const ig_tool_format *f, const char *answer, size_t n, size_t step) {
    ig_tool_reader r = {0};
    for (size_t at = step; at < n; at += step) take_all(text, calls, &r, f, answer, at, false);
    take_all(text, calls, &r, f, answer, n, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    parts texts[2] = {{0}}, calls[2] = {{0}};
    if (n_bytes < 2 || n_bytes > 2000) return 0;
    const ig_tool_format *f = &formats[data[0] % (sizeof formats / sizeof *formats)];
    const char *answer = (const char *)data + 2;
    read_answer(&texts[0], &calls[0], f, answer, n_bytes - 2, n_bytes);
    read_answer(&texts[1], &calls[1], f, answer, n_bytes - 2, 1 + data[1] % 8);
    if (texts[0].n != texts[1].n || (texts[0].n && memcmp(texts[0].text, texts[1].text, texts[0].n) != 0)) abort();
    if (calls[0].n != calls[1].n || (calls[0].n && memcmp(calls[0].text, calls[1].text, calls[0].n) != 0)) abort();
    for (int i = 0; i < 2; i++) {
        free(texts[i].text);
        free(calls[i].text);
    }
    return 0;
}
