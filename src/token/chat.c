/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat prompts. A model's Jinja template is not run: it is recognised as one of four formats, and
 * the literals in which models of a format differ (default system message, blanks around marks, trimming, where
 * the system message goes) are read from its text. A template with features beyond those is unknown.
 */
#include "token/chat.h"

#include <string.h>

#include "base/error.h"
#include "token/utf8.h"

static bool has(const char *template, const char *mark) { return strstr(template, mark) != NULL; }

/* Whether a Llama 3 template begins a message other than an answer with words of its own. */
static bool has_own_words(const char *template) {
    static const char mark[] = "<|end_header_id|>", answer[] = "assistant";
    for (const char *at = template; (at = strstr(at, mark)) != NULL;) {
        size_t before = (size_t)(at - template), n = sizeof answer - 1;
        bool answers = before >= n && strncmp(at - n, answer, n) == 0;
        at += sizeof mark - 1;
        while (*at == '\n' || strncmp(at, "\\n", 2) == 0) at += *at == '\n' ? 1 : 2;
        if (!answers && *at && !strchr("'\"{", *at)) return true;
    }
    return false;
}

ig_chat_format ig_chat_detect(const char *jinja_template) {
    const char *t = jinja_template;
    if (!t) return IG_CHAT_UNKNOWN;
    if (has(t, "<|im_start|>"))
        return has(t, "<|im_end|>") && !has(t, "<|im_sep|>") && !has(t, "strftime_now") ? IG_CHAT_CHATML
                                                                                        : IG_CHAT_UNKNOWN;
    if (has(t, "<|start_header_id|>"))
        return has(t, "<|end_header_id|>") && has(t, "<|eot_id|>") && !has_own_words(t) ? IG_CHAT_LLAMA3
                                                                                        : IG_CHAT_UNKNOWN;
    if (!has(t, "[INST]") || !has(t, "[/INST]") || has(t, "[SYSTEM_PROMPT]")) return IG_CHAT_UNKNOWN;
    return has(t, "<<SYS>>") ? IG_CHAT_LLAMA2 : IG_CHAT_MISTRAL;
}

const char *ig_chat_name(ig_chat_format format) {
    static const char *const names[] = {"", "chatml", "llama2", "llama3", "mistral"};
    return names[format];
}

/* Appends a string literal's text from just behind its opening quote, up to its closing one or to `stop`, and moves *at
 * there. False if the template ends before, or the literal before `stop`. */
static bool add_literal(ig_buffer *out, const char **at, char quote, const char *stop) {
    const char *p = *at;
    bool stops = false;
    for (; *p && *p != quote; p++) {
        stops = stop && strncmp(p, stop, strlen(stop)) == 0;
        if (stops) break;
        char c = *p;
        if (c == '\\' && p[1]) {
            c = *++p;
            c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
        }
        ig_buffer_add(out, &c, 1);
    }
    *at = p;
    return stop ? stops : *p != 0;
}

/* The literal that directly follows `mark`, as in "set system_message = 'text'". */
static bool find_assigned(ig_buffer *out, const char *template, const char *mark) {
    for (const char *at = template; (at = strstr(at, mark)) != NULL;) {
        at += strlen(mark);
        char quote = *at;
        if ((quote != '\'' && quote != '"') || at[1] == quote) continue;
        at++;
        out->size = 0;
        if (add_literal(out, &at, quote, NULL)) return true;
    }
    return false;
}

/* What the template puts before an answer: its literal that begins with `head`, which some models
 * continue; else head and rest. */
static void add_answer_head(ig_buffer *out, const char *template, const char *head, const char *rest) {
    static const char mark[] = "add_generation_prompt";
    const char *last = NULL;
    for (const char *at = template; (at = strstr(at, mark)) != NULL; at++) last = at;
    const char *literal = last ? strstr(last, head) : NULL;
    ig_buffer text = {0};
    char quote = literal ? literal[-1] : 0;
    if ((quote == '\'' || quote == '"') && add_literal(&text, &literal, quote, NULL))
        ig_buffer_add(out, text.data, text.size);
    else
        ig_buffer_format(out, "%s%s", head, rest);
    out->failed = out->failed || text.failed;
    ig_buffer_close(&text);
}

typedef struct range {
    const char *data;
    size_t size;
} range;

/* What Jinja's trim and Python's strip take away. */
static bool is_blank(uint32_t code) { return ig_utf8_is_space(code) || (code >= 0x1c && code <= 0x1f); }

static range trim(const char *text) {
    size_t n = strlen(text), end = 0, start = n, size;
    uint32_t code;
    for (size_t at = 0; at < n; at += size) {
        size = ig_utf8_next(text + at, n - at, &code);
        bool blank = size && is_blank(code);
        if (!size) size = 1;
        if (blank) continue;
        if (start == n) start = at;
        end = at + size;
    }
    return start < end ? (range){text + start, end - start} : (range){text, 0};
}

static void add_content(ig_buffer *out, const char *text, bool trimmed) {
    range r = trimmed ? trim(text) : (range){text, strlen(text)};
    ig_buffer_add(out, r.data, r.size);
}

static bool is_role(const ig_chat_message *m, const char *role) { return strcmp(m->role, role) == 0; }

static bool trims(const char *template) { return has(template, "| trim") || has(template, "|trim"); }

static ig_status refuse_system(ig_error *err) {
    return ig_fail(err, IG_E_UNSUPPORTED, "this model's chat template takes no system message");
}

/* ---- ChatML ------------------------------------------------------------ */

/* The system message that the template itself puts where the conversation has none. */
static bool find_chatml_system(ig_buffer *out, const char *template) {
    static const char head[] = "<|im_start|>system";
    for (const char *at = template; (at = strstr(at, head)) != NULL;) {
        char quote = at > template ? at[-1] : 0;
        at += sizeof head - 1;
        size_t newline = strncmp(at, "\\n", 2) == 0 ? 2 : *at == '\n';
        if (!newline || (quote != '\'' && quote != '"') || at[newline] == quote) continue;
        at += newline;
        out->size = 0;
        if (add_literal(out, &at, quote, "<|im_end|>")) return true;
    }
    return has(template, "<|im_start|>system") && find_assigned(out, template, "set system_message = ");
}

static void add_chatml(ig_buffer *out, const char *role, const char *content, bool trimmed) {
    ig_buffer_format(out, "<|im_start|>%s\n", role);
    add_content(out, content, trimmed);
    ig_buffer_text(out, "<|im_end|>\n");
}

/* What follows the last end of reasoning, or all. */
static const char *find_answer(const char *content) {
    const char *answer = content;
    for (const char *at = content; (at = strstr(at, "</think>")) != NULL;) answer = at += 8;
    return answer;
}

/* An answer of a Qwen3 model: its reasoning is left out, except in what follows the last question. */
static void add_reasoned(ig_buffer *out, const char *content, bool after_question, bool last) {
    const char *close = strstr(content, "</think>"), *reason = content, *answer = find_answer(content);
    size_t n = close ? (size_t)(close - content) : 0;
    for (const char *at = content; close && (at = strstr(at, "<think>")) != NULL && at < close; at++) reason = at + 7;
    if (close) n = reason < close ? (size_t)(close - reason) : 0;
    while (n && reason[n - 1] == '\n') n--;
    while (n && *reason == '\n') reason++, n--;
    if (close)
        while (*answer == '\n') answer++;
    ig_buffer_text(out, "<|im_start|>assistant\n");
    if (after_question && (last || n)) {
        ig_buffer_text(out, "<think>\n");
        ig_buffer_add(out, reason, n);
        ig_buffer_text(out, "\n</think>\n\n");
        while (*answer == '\n') answer++;
    }
    ig_buffer_text(out, answer);
    ig_buffer_text(out, "<|im_end|>\n");
}

/* False if the template names the roles behind its marks, and they are the user's and the assistant's. */
static bool takes_system(const char *template) {
    static const char mark[] = "<|im_start|>";
    bool marked = false;
    for (const char *at = template; (at = strstr(at, mark)) != NULL; marked = true) {
        at += sizeof mark - 1;
        if (strncmp(at, "user", 4) != 0 && strncmp(at, "assistant", 9) != 0) return true;
    }
    return !marked;
}

static ig_status check_chatml(const char *template, const ig_chat_message *messages, size_t n, ig_error *err) {
    bool given = false;
    for (size_t i = 0; i < n; i++) given = given || is_role(&messages[i], "system");
    return given && !takes_system(template) ? refuse_system(err) : IG_OK;
}

static void render_chatml(ig_buffer *out, const char *template, const ig_chat_message *messages, size_t n) {
    ig_buffer system = {0};
    bool reasons = has(template, "last_query_index") && has(template, "</think>"),
         cuts = !reasons && has(template, ".split('</think>')[-1]"), /* QwQ */
        strips = cuts && has(template, ".split('</think>')[-1].lstrip('\\n')"),
         keeps_last = cuts && has(template, "if not loop.last"), trimmed = !reasons && trims(template);
    size_t question = n - 1;
    for (size_t i = n; i-- > 0 && reasons;)
        if (is_role(&messages[i], "user")) {
            question = i;
            break;
        }
    if (!is_role(&messages[0], "system") && find_chatml_system(&system, template))
        add_chatml(out, "system", system.size ? system.data : "", false);
    for (size_t i = 0; i < n; i++) {
        const char *content = messages[i].content;
        bool answers = is_role(&messages[i], "assistant"), cut = answers && cuts && !(keeps_last && i + 1 == n);
        if (cut) content = find_answer(content);
        while (cut && strips && *content == '\n') content++;
        if (answers && reasons)
            add_reasoned(out, content, i > question, i + 1 == n);
        else
            add_chatml(out, messages[i].role, content, trimmed);
    }
    out->failed = out->failed || system.failed;
    ig_buffer_close(&system);
}

/* ---- Llama 3 ----------------------------------------------------------- */

static void add_llama3(ig_buffer *out, const char *role, const char *content, bool trimmed) {
    ig_buffer_format(out, "<|start_header_id|>%s<|end_header_id|>\n\n", role);
    add_content(out, content, trimmed);
    ig_buffer_text(out, "<|eot_id|>");
}

static void render_llama3(ig_buffer *out, const char *template, const ig_chat_message *messages, size_t n) {
    bool trimmed = trims(template);
    size_t i = 0;
    if (has(template, "Cutting Knowledge Date")) { /* 3.1 and later: always a system message, with dates */
        ig_buffer date = {0};
        ig_buffer_text(out, "<|start_header_id|>system<|end_header_id|>\n\n");
        const char *cutting = strstr(template, "Cutting Knowledge Date");
        add_literal(out, &cutting, cutting > template ? cutting[-1] : '"', NULL);
        if (has(template, "Today Date: ") && find_assigned(&date, template, "set date_string = "))
            ig_buffer_format(out, "Today Date: %s\n\n", date.size ? date.data : "");
        if (is_role(&messages[0], "system")) add_content(out, messages[i++].content, trimmed);
        ig_buffer_text(out, "<|eot_id|>");
        out->failed = out->failed || date.failed;
        ig_buffer_close(&date);
    }
    for (; i < n; i++) add_llama3(out, messages[i].role, messages[i].content, trimmed);
}

/* ---- Llama 2 and Mistral ------------------------------------------------ */

/* After an optional system message, user and assistant take turns. */
static ig_status check_turns(const ig_chat_message *messages, size_t n, bool system_ok, ig_error *err) {
    size_t first = is_role(&messages[0], "system");
    if (first && !system_ok) return refuse_system(err);
    for (size_t i = first; i < n; i++)
        if (!is_role(&messages[i], (i - first) % 2 ? "assistant" : "user"))
            return ig_fail(err, IG_E_ARG,
                           "chat message %zu is of role '%.32s', but this model's template wants '%s' there", i + 1,
                           messages[i].role, (i - first) % 2 ? "assistant" : "user");
    return IG_OK;
}

static void render_llama2(ig_buffer *out, const char *template, const ig_chat_message *messages, size_t n) {
    ig_buffer turn = {0}, system = {0};
    size_t first = is_role(&messages[0], "system");
    bool given = first != 0;
    if (given)
        ig_buffer_text(&system, messages[0].content);
    else if (has(template, "true == true") && find_assigned(&system, template, "set system_message = "))
        given = true;
    for (size_t i = first; i < n; i++) {
        if (is_role(&messages[i], "assistant")) {
            ig_buffer_text(out, " ");
            add_content(out, messages[i].content, true);
            ig_buffer_text(out, " </s>");
            continue;
        }
        turn.size = 0;
        if (i == first && given) ig_buffer_format(&turn, "<<SYS>>\n%s\n<</SYS>>\n\n", system.size ? system.data : "");
        ig_buffer_text(&turn, messages[i].content);
        ig_buffer_text(out, i > first ? "<s>[INST] " : "[INST] ");
        add_content(out, turn.size ? turn.data : "", true);
        ig_buffer_text(out, " [/INST]");
    }
    out->failed = out->failed || turn.failed || system.failed;
    ig_buffer_close(&turn);
    ig_buffer_close(&system);
}

/* A literal that is `mark` with blanks around it, such as ' [INST] '; `mark` alone if there is none. */
static range find_padded(const char *template, const char *mark) {
    for (const char *at = template; (at = strstr(at, mark)) != NULL; at++) {
        const char *start = at, *end = at + strlen(mark);
        while (start > template && start[-1] == ' ') start--;
        while (*end == ' ') end++;
        if (start > template && (start[-1] == '\'' || start[-1] == '"') && *end == start[-1])
            return (range){start, (size_t)(end - start)};
    }
    return (range){mark, strlen(mark)};
}

/* True if `mark` occurs in [from, to). */
static bool has_between(const char *from, const char *to, const char *mark) {
    const char *at = from ? strstr(from, mark) : NULL;
    return at && to && at < to;
}

static void render_mistral(ig_buffer *out, const char *template, const ig_chat_message *messages, size_t n) {
    range open = find_padded(template, "[INST]"), close = find_padded(template, "[/INST]");
    size_t first = is_role(&messages[0], "system"), with_system = first;
    /* The expression that writes an answer: from the last content before the last eos_token. */
    const char *eos = NULL, *content = NULL;
    for (const char *at = template; (at = strstr(at, "eos_token")) != NULL; at++) eos = at;
    for (const char *at = template; eos && (at = strstr(at, "content")) != NULL && at < eos; at++) content = at;
    const char *start = content;
    while (start && start > template && *start != '{') start--;
    bool blank_before = has_between(start, content, "' ' +") || has_between(start, content, "\" \" +");
    bool trimmed = has_between(content, eos, "trim") || has_between(content, eos, "strip");
    bool blank_after = eos && (strncmp(eos, "eos_token + ' '", 15) == 0 || strncmp(eos, "eos_token + \" \"", 15) == 0);
    if (first && has(template, "loop.last and system_message"))
        for (size_t i = first; i < n; i++)
            if (is_role(&messages[i], "user")) with_system = i + 1 == n ? i : n;
    for (size_t i = first; i < n; i++) {
        if (is_role(&messages[i], "assistant")) {
            ig_buffer_text(out, blank_before ? " " : "");
            add_content(out, messages[i].content, trimmed);
            ig_buffer_text(out, blank_after ? "</s> " : "</s>");
            continue;
        }
        ig_buffer_add(out, open.data, open.size);
        if (first && i == with_system) ig_buffer_format(out, "%s\n\n", messages[0].content);
        ig_buffer_text(out, messages[i].content);
        ig_buffer_add(out, close.data, close.size);
    }
}

ig_status ig_chat_render(ig_buffer *out, ig_chat_format format, const char *jinja_template,
                         const ig_chat_message *messages, size_t n, bool add_assistant, ig_error *err) {
    ig_status s = IG_OK;
    const char *t = jinja_template ? jinja_template : "";
    if (n == 0) return ig_fail(err, IG_E_ARG, "a chat prompt needs a message");
    switch (format) {
        case IG_CHAT_CHATML:
            s = check_chatml(t, messages, n, err);
            if (!s) render_chatml(out, t, messages, n);
            if (!s && add_assistant) add_answer_head(out, t, "<|im_start|>assistant", "\n");
            break;
        case IG_CHAT_LLAMA3:
            render_llama3(out, t, messages, n);
            if (add_assistant) add_answer_head(out, t, "<|start_header_id|>assistant", "<|end_header_id|>\n\n");
            break;
        case IG_CHAT_LLAMA2:
            s = check_turns(messages, n, true, err);
            if (!s) render_llama2(out, t, messages, n);
            break;
        case IG_CHAT_MISTRAL:
            s = check_turns(messages, n, has(t, "system_message"), err);
            if (!s) render_mistral(out, t, messages, n);
            break;
        case IG_CHAT_UNKNOWN:
            return ig_fail(err, IG_E_UNSUPPORTED, "the model's chat template is not one this program knows");
    }
    if (!s && out->failed) s = ig_fail_memory(err, "chat prompt", out->size);
    return s;
}
