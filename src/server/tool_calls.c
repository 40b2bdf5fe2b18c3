/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading calls of tools out of an answer, also while it is still growing.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* What of an answer is looked at. */
typedef struct span {
    const char *text;
    size_t n;
    bool is_whole;
    const json_t *tools; /* NULL: any may be called */
} span;

/* MORE: it may be, once more of the answer is there. */
typedef enum found { NO, YES, MORE } found;

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static size_t past_blanks(const span *s, size_t at) {
    while (at < s->n && is_blank(s->text[at])) at++;
    return at;
}

static found unless_whole(const span *s) { return s->is_whole ? NO : MORE; }

/* A mark at *at, which moves past it. */
static found read_mark(const span *s, size_t *at, const char *mark) {
    size_t i = *at;
    for (; *mark; mark++) {
        size_t first = i;
        bool is_id = *mark == IG_TOOL_ID_MARK;
        while (is_id && i < s->n && i - first < IG_TOOL_NAME_BYTES && isalnum((unsigned char)s->text[i])) i++;
        if (is_id && i > first) continue;
        if (i == s->n) return unless_whole(s);
        if (is_id || s->text[i++] != *mark) return NO;
    }
    *at = i;
    return YES;
}

/* ---- one call ------------------------------------------------------------------------- */

typedef struct call_text {
    const char *name, *arguments;
    size_t n_name, n_arguments, end;
    json_t *own; /* that has the two texts; NULL: the answer has them */
} call_text;

/* The name at *at, and the mark behind it. */
static found read_name(const span *s, size_t *at, const char *middle, call_text *c) {
    size_t i = *at;
    for (c->name = s->text + i; i - *at <= IG_TOOL_NAME_BYTES; i++) {
        size_t behind = i;
        found f = i > *at ? read_mark(s, &behind, middle) : NO;
        if (f == MORE) return MORE;
        if (f == YES) {
            c->n_name = i - *at;
            *at = behind;
            return ig_tool_is_name(c->name, c->n_name) ? YES : NO;
        }
        if (i == s->n) return unless_whole(s);
    }
    return NO;
}

/* The end of the JSON object that begins at `at`. */
static found find_end(const span *s, size_t at, size_t *end) {
    bool in_string = false;
    int depth = 0;
    if (at < s->n && s->text[at] != '{') return NO;
    for (; at < s->n; at++) {
        char c = s->text[at];
        if (in_string && c == '\\')
            at++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']') && --depth == 0)
            return *end = at + 1, YES;
    }
    return unless_whole(s);
}

/* NULL: it is none, or there is no memory. */
static json_t *read_object(const span *s, size_t at, size_t end) {
    bool has_no_memory;
    json_t *v = ig_json_of_text(s->text + at, end - at, 0, NULL, &has_no_memory);
    if (json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

static found read_arguments(const span *s, size_t *at, call_text *c) {
    size_t end;
    found f = find_end(s, *at, &end);
    if (f != YES) return f;
    json_t *arguments = read_object(s, *at, end);
    if (!arguments) return NO;
    json_decref(arguments);
    c->arguments = s->text + *at;
    c->n_arguments = end - *at;
    *at = end;
    return YES;
}

static bool is_tool(const span *s, const char *name) {
    return !s->tools || (name && ig_tool_find(s->tools, name, SIZE_MAX));
}

/* What an object says, if it is a call. */
static bool read_members(const span *s, const json_t *object, call_text *c) {
    const json_t *name = json_object_get(object, "name"), *parameters = json_object_get(object, "parameters");
    if (!parameters) parameters = json_object_get(object, "arguments");
    bool is_call = json_is_object(parameters) && ig_tool_is_name(json_string_value(name), json_string_length(name)) &&
                   is_tool(s, json_string_value(name));
    char *text = is_call ? json_dumps(parameters, JSON_REAL_PRECISION(17)) : NULL;
    c->own = text ? json_pack("[O, s]", name, text) : NULL;
    free(text);
    if (!c->own) return false;
    c->name = json_string_value(json_array_get(c->own, 0));
    c->n_name = json_string_length(json_array_get(c->own, 0));
    c->arguments = json_string_value(json_array_get(c->own, 1));
    c->n_arguments = json_string_length(json_array_get(c->own, 1));
    return true;
}

static found read_either(const span *s, size_t *at, const char *one, const char *other) {
    found f = read_mark(s, at, one);
    return f == NO ? read_mark(s, at, other) : f;
}

/* {"name": ..., "parameters": ...}, as Llama 3 writes it, with whatever else; other models also write that, often as a
 * block of code, where they should write marks. */
static found read_bare(const span *s, size_t at, call_text *c) {
    found fence = read_either(s, &at, "```json", "```"), f;
    if (fence == MORE) return MORE;
    size_t begin = past_blanks(s, at), key = begin;
    f = read_mark(s, &key, "{");
    key = past_blanks(s, key);
    if (f == YES) f = read_either(s, &key, "\"name\"", "\"type\"");
    if (f == YES) f = find_end(s, begin, &c->end);
    if (f != YES) return f;
    size_t behind = past_blanks(s, c->end);
    if (fence == YES && read_mark(s, &behind, "```") == MORE) return MORE;
    json_t *object = read_object(s, begin, c->end);
    f = object && read_members(s, object, c) ? YES : NO;
    json_decref(object);
    if (fence == YES) c->end = behind;
    return f;
}

/* A call behind its first mark. One that lacks the last, or a part of it, is one, too. */
static found read_call(const span *s, const ig_tool_format *format, size_t at, call_text *c) {
    span growing = {s->text, s->n, false, s->tools};
    found f = read_name(s, &at, format->middle, c);
    if (f == YES) f = read_arguments(s, &at, c);
    if (f != YES) return f;
    f = read_mark(&growing, &at, format->after);
    c->end = f == MORE ? s->n : at;
    return f == MORE && !s->is_whole ? MORE : YES;
}

static found read_first(const span *s, const ig_tool_format *format, size_t at, call_text *c) {
    found f = read_mark(s, &at, format->begin);
    if (f == YES) f = read_mark(s, &at, format->before);
    return f == YES ? read_call(s, format, at, c) : f;
}

/* After a call: one more, or the end of them all, which *at moves past. YES: c is one. */
static found read_further(const span *s, const ig_tool_format *format, size_t *at, call_text *c) {
    size_t next = *at;
    while (next < s->n && (is_blank(s->text[next]) || s->text[next] == ',' || s->text[next] == ';')) next++;
    if (next == s->n) return unless_whole(s);
    size_t name = next, end = *at;
    found f = format->is_bare ? NO : read_mark(s, &name, format->before);
    if (f == YES) f = read_call(s, format, name, c);
    if (f == NO && !format->is_bare) f = read_first(s, format, next, c);
    if (f == NO) f = read_bare(s, next, c);
    if (f != NO) return f;
    f = read_mark(s, &end, format->end);
    if (f == YES) *at = end;
    return f == MORE ? MORE : NO;
}

/* ---- parts ---------------------------------------------------------------------------------- */

/* Letters and digits. */
static void make_id(char id[IG_TOOL_ID_BYTES + 1]) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    unsigned char random[IG_TOOL_ID_BYTES];
    if (getrandom(random, sizeof random, GRND_NONBLOCK) != sizeof random) memset(random, 0, sizeof random);
    for (int i = 0; i < IG_TOOL_ID_BYTES; i++) id[i] = letters[random[i] % (sizeof letters - 1)];
    id[IG_TOOL_ID_BYTES] = '\0';
}

static ig_part call_part(ig_tool_reader *r, const call_text *c) {
    char id[IG_TOOL_ID_BYTES + 1];
    make_id(id);
    json_t *call =
        json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", id, "type", "function", "function", "name",
                  json_stringn(c->name, c->n_name), "arguments", ig_text_stringn(c->arguments, c->n_arguments));
    r->at = c->end;
    r->n_calls++;
    r->is_after_call = true;
    return (ig_part){.kind = IG_PART_CALL, .call = call};
}

/* Text up to `end`, without the blanks there: they are told of once other text follows. */
static ig_part text_part(ig_tool_reader *r, const span *s, size_t end, bool with_blanks) {
    size_t at = r->at;
    while (!with_blanks && end > at && is_blank(s->text[end - 1])) end--;
    if (end == at) return (ig_part){.kind = IG_PART_WAIT};
    r->at = end;
    return (ig_part){.kind = IG_PART_TEXT, .at = at, .n = end - at};
}

/* Where the next call begins, or may: *f is YES or MORE, else NO at the end of the text. */
static size_t find_call(const ig_tool_reader *r, const ig_tool_format *format, const span *s, found *f, call_text *c) {
    size_t at = past_blanks(s, r->at);
    *f = NO;
    if (r->at == 0 && r->n_calls == 0) *f = at < s->n ? read_bare(s, at, c) : unless_whole(s);
    if (*f != NO) return at;
    if (format->is_bare) return s->n;
    for (; at < s->n; at++) {
        *f = read_first(s, format, at, c);
        if (*f != NO) break;
    }
    return at;
}

static ig_part next_part(ig_tool_reader *r, const ig_tool_format *format, const span *s) {
    call_text c = {0};
    found f = NO;
    size_t at = r->at;
    if (r->is_after_call) {
        f = read_further(s, format, &r->at, &c);
        if (f == MORE) return (ig_part){.kind = IG_PART_WAIT};
        r->is_after_call = f == YES;
    }
    if (f == NO) {
        at = find_call(r, format, s, &f, &c);
        ig_part before = text_part(r, s, at, s->is_whole && at == s->n && r->n_calls == 0);
        if (before.kind == IG_PART_TEXT) {
            json_decref(c.own);
            return before;
        }
    }
    ig_part part = f == YES ? call_part(r, &c) : (ig_part){.kind = IG_PART_WAIT};
    json_decref(c.own);
    return part;
}

ig_part ig_tool_next(ig_tool_reader *r, const ig_tool_format *format, const json_t *tools, const char *text, size_t n,
                     bool is_whole) {
    for (;;) {
        ig_part part = next_part(r, format, &(span){text, n, is_whole, tools});
        if (part.kind != IG_PART_CALL || !r->is_single || r->n_calls == 1) return part;
        json_decref(part.call);
    }
}
