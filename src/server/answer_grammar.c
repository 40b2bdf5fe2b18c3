/* SPDX-License-Identifier: Apache-2.0
 *
 * The grammar of answers that have a form or tools. Thoughts are any text up to their end. Then follows what has the
 * form, or any text up to the first mark of a call, and from there on calls alone, with the arguments that their
 * functions take. So no call is broken, and one that must be made is. In channels the same are messages: what has the
 * form is the final one, and a call is one, the last.
 */
#define _GNU_SOURCE
#include "server/answer_rules.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small models may never stop. WORK_MAX: bytes of schemas, some 0.1 s. */
enum { CALLS_MAX = 16, WORK_MAX = 1 << 20 };

typedef ig_answer_rules writer;

/* ---- parts of rules -------------------------------------------------------------------- */

/* Of a class. */
static void put_character(FILE *to, const char *text, size_t n) {
    if (n == 1 && !isalnum((unsigned char)*text))
        fprintf(to, "\\x%02x", (unsigned char)*text);
    else
        fwrite(text, 1, n, to);
}

static size_t character_bytes(const char *text, size_t n) {
    size_t bytes = ig_text_character(text, n);
    return bytes ? bytes : 1;
}

/* A part of a mark, with any id where the mark has one. */
static void put_literal(FILE *to, const char *text, size_t n) {
    const char *id;
    while ((id = memchr(text, IG_TOOL_ID_MARK, n))) {
        ig_form_literal(to, text, (size_t)(id - text));
        fprintf(to, " [a-zA-Z0-9]{%d}", IG_TOOL_ID_BYTES);
        n -= (size_t)(id + 1 - text);
        text = id + 1;
    }
    ig_form_literal(to, text, n);
}

/* A mark may have control tokens in it, which have no text. Their first one: *at, and where it begins. */
static int32_t find_control(const ig_server *s, const char *mark, const char **at, size_t *n) {
    int32_t ids[IG_MARK_TOKENS_MAX];
    char text[IG_TOKEN_BYTES_MAX + 1];
    size_t n_ids = ig_mark_tokens(ids, s->o->model, mark);
    for (size_t i = 0; i < n_ids; i++) {
        if (ig_detokenize(s->o->model, (const int32_t[]){ids[i], ids[i]}, 2, false, NULL, 0)) continue;
        *n = ig_token_bytes(s, ids[i], text);
        text[*n] = '\0';
        *at = *n ? strstr(mark, text) : NULL;
        if (*at) return ids[i];
    }
    return -1;
}

void ig_answer_mark(const writer *w, const char *mark) {
    const char *at;
    size_t n;
    for (int32_t id; (id = find_control(w->x->call->server, mark, &at, &n)) >= 0; mark = at + n) {
        if (at > mark) put_literal(w->to, mark, (size_t)(at - mark));
        fprintf(w->to, " <[%d]>", id);
    }
    if (*mark) put_literal(w->to, mark, strlen(mark));
}

/* A grammar's rules with other names; "root" is then PREFIXroot. */
static void put_renamed(FILE *to, const char *gbnf, const char *prefix) {
    char end = '\0'; /* of what is passed over: a text, a class, a remark */
    for (const char *c = gbnf; *c; c++) {
        bool is_name = isalnum((unsigned char)*c) || *c == '-' || *c == '_',
             was_name = c > gbnf && (isalnum((unsigned char)c[-1]) || c[-1] == '-' || c[-1] == '_');
        if (end) {
            if (*c == '\\' && c[1] && end != '\n')
                fputc(*c++, to);
            else if (*c == end)
                end = '\0';
        } else if (*c == '"' || *c == '[' || *c == '#' || *c == '{') {
            end = *c == '"' ? '"' : *c == '[' ? ']' : *c == '{' ? '}' : '\n';
        } else if (is_name && !was_name) {
            fputs(prefix, to);
        }
        fputc(*c, to);
    }
    fputc('\n', to);
}

/* ---- arguments ----------------------------------------------------------------------------- */

/* What a function takes; without a list of parameters, nothing. The caller's. */
static json_t *schema_of(const writer *w, const json_t *function) {
    json_t *parameters = ig_field(function, "parameters");
    if (!parameters) return json_pack("{s:s, s:{}}", "type", "object", "properties");
    if (w->is_loose && !json_is_true(ig_field(function, "strict"))) return json_pack("{s:s}", "type", "object");
    json_t *schema = json_copy(parameters);
    if (schema) json_object_set_new(schema, "type", json_string("object")); /* calls have no other arguments */
    return schema;
}

/* A schema, which this takes, as a grammar. */
static ig_status to_gbnf(char **gbnf, json_t *schema, ig_error *err) {
    char *text = ig_text_of_json(schema, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(schema);
    ig_status s = text ? ig_schema_to_gbnf(gbnf, text, strlen(text), err)
                       : ig_text_fail(err, IG_E_MEMORY, "out of memory for tools");
    free(text);
    return s;
}

/* Arguments as an object. What of JSON schemas is not known is refused where the arguments are to be strict, else
 * passed over. NULL: refused. */
static char *object_of(const writer *w, const json_t *function, size_t i) {
    ig_error err;
    char *gbnf = NULL;
    ig_status s = to_gbnf(&gbnf, schema_of(w, function), &err);
    if (s && s != IG_E_MEMORY && !json_is_true(ig_field(function, "strict")))
        s = to_gbnf(&gbnf, json_pack("{s:s}", "type", "object"), &err);
    if (s)
        ig_refuse(w->x->call, s == IG_E_MEMORY ? 500 : 400, "tools", "tools[%zu].function.parameters: %s", i, err.text);
    return s ? NULL : gbnf;
}

/* ---- texts --------------------------------------------------------------------------------------- */

/* A rule NAME for all texts without this word in them; the word's first character is not in it again. */
static void put_text_before(FILE *to, const char *name, const char *word, size_t n) {
    size_t first = character_bytes(word, n), i = first, more;
    fprintf(to, "%s ::= [^", name);
    put_character(to, word, first);
    fprintf(to, "]*%s", n > first ? " (" : "\n");
    if (n == first) return;
    put_literal(to, word, first);
    fprintf(to, " %s-1)*\n", name);
    for (int step = 1; i < n; i += more, step++) {
        more = character_bytes(word + i, n - i);
        fprintf(to, "%s-%d ::= ([^", name, step);
        put_character(to, word, first);
        put_character(to, word + i, more);
        fputs("] [^", to);
        put_character(to, word, first);
        fputs("]*", to);
        if (i + more < n) {
            fputs(" |", to);
            put_literal(to, word + i, more);
            fprintf(to, " %s-%d", name, step + 1);
        }
        fputs(")?\n", to);
    }
}

/* A mark may begin with a control token: texts have none. */
void ig_answer_text(const writer *w, const char *name, const char *mark) {
    const char *at;
    size_t n;
    if (find_control(w->x->call->server, mark, &at, &n) >= 0 && at == mark)
        fprintf(w->to, "%s ::= [^\\x00]*\n", name);
    else
        put_text_before(w->to, name, mark, ig_mark_word(mark));
}

/* ---- arguments one by one ------------------------------------------------------------------- */

/* Texts of which a value is one; false: they are not stated. */
static bool put_choice(const writer *w, const json_t *schema) {
    const json_t *one = json_object_get(schema, "const"), *all = json_object_get(schema, "enum");
    size_t i, n = 0;
    json_t *v;
    if (json_is_string(one)) ig_form_literal(w->to, json_string_value(one), json_string_length(one));
    json_array_foreach(json_is_string(one) ? NULL : all, i, v) {
        if (!json_is_string(v)) continue;
        if (n++) fputs(" |", w->to);
        ig_form_literal(w->to, json_string_value(v), json_string_length(v));
    }
    return n || json_is_string(one);
}

bool ig_answer_sized(const writer *w, const json_t *schema, const char *mark) {
    enum { MOST = 1000 };
    const json_t *least = json_object_get(schema, "minLength"), *most = json_object_get(schema, "maxLength");
    json_int_t from = json_integer_value(least), to = json_integer_value(most);
    if ((!least && !most) || (least && !json_is_integer(least)) || (most && !json_is_integer(most))) return false;
    if (from < 0 || from > MOST || to < 0 || to > MOST || (most && to < from)) return false;
    fputs("[^\\x00", w->to);
    put_character(w->to, mark, character_bytes(mark, strlen(mark)));
    fprintf(w->to, "]{%d,", (int)from);
    if (most) fprintf(w->to, "%d", (int)to);
    fputs("}", w->to);
    return true;
}

bool ig_answer_may_work(const writer *w, size_t n) {
    *w->work = *w->work > n ? *w->work - n : 0;
    return *w->work > 0;
}

static size_t bytes_of(const json_t *v) { return v ? json_dumpb(v, NULL, 0, JSON_COMPACT) : 0; }

/* JSON by its own schema, with what that may refer to. */
static char *value_of(const writer *w, const json_t *function, const json_t *schema) {
    static const char *const shared[] = {"$defs", "definitions"};
    ig_error err;
    char *gbnf = NULL;
    json_t *whole = *w->work ? json_copy((json_t *)(uintptr_t)schema) : NULL;
    for (int i = 0; whole && i < 2; i++) {
        json_t *v = json_object_get(ig_field(function, "parameters"), shared[i]);
        if (v) json_object_set(whole, shared[i], v);
    }
    if (!whole || !ig_answer_may_work(w, bytes_of(whole))) {
        json_decref(whole);
        return NULL;
    }
    return to_gbnf(&gbnf, whole, &err) ? NULL : gbnf;
}

bool ig_answer_json(const writer *w, const json_t *function, const json_t *schema, const char *prefix) {
    char *gbnf = value_of(w, function, schema);
    if (gbnf) put_renamed(w->to, gbnf, prefix);
    free(gbnf);
    return gbnf != NULL;
}

static void put_value(const writer *w, const json_t *function, const char *argument, const char *name) {
    const json_t *schema = ig_tool_parameter(function, argument);
    ig_tool_value kind = ig_tool_value_of(schema);
    char prefix[80];
    snprintf(prefix, sizeof prefix, "%s-", name);
    bool is_json = kind == IG_TOOL_JSON_VALUE && ig_answer_json(w, function, schema, prefix);
    fprintf(w->to, "%s ::= ", name);
    if (is_json)
        fprintf(w->to, "%sroot", prefix);
    else if (kind != IG_TOOL_TEXT_VALUE ||
             (!put_choice(w, schema) && !ig_answer_sized(w, schema, w->format->value_end)))
        fputs("value", w->to);
    fputc('\n', w->to);
}

static void put_pair(const writer *w, const char *name, const char *value) {
    ig_answer_mark(w, w->format->key);
    if (name)
        ig_form_literal(w->to, name, strlen(name));
    else
        fputs(" [a-zA-Z0-9_.-]{1,64}", w->to);
    ig_answer_mark(w, w->format->value);
    fprintf(w->to, " %s", value);
    ig_answer_mark(w, w->format->value_end);
}

bool ig_answer_is_required(const json_t *parameters, const char *name) {
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(parameters, "required"), i, v) {
        if (json_is_string(v) && strcmp(json_string_value(v), name) == 0) return true;
    }
    return false;
}

/* In the order of the schema, as in an object. */
static void put_pairs(const writer *w, const json_t *function, size_t i) {
    json_t *parameters = ig_field(function, "parameters"), *properties = json_object_get(parameters, "properties"), *v;
    bool is_loose = w->is_loose && !json_is_true(ig_field(function, "strict"));
    const char *name;
    char rule[64];
    int k = 0;
    if (!is_loose &&
        !ig_answer_may_work(w, json_object_size(properties) * json_array_size(json_object_get(parameters, "required"))))
        return; /* the grammar is refused */
    fprintf(w->to, "tool%zu-root ::= \"\"", i);
    if (parameters && (is_loose || !json_object_size(properties))) {
        fputs(" (", w->to);
        put_pair(w, NULL, "value");
        fputs(")*", w->to);
    }
    json_object_foreach(is_loose ? NULL : properties, name, v) {
        bool must_be = ig_answer_is_required(parameters, name);
        snprintf(rule, sizeof rule, "tool%zu-%d", i, k++);
        if (!must_be) fputs(" (", w->to);
        put_pair(w, name, rule);
        if (!must_be) fputs(")?", w->to);
    }
    fputc('\n', w->to);
    k = 0;
    json_object_foreach(is_loose ? NULL : properties, name, v) {
        snprintf(rule, sizeof rule, "tool%zu-%d", i, k++);
        put_value(w, function, name, rule);
    }
}

static bool put_arguments(const writer *w, const json_t *function, size_t i) {
    char prefix[32], *gbnf = object_of(w, function, i);
    snprintf(prefix, sizeof prefix, "tool%zu-", i);
    if (gbnf && w->format->has_pairs) put_pairs(w, function, i);
    if (gbnf && *w->format->quote) ig_answer_quoted(w, function, i);
    if (gbnf && !w->format->has_pairs && !*w->format->quote) put_renamed(w->to, gbnf, prefix);
    free(gbnf);
    return gbnf != NULL;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Whether calls have a form here. A bare one may be any object, unless it must be made. */
static bool has_calls(const ig_exchange *x) {
    const ig_tools *t = &x->tools;
    return t->list && (!x->call->server->tool_format->is_bare || t->must_call || x->grammar);
}

static void put_root(const writer *w) {
    const ig_exchange *x = w->x;
    const ig_thought_marks *m = x->thoughts;
    fputs("root ::= ", w->to);
    if (x->stage == IG_THOUGHTS_POSSIBLE) {
        fputs("(", w->to);
        ig_answer_mark(w, m->begin);
        fputs(" thoughts)? ", w->to);
    }
    fputs(x->stage == IG_THOUGHTS_BEGUN ? "thoughts answer\n" : "answer\n", w->to);
    if (x->stage != IG_THOUGHTS_OVER) {
        fputs("thoughts ::= thought", w->to);
        ig_answer_mark(w, m->end);
        fputs(" [ \\n]{0,4}\n", w->to);
        ig_answer_text(w, "thought", m->end);
    }
}

static void put_answer(const writer *w) {
    char first[2 * IG_TOOL_MARK_BYTES];
    fputs("answer ::= ", w->to);
    if (has_calls(w->x) && w->x->tools.must_call) {
        fputs("calls\n", w->to);
    } else if (w->x->grammar) {
        fputs(has_calls(w->x) ? "form-root | calls\n" : "form-root\n", w->to);
        put_renamed(w->to, w->x->grammar, "form-");
    } else {
        fputs("text calls?\n", w->to);
        ig_tool_first_mark(first, w->format);
        ig_answer_text(w, "text", first);
    }
}

/* ---- channels ------------------------------------------------------------------------------- */

static const ig_channel_form *form_of(const writer *w) { return w->x->call->server->thoughts->channels; }

/* From the first head on. Only thoughts come before what has a form, or a call that must be made. */
static void put_rest(const writer *w) {
    const ig_exchange *x = w->x;
    const ig_channel_form *form = form_of(w);
    bool is_free = !x->tools.must_call, has_form = x->grammar != NULL;
    fprintf(w->to, "rest ::= %slast\nlast ::=", x->thoughts || !has_form ? "(other next)* " : "");
    const char *calls = !has_calls(x) ? "" : is_free ? " | calls" : " calls";
    if (is_free) ig_answer_mark(w, form->answers);
    if (is_free) fputs(has_form ? " form-root" : " text", w->to);
    if (is_free && !has_form && has_calls(x) && form->has_recipients) fputs(" (next calls)?", w->to);
    fprintf(w->to, "%s\nother ::=", calls);
    if (form->has_recipients) {
        ig_answer_mark(w, form->thinks);
        fputs(" text", w->to);
    } else {
        fprintf(w->to, " channel (\"analysis\"%s)", is_free && !has_form ? " | \"commentary\"" : "");
        ig_answer_mark(w, "<|message|>");
        fputs(" text\nchannel ::=", w->to);
        ig_answer_mark(w, "<|channel|>");
    }
    fputs("\nnext ::=", w->to);
    ig_answer_mark(w, form->next);
    fputc('\n', w->to);
    ig_answer_text(w, "text", form->end);
    if (has_calls(x) && form->has_recipients && !x->tools.is_single)
        fprintf(w->to, "calls ::= call (next call){0,%d}\n", CALLS_MAX - 1);
    else if (has_calls(x))
        fputs("calls ::= call\n", w->to);
}

/* The prompt ends before a head or what stands before one, or within thoughts or text that the answer goes on with. */
static void put_messages(const writer *w) {
    const ig_exchange *x = w->x;
    bool is_within_text = x->stage == IG_THOUGHTS_OVER;
    fputs("root ::=", w->to);
    if (is_within_text && !x->tools.must_call) {
        fputs(x->grammar ? " form-root\n" : " text (next calls)?\n", w->to);
    } else if (x->stage == IG_THOUGHTS_POSSIBLE) {
        fputs(" (", w->to);
        ig_answer_mark(w, form_of(w)->start);
        fputs(" )? rest\n", w->to);
    } else {
        fputs(is_within_text ? " next rest\n" : " text next rest\n", w->to);
    }
    put_rest(w);
    if (x->grammar) put_renamed(w->to, x->grammar, "form-");
}

/* What stands before a function's name, and behind it. Models write the channel in either place. */
static void put_heads(const writer *w) {
    static const char channel[] = "(channel (\"commentary\" | \"analysis\"))?";
    fprintf(w->to, "to ::= %s \" to=functions.\"\nhead ::= %s ((\" \" | constrain | \" \" constrain) \"json\")?",
            channel, channel);
    ig_answer_mark(w, "<|message|>");
    fputs("\nconstrain ::=", w->to);
    ig_answer_mark(w, "<|constrain|>");
    fputc('\n', w->to);
}

/* ---- calls --------------------------------------------------------------------------------- */

static void put_calls(const writer *w) {
    const ig_tool_format *f = w->format;
    fputs("calls ::=", w->to);
    ig_answer_mark(w, f->begin);
    fputs(" call", w->to);
    if (f->has_lists && !w->x->tools.is_single) {
        fputs(" (", w->to);
        ig_answer_mark(w, f->between);
        fprintf(w->to, " call){0,%d}", CALLS_MAX - 1);
    }
    ig_answer_mark(w, f->end);
    fputs(" \"\\n\"?\n", w->to); /* some models go on with one where another call could begin, and then end */
}

/* The head of a call's message, and what stands before its function's name in the body. */
static void put_recipient(const writer *w, const json_t *name) {
    fputs(" \" to=\"", w->to);
    put_literal(w->to, json_string_value(name), json_string_length(name));
    ig_answer_mark(w, "<|message|>");
    ig_answer_mark(w, w->format->begin);
    ig_answer_mark(w, w->format->before);
}

static bool put_call(const writer *w) {
    const ig_tools *t = &w->x->tools;
    const ig_tool_format *f = w->format;
    size_t i;
    json_t *tool;
    bool is_first = true;
    fputs("call ::=", w->to);
    if (f->has_channels) fputs(" to", w->to);
    if (!f->has_recipients) ig_answer_mark(w, f->before);
    fputs(" (", w->to);
    json_array_foreach(t->list, i, tool) {
        const json_t *name = json_object_get(json_object_get(tool, "function"), "name");
        if (!is_first) fputs(" |", w->to);
        is_first = false;
        if (f->has_recipients) put_recipient(w, name);
        put_literal(w->to, json_string_value(name), json_string_length(name));
        if (f->has_channels) fputs(" head", w->to);
        ig_answer_mark(w, f->middle);
        fprintf(w->to, " tool%zu-root", i);
    }
    fputs(" )", w->to);
    ig_answer_mark(w, f->after);
    if (f->has_recipients) ig_answer_mark(w, f->end);
    fputc('\n', w->to);
    if (f->has_pairs) ig_answer_text(w, "value", f->value_end);
    if (*f->quote) ig_answer_any_quoted(w);
    json_array_foreach(t->list, i, tool) {
        if (!put_arguments(w, json_object_get(tool, "function"), i)) return false;
    }
    return true;
}

static bool put_rules(const writer *w) {
    bool has_channels = w->x->has_channels;
    if (has_channels) {
        put_messages(w);
    } else {
        put_root(w);
        put_answer(w);
    }
    if (!has_calls(w->x)) return true;
    if (w->format->has_channels) put_heads(w);
    if (!has_channels) put_calls(w);
    return put_call(w);
}

/* *is_large: it would take too long to make. */
static bool make_rules(ig_exchange *x, bool is_loose, char **rules, bool *is_large) {
    size_t n = 0, work = WORK_MAX;
    *rules = NULL;
    writer w = {x, x->call->server->tool_format, open_memstream(rules, &n), is_loose, &work};
    bool ok = w.to && put_rules(&w), failed = !w.to || ferror(w.to);
    *is_large = work == 0;
    if ((w.to && fclose(w.to)) || failed || !*rules)
        return ig_refuse(x->call, 500, NULL, "out of memory for a grammar");
    return ok;
}

/* Where schemas make it too large, what is not strict is left to the model. */
static bool make_grammar(ig_exchange *x) {
    ig_error err = {0};
    char *rules = NULL;
    for (int is_loose = 0; is_loose < 2; is_loose++) {
        bool is_large, ok = make_rules(x, is_loose, &rules, &is_large);
        ig_status s = !ok        ? IG_OK
                      : is_large ? ig_text_fail(&err, IG_E_LIMIT, "the schemas of their arguments are too large")
                                 : ig_grammar_check(rules, &err);
        if (ok && !s) {
            free(x->grammar);
            x->grammar = rules;
            return true;
        }
        free(rules);
        if (!ok) return false;
        if (s != IG_E_LIMIT) break;
    }
    return ig_refuse(x->call, err.status == IG_E_MEMORY ? 500 : 400, x->tools.list ? "tools" : NULL,
                     "the form of answers, with their %s: %s", x->tools.list ? "tools" : "thoughts", err.text);
}

bool ig_exchange_constrain(ig_exchange *x) {
    const ig_tool_format *f = x->call->server->tool_format;
    const ig_thought_marks *m = x->thoughts;
    x->ask.generate.special = x->shows_special || x->has_channels || (x->tools.list && f->has_controls) ||
                              (x->stage != IG_THOUGHTS_OVER && ig_mark_has_controls(x->call->server->o->model, m->end));
    x->tools.is_single |= !f->has_lists; /* the template would refuse several when they come back */
    return (!has_calls(x) && (!x->grammar || x->stage == IG_THOUGHTS_OVER)) || make_grammar(x);
}
