/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens to the trees of expressions, by recursive descent in the order in which Jinja's operators bind.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "jinja/node.h"

static ig_j_node *of(ig_j_parser *p, ig_j_node_kind kind, ig_j_node *a) {
    ig_j_node *n = ig_j_parse_node(p, kind);
    n->a = a;
    return n;
}

/* ---- constants --------------------------------------------------------- */

/* The digits of an escape, at most n of a base. -1: too few, or no character. */
static int32_t read_digits(ig_text s, size_t *at, int n, uint32_t base) {
    uint32_t code = 0;
    int i = 0;
    for (; i < n && *at < s.size; i++, ++*at) {
        char c = s.data[*at];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit >= base) break;
        code = code * base + digit;
    }
    bool enough = base == 8 ? i > 0 : i == n;
    return enough && utf8proc_codepoint_valid((utf8proc_int32_t)code) ? (int32_t)code : -1;
}

/* What a backslash and the characters at *at stand for, into out; its size. */
static size_t unescape(ig_j_parser *p, ig_text s, size_t *at, char out[4]) {
    static const char plain[] = "\\'\"abfnrtv", made[] = "\\'\"\a\b\f\n\r\t\v";
    char c = s.data[*at];
    const char *known = memchr(plain, c, sizeof plain - 1);
    int n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : c >= '0' && c <= '7' ? 3 : 0;
    if (known) {
        out[0] = made[known - plain];
        ++*at;
        return 1;
    }
    if (c == '\n') return ++*at, 0;
    if (c == 'N') ig_j_parse_refuse(p, IG_E_UNSUPPORTED, "\\N in a string is not supported");
    if (!n_digits) return out[0] = '\\', 1;
    if (n_digits != 3) ++*at;
    int32_t code = read_digits(s, at, n_digits, n_digits == 3 ? 8 : 16);
    if (code >= 0) return (size_t)utf8proc_encode_char(code, (utf8proc_uint8_t *)out);
    ig_j_parse_refuse(p, IG_E_FORMAT, "an escape in a string stands for no character");
    return 0;
}

static ig_text parse_string(ig_j_parser *p, ig_text s) {
    char *text = ig_j_pool_take(p->pool, s.size + 4), *end = text;
    if (!text) return ig_j_parse_refuse(p, IG_E_LIMIT, "too large"), s;
    for (size_t at = 0; at < s.size && !p->status;) {
        if (s.data[at] == '\\')
            at++, end += unescape(p, s, &at, end);
        else
            *end++ = s.data[at++];
    }
    return (ig_text){text, (size_t)(end - text)};
}

static ig_j_node *parse_strings(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_CONST);
    ig_text all = parse_string(p, p->now.text);
    for (ig_j_parse_next(p); p->now.kind == IG_J_TOKEN_STRING; ig_j_parse_next(p)) {
        ig_text more = parse_string(p, p->now.text);
        char *text = ig_j_pool_take(p->pool, all.size + more.size);
        if (!text) return ig_j_parse_refuse(p, IG_E_LIMIT, "too large"), n;
        memcpy(text, all.data, all.size);
        memcpy(text + all.size, more.data, more.size);
        all = (ig_text){text, all.size + more.size};
    }
    n->value = ig_j_string(all);
    return n;
}

static ig_j_node *parse_number(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_CONST);
    errno = 0;
    n->value = p->now.kind == IG_J_TOKEN_INT ? ig_j_int(strtoll(p->now.text.data, NULL, 10))
                                             : ig_j_float(strtod(p->now.text.data, NULL));
    if (p->now.kind == IG_J_TOKEN_INT && errno) ig_j_parse_refuse(p, IG_E_LIMIT, "a number is too large");
    ig_j_parse_next(p);
    return n;
}

static ig_j_node *parse_name(ig_j_parser *p) {
    static const struct {
        const char *name;
        ig_j_value value;
    } known[] = {{"true", {.kind = IG_J_BOOL, .yes = true}},
                 {"True", {.kind = IG_J_BOOL, .yes = true}},
                 {"false", {.kind = IG_J_BOOL}},
                 {"False", {.kind = IG_J_BOOL}},
                 {"none", {.kind = IG_J_NONE}},
                 {"None", {.kind = IG_J_NONE}}};
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_NAME);
    for (size_t i = 0; i < IG_COUNT(known); i++)
        if (ig_j_parse_is(p, known[i].name)) n->kind = IG_J_NODE_CONST, n->value = known[i].value;
    n->name = ig_j_parse_name(p);
    return n;
}

/* ---- brackets ---------------------------------------------------------- */

/* Expressions up to the closing sign, which is taken. A dict's are keys and values in turn. */
static void parse_items(ig_j_parser *p, ig_j_node **items, const char *close, bool is_dict) {
    while (!ig_j_parse_skip(p, close) && !p->status) {
        *items = ig_j_parse_expression(p);
        items = &(*items)->next;
        if (is_dict) {
            ig_j_parse_expect(p, ":");
            *items = ig_j_parse_expression(p);
            items = &(*items)->next;
        }
        if (!ig_j_parse_is(p, close)) ig_j_parse_expect(p, ",");
    }
}

static ig_j_node *parse_brackets(ig_j_parser *p, ig_j_node_kind kind, const char *close) {
    ig_j_node *n = ig_j_parse_node(p, kind);
    ig_j_parse_next(p);
    parse_items(p, &n->a, close, kind == IG_J_NODE_DICT);
    return n;
}

static ig_j_node *parse_parentheses(ig_j_parser *p) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_TUPLE);
    ig_j_parse_next(p);
    if (ig_j_parse_skip(p, ")")) return n;
    n = ig_j_parse_tuple(p, true);
    ig_j_parse_expect(p, ")");
    return n;
}

static ig_j_node *parse_primary(ig_j_parser *p) {
    if (p->now.kind == IG_J_TOKEN_NAME) return parse_name(p);
    if (p->now.kind == IG_J_TOKEN_STRING) return parse_strings(p);
    if (p->now.kind == IG_J_TOKEN_INT || p->now.kind == IG_J_TOKEN_FLOAT) return parse_number(p);
    if (ig_j_parse_is(p, "(")) return parse_parentheses(p);
    if (ig_j_parse_is(p, "[")) return parse_brackets(p, IG_J_NODE_LIST, "]");
    if (ig_j_parse_is(p, "{")) return parse_brackets(p, IG_J_NODE_DICT, "}");
    ig_j_parse_unexpected(p, "an expression");
    return ig_j_parse_node(p, IG_J_NODE_CONST);
}

/* ---- what follows a value ---------------------------------------------- */

static void parse_arguments(ig_j_parser *p, ig_j_node **at) {
    bool named = false;
    ig_j_parse_expect(p, "(");
    while (!ig_j_parse_skip(p, ")") && !p->status) {
        ig_text name = {0};
        if (ig_j_parse_is(p, "*") || ig_j_parse_is(p, "**"))
            ig_j_parse_refuse(p, IG_E_UNSUPPORTED, "arguments from a list or dict (*, **) are not supported");
        if (p->now.kind == IG_J_TOKEN_NAME && ig_j_parse_is_next(p, "=")) {
            name = ig_j_parse_name(p);
            ig_j_parse_next(p);
        } else if (named) {
            ig_j_parse_unexpected(p, "a name");
        }
        named = name.size > 0;
        ig_j_node *argument = of(p, IG_J_NODE_ARGUMENT, ig_j_parse_expression(p));
        argument->name = name;
        *at = argument;
        at = &argument->next;
        if (!ig_j_parse_is(p, ")")) ig_j_parse_expect(p, ",");
    }
}

static ig_j_node *parse_call(ig_j_parser *p, ig_j_node *callee) {
    ig_j_node *n = of(p, IG_J_NODE_CALL, callee);
    parse_arguments(p, &n->b);
    return n;
}

/* The item behind an opening bracket, or the slice: up to three expressions, colons between. */
static ig_j_node *parse_item(ig_j_parser *p, ig_j_node *a) {
    ig_j_node *n = of(p, IG_J_NODE_ITEM, a), **at = &n->b;
    bool more = true;
    for (int i = 0; i < 3 && !p->status; i++) {
        bool is_absent = !more || ig_j_parse_is(p, ":") || ig_j_parse_is(p, "]");
        *at = is_absent ? ig_j_parse_node(p, IG_J_NODE_CONST) : ig_j_parse_expression(p);
        if (is_absent) (*at)->value = ig_j_none();
        at = &(*at)->next;
        more = more && i < 2 && ig_j_parse_skip(p, ":");
        if (more) n->kind = IG_J_NODE_SLICE;
        if (n->kind == IG_J_NODE_ITEM) break;
    }
    ig_j_parse_expect(p, "]");
    return n;
}

static ig_j_node *parse_postfix(ig_j_parser *p, ig_j_node *n) {
    while (!p->status) {
        if (ig_j_parse_is(p, "(")) {
            n = parse_call(p, n);
        } else if (ig_j_parse_skip(p, "[")) {
            n = parse_item(p, n);
        } else if (ig_j_parse_skip(p, ".")) {
            bool is_item = p->now.kind == IG_J_TOKEN_INT;
            n = of(p, is_item ? IG_J_NODE_ITEM : IG_J_NODE_ATTRIBUTE, n);
            if (is_item)
                n->b = parse_number(p);
            else
                n->name = ig_j_parse_name(p);
        } else {
            break;
        }
    }
    return n;
}

ig_j_node *ig_j_parse_filter(ig_j_parser *p, ig_j_node *a) {
    ig_j_node *n = of(p, IG_J_NODE_FILTER, a);
    n->name = ig_j_parse_name(p);
    n->builtin = ig_j_filter_named(n->name);
    if (!n->builtin && !p->lacking) p->lacking = n;
    if (ig_j_parse_is(p, "(")) parse_arguments(p, &n->b);
    return n;
}

ig_j_node *ig_j_parse_filters(ig_j_parser *p, ig_j_node *n) {
    while (ig_j_parse_skip(p, "|")) n = ig_j_parse_filter(p, n);
    return n;
}

static bool begins_argument(const ig_j_parser *p) {
    if (p->now.kind == IG_J_TOKEN_NAME)
        return !ig_j_parse_is(p, "else") && !ig_j_parse_is(p, "or") && !ig_j_parse_is(p, "and");
    return (p->now.kind >= IG_J_TOKEN_STRING && p->now.kind <= IG_J_TOKEN_FLOAT) || ig_j_parse_is(p, "[") ||
           ig_j_parse_is(p, "{");
}

static ig_j_node *parse_test(ig_j_parser *p, ig_j_node *a) {
    bool negated = ig_j_parse_skip(p, "not");
    ig_j_node *n = of(p, IG_J_NODE_TEST, a);
    n->name = ig_j_parse_name(p);
    n->builtin = ig_j_test_named(n->name);
    if (!n->builtin && !p->lacking) p->lacking = n;
    if (ig_j_parse_is(p, "(")) {
        parse_arguments(p, &n->b);
    } else if (begins_argument(p)) {
        if (ig_j_parse_is(p, "is")) ig_j_parse_unexpected(p, "no second test");
        n->b = ig_j_parse_node(p, IG_J_NODE_ARGUMENT);
        n->b->a = parse_postfix(p, parse_primary(p));
    }
    return negated ? of(p, IG_J_NODE_NOT, n) : n;
}

static ig_j_node *parse_unary(ig_j_parser *p, bool with_filters) {
    ig_j_node *n;
    if (!ig_j_parse_enter(p)) return ig_j_parse_node(p, IG_J_NODE_CONST);
    if (ig_j_parse_is(p, "-") || ig_j_parse_is(p, "+")) {
        n = ig_j_parse_node(p, ig_j_parse_is(p, "-") ? IG_J_NODE_MINUS : IG_J_NODE_PLUS);
        ig_j_parse_next(p);
        n->a = parse_unary(p, false);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    while (with_filters && !p->status) {
        if (ig_j_parse_is(p, "|"))
            n = ig_j_parse_filters(p, n);
        else if (ig_j_parse_skip(p, "is"))
            n = parse_test(p, n);
        else if (ig_j_parse_is(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    p->depth--;
    return n;
}

/* ---- operators --------------------------------------------------------- */

enum { LEVEL_OR, LEVEL_AND, LEVEL_NOT, LEVEL_COMPARE, LEVEL_UNARY = 8 };

static const struct {
    int level;
    const char *text;
    ig_j_op op;
} operators[] = {
    {LEVEL_OR, "or", IG_J_OP_OR},
    {LEVEL_AND, "and", IG_J_OP_AND},
    {LEVEL_COMPARE, "==", IG_J_OP_EQ},
    {LEVEL_COMPARE, "!=", IG_J_OP_NE},
    {LEVEL_COMPARE, "<", IG_J_OP_LT},
    {LEVEL_COMPARE, "<=", IG_J_OP_LE},
    {LEVEL_COMPARE, ">", IG_J_OP_GT},
    {LEVEL_COMPARE, ">=", IG_J_OP_GE},
    {LEVEL_COMPARE, "in", IG_J_OP_IN},
    {4, "+", IG_J_OP_ADD},
    {4, "-", IG_J_OP_SUB},
    {5, "~", IG_J_OP_CONCAT},
    {6, "*", IG_J_OP_MUL},
    {6, "/", IG_J_OP_DIV},
    {6, "//", IG_J_OP_FLOOR_DIV},
    {6, "%", IG_J_OP_MOD},
    {7, "**", IG_J_OP_POW},
};

/* Takes an operator of this level; 0 if there is none. */
static ig_j_op parse_operator(ig_j_parser *p, int level) {
    if (level == LEVEL_COMPARE && ig_j_parse_is(p, "not") && ig_j_parse_is_next(p, "in")) {
        ig_j_parse_next(p);
        ig_j_parse_next(p);
        return IG_J_OP_NOT_IN;
    }
    for (size_t i = 0; i < IG_COUNT(operators); i++)
        if (operators[i].level == level && ig_j_parse_skip(p, operators[i].text)) return operators[i].op;
    return 0;
}

static ig_j_node *parse_level(ig_j_parser *p, int level);

static ig_j_node *parse_compare(ig_j_parser *p) {
    ig_j_node *first = parse_level(p, LEVEL_COMPARE + 1), *n = NULL, **at = NULL;
    for (ig_j_op op; (op = parse_operator(p, LEVEL_COMPARE)) != 0; at = &(*at)->next) {
        if (!n) n = of(p, IG_J_NODE_COMPARE, first), at = &n->b;
        *at = of(p, IG_J_NODE_ARGUMENT, parse_level(p, LEVEL_COMPARE + 1));
        (*at)->op = op;
    }
    return n ? n : first;
}

static ig_j_node *parse_level(ig_j_parser *p, int level) {
    if (level == LEVEL_UNARY) return parse_unary(p, true);
    if (level == LEVEL_COMPARE) return parse_compare(p);
    if (level == LEVEL_NOT) {
        if (!ig_j_parse_is(p, "not")) return parse_level(p, level + 1);
        if (!ig_j_parse_enter(p)) return ig_j_parse_node(p, IG_J_NODE_CONST);
        ig_j_parse_next(p);
        ig_j_node *n = of(p, IG_J_NODE_NOT, parse_level(p, level));
        p->depth--;
        return n;
    }
    ig_j_node *left = parse_level(p, level + 1);
    for (ig_j_op op; (op = parse_operator(p, level)) != 0;) {
        ig_j_node *n = of(p, IG_J_NODE_BINARY, left);
        n->op = op;
        n->b = parse_level(p, level + 1);
        left = n;
    }
    return left;
}

ig_j_node *ig_j_parse_expression(ig_j_parser *p) {
    if (!ig_j_parse_enter(p)) return ig_j_parse_node(p, IG_J_NODE_CONST);
    const ig_j_node *lacking = p->lacking;
    ig_j_node *n = parse_level(p, LEVEL_OR);
    while (ig_j_parse_skip(p, "if")) {
        n = of(p, IG_J_NODE_CHOICE, n);
        n->b = parse_level(p, LEVEL_OR);
        if (ig_j_parse_skip(p, "else")) n->c = ig_j_parse_expression(p);
        p->lacking = lacking; /* a choice may lack what it does not choose */
    }
    p->depth--;
    return n;
}

ig_j_node *ig_j_parse_tuple(ig_j_parser *p, bool choices) {
    ig_j_node *n = ig_j_parse_node(p, IG_J_NODE_TUPLE), **at = &n->a;
    bool is_tuple = false, ends;
    do {
        *at = choices ? ig_j_parse_expression(p) : parse_level(p, LEVEL_OR);
        at = &(*at)->next;
        ends = !ig_j_parse_skip(p, ",");
        is_tuple = is_tuple || !ends;
        ends =
            ends || p->now.kind == IG_J_TOKEN_OUTPUT_END || p->now.kind == IG_J_TOKEN_TAG_END || ig_j_parse_is(p, ")");
    } while (!ends && !p->status);
    return is_tuple ? n : n->a;
}
