/* SPDX-License-Identifier: Apache-2.0
 *
 * Thoughts of reasoning models, which stand before an answer between two marks. Some templates begin them, and the
 * model then writes the second mark only.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <string.h>

static const ig_thought_marks harmony = {"<|channel|>analysis<|message|>", "<|end|>", &ig_channels_harmony},
                              recipients = {" to=self<|message|>", "<|eom|>", &ig_channels_recipients};

const ig_thought_marks *ig_thought_marks_find(const char *chat_template) {
    static const ig_thought_marks known[] = {
        {"<think>", "</think>", NULL}, {"[THINK]", "[/THINK]", NULL}, {"<|channel>thought", "<channel|>", NULL}};
    const ig_channel_form *channels = ig_channels_in(chat_template);
    if (channels) return channels->has_recipients ? &recipients : &harmony;
    for (size_t i = 0; chat_template && i < sizeof known / sizeof *known; i++)
        if (strstr(chat_template, known[i].end)) return &known[i];
    return NULL;
}

static bool is_blank(char c) { return c == ' ' || c == '\n'; }

static bool ends_with(const char *text, size_t n, const char *end) {
    size_t n_end = strlen(end);
    return n >= n_end && memcmp(text + n - n_end, end, n_end) == 0;
}

ig_thought_stage ig_thoughts_after(const ig_thought_marks *marks, const char *prompt, size_t n) {
    if (marks && marks->channels) {
        ig_channel_kind kind = ig_channel_after(marks->channels, prompt, n);
        return kind == IG_CHANNEL_NONE       ? IG_THOUGHTS_POSSIBLE
               : kind == IG_CHANNEL_THOUGHTS ? IG_THOUGHTS_BEGUN
                                             : IG_THOUGHTS_OVER;
    }
    while (n && is_blank(prompt[n - 1])) n--;
    return !marks || ends_with(prompt, n, marks->end) ? IG_THOUGHTS_OVER
           : ends_with(prompt, n, marks->begin)       ? IG_THOUGHTS_BEGUN
                                                      : IG_THOUGHTS_POSSIBLE;
}

static const char *last_in(const char *text, const char *mark) {
    const char *last = NULL;
    for (const char *at = text; (at = strstr(at, mark)); at++) last = at;
    return last;
}

ig_thought_stage ig_thoughts_within(const ig_thought_marks *marks, const char *text) {
    const char *begin = marks ? last_in(text, marks->begin) : NULL, *end = begin ? last_in(text, marks->end) : NULL;
    return begin && (!end || end < begin) ? IG_THOUGHTS_BEGUN : IG_THOUGHTS_OVER;
}

/* Where the mark is, or may begin: *is_there. n: nowhere. */
static size_t find_mark(const char *text, size_t n, size_t at, const char *mark, bool *is_there) {
    size_t n_mark = strlen(mark);
    for (; at < n; at++) {
        size_t left = n - at < n_mark ? n - at : n_mark;
        if (memcmp(text + at, mark, left) != 0) continue;
        *is_there = left == n_mark;
        return at;
    }
    *is_there = false;
    return n;
}

static size_t past_blanks(const char *text, size_t n, size_t at) {
    while (at < n && is_blank(text[at])) at++;
    return at;
}

/* False: more of the answer is needed. */
static bool read_begin(ig_part_reader *r, const ig_thought_marks *m, const char *text, size_t n, bool is_whole) {
    size_t at = past_blanks(text, n, 0);
    bool is_there, may_be = find_mark(text, n, at, m->begin, &is_there) == at && at < n;
    if (!is_whole && (at == n || (may_be && !is_there))) return false;
    r->stage = is_there && may_be ? IG_THOUGHTS_BEGUN : IG_THOUGHTS_OVER;
    if (r->stage == IG_THOUGHTS_BEGUN) r->at = at + strlen(m->begin);
    return true;
}

/* With kind IG_PART_WAIT if there is nothing to tell. */
static ig_part read_thoughts(ig_part_reader *r, const ig_thought_marks *m, const char *text, size_t n, bool is_whole) {
    bool is_there;
    size_t end = find_mark(text, n, r->at, m->end, &is_there), next = is_there ? end + strlen(m->end) : end;
    if (is_whole && !is_there) next = end = n;
    if (is_there || is_whole) r->stage = IG_THOUGHTS_ENDED;
    size_t at = r->has_thoughts ? r->at : past_blanks(text, end, r->at);
    while (end > at && is_blank(text[end - 1])) end--;
    bool is_over = r->stage == IG_THOUGHTS_ENDED;
    if (end == at && !is_over) return (ig_part){.kind = IG_PART_WAIT};
    r->at = is_over ? next : end;
    r->has_thoughts = true;
    return (ig_part){.kind = end > at ? IG_PART_THOUGHT : IG_PART_WAIT, .at = at, .n = end - at};
}

static ig_part read_rest(ig_part_reader *r, const ig_exchange *x, const char *text, size_t n, bool is_whole) {
    ig_part p = {.kind = IG_PART_TEXT, .at = r->calls.at, .n = n - r->at - r->calls.at};
    if (x->tools.list) {
        p = ig_tool_next(&r->calls, x->call->server->tool_format, x->tools.list, text + r->at, n - r->at, is_whole);
    } else {
        if (p.n == 0) p.kind = IG_PART_WAIT;
        r->calls.at += p.n;
    }
    p.at += r->at;
    return p;
}

/* A call whose message names its function again, with the message; `before` is where its head began. It comes whole. */
static ig_part read_recipient_call(ig_part_reader *r, const ig_exchange *x, const ig_channel_reader *before,
                                   const ig_channel_part *c, const char *text, bool is_whole) {
    ig_tool_reader calls = {.must_call = true};
    if (r->channels.kind != IG_CHANNEL_NONE && !is_whole) {
        r->channels = *before;
        return (ig_part){.kind = IG_PART_WAIT};
    }
    ig_part p = ig_tool_next(&calls, x->call->server->tool_format, x->tools.list, text + c->at, c->n, true);
    if (p.kind != IG_PART_CALL) return (ig_part){.kind = c->n ? IG_PART_TEXT : IG_PART_WAIT, .at = c->at, .n = c->n};
    r->calls.n_calls++;
    return p;
}

/* A call counts where there are tools; else it is text, as are thoughts that are not looked for. */
static ig_part read_channels(ig_part_reader *r, const ig_exchange *x, const char *text, size_t n, bool is_whole) {
    static const ig_part_kind kinds[] = {IG_PART_WAIT, IG_PART_THOUGHT, IG_PART_TEXT, IG_PART_ARGUMENTS};
    r->channels.keeps_thoughts = !x->thoughts;
    if (r->stage != IG_THOUGHTS_POSSIBLE)
        r->channels.kind = r->stage == IG_THOUGHTS_BEGUN ? IG_CHANNEL_THOUGHTS : IG_CHANNEL_TEXT;
    r->stage = IG_THOUGHTS_POSSIBLE;
    const ig_thought_marks *marks = x->thoughts ? x->thoughts : x->call->server->thoughts;
    r->channels.form = marks->channels;
    ig_channel_part c;
    ig_channel_reader before;
    do {
        before = r->channels;
        c = ig_channel_next(&r->channels, text, n, is_whole);
    } while (c.kind == IG_CHANNEL_CALL && !c.n &&
             (!x->tools.list || (marks->channels->has_recipients && r->channels.kind == IG_CHANNEL_NONE)));
    if (c.kind == IG_CHANNEL_CALL && x->tools.list && marks->channels->has_recipients)
        return read_recipient_call(r, x, &before, &c, text, is_whole);
    ig_part p = {.kind = kinds[c.kind], .at = c.at, .n = c.n};
    if (c.kind == IG_CHANNEL_CALL && !x->tools.list) p.kind = IG_PART_TEXT;
    if (p.kind != IG_PART_ARGUMENTS || !c.is_first) return p;
    r->calls.n_calls++;
    return (ig_part){.kind = IG_PART_CALL, .call = ig_tool_call_json(text + c.name, c.n_name, text + c.at, c.n)};
}

ig_part ig_part_next(ig_part_reader *r, const ig_exchange *x, const char *text, size_t n, bool is_whole) {
    const ig_part wait = {.kind = IG_PART_WAIT};
    if (x->has_channels) return read_channels(r, x, text, n, is_whole);
    if (r->stage == IG_THOUGHTS_POSSIBLE && !read_begin(r, x->thoughts, text, n, is_whole)) return wait;
    if (r->stage == IG_THOUGHTS_BEGUN) {
        ig_part p = read_thoughts(r, x->thoughts, text, n, is_whole);
        if (p.kind != IG_PART_WAIT || r->stage == IG_THOUGHTS_BEGUN) return p;
    }
    if (r->stage == IG_THOUGHTS_ENDED) {
        r->at = past_blanks(text, n, r->at);
        if (r->at == n && !is_whole) return wait;
        r->stage = IG_THOUGHTS_OVER;
    }
    return read_rest(r, x, text, n, is_whole);
}

size_t ig_part_told(const ig_part_reader *r) { return r->at + r->calls.at + r->channels.at; }
