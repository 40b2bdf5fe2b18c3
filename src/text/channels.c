/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages in channels, also while they are still growing.
 */
#define _GNU_SOURCE
#include "text/channels.h"

#include <string.h>

#define MESSAGE "<|message|>"
#define CHANNEL "<|channel|>"

enum { HEAD_BYTES_MAX = 512 }; /* what is longer is none, however much of it comes at once */

#define START "<|start|>assistant"

const ig_channel_form ig_channels_harmony = {.thinks = CHANNEL "analysis" MESSAGE,
                                             .answers = CHANNEL "final" MESSAGE,
                                             .start = START,
                                             .end = "<|end|>",
                                             .next = "<|end|>" START,
                                             .ends = {"<|end|>", "<|start|>", "<|return|>", "<|call|>"}};
const ig_channel_form ig_channels_recipients = {.thinks = " to=self" MESSAGE,
                                                .answers = " to=user" MESSAGE,
                                                .start = START,
                                                .end = "<|eom|>",
                                                .next = "<|eom|>" START,
                                                .ends = {"<|eom|>", "<|start|>", "<|eot|>"},
                                                .has_recipients = true};

const ig_channel_form *ig_channels_in(const char *chat_template) {
    const char *t = chat_template ? chat_template : "";
    return strstr(t, ig_channels_harmony.thinks)      ? &ig_channels_harmony
           : strstr(t, ig_channels_recipients.thinks) ? &ig_channels_recipients
                                                      : NULL;
}

static bool is_blank(char c) { return c == ' ' || c == '\n'; }

/* Whether text begins with the mark; or, as long as more of it may come, could. */
static bool begins(const char *text, size_t n, const char *mark, bool is_whole) {
    size_t n_mark = strlen(mark);
    return memcmp(text, mark, n < n_mark ? n : n_mark) == 0 && (n >= n_mark || !is_whole);
}

/* What stands behind the last of these marks; NULL: there is none. */
static const char *behind_last(const char *text, size_t n, const char *mark) {
    const char *last = NULL, *end = text + n;
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), mark, strlen(mark)));) last = at += strlen(mark);
    return last;
}

static bool is_name(const char *text, size_t n, const char *name) {
    return n == strlen(name) && memcmp(text, name, n) == 0;
}

/* What a head of n bytes says of its body. */
static ig_channel_part read_head(const ig_channel_form *form, const char *head, size_t n) {
    const char *channel = behind_last(head, n, CHANNEL), *name = behind_last(head, n, "to="), *end = head + n;
    ig_channel_part p = {.kind = IG_CHANNEL_TEXT};
    if (channel && begins(channel, (size_t)(end - channel), "analysis", true)) p.kind = IG_CHANNEL_THOUGHTS;
    if (!name) return p;
    bool is_function = begins(name, (size_t)(end - name), "functions.", true);
    if (is_function) name += strlen("functions.");
    p.name = (size_t)(name - head);
    while (name + p.n_name < end && !is_blank(name[p.n_name]) && name[p.n_name] != '<') p.n_name++;
    if (form->has_recipients && !is_function && is_name(name, p.n_name, "self"))
        p.kind = IG_CHANNEL_THOUGHTS;
    else if (p.n_name && !is_name(name, p.n_name, form->has_recipients && !is_function ? "user" : "assistant"))
        p.kind = IG_CHANNEL_CALL;
    return p;
}

/* Behind one more character of JSON. */
static char quote_after(char quote, char c) {
    if (quote == '\\') return '"';
    if (quote && c == '\\') return c;
    return c != '"' ? quote : quote ? '\0' : c;
}

/* Where a body ends, or may: *mark is what is there of what ends it. Texts in JSON, if `quote` says what they are, may
 * have any words in them. */
static size_t find_end(const ig_channel_form *form, const char *text, size_t n, size_t at, bool is_whole, char *quote,
                       size_t *mark) {
    enum { ENDS = sizeof form->ends / sizeof *form->ends };
    const char *const *ends = form->ends;
    for (; at < n; at++) {
        bool may_end = text[at] == '<' && !(quote && *quote);
        for (size_t i = 0; may_end && i < ENDS && ends[i]; i++) {
            if (!begins(text + at, n - at, ends[i], is_whole)) continue;
            *mark = n - at < strlen(ends[i]) ? 0 : strlen(ends[i]);
            return at;
        }
        if (quote) *quote = quote_after(*quote, text[at]);
    }
    *mark = 0;
    return n;
}

ig_channel_kind ig_channel_after(const ig_channel_form *form, const char *prompt, size_t n) {
    size_t mark;
    const char *body = behind_last(prompt, n, MESSAGE);
    if (!body) return IG_CHANNEL_NONE;
    size_t at = (size_t)(body - prompt);
    find_end(form, prompt, n, at, true, NULL, &mark);
    const char *head = behind_last(prompt, at, "<|start|>");
    return mark ? IG_CHANNEL_NONE : read_head(form, head ? head : prompt, (size_t)(body - (head ? head : prompt))).kind;
}

/* The head at r->at, and where its body begins. Of kind IG_CHANNEL_NONE: more of it is needed, or it was cut off. */
static ig_channel_part next_head(const ig_channel_reader *r, const char *text, size_t n, bool is_whole, size_t *body) {
    size_t at = r->at;
    ig_channel_part p = {.kind = IG_CHANNEL_TEXT};
    while (at < n && is_blank(text[at])) at++;
    *body = r->at;
    if (!begins(text + at, n - at, "<|", is_whole) && !begins(text + at, n - at, "to=", is_whole)) return p;
    size_t seen = n - at < HEAD_BYTES_MAX ? n - at : HEAD_BYTES_MAX;
    const char *end = memmem(text + at, seen, MESSAGE, strlen(MESSAGE));
    if (!end && seen < HEAD_BYTES_MAX) return (ig_channel_part){0};
    if (!end) {
        size_t mark, first = find_end(r->form, text, n, at, true, NULL, &mark);
        if (first == at) *body = at + mark;
        return p;
    }
    p = read_head(r->form, text + at, (size_t)(end - text) - at);
    p.name += at;
    *body = (size_t)(end - text) + strlen(MESSAGE);
    return p;
}

static ig_channel_part next_part(ig_channel_reader *r, const char *text, size_t n, bool is_whole) {
    ig_channel_part p = {.kind = r->kind};
    size_t body = r->at, mark;
    if (r->kind == IG_CHANNEL_NONE) p = next_head(r, text, n, is_whole, &body);
    if (p.kind == IG_CHANNEL_NONE) return p;
    p.is_first = r->kind == IG_CHANNEL_NONE || r->is_new;
    r->is_new = p.is_first;
    bool is_kept = p.kind == IG_CHANNEL_THOUGHTS && r->keeps_thoughts;
    if (r->kind == IG_CHANNEL_NONE) r->quote = '\0';
    size_t end = find_end(r->form, text, n, body, is_whole,
                          p.kind == IG_CHANNEL_CALL && !r->form->has_recipients ? &r->quote : NULL, &mark);
    r->kind = mark ? IG_CHANNEL_NONE : p.kind;
    if (is_kept) p.kind = IG_CHANNEL_TEXT;
    p.at = is_kept ? r->at : body;
    r->at = is_kept ? end + mark : end;
    p.n = r->at - p.at;
    return p;
}

ig_channel_part ig_channel_next(ig_channel_reader *r, const char *text, size_t n, bool is_whole) {
    for (;;) {
        ig_channel_part p = next_part(r, text, n, is_whole);
        bool is_told = p.n || (p.kind == IG_CHANNEL_CALL && p.is_first);
        if (is_told) r->is_new = false;
        if (is_told || p.kind == IG_CHANNEL_NONE) return p;
        if (r->kind != IG_CHANNEL_NONE) return (ig_channel_part){0};
    }
}
