/* SPDX-License-Identifier: Apache-2.0
 *
 * GBNF to rules. A file is a list of rules; while they are read, a CALL holds the number of its reference, and once all
 * are there, the node that the rule of this name begins at.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "format/names.h"
#include "grammar/rules.h"
#include "token/utf8.h"

enum { DEPTH_MAX = 64, REPEAT_MAX = 100000, CHARACTERS_MAX = 4096, TEXT_MAX = 1 << 23, TOKEN_MAX = 1 << 20 };

typedef struct name {
    size_t text;     /* at this byte of parser.names */
    uint32_t line;   /* where it stands */
    uint32_t target; /* of a rule: its first node */
} name;

typedef struct names {
    name *v; /* [n] */
    uint32_t n, cap;
} names;

typedef struct parser {
    ig_rules *rules;
    const char *at; /* in a text that ends with NUL */
    uint32_t line;
    int depth; /* of groups */
    ig_buffer texts;
    names defined, used;
    ig_error *err;
} parser;

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* Ends the building; the first error is the one that counts. */
static void fail(parser *p, const char *what) {
    if (p->rules->status) return;
    p->rules->status = ig_fail(p->err, IG_E_FORMAT, "grammar, line %u: %s", p->line, what);
}

static void skip_blanks(parser *p, bool with_lines) {
    for (;; p->at++) {
        if (*p->at == '#')
            while (p->at[1] && p->at[1] != '\n') p->at++;
        else if (*p->at == '\n' && with_lines)
            p->line++;
        else if (*p->at != ' ' && *p->at != '\t' && *p->at != '\r')
            return;
    }
}

static uint32_t add_name(parser *p, names *all) {
    size_t size = 0;
    while (is_name(p->at[size])) size++;
    if (all->n == all->cap && !p->rules->status) {
        uint32_t cap = all->cap ? 2 * all->cap : 64;
        name *v = realloc(all->v, cap * sizeof *v);
        if (!v)
            p->rules->status = IG_E_MEMORY;
        else
            all->v = v, all->cap = cap;
    }
    if (!p->rules->status) all->v[all->n] = (name){p->texts.size, p->line, 0};
    ig_buffer_add(&p->texts, p->at, size);
    ig_buffer_add(&p->texts, "", 1);
    if (p->texts.failed) p->rules->status = IG_E_MEMORY;
    p->at += size;
    return p->rules->status ? 0 : all->n++;
}

/* ---- characters ---------------------------------------------------------------------- */

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static uint32_t hexadecimal(parser *p, int n) {
    uint32_t code = 0;
    for (int i = 0; i < n; i++, p->at++) {
        if (digit(*p->at) < 0) {
            fail(p, "an escape has too few hexadecimal digits");
            return 0;
        }
        code = code << 4 | (uint32_t)digit(*p->at);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) fail(p, "an escape is no Unicode character");
    return code;
}

static uint32_t escape(parser *p) {
    char c = *p->at;
    if (!c || !strchr("xuUtrn\"\\[]^-", c)) {
        fail(p, "an escape is not known");
        return 0;
    }
    p->at++;
    switch (c) {
        case 'x':
            return hexadecimal(p, 2);
        case 'u':
            return hexadecimal(p, 4);
        case 'U':
            return hexadecimal(p, 8);
        case 't':
            return '\t';
        case 'r':
            return '\r';
        case 'n':
            return '\n';
        default:
            return (uint32_t)c;
    }
}

/* A character of a text or class. */
static uint32_t character(parser *p) {
    uint32_t code;
    if (*p->at == '\\') {
        p->at++;
        return escape(p);
    }
    size_t size = *p->at ? ig_utf8_next(p->at, strnlen(p->at, 4), &code) : 0;
    if (!size) {
        fail(p, *p->at ? "it is not UTF-8" : "it ends within a text or class");
        return 0;
    }
    if (*p->at == '\n') p->line++;
    p->at += size;
    return code;
}

static ig_fragment text(parser *p) {
    ig_fragment all = ig_rules_empty(p->rules);
    bool is_empty;
    for (p->at++; *p->at != '"' && !p->rules->status;) {
        uint32_t code = character(p);
        ig_rules_append(p->rules, &all, ig_rules_characters(p->rules, &(ig_range){code, code}, 1, false, &is_empty));
    }
    if (!p->rules->status) p->at++;
    return all;
}

static ig_fragment class(parser *p) {
    ig_range ranges[CHARACTERS_MAX];
    size_t n = 0;
    bool is_empty, others = p->at[1] == '^';
    for (p->at += 1 + others; *p->at != ']' && !p->rules->status;) {
        if (n == CHARACTERS_MAX) {
            fail(p, "a class has too many characters");
            break;
        }
        ig_range *r = &ranges[n++];
        r->low = r->high = character(p);
        if (*p->at != '-' || p->at[1] == ']') continue;
        p->at++;
        r->high = character(p);
        if (r->high < r->low) fail(p, "a range of characters is empty");
    }
    if (p->rules->status) return (ig_fragment){0};
    p->at++;
    ig_fragment one = ig_rules_characters(p->rules, ranges, n, others, &is_empty);
    if (is_empty) fail(p, "a class is empty");
    return one;
}

static ig_fragment any(parser *p) {
    bool is_empty;
    p->at++;
    return ig_rules_characters(p->rules, NULL, 0, true, &is_empty);
}

/* <[number]>; any but that, which llama.cpp has, too, is refused. */
static ig_fragment token(parser *p) {
    int32_t id = 0;
    if (*p->at == '!') {
        fail(p, "'!': all tokens but one are not supported");
        return (ig_fragment){0};
    }
    for (p->at += 2; *p->at >= '0' && *p->at <= '9' && id < TOKEN_MAX; p->at++) id = 10 * id + digit(*p->at);
    if (p->at[-1] == '[' || strncmp(p->at, "]>", 2) != 0) fail(p, "a token is <[number]>");
    if (p->rules->status) return (ig_fragment){0};
    p->at += 2;
    return ig_rules_token(p->rules, id);
}

/* ---- what stands together -------------------------------------------------------------- */

static ig_fragment alternatives(parser *p);

static ig_fragment group(parser *p) {
    p->at++;
    if (++p->depth > DEPTH_MAX) fail(p, "groups are nested too deeply");
    ig_fragment all = p->rules->status ? (ig_fragment){0} : alternatives(p);
    if (*p->at == ')')
        p->at++;
    else
        fail(p, "a group does not end");
    p->depth--;
    return all;
}

static ig_fragment reference(parser *p) { return ig_rules_call(p->rules, add_name(p, &p->used)); }

static uint32_t number(parser *p) {
    uint32_t n = 0;
    skip_blanks(p, false);
    if (digit(*p->at) < 0 || digit(*p->at) > 9) fail(p, "a number of repetitions is missing");
    for (; *p->at >= '0' && *p->at <= '9' && n <= REPEAT_MAX; p->at++) n = 10 * n + (uint32_t)digit(*p->at);
    if (n > REPEAT_MAX) fail(p, "too many repetitions");
    skip_blanks(p, false);
    return n;
}

/* {m}, {m,} or {m,n} */
static void braces(parser *p, uint32_t *least, uint32_t *most) {
    p->at++;
    *least = *most = number(p);
    if (*p->at == ',') {
        p->at++;
        skip_blanks(p, false);
        *most = *p->at == '}' ? UINT32_MAX : number(p);
    }
    if (*p->at != '}' || *most < *least) fail(p, "repetitions are {m}, {m,} or {m,n}");
    if (!p->rules->status) p->at++;
}

/* An item, which is what nodes from `begin` on are, as often as stands behind it. */
static ig_fragment repeated(parser *p, uint32_t begin, ig_fragment item) {
    for (;;) {
        uint32_t least = *p->at == '+', most = *p->at == '?' ? 1 : UINT32_MAX;
        if (p->rules->status || !*p->at || !strchr("*+?{", *p->at)) return item;
        if (*p->at == '{')
            braces(p, &least, &most);
        else
            p->at++;
        item = ig_rules_repeat(p->rules, begin, item, least, most);
        skip_blanks(p, p->depth > 0);
    }
}

static ig_fragment sequence(parser *p) {
    ig_fragment all = ig_rules_empty(p->rules);
    while (!p->rules->status) {
        uint32_t begin = p->rules->n;
        ig_fragment item;
        if (*p->at == '"')
            item = text(p);
        else if (*p->at == '[')
            item = class(p);
        else if (*p->at == '.')
            item = any(p);
        else if (*p->at == '(')
            item = group(p);
        else if ((p->at[0] == '<' && p->at[1] == '[') || (p->at[0] == '!' && p->at[1] == '<'))
            item = token(p);
        else if (is_name(*p->at))
            item = reference(p);
        else
            break;
        skip_blanks(p, p->depth > 0);
        item = repeated(p, begin, item);
        ig_rules_append(p->rules, &all, item);
    }
    return all;
}

/* Whether another alternative follows, also on the next line. */
static bool goes_on(parser *p) {
    parser before = *p;
    skip_blanks(p, true);
    if (*p->at == '|') return true;
    *p = before;
    return false;
}

static ig_fragment alternatives(parser *p) {
    uint32_t all = 0, end = ig_rules_add(p->rules, IG_RULE_SKIP, 0, 0);
    do {
        skip_blanks(p, true);
        ig_rules_either(p->rules, &all, sequence(p), end);
    } while (!p->rules->status && goes_on(p) && p->at++);
    return (ig_fragment){all, end};
}

static void rule(parser *p) {
    if (!is_name(*p->at)) {
        fail(p, "a rule 'name ::= ...' should stand here");
        return;
    }
    uint32_t i = add_name(p, &p->defined);
    skip_blanks(p, false);
    if (strncmp(p->at, "::=", 3) != 0) fail(p, "'::=' is missing");
    if (p->rules->status) return;
    p->at += 3;
    skip_blanks(p, true);
    ig_fragment all = alternatives(p);
    ig_rules_append(p->rules, &all, (ig_fragment){ig_rules_add(p->rules, IG_RULE_END, 0, 0), 0});
    p->defined.v[i].target = all.first;
    skip_blanks(p, false);
    if (*p->at && *p->at != '\n') fail(p, "this is not understood");
}

/* ---- the whole --------------------------------------------------------------------------- */

static ig_status fail_name(const parser *p, const name *n, const char *what) {
    return ig_fail(p->err, IG_E_FORMAT, "grammar, line %u: rule '%.64s' %s", n->line, p->texts.data + n->text, what);
}

/* Every CALL gets the node that it goes to. */
static ig_status resolve(parser *p) {
    ig_rules *r = p->rules;
    names *d = &p->defined;
    ig_name *sorted = malloc((d->n + 1) * sizeof *sorted);
    if (!sorted) return IG_E_MEMORY;
    for (uint32_t i = 0; i < d->n; i++) sorted[i] = (ig_name){p->texts.data + d->v[i].text, i};
    const char *twice = ig_names_sort(sorted, d->n);
    const ig_name *root = ig_names_find(sorted, d->n, "root");
    ig_status s = IG_OK;
    if (twice)
        s = ig_fail(p->err, IG_E_FORMAT, "grammar: rule '%.64s' is given twice", twice);
    else if (!root)
        s = ig_fail(p->err, IG_E_FORMAT, "grammar: there is no rule 'root'");
    else
        r->root = d->v[root->i].target;
    for (uint32_t i = 0; i < p->used.n && !s; i++) {
        const ig_name *to = ig_names_find(sorted, d->n, p->texts.data + p->used.v[i].text);
        if (to)
            p->used.v[i].target = d->v[to->i].target;
        else
            s = fail_name(p, &p->used.v[i], "is missing");
    }
    for (uint32_t i = 1; i < r->n && !s; i++)
        if (r->nodes[i].kind == IG_RULE_CALL) r->nodes[i].other = p->used.v[r->nodes[i].other].target;
    free(sorted);
    return s;
}

/* The first node from this one on that is no SKIP. */
static uint32_t past_skips(const ig_rules *r, uint32_t node) {
    while (r->nodes[node].kind == IG_RULE_SKIP) node = r->nodes[node].next;
    return node;
}

static void drop_skips(parser *p) {
    ig_rules *r = p->rules;
    for (uint32_t i = r->n; i-- > 1;) {
        ig_rule_node *n = &r->nodes[i];
        if (n->kind != IG_RULE_END) n->next = past_skips(r, n->next);
        if (n->kind == IG_RULE_FORK || n->kind == IG_RULE_CALL) n->other = past_skips(r, n->other);
    }
    r->root = past_skips(r, r->root);
    for (uint32_t i = 0; i < p->defined.n; i++) p->defined.v[i].target = past_skips(r, p->defined.v[i].target);
}

static ig_status parse(parser *p) {
    ig_rules *r = p->rules;
    skip_blanks(p, true);
    while (*p->at && !r->status) {
        rule(p);
        skip_blanks(p, true);
    }
    if (!r->status) r->status = resolve(p);
    if (r->status) return r->status;
    drop_skips(p);
    uint32_t bad;
    ig_status s = ig_rules_check(r, &bad);
    for (uint32_t i = 0; i < p->defined.n && !s && bad; i++)
        if (p->defined.v[i].target == bad) s = fail_name(p, &p->defined.v[i], "begins with itself");
    return s ? s : ig_rules_trim(r);
}

ig_status ig_rules_parse(ig_rules *out, const char *gbnf, ig_error *err) {
    *out = (ig_rules){0};
    parser p = {.rules = out, .at = gbnf, .line = 1, .err = err};
    if (strnlen(gbnf, TEXT_MAX + 1) > TEXT_MAX) return ig_fail(err, IG_E_LIMIT, "the grammar is too large");
    ig_status s = parse(&p);
    if (s == IG_E_MEMORY) ig_fail_memory(err, "grammar", out->n * sizeof *out->nodes);
    if (s == IG_E_LIMIT) ig_fail(err, s, "the grammar is too large");
    free(p.defined.v);
    free(p.used.v);
    ig_buffer_close(&p.texts);
    if (s) ig_rules_close(out);
    return s;
}

ig_status ig_grammar_check(const char *gbnf, ig_error *err) {
    ig_rules rules;
    if (!gbnf) return ig_fail(err, IG_E_ARG, "ig_grammar_check: a text is needed");
    ig_status s = ig_rules_parse(&rules, gbnf, err);
    ig_rules_close(&rules);
    return s;
}
