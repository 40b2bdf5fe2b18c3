/* SPDX-License-Identifier: Apache-2.0
 *
 * How a model writes calls of tools, found out by giving its chat template a conversation with some: what stands around
 * the names and arguments there are the marks. What is found counts if those calls are read back with it.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_1 "probe_one"
#define NAME_2 "probe_two"
#define PROBE "probe" /* what all names and ids have */
#define ID "probe0001"
#define ARGUMENTS "{\"probe_key\": \"probe value\"}"
#define TWO_ARGUMENTS "{\"probe_key\": \"probe value\", \"probe_more\": \"other value\"}"
#define SYSTEM "a message of the system"
#define ANSWER "7 is a number." /* begins as no mark does */
#define RESULT "what it returned"

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"" NAME_1
    "\",\"description\":\"d\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"probe_key\":{\"type\":\"string\",\"description\":\"d\"}},\"required\":[\"probe_key\"]"
    "}}},{\"type\":\"function\",\"function\":{\"name\":\"" NAME_2
    "\",\"description\":\"d\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{}}}}]";

/* What Hermes and Qwen do, for templates that know no tools. */
static const ig_tool_format in_words = {.has_lists = true,
                                        .before = "<tool_call>\n{\"name\": \"",
                                        .middle = "\", \"arguments\": ",
                                        .after = "}\n</tool_call>",
                                        .between = "\n"};

const ig_tool_format ig_tool_to_recipients = {.is_native = true,
                                              .has_recipients = true,
                                              .has_pairs = true,
                                              .has_lists = true,
                                              .takes_tools = true,
                                              .takes_system = true,
                                              .begin = "<atem:function_calls>\n",
                                              .before = "<atem:invoke name=\"",
                                              .middle = "\">\n",
                                              .key = "<atem:parameter name=\"",
                                              .value = "\">",
                                              .value_end = "</atem:parameter>\n",
                                              .after = "</atem:invoke>\n",
                                              .end = "</atem:function_calls>"};

/* Prompts of conversations that end with an answer: without a call, with one, with two, with one that has two arguments
 * (NULL: that is refused). */
typedef struct probes {
    char *none, *one, *two, *pair;
} probes;

static void free_probes(probes *p) {
    free(p->none);
    free(p->one);
    free(p->two);
    free(p->pair);
    *p = (probes){0};
}

/* ---- trying the template --------------------------------------------------------------- */

/* *prompt is NULL where the template refuses the messages, a list that this takes, or the tools. */
static ig_status render_with(char **prompt, const ig_model *m, const char *of_tools, json_t *messages, ig_error *err) {
    size_t n;
    *prompt = NULL;
    bool failed;
    json_t *variables = json_pack("{s:o, s:b, s:o}", "messages", messages, "add_generation_prompt", 0, "tools",
                                  ig_json_of_text(of_tools, strlen(of_tools), 0, NULL, &failed));
    ig_status s = variables ? ig_prompt_render(prompt, &n, m, variables, err)
                            : ig_text_fail(err, IG_E_MEMORY, "out of memory for a conversation");
    json_decref(variables);
    if (s || strlen(*prompt) == n) return s == IG_E_MEMORY ? s : IG_OK;
    free(*prompt);
    *prompt = NULL;
    return IG_OK;
}

static ig_status render(char **prompt, const ig_model *m, json_t *messages, ig_error *err) {
    return render_with(prompt, m, tools, messages, err);
}

static json_t *message(const char *role, const char *content) {
    return json_pack("{s:s, s:s}", "role", role, "content", content);
}

static json_t *call_of(const char *name, const char *with, bool as_text) {
    bool failed;
    json_t *arguments = as_text ? json_string(with) : ig_json_of_text(with, strlen(with), 0, NULL, &failed);
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", ID, "type", "function", "function", "name", name, "arguments",
                     arguments);
}

static json_t *calls_of(const ig_tool_format *f, int n, const char *with) {
    json_t *calls = json_pack("[o]", call_of(NAME_1, with, f->wants_text));
    if (n == 2) json_array_append_new(calls, call_of(NAME_2, with, f->wants_text));
    return json_pack("{s:s, s:s?, s:o}", "role", "assistant", "content", f->wants_null ? NULL : "", "tool_calls",
                     calls);
}

static ig_status try_template(probes *p, const ig_tool_format *f, const ig_model *m, ig_error *err) {
    ig_status s = render(&p->none, m, json_pack("[o, o]", message("user", "u"), message("assistant", ANSWER)), err);
    if (s || !p->none) return s;
    s = render(&p->one, m, json_pack("[o, o]", message("user", "u"), calls_of(f, 1, ARGUMENTS)), err);
    if (!s) s = render(&p->two, m, json_pack("[o, o]", message("user", "u"), calls_of(f, 2, ARGUMENTS)), err);
    if (!s) s = render(&p->pair, m, json_pack("[o, o]", message("user", "u"), calls_of(f, 1, TWO_ARGUMENTS)), err);
    return s;
}

static ig_status find_system(ig_tool_format *f, const ig_model *m, ig_error *err) {
    char *prompt;
    ig_status s = render(&prompt, m, json_pack("[o, o]", message("system", SYSTEM), message("user", "u")), err);
    f->takes_system = prompt && strstr(prompt, SYSTEM);
    free(prompt);
    return s;
}

/* ---- marks -------------------------------------------------------------------------------- */

/* Where the answer begins in a prompt: where it differs from the prompt without calls; a mark may begin as others do.
 */
static char *answer_in(char *prompt, const char *other) {
    size_t n = 0;
    while (prompt[n] && prompt[n] == other[n]) n++;
    while (n && !strchr(" \n>]", prompt[n - 1])) n--;
    return prompt + n + strspn(prompt + n, " \n");
}

/* The arguments behind a place; NULL: they are not there as JSON. */
static char *arguments_at(char *text, char **end) {
    json_error_t error;
    char *key = strstr(text, "\"probe_key\""), *begin = key;
    while (begin && begin > text && *begin != '{') begin--;
    bool failed;
    json_t *v =
        begin && *begin == '{' ? ig_json_of_text(begin, strlen(begin), JSON_DISABLE_EOF_CHECK, &error, &failed) : NULL;
    bool is_whole = json_object_size(v) == 1 && json_is_string(json_object_get(v, "probe_key"));
    json_decref(v);
    if (!is_whole) return NULL;
    *end = begin + error.position;
    return begin;
}

/* The same where it is a pair. */
static char *pair_at(const ig_tool_format *f, char *text, char **end) {
    const char *const parts[] = {f->key, "probe_key", f->value, "probe value", f->value_end};
    char *begin = strstr(text, f->key), *at = begin;
    for (size_t i = 0; at && i < sizeof parts / sizeof *parts; i++) {
        if (strncmp(at, parts[i], strlen(parts[i])) != 0) return NULL;
        at += strlen(parts[i]);
    }
    *end = at;
    return begin;
}

size_t ig_mark_tokens(int32_t ids[IG_MARK_TOKENS_MAX], const ig_model *m, const char *mark) {
    size_t n = 0, n_bytes = strlen(mark);
    const int flags = IG_TOKENIZE_PARSE_SPECIAL | IG_TOKENIZE_CAPPED;
    ig_status s = n_bytes < IG_TOOL_MARK_BYTES ? ig_tokenize(&n, m, mark, n_bytes, flags, ids, IG_MARK_TOKENS_MAX, NULL)
                                               : IG_E_LIMIT;
    return s ? 0 : n;
}

/* Cut off where the answer ends: at what ends one without calls, or at an end token. */
static void cut_end(char *text, const ig_model *m, const char *other) {
    const char *plain = strstr(other, ANSWER);
    size_t n = strlen(text), n_end = plain ? strlen(plain) - strlen(ANSWER) : 0;
    int32_t ids[IG_MARK_TOKENS_MAX];
    if (n_end <= n && plain && strcmp(text + n - n_end, plain + strlen(ANSWER)) == 0) text[n - n_end] = '\0';
    size_t n_ids = ig_mark_tokens(ids, m, text);
    for (size_t i = 0; i < n_ids; i++) {
        if (!ig_token_is_end(m, ids[i])) continue;
        size_t at = ig_detokenize(m, ids, i, true, NULL, 0); /* which a tokenizer that changes texts may put anywhere */
        if (at < strlen(text)) text[at] = '\0';
        break;
    }
    for (n = strlen(text); n && strchr(" \n", text[n - 1]); n--) text[n - 1] = '\0';
}

/* The bytes up to `end` as a mark; false: too many, or a name is among them that is there twice. */
static bool set_mark(char mark[IG_TOOL_MARK_BYTES], const char *text, const char *end) {
    static const char id[] = {IG_TOOL_ID_MARK, '\0'};
    size_t n = (size_t)(end - text);
    if (n >= IG_TOOL_MARK_BYTES) return false;
    memcpy(mark, text, n);
    mark[n] = '\0';
    for (char *at; (at = strstr(mark, ID));) {
        memmove(at + 1, at + strlen(ID), strlen(at + strlen(ID)) + 1);
        *at = *id;
    }
    return !strstr(mark, PROBE);
}

/* Arguments with quotes behind a place, which show what these are; NULL: there are none. */
static char *quoted_at(ig_tool_format *f, char *text, char **end) {
    static const char first[] = "{probe_key:", word[] = "probe value";
    char *begin = strstr(text, first), *quote = begin ? begin + strlen(first) : NULL,
         *value = quote ? strstr(quote, word) : NULL, *behind = value ? value + strlen(word) : NULL;
    size_t n = value ? (size_t)(value - quote) : 0;
    if (!n || memchr(quote, '{', n) || strncmp(behind, quote, n) != 0 || behind[n] != '}') return NULL;
    if (!set_mark(f->quote, quote, value)) return NULL;
    *end = behind + n + 1;
    return begin;
}

/* A call in an answer: all of these are ends or beginnings of texts in it. */
typedef struct place {
    char *answer, *name, *arguments, *behind;
} place;

static bool find_place(place *p, ig_tool_format *f, char *answer, const char *name) {
    p->answer = answer;
    p->name = strstr(answer, name);
    p->arguments = NULL;
    if (p->name) p->arguments = f->has_pairs ? pair_at(f, p->name, &p->behind) : arguments_at(p->name, &p->behind);
    if (p->name && !p->arguments && !f->has_pairs) p->arguments = quoted_at(f, p->name, &p->behind);
    return p->arguments != NULL;
}

/* The same of the last call of a prompt, whose end is cut off. */
static bool find_last(place *p, ig_tool_format *f, char *answer, const char *name, const ig_model *m,
                      const char *other) {
    if (!find_place(p, f, answer, name)) return false;
    cut_end(p->behind, m, other);
    return true;
}

/* What stands between two calls is the end of one, what separates them, and the beginning of the other: how much is
 * which shows in a lone call. *before and *after: bytes. False: they are not alike. */
static bool compare(ig_tool_format *f, const place *one, const place *first, const place *second, size_t *before,
                    size_t *after) {
    const char *text = first->behind;
    size_t n = (size_t)(second->name - text), most = (size_t)(one->name - one->answer), b = 0, a = 0;
    while (b < n && b < most && one->name[-1 - (ptrdiff_t)b] == second->name[-1 - (ptrdiff_t)b]) b++;
    while (b && strchr(" \n", second->name[-(ptrdiff_t)b])) b--;
    while (a < n - b && one->behind[a] && one->behind[a] == text[a]) a++;
    *before = b;
    *after = a;
    return b && strspn(text + a, " \n,;") >= n - b - a && set_mark(f->between, text + a, second->name - b);
}

/* Where a text begins that follows another; NULL: nowhere. *end: behind it. */
static char *find_next(char *from, const char *text, char **end) {
    char *at = from ? strstr(from, text) : NULL;
    *end = at ? at + strlen(text) : NULL;
    return at;
}

/* How many bytes the mark before a name has. `name` and `other` are names, of which the first and the second value come
 * after; `first` stands before the one, `between` before the other, and `last` behind all. What ends a value is what
 * `between` and `last` begin with alike, and the mark what `first` and `between` end with. Of what may belong to
 * either, blanks are the end's. */
static ptrdiff_t count_key(const char *first, const char *name, const char *between, const char *other,
                           const char *last) {
    ptrdiff_t n = other - between, most = name - first < n ? name - first : n, longest = 0;
    while (longest < most && name[-1 - longest] == other[-1 - longest]) longest++;
    for (const char *c = between; n && *c == *last; c++, last++) n--;
    for (ptrdiff_t i = n > 1 ? n : 1; i <= longest; i++)
        if (!strchr(" \n", other[-i]) && (i == longest || strchr(" \n", other[-1 - i]) || strchr("<[{", other[-i])))
            return i;
    return 0;
}

/* Marks of arguments that are no object. */
static bool set_pair_marks(ig_tool_format *f, const probes *p) {
    char *first, *behind_key, *between, *behind_more, *last;
    char *answer = p->none && p->one && p->pair ? answer_in(p->pair, p->none) : NULL;
    find_next(answer, NAME_1, &first);
    char *key = find_next(first, "probe_key", &behind_key), *value = find_next(behind_key, "probe value", &between);
    char *more = find_next(between, "probe_more", &behind_more), *other = find_next(behind_more, "other value", &last);
    if (!other) return false;
    ptrdiff_t n = count_key(first, key, between, more, last);
    f->has_pairs = n && value - behind_key == other - behind_more &&
                   memcmp(behind_key, behind_more, (size_t)(value - behind_key)) == 0;
    return f->has_pairs && set_mark(f->key, key - n, key) && set_mark(f->value, behind_key, value) && *f->value &&
           set_mark(f->value_end, between, more - n) && *f->value_end;
}

static bool set_marks(ig_tool_format *f, const probes *p, const ig_model *m) {
    place one, first, second;
    if (!p->none || !p->one || !find_last(&one, f, answer_in(p->one, p->none), NAME_1, m, p->none)) return false;
    size_t before = (size_t)(one.name - one.answer), after = strlen(one.behind);
    f->is_bare = *one.answer == '{';
    f->has_lists = p->two && find_place(&first, f, answer_in(p->two, p->none), NAME_1) &&
                   find_last(&second, f, first.behind, NAME_2, m, p->none) &&
                   compare(f, &one, &first, &second, &before, &after);
    if (!f->has_lists) before = (size_t)(one.name - one.answer), after = strlen(one.behind);
    const char *name = one.name, *behind = one.behind;
    return before && set_mark(f->begin, one.answer, name - before) && set_mark(f->before, name - before, name) &&
           set_mark(f->middle, name + strlen(NAME_1), one.arguments) && (*f->middle || f->has_pairs || *f->quote) &&
           set_mark(f->after, behind, behind + after) && set_mark(f->end, behind + after, strchr(behind, '\0'));
}

bool ig_mark_has_controls(const ig_model *m, const char *mark) {
    int32_t ids[IG_MARK_TOKENS_MAX];
    size_t n = ig_mark_tokens(ids, m, mark);
    return n && ig_detokenize(m, ids, n, false, NULL, 0) < ig_detokenize(m, ids, n, true, NULL, 0);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Whether n calls, and nothing else, are read from an answer. */
static bool reads_back(const ig_tool_format *f, const char *answer, int n) {
    static const char *const names[] = {NAME_1, NAME_2};
    ig_tool_reader r = {0};
    ig_part part;
    while ((part = ig_tool_next(&r, f, NULL, answer, strlen(answer), true)).kind == IG_PART_CALL) {
        const json_t *function = json_object_get(part.call, "function");
        const char *name = json_string_value(json_object_get(function, "name")),
                   *arguments = json_string_value(json_object_get(function, "arguments"));
        bool is_right = r.n_calls <= n && name && strcmp(name, names[r.n_calls - 1]) == 0 && arguments &&
                        strstr(arguments, "probe value");
        json_decref(part.call);
        if (!is_right) return false;
    }
    return part.kind == IG_PART_WAIT && r.n_calls == n;
}

/* A template that writes out the content that there is not. */
static bool has_none(const ig_tool_format *f) {
    static const char none[] = "None";
    const char *first = *f->begin ? f->begin : f->before;
    return f->wants_null && strncmp(first, none, sizeof none - 1) == 0;
}

static bool is_usable(ig_tool_format *f, const probes *p, const ig_model *m) {
    return set_marks(f, p, m) && !has_none(f) && reads_back(f, answer_in(p->one, p->none), 1) &&
           (!f->has_lists || reads_back(f, answer_in(p->two, p->none), 2));
}

static json_t *result_message(void) {
    return json_pack("{s:s, s:s, s:s, s:s}", "role", "tool", "tool_call_id", ID, "name", NAME_1, "content", RESULT);
}

/* Whether a conversation may go on behind a call; with an answer to its result, as many templates have users and
 * assistants take turns. */
static ig_status try_result(bool *goes_on, const ig_tool_format *f, const ig_model *m, ig_error *err) {
    char *prompt;
    ig_status s = render(&prompt, m,
                         json_pack("[o, o, o, o, o]", message("user", "u"), calls_of(f, 1, ARGUMENTS), result_message(),
                                   message("assistant", ANSWER), message("user", "u")),
                         err);
    *goes_on = prompt != NULL;
    free(prompt);
    return s;
}

/* Where results are shown, if it makes a difference, and where a text beside their calls is. */
static ig_status find_results(ig_tool_format *f, const ig_model *m, ig_error *err) {
    char *apart, *within = NULL;
    json_t *calls = calls_of(f, 1, ARGUMENTS), *both;
    if (calls) json_object_set_new(calls, "content", json_string(ANSWER));
    both = json_deep_copy(calls);
    if (both)
        json_object_set_new(both, "tool_responses", json_pack("[{s:s, s:s}]", "name", NAME_1, "response", RESULT));
    ig_status s = render(&apart, m, json_pack("[o, o, o]", message("user", "u"), calls, result_message()), err);
    if (s)
        json_decref(both);
    else
        s = render(&within, m, json_pack("[o, o]", message("user", "u"), both), err);
    f->takes_results = within && strstr(within, RESULT) && (!apart || strcmp(apart, within) != 0);
    const char *shown = f->takes_results ? within : apart, *result = shown ? strstr(shown, RESULT) : NULL;
    f->drops_text = result && strstr(result, ANSWER);
    free(apart);
    free(within);
    return s;
}

/* Clients may leave these out, and some templates cannot do without. */
static ig_status find_needs(ig_tool_format *f, const ig_model *m, ig_error *err) {
    static const char *const without[] = {
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}}"
        "]",
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\"}}]",
        "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":"
        "\"object\"}}}]"};
    bool *const needs[] = {&f->needs_description, &f->needs_parameters, &f->needs_parameters};
    ig_status s = IG_OK;
    for (size_t i = 0; i < 3 && !s; i++) {
        char *prompt;
        s = render_with(&prompt, m, without[i], json_pack("[o]", message("user", "u")), err);
        *needs[i] |= !prompt;
        free(prompt);
    }
    return s;
}

/* Looking at prompts cuts their ends off: each attempt has its own. */
static ig_status find_marks(bool *is_found, ig_tool_format *f, bool has_pairs, const ig_model *m, ig_error *err) {
    probes p = {0};
    ig_status s = try_template(&p, f, m, err);
    f->takes_tools = p.none && strstr(p.none, NAME_2);
    *is_found = !s && f->takes_tools && (!has_pairs || set_pair_marks(f, &p)) && is_usable(f, &p, m);
    free_probes(&p);
    if (*is_found) s = try_result(is_found, f, m, err);
    return s;
}

/* Of a template whose calls are messages to functions. If it shows a call otherwise, calls are not read. */
static ig_status find_recipients(ig_tool_format *f, const ig_model *m, ig_error *err) {
    probes p = {0};
    *f = ig_tool_to_recipients;
    ig_status s = try_template(&p, f, m, err);
    char *body = p.none && p.one ? strstr(answer_in(p.one, p.none), f->begin) : NULL, *behind;
    if (find_next(body, f->end, &behind)) *behind = '\0';
    f->takes_tools = body && reads_back(f, body, 1);
    free_probes(&p);
    if (!s && f->takes_tools) s = find_needs(f, m, err);
    return s ? s : find_results(f, m, err);
}

ig_status ig_tool_format_find(ig_tool_format *f, const ig_model *model, const ig_channel_form *channels,
                              ig_error *err) {
    if (channels && channels->has_recipients) return find_recipients(f, model, err);
    if (channels) {
        *f = (ig_tool_format){.is_native = true, .has_channels = true, .has_controls = true, .needs_description = true};
        return IG_OK;
    }
    ig_status s = IG_OK;
    bool is_found = false, takes_tools = true;
    for (int i = 0; i < 6 && takes_tools && !is_found && !s; i++) {
        *f = (ig_tool_format){.is_native = true, .wants_null = i % 2 == 0, .wants_text = i / 2 == 1};
        s = find_marks(&is_found, f, i >= 4, model, err);
        takes_tools = f->takes_tools;
    }
    if (!is_found) *f = in_words;
    if (!s) s = is_found ? find_needs(f, model, err) : find_system(f, model, err);
    if (!s && is_found) s = find_results(f, model, err);
    const char *const marks[] = {f->begin, f->before, f->middle, f->after, f->between,
                                 f->end,   f->quote,  f->key,    f->value, f->value_end};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) f->has_controls |= ig_mark_has_controls(model, marks[i]);
    return s;
}
