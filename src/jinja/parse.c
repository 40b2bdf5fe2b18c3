/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to the tree of a template: its tags.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "jinja/node.h"

/* ---- what both files of the parser use ---------------------------------- */

void ig_j_parse_refuse(ig_j_parser *p, ig_status status, const char *format, ...) {
    char text[256];
    va_list args;
    if (p->status) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->status = ig_fail(p->err, status, "chat template, line %d: %s", p->now.line, text);
    p->now = (ig_j_token){IG_J_TOKEN_END, p->now.line, {"", 0}};
}

void ig_j_parse_unexpected(ig_j_parser *p, const char *wanted) {
    static const char *const names[] = {"the template's end", "", "text", "'{{'", "'}}'", "'{%'", "'%}'"};
    ig_text found = p->now.text;
    if (p->now.kind <= IG_J_TOKEN_TAG_END) found = (ig_text){names[p->now.kind], strlen(names[p->now.kind])};
    ig_j_parse_refuse(p, IG_E_FORMAT, "%s is wanted, and there is %.*s", wanted, IG_SHOW(found));
}

void ig_j_parse_next(ig_j_parser *p) {
    if (p->status) return;
    p->now = ig_j_lex(&p->lexer);
    if (p->now.kind == IG_J_TOKEN_BAD) ig_j_parse_refuse(p, IG_E_FORMAT, "%.*s", IG_SHOW(p->now.text));
}

static bool is_text(ig_j_token t, const char *text) {
    return (t.kind == IG_J_TOKEN_NAME || t.kind == IG_J_TOKEN_SIGN) && ig_j_same(t.text, (ig_text){text, strlen(text)});
}

bool ig_j_parse_is(const ig_j_parser *p, const char *text) { return is_text(p->now, text); }

bool ig_j_parse_is_next(const ig_j_parser *p, const char *text) {
    ig_j_lexer ahead = p->lexer;
    return is_text(ig_j_lex(&ahead), text);
}

bool ig_j_parse_skip(ig_j_parser *p, const char *text) {
    bool is = ig_j_parse_is(p, text);
    if (is) ig_j_parse_next(p);
    return is;
}

void ig_j_parse_expect(ig_j_parser *p, const char *text) {
    if (!ig_j_parse_skip(p, text)) ig_j_parse_unexpected(p, text);
}

ig_text ig_j_parse_name(ig_j_parser *p) {
    ig_text name = p->now.text;
    if (p->now.kind != IG_J_TOKEN_NAME) ig_j_parse_unexpected(p, "a name");
    ig_j_parse_next(p);
    return name;
}

bool ig_j_parse_enter(ig_j_parser *p) {
    if (p->depth >= IG_JINJA_NESTED) ig_j_parse_refuse(p, IG_E_LIMIT, "nested too deeply");
    if (p->status) return false;
    p->depth++;
    return true;
}

ig_j_node *ig_j_parse_node(ig_j_parser *p, ig_j_node_kind kind) {
    ig_j_node *n = p->status ? NULL : ig_j_pool_take(p->pool, sizeof *n);
    if (!n) {
        ig_j_parse_refuse(p, IG_E_LIMIT, "the template is too large");
        n = &p->spare;
        *n = (ig_j_node){0};
    }
    n->kind = kind;
    n->line = p->now.line;
    return n;
}

/* ---- tags -------------------------------------------------------------- */

/* Refuses a filter or test that is not there. */
static void settle(ig_j_parser *p) {
    if (p->lacking && !p->may_lack)
        ig_j_parse_refuse(p, IG_E_UNSUPPORTED, "there is no %s '%.*s'",
                          p->lacking->kind == IG_J_NODE_FILTER ? "filter" : "test", IG_SHOW(p->lacking->name));
    p->lacking = NULL;
}

static void end_tag(ig_j_parser *p) {
    settle(p);
    if (p->now.kind != IG_J_TOKEN_TAG_END) ig_j_parse_unexpected(p, "'%}'");
    ig_j_parse_next(p);
}

static ig_j_node *parse_statements(ig_j_parser *p, const char *ends);

/* From the end of a tag up to the tag that is one of `ends`, whose name is the token then. */
static ig_j_node *parse_body(ig_j_parser *p, const char *ends, bool may_lack) {
    bool before = p->may_lack;
    end_tag(p);
    p->may_lack = may_lack;
    ig_j_node *body = parse_statements(p, ends);
    p->may_lack = before;
    return body;
}

/* The same of a body that is a scope of its own; takes the name. Loops around one of macros are not its own. */
static ig_j_node *parse_scope(ig_j_parser *p, const char *end, bool is_macro) {
    int n_loops = p->n_loops;
    if (is_macro) p->n_loops = 0;
    ig_j_node *body = parse_body(p, end, false);
    p->n_loops = n_loops;
    ig_j_parse_next(p);
    return body;
}

static ig_j_node *parse_target(ig_j_parser *p, bool attributes);

static ig_j_node *parse_one_target(ig_j_parser *p, bool attributes) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_NAME);
    if (ig_j_parse_skip(p, "(")) {
        if (!ig_j_parse_enter(p)) return n;
        n = parse_target(p, attributes);
        p->depth--;
        ig_j_parse_expect(p, ")");
        return n;
    }
    static const char *const constants[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < IG_COUNT(constants); i++)
        if (ig_j_parse_is(p, constants[i])) ig_j_parse_unexpected(p, "a name");
    n->name = ig_j_parse_name(p);
    if (attributes && ig_j_parse_skip(p, ".")) {
        ig_j_node *of = n;
        n = ig_j_parse_node(p, IG_J_NODE_ATTRIBUTE);
        n->a = of;
        n->name = ig_j_parse_name(p);
    }
    return n;
}

/* What is assigned to: a name, an attribute, or several. */
static ig_j_node *parse_target(ig_j_parser *p, bool attributes) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_TUPLE), **at = &n->a;
    bool is_tuple = false;
    do {
        *at = parse_one_target(p, attributes);
        at = &(*at)->next;
        if (!ig_j_parse_skip(p, ",")) break;
        is_tuple = true;
    } while (p->now.kind == IG_J_TOKEN_NAME ? !ig_j_parse_is(p, "in") : ig_j_parse_is(p, "("));
    return is_tuple ? n : n->a;
}

static ig_j_node *parse_if(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_IF), *last = n;
    bool before = p->may_lack;
    p->may_lack = true;
    for (;;) {
        last->a = ig_j_parse_tuple(p, false);
        last->b = parse_body(p, "elif else endif", true);
        if (!ig_j_parse_skip(p, "elif")) break;
        last = last->c = ig_j_parse_node(p, IG_J_NODE_IF);
    }
    if (ig_j_parse_skip(p, "else")) last->c = parse_body(p, "endif", true);
    ig_j_parse_next(p);
    p->may_lack = before;
    return n;
}

static ig_j_node *parse_for(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_FOR);
    n->a = parse_target(p, false);
    ig_j_parse_expect(p, "in");
    n->b = ig_j_parse_tuple(p, false);
    if (ig_j_parse_skip(p, "if")) n->d = ig_j_parse_expression(p);
    if (ig_j_parse_is(p, "recursive")) ig_j_parse_refuse(p, IG_E_UNSUPPORTED, "recursive loops are not supported");
    p->n_loops++;
    n->c = parse_body(p, "else endfor", false);
    p->n_loops--;
    if (ig_j_parse_skip(p, "else")) n->e = parse_body(p, "endfor", false);
    ig_j_parse_next(p);
    return n;
}

static ig_j_node *parse_set(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_SET);
    n->a = parse_target(p, true);
    if (ig_j_parse_skip(p, "=")) {
        n->b = ig_j_parse_tuple(p, true);
        return n;
    }
    n->kind = IG_J_NODE_SET_BLOCK;
    n->b = ig_j_parse_filters(p, ig_j_parse_node(p, IG_J_NODE_CAPTURED));
    n->c = parse_scope(p, "endset", false);
    return n;
}

static void parse_parameters(ig_j_parser *p, ig_j_node **at) {
    ig_j_parse_expect(p, "(");
    for (bool defaults = false; !ig_j_parse_skip(p, ")") && !p->status; at = &(*at)->next) {
        *at = ig_j_parse_node(p, IG_J_NODE_NAME);
        (*at)->name = ig_j_parse_name(p);
        if (ig_j_parse_skip(p, "="))
            (*at)->a = ig_j_parse_expression(p), defaults = true;
        else if (defaults)
            ig_j_parse_unexpected(p, "a default");
        if (!ig_j_parse_is(p, ")")) ig_j_parse_expect(p, ",");
    }
}

static ig_j_node *parse_macro(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_MACRO);
    n->name = ig_j_parse_name(p);
    parse_parameters(p, &n->a);
    n->c = parse_scope(p, "endmacro", true);
    return n;
}

static ig_j_node *parse_call_block(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_CALL_BLOCK);
    n->name = IG_J_NAMED("caller");
    if (ig_j_parse_is(p, "(")) parse_parameters(p, &n->a);
    n->b = ig_j_parse_expression(p);
    if (n->b->kind != IG_J_NODE_CALL) ig_j_parse_unexpected(p, "a call before this");
    n->c = parse_scope(p, "endcall", true);
    return n;
}

static ig_j_node *parse_filter_block(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_FILTER_BLOCK);
    n->b = ig_j_parse_filters(p, ig_j_parse_filter(p, ig_j_parse_node(p, IG_J_NODE_CAPTURED)));
    n->c = parse_scope(p, "endfilter", false);
    return n;
}

static ig_j_node *parse_with(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_WITH), **at = &n->a;
    while (p->now.kind == IG_J_TOKEN_NAME) {
        *at = ig_j_parse_node(p, IG_J_NODE_SET);
        (*at)->a = parse_one_target(p, false);
        ig_j_parse_expect(p, "=");
        (*at)->b = ig_j_parse_expression(p);
        at = &(*at)->next;
        if (!ig_j_parse_skip(p, ",")) break;
    }
    n->c = parse_scope(p, "endwith", false);
    return n;
}

/* Training's mark around answers: a scope, no more. */
static ig_j_node *parse_generation(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_WITH);
    n->c = parse_scope(p, "endgeneration", true);
    return n;
}

static ig_j_node *parse_jump(ig_j_parser *p, ig_j_node_kind kind) {
    if (!p->n_loops) ig_j_parse_refuse(p, IG_E_FORMAT, "no loop is around it");
    return ig_j_parse_node(p, kind);
}

static ig_j_node *parse_break(ig_j_parser *p) { return parse_jump(p, IG_J_NODE_BREAK); }
static ig_j_node *parse_continue(ig_j_parser *p) { return parse_jump(p, IG_J_NODE_CONTINUE); }

static ig_j_node *parse_tag(ig_j_parser *p) {
    static const struct {
        const char *name;
        ig_j_node *(*parse)(ig_j_parser *p);
    } tags[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_continue},
    };
    for (size_t i = 0; i < IG_COUNT(tags); i++)
        if (ig_j_parse_skip(p, tags[i].name)) return tags[i].parse(p);
    ig_j_parse_refuse(p, IG_E_UNSUPPORTED, "the tag '%.*s' is not supported here", IG_SHOW(p->now.text));
    return ig_j_parse_node(p, IG_J_NODE_BREAK);
}

static ig_j_node *parse_text(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_OUTPUT);
    n->a = ig_j_parse_node(p, IG_J_NODE_CONST);
    n->a->value = ig_j_string(p->now.text);
    ig_j_parse_next(p);
    return n;
}

static ig_j_node *parse_output(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_OUTPUT);
    ig_j_parse_next(p);
    n->a = ig_j_parse_tuple(p, true);
    settle(p);
    if (p->now.kind != IG_J_TOKEN_OUTPUT_END) ig_j_parse_unexpected(p, "'}}'");
    ig_j_parse_next(p);
    return n;
}

static bool is_one_of(const ig_j_parser *p, const char *words) {
    const char *hit =
        p->now.kind == IG_J_TOKEN_NAME ? memmem(words, strlen(words), p->now.text.data, p->now.text.size) : NULL;
    if (!hit) return false;
    char after = hit[p->now.text.size];
    return (hit == words || hit[-1] == ' ') && (after == ' ' || !after);
}

static ig_j_node *parse_statements(ig_j_parser *p, const char *ends) {
    ig_j_node *first = NULL, **at = &first;
    if (!ig_j_parse_enter(p)) return NULL;
    while (p->now.kind != IG_J_TOKEN_END) {
        if (p->now.kind == IG_J_TOKEN_DATA) {
            *at = parse_text(p);
        } else if (p->now.kind == IG_J_TOKEN_OUTPUT) {
            *at = parse_output(p);
        } else {
            ig_j_parse_next(p);
            if (is_one_of(p, ends)) break;
            *at = parse_tag(p);
            end_tag(p);
        }
        at = &(*at)->next;
    }
    if (*ends && p->now.kind == IG_J_TOKEN_END) ig_j_parse_unexpected(p, ends);
    p->depth--;
    return first;
}

ig_status ig_j_parse(ig_j_parser *p, const ig_j_node **body) {
    ig_j_parse_next(p);
    *body = parse_statements(p, "");
    return p->status;
}
