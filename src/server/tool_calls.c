/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading calls of tools out of an answer, also while it is still growing.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <ctype.h>
#include <stdio.h>
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

size_t ig_mark_word(const char *mark) {
    size_t n = 1;
    while (mark[n] && mark[n] != mark[0] && !is_blank(mark[n]) && (*mark != '<' || mark[n - 1] != '>')) n++;
    return n;
}

void ig_tool_first_mark(char mark[2 * IG_TOOL_MARK_BYTES], const ig_tool_format *f) {
    snprintf(mark, 2 * IG_TOOL_MARK_BYTES, "%s%s", f->begin, f->before);
}

/* ---- one call ------------------------------------------------------------------------- */

typedef struct call_text {
    const char *name, *arguments;
    size_t n_name, n_arguments;
    size_t end;  /* of a whole call; of another, where its arguments begin */
    json_t *own; /* of a whole call: has the two texts; NULL: only the name is known */
} call_text;

/* What a name ends at, which *at moves past if it is a mark: without one, arguments or the end of the call. */
static found end_name(const span *s, const ig_tool_format *format, size_t *at) {
    size_t key = *at, after = *at;
    if (*format->middle) return read_mark(s, at, format->middle);
    if (*format->quote) return *at == s->n ? unless_whole(s) : s->text[*at] == '{' ? YES : NO;
    found f = read_mark(s, &key, format->key);
    return f == NO ? read_mark(s, &after, format->after) : f;
}

/* The name at *at, and the mark behind it. */
static found read_name(const span *s, const ig_tool_format *format, size_t *at, call_text *c) {
    size_t i = *at;
    for (c->name = s->text + i; i - *at <= IG_TOOL_NAME_BYTES; i++) {
        size_t behind = i;
        c->n_name = i - *at;
        found f = i > *at ? end_name(s, format, &behind) : NO;
        if (f == MORE) return MORE;
        if (i > *at && !ig_tool_is_name(c->name, c->n_name)) return NO;
        if (f == YES) return *at = behind, YES;
        if (i == s->n) return unless_whole(s);
    }
    return NO;
}

/* Moves *at past what is there of a JSON object, and *p with it. True: that is all of it. */
static bool read_json(ig_json_place *p, const char *text, size_t n, size_t *at) {
    while (*at < n) {
        char c = text[(*at)++];
        if (p->is_escaped)
            p->is_escaped = false;
        else if (p->in_string && c == '\\')
            p->is_escaped = true;
        else if (c == '"')
            p->in_string = !p->in_string;
        else if (!p->in_string && (c == '{' || c == '['))
            p->depth++;
        else if (!p->in_string && (c == '}' || c == ']') && --p->depth == 0)
            return true;
    }
    return false;
}

/* The end of the JSON object that begins at `at`. */
static found find_end(const span *s, size_t at, size_t *end) {
    ig_json_place p = {0};
    if (at < s->n && s->text[at] != '{') return NO;
    *end = at;
    return read_json(&p, s->text, s->n, end) ? YES : unless_whole(s);
}

/* NULL: it is none, or there is no memory. */
static json_t *read_object(const span *s, size_t at, size_t end) {
    bool has_no_memory;
    json_t *v = ig_json_of_text(s->text + at, end - at, 0, NULL, &has_no_memory);
    if (json_is_object(v)) return v;
    json_decref(v);
    return NULL;
}

/* A whole call with texts of its own, unless one of them is NULL. */
static void set_own(call_text *c, const json_t *name, const char *arguments) {
    c->own = name && arguments ? json_pack("[O, s]", name, arguments) : NULL;
    if (!c->own) return;
    c->name = json_string_value(json_array_get(c->own, 0));
    c->n_name = json_string_length(json_array_get(c->own, 0));
    c->arguments = json_string_value(json_array_get(c->own, 1));
    c->n_arguments = json_string_length(json_array_get(c->own, 1));
}

/* Whether there is such a tool, and, if it is strict, takes these: nothing has bound what the model wrote. Of other
 * tools a program may tell the model what is wrong. */
static bool may_call(const span *s, const char *name, const json_t *arguments) {
    const json_t *tool = name ? ig_tool_find(s->tools, name, SIZE_MAX) : NULL;
    const json_t *function = json_object_get(tool, "function");
    bool is_strict = json_is_true(json_object_get(function, "strict"));
    return !s->tools ||
           (tool && (!is_strict || ig_tool_fits(function, json_object_get(function, "parameters"), arguments)));
}

/* What an object says, if it is a call. */
static bool read_members(const span *s, const json_t *object, call_text *c) {
    const json_t *name = json_object_get(object, "name"), *parameters = json_object_get(object, "parameters");
    if (!parameters) parameters = json_object_get(object, "arguments");
    bool is_call = json_is_object(parameters) && ig_tool_is_name(json_string_value(name), json_string_length(name)) &&
                   may_call(s, json_string_value(name), parameters);
    char *text = is_call ? ig_text_of_json(parameters, JSON_REAL_PRECISION(17)) : NULL;
    set_own(c, name, text);
    free(text);
    return c->own != NULL;
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
    /* A block may have several calls, only the first of which its mark is before. */
    size_t behind = past_blanks(s, c->end), last = c->end;
    found close = read_mark(s, &behind, "```");
    if (close == MORE) return MORE;
    if (fence == YES || close == YES) last = behind;
    json_t *object = read_object(s, begin, c->end);
    f = object && read_members(s, object, c) ? YES : NO;
    json_decref(object);
    c->end = last;
    return f;
}

/* ---- arguments that are no object ---------------------------------------------------------- */

typedef struct pair {
    const char *name, *value;
    size_t n_name, n_value;
} pair;

/* One, which *at moves past. Of one that is cut off there is as much of the value as there is, or nothing. */
static found read_pair(const span *s, const ig_tool_format *format, size_t *at, pair *p) {
    span growing = {s->text, s->n, false, s->tools};
    size_t begin = *at, n_mark = strlen(format->value), n_end = strlen(format->value_end);
    found f = read_mark(&growing, &begin, format->key);
    if (f == NO) return NO;
    p->name = s->text + begin;
    size_t n = s->n - begin, most = n < IG_TOOL_MARK_BYTES ? n : IG_TOOL_MARK_BYTES;
    const char *mark = f == YES ? memmem(p->name, most, format->value, n_mark) : NULL;
    if (!mark && most == IG_TOOL_MARK_BYTES) return NO;
    p->n_name = p->n_value = 0;
    p->value = mark ? mark + n_mark : s->text + s->n;
    const char *end = memmem(p->value, (size_t)(s->text + s->n - p->value), format->value_end, n_end);
    if (!end && !s->is_whole) return MORE;
    if (mark) p->n_name = (size_t)(mark - p->name);
    p->n_value = (size_t)((end ? end : s->text + s->n) - p->value);
    *at = end ? (size_t)(end - s->text) + n_end : s->n;
    return YES;
}

/* A value's JSON, as a text: what is JSON already stays as it was written, with all digits of its numbers. */
static json_t *value_of(const pair *p, const json_t *parameter) {
    bool has_no_memory;
    ig_tool_value kind = ig_tool_value_of(parameter);
    json_t *v = kind == IG_TOOL_TEXT_VALUE
                    ? NULL
                    : ig_json_of_text(p->value, p->n_value, JSON_DECODE_ANY, NULL, &has_no_memory);
    bool is_json = v && (kind == IG_TOOL_JSON_VALUE || (!json_is_string(v) && ig_tool_takes(parameter, v)));
    json_decref(v);
    if (is_json) return json_stringn(p->value, p->n_value);
    json_t *text = ig_text_stringn(p->value, p->n_value);
    char *quoted = ig_text_of_json(text, JSON_ENCODE_ANY);
    json_t *out = quoted ? json_string(quoted) : NULL;
    free(quoted);
    json_decref(text);
    return out;
}

/* The object of these values, to be freed; NULL: no memory. */
static char *object_of(const json_t *values) {
    char *out = NULL;
    size_t n = 0, n_written = 0;
    FILE *to = open_memstream(&out, &n);
    const char *name;
    json_t *value;
    bool ok = to != NULL;
    if (to) fputc('{', to);
    json_object_foreach((json_t *)(uintptr_t)values, name, value) {
        json_t *text = json_string(name);
        char *quoted = ig_text_of_json(text, JSON_ENCODE_ANY);
        ok = ok && quoted && fprintf(to, "%s%s: %s", n_written++ ? ", " : "", quoted, json_string_value(value)) > 0;
        free(quoted);
        json_decref(text);
    }
    if (to) fputc('}', to);
    if (to && fclose(to) == 0 && ok) return out;
    free(out);
    return NULL;
}

/* All of them from *at on, which moves behind them; to `values`, unless that is NULL, which has the JSON of each as a
 * text. */
static found read_pairs(const span *s, const ig_tool_format *format, size_t *at, const json_t *function,
                        json_t *values) {
    for (pair p;;) {
        found f = read_pair(s, format, at, &p);
        if (f != YES) return f == MORE ? MORE : YES;
        json_t *name = values && p.n_name ? ig_text_stringn(p.name, p.n_name) : NULL;
        const char *key = json_string_value(name);
        if (key) json_object_set_new(values, key, value_of(&p, ig_tool_parameter(function, key)));
        json_decref(name);
        if (*at == s->n && s->is_whole) return YES; /* else another may come, where no mark ends calls */
    }
}

/* The end of a call behind its arguments, as of one whose arguments are JSON: see end_call(). */
static found read_after(const span *s, const ig_tool_format *format, size_t *at) {
    span growing = {s->text, s->n, false, s->tools};
    size_t end = *at;
    found f = read_mark(&growing, &end, format->after);
    if (f == MORE && !s->is_whole) return MORE;
    if (f != NO) *at = f == YES ? end : s->n;
    return YES;
}

/* A call of which all is there, behind the mark after its name. */
static found read_pairs_call(const span *s, const ig_tool_format *format, size_t begin, call_text *c) {
    size_t end = begin;
    found f = read_pairs(s, format, &end, NULL, NULL);
    if (f == YES) f = read_after(s, format, &end);
    if (f != YES) return f;
    json_t *name = ig_text_stringn(c->name, c->n_name), *values = json_object();
    const json_t *tool = name && s->tools ? ig_tool_find(s->tools, json_string_value(name), SIZE_MAX) : NULL;
    if (values) read_pairs(s, format, &begin, json_object_get(tool, "function"), values);
    char *text = values ? object_of(values) : NULL;
    set_own(c, name, text);
    c->end = end;
    free(text);
    json_decref(values);
    json_decref(name);
    return c->own ? YES : NO;
}

/* The same of arguments with quotes. */
static found read_quoted_call(const span *s, const ig_tool_format *format, size_t begin, call_text *c) {
    size_t n;
    bool is_whole;
    char *text = ig_tool_quoted_json(s->text + begin, s->n - begin, format->quote, &n, &is_whole);
    found f = !text ? NO : is_whole || s->is_whole ? YES : MORE;
    c->end = f == YES ? begin + n : begin;
    if (f == YES) f = read_after(s, format, &c->end);
    json_t *name = f == YES ? ig_text_stringn(c->name, c->n_name) : NULL;
    set_own(c, name, text);
    json_decref(name);
    free(text);
    return f == YES && !c->own ? NO : f;
}

/* A call behind its first mark, up to its arguments: answers are bound to the form of calls from there on. */
static found read_call(const span *s, const ig_tool_format *format, size_t at, call_text *c) {
    found f = read_name(s, format, &at, c);
    if (f != YES) return f;
    if (format->has_pairs) return read_pairs_call(s, format, at, c);
    if (*format->quote) return read_quoted_call(s, format, at, c);
    if (at == s->n) return unless_whole(s);
    c->end = at;
    return s->text[at] == '{' ? YES : NO;
}

static found read_first(const span *s, const ig_tool_format *format, size_t at, call_text *c) {
    found f = read_mark(s, &at, format->begin);
    if (f == YES) f = read_mark(s, &at, format->before);
    return f == YES ? read_call(s, format, at, c) : f;
}

/* Whether a whole answer ends within what comes before a call's arguments: it was cut off there. */
static bool is_cut_off(const ig_tool_reader *r, const span *s, const ig_tool_format *format, size_t at) {
    char mark[2 * IG_TOOL_MARK_BYTES];
    span growing = {s->text, s->n, false, s->tools};
    call_text c = {0};
    found f = s->is_whole ? read_first(&growing, format, at, &c) : NO;
    json_decref(c.own);
    if (f != MORE) return false;
    ig_tool_first_mark(mark, format);
    size_t n = ig_mark_word(mark);
    return r->must_call || (s->n - at >= n && memcmp(s->text + at, mark, n) == 0);
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

/* What is there of a call's arguments, and was not told of. */
static ig_part arguments_part(ig_tool_reader *r, const span *s) {
    size_t at = r->at, n = s->is_whole ? s->n : s->n - ig_text_unfinished(s->text + at, s->n - at);
    if (read_json(&r->arguments, s->text, n, &r->at))
        r->stage = IG_TOOL_BEHIND_ARGUMENTS;
    else
        r->stage = s->is_whole ? IG_TOOL_AFTER_CALL : IG_TOOL_ARGUMENTS; /* the answer may have been cut off */
    return (ig_part){.kind = r->at > at ? IG_PART_ARGUMENTS : IG_PART_WAIT, .at = at, .n = r->at - at};
}

/* The mark behind a call's arguments. A call that lacks it, or a part of it, is one, too. */
static found end_call(ig_tool_reader *r, const ig_tool_format *format, const span *s) {
    span growing = {s->text, s->n, false, s->tools};
    found f = read_mark(&growing, &r->at, format->after);
    if (f == MORE && !s->is_whole) return MORE;
    if (f == MORE) r->at = s->n;
    r->stage = IG_TOOL_AFTER_CALL;
    return YES;
}

json_t *ig_tool_call_json(const char *name, size_t n_name, const char *arguments, size_t n_arguments) {
    char id[IG_TOOL_ID_BYTES + 1];
    make_id(id);
    return json_pack("{s:s, s:s, s:{s:o, s:o}}", "id", id, "type", "function", "function", "name",
                     ig_text_stringn(name, n_name), "arguments", ig_text_stringn(arguments, n_arguments));
}

static ig_part call_part(ig_tool_reader *r, const span *s, const call_text *c) {
    const char *arguments = c->arguments;
    size_t n_arguments = c->n_arguments;
    r->at = c->end;
    r->n_calls++;
    r->stage = IG_TOOL_AFTER_CALL;
    if (!c->own) {
        r->arguments = (ig_json_place){0};
        ig_part known = arguments_part(r, s);
        arguments = s->text + known.at;
        n_arguments = known.n;
    }
    return (ig_part){.kind = IG_PART_CALL, .call = ig_tool_call_json(c->name, c->n_name, arguments, n_arguments)};
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
        if (*f == NO && is_cut_off(r, s, format, at)) *f = MORE;
        if (*f != NO) break;
    }
    return at;
}

static ig_part next_part(ig_tool_reader *r, const ig_tool_format *format, const span *s) {
    const ig_part wait = {.kind = IG_PART_WAIT};
    call_text c = {0};
    found f = NO;
    size_t at = r->at;
    if (r->stage == IG_TOOL_ARGUMENTS) {
        ig_part more = arguments_part(r, s);
        if (more.kind != IG_PART_WAIT || r->stage == IG_TOOL_ARGUMENTS) return more;
    }
    if (r->stage == IG_TOOL_BEHIND_ARGUMENTS && end_call(r, format, s) == MORE) return wait;
    if (r->stage == IG_TOOL_AFTER_CALL) {
        f = read_further(s, format, &r->at, &c);
        if (f == MORE) return wait;
        r->stage = IG_TOOL_TEXT;
    }
    if (f == NO) {
        at = find_call(r, format, s, &f, &c);
        ig_part before = text_part(r, s, at, s->is_whole && at == s->n && r->n_calls == 0);
        if (before.kind == IG_PART_TEXT) {
            json_decref(c.own);
            return before;
        }
    }
    ig_part part = f == YES ? call_part(r, s, &c) : wait;
    json_decref(c.own);
    return part;
}

ig_part ig_tool_next(ig_tool_reader *r, const ig_tool_format *format, const json_t *tools, const char *text, size_t n,
                     bool is_whole) {
    for (;;) {
        ig_part part = next_part(r, format, &(span){text, n, is_whole, tools});
        bool is_call = part.kind == IG_PART_CALL || part.kind == IG_PART_ARGUMENTS;
        if (!is_call || !r->is_single || r->n_calls == 1) return part;
        if (part.kind == IG_PART_CALL) json_decref(part.call);
    }
}
