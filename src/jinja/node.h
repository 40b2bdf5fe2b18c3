/* SPDX-License-Identifier: Apache-2.0
 *
 * What a template is before it is rendered: text, then tokens, then a tree. The tree lies in one pool and is never
 * written to again.
 */
#ifndef IG_JINJA_NODE_H
#define IG_JINJA_NODE_H

#include "jinja/parts.h"

/* ---- tokens ------------------------------------------------------------ */

typedef enum ig_j_token_kind {
    IG_J_TOKEN_END,
    IG_J_TOKEN_BAD, /* its text says why */
    IG_J_TOKEN_DATA,
    IG_J_TOKEN_OUTPUT, /* {{ */
    IG_J_TOKEN_OUTPUT_END,
    IG_J_TOKEN_TAG, /* {% */
    IG_J_TOKEN_TAG_END,
    IG_J_TOKEN_NAME,
    IG_J_TOKEN_STRING, /* what stands between the quotes, escapes as they are */
    IG_J_TOKEN_INT,
    IG_J_TOKEN_FLOAT,
    IG_J_TOKEN_SIGN,
} ig_j_token_kind;

typedef struct ig_j_token {
    ig_j_token_kind kind;
    int line;
    ig_text text; /* a view of the source */
} ig_j_token;

/* A place in a template. A copy of it looks ahead. */
typedef struct ig_j_lexer {
    ig_text source; /* newlines are "\n", two NULs follow */
    size_t at;
    int line;
    ig_j_token_kind inside; /* DATA, OUTPUT or TAG */
    int n_open;             /* brackets */
} ig_j_lexer;

ig_j_token ig_j_lex(ig_j_lexer *l);

/* ---- the tree ---------------------------------------------------------- */

/* Beside each kind: what a, b, c, name and value are. Lists hang together by `next`. Where a part may be left out it is
 * NULL. */
typedef enum ig_j_node_kind {
    IG_J_NODE_CONST,        /* value */
    IG_J_NODE_NAME,         /* name */
    IG_J_NODE_CAPTURED,     /* what a block of text has become */
    IG_J_NODE_LIST,         /* a: items */
    IG_J_NODE_TUPLE,        /* a: items */
    IG_J_NODE_DICT,         /* a: keys and values in turn */
    IG_J_NODE_ATTRIBUTE,    /* a.name */
    IG_J_NODE_ITEM,         /* a[b] */
    IG_J_NODE_SLICE,        /* of a, a list of three: b */
    IG_J_NODE_CALL,         /* a(b: arguments; those with a name are by name) */
    IG_J_NODE_FILTER,       /* a|builtin(b), called `name` */
    IG_J_NODE_TEST,         /* a is builtin(b) */
    IG_J_NODE_NOT,          /* not a */
    IG_J_NODE_MINUS,        /* -a */
    IG_J_NODE_PLUS,         /* +a */
    IG_J_NODE_BINARY,       /* a op b */
    IG_J_NODE_COMPARE,      /* a, then a list of operands (their op and a): b */
    IG_J_NODE_CHOICE,       /* a if b else c */
    IG_J_NODE_ARGUMENT,     /* of a call or comparison: a, with its name or op */
    IG_J_NODE_OUTPUT,       /* a: expression. From here on statements */
    IG_J_NODE_IF,           /* a: condition, b: body, c: else */
    IG_J_NODE_FOR,          /* a: target, b: items, c: body, d: condition, e: else */
    IG_J_NODE_SET,          /* a: target, b: expression */
    IG_J_NODE_SET_BLOCK,    /* a: target, b: filters or the captured text, c: body */
    IG_J_NODE_MACRO,        /* name, a: parameters (names, a: default), c: body */
    IG_J_NODE_CALL_BLOCK,   /* a: parameters, b: call, c: body */
    IG_J_NODE_FILTER_BLOCK, /* b: filters, c: body */
    IG_J_NODE_WITH,         /* a: assignments, c: body */
    IG_J_NODE_BREAK,
    IG_J_NODE_CONTINUE,
} ig_j_node_kind;

typedef enum ig_j_op {
    IG_J_OP_OR = 1,
    IG_J_OP_AND,
    IG_J_OP_EQ,
    IG_J_OP_NE,
    IG_J_OP_LT,
    IG_J_OP_LE,
    IG_J_OP_GT,
    IG_J_OP_GE,
    IG_J_OP_IN,
    IG_J_OP_NOT_IN,
    IG_J_OP_ADD,
    IG_J_OP_SUB,
    IG_J_OP_CONCAT,
    IG_J_OP_MUL,
    IG_J_OP_DIV,
    IG_J_OP_FLOOR_DIV,
    IG_J_OP_MOD,
    IG_J_OP_POW,
} ig_j_op;

typedef struct ig_j_node ig_j_node;
struct ig_j_node {
    ig_j_node_kind kind;
    ig_j_op op;
    int line;
    ig_j_node *next, *a, *b, *c, *d, *e;
    ig_text name;
    ig_j_value value;
    const ig_j_builtin *builtin; /* NULL: unknown, to be refused when it is met */
};

struct ig_jinja {
    ig_j_pool pool;
    ig_text source;
    const ig_j_node *body;
};

/* The parser. It fails as a rendering does: the first failure is kept, and no more tokens come. */
typedef struct ig_j_parser {
    ig_j_lexer lexer;
    ig_j_token now;
    ig_j_pool *pool;
    int depth;
    int n_loops;              /* that `break` could leave */
    bool may_lack;            /* within an `if`, unknown filters and tests are refused only when met, as Jinja does */
    const ig_j_node *lacking; /* the first one not yet settled */
    ig_j_node spare;          /* what there is instead of a node after a failure */
    ig_status status;
    ig_error *err;
} ig_j_parser;

ig_status ig_j_parse(ig_j_parser *p, const ig_j_node **body);
/* Shared by the two files of the parser. */
void ig_j_parse_refuse(ig_j_parser *p, ig_status status, const char *format, ...) IG_PRINTF(3, 4);
void ig_j_parse_unexpected(ig_j_parser *p, const char *wanted);
void ig_j_parse_next(ig_j_parser *p);
bool ig_j_parse_is(const ig_j_parser *p, const char *text); /* a name or a sign */
bool ig_j_parse_is_next(const ig_j_parser *p, const char *text);
bool ig_j_parse_skip(ig_j_parser *p, const char *text); /* true if it was there */
void ig_j_parse_expect(ig_j_parser *p, const char *text);
ig_text ig_j_parse_name(ig_j_parser *p);
bool ig_j_parse_enter(ig_j_parser *p); /* a level deeper; p->depth-- leaves it */
ig_j_node *ig_j_parse_node(ig_j_parser *p, ig_j_node_kind kind);
ig_j_node *ig_j_parse_expression(ig_j_parser *p);
/* Expressions with commas between them are a tuple. Without `choices` "a if b" ends before "if". */
ig_j_node *ig_j_parse_tuple(ig_j_parser *p, bool choices);
ig_j_node *ig_j_parse_filters(ig_j_parser *p, ig_j_node *of);
ig_j_node *ig_j_parse_filter(ig_j_parser *p, ig_j_node *of);

/* ---- running it -------------------------------------------------------- */

ig_j_value ig_j_eval(ig_j_render *r, const ig_j_node *n);
void ig_j_exec(ig_j_render *r, const ig_j_node *body);
ig_j_value ig_j_operate(ig_j_render *r, ig_j_op op, ig_j_value a, ig_j_value b);
bool ig_j_relate(ig_j_render *r, ig_j_op op, ig_j_value a, ig_j_value b);
ig_j_value ig_j_negate(ig_j_render *r, ig_j_value v, bool minus);
ig_j_value ig_j_slice(ig_j_render *r, ig_j_value of, const ig_j_value bounds[3]);
/* What a macro, method or function makes of a call. */
ig_j_value ig_j_invoke(ig_j_render *r, ig_j_value callee, ig_j_call *c);
ig_j_value ig_j_invoke_macro(ig_j_render *r, const ig_j_macro *m, const ig_j_call *c);
/* Gathers the arguments of a CALL, FILTER or TEST. */
void ig_j_gather(ig_j_render *r, const ig_j_node *arguments, ig_j_call *c);

#endif
