/* SPDX-License-Identifier: Apache-2.0
 *
 * Values and what renders them. All that a rendering makes lies in one pool that is given back as a whole, so values
 * are copied freely and have no owners. Only namespaces, iterators and scopes change once made.
 *
 * A rendering fails once: the first failure is kept in `status`, what is asked for after it is none or empty, and
 * loops end. So status is looked at where something is repeated or kept, not after each call.
 */
#ifndef IG_JINJA_PARTS_H
#define IG_JINJA_PARTS_H

#include <time.h>

#include "base/buffer.h"
#include "base/error.h"

/* The bounds. */
enum {
    IG_JINJA_TEMPLATE_BYTES = 1 << 20,
    IG_JINJA_TREE_BYTES = 128 << 20,         /* address space, of which templates use some 100 KB */
    IG_JINJA_VALUE_BYTES = 128 << 20,        /* all values of a rendering; the same */
    IG_JINJA_STRING_BYTES = 16 << 20,        /* a string, or the output */
    IG_JINJA_STEPS = 10 * 1000 * 1000,       /* values looked at and nodes evaluated, */
    IG_JINJA_STEPS_EACH = 10 * 1000,         /* so many more for each value in the variables: templates look ahead, */
    IG_JINJA_STEPS_MORE = 200 * 1000 * 1000, /* but no more than these */
    IG_JINJA_STEP_BYTES = 64,                /* of text that is searched or copied count as a step */
    IG_JINJA_STEP_CHARS = 8,                 /* so do bytes of text that is looked at character by character */
    IG_JINJA_STRIP_BYTES = 256,              /* of characters that are stripped */
    IG_JINJA_NESTED = 200,                   /* levels in a template, two for most brackets */
    IG_JINJA_DEPTH = 400,                    /* levels in a rendering, macros and values included */
    IG_JINJA_RANGE = 100 * 1000,             /* as Jinja's sandbox */
};

/* ---- values ------------------------------------------------------------ */

typedef enum ig_j_kind {
    IG_J_UNDEFINED,
    IG_J_NONE,
    IG_J_BOOL,
    IG_J_INT,
    IG_J_FLOAT,
    IG_J_STRING,
    IG_J_LIST,
    IG_J_TUPLE,
    IG_J_VIEW,     /* of a dict: items(), keys(), values() */
    IG_J_ITERATOR, /* to be read once */
    IG_J_DICT,
    IG_J_NAMESPACE,
    IG_J_CYCLER,
    IG_J_LOOP,
    IG_J_MACRO,
    IG_J_FUNCTION,
    IG_J_METHOD,
} ig_j_kind;

typedef struct ig_j_value ig_j_value;
typedef struct ig_j_pair ig_j_pair;
typedef struct ig_j_cycler ig_j_cycler;
typedef struct ig_j_loop ig_j_loop;
typedef struct ig_j_macro ig_j_macro;
typedef struct ig_j_method ig_j_method;
typedef struct ig_j_builtin ig_j_builtin;
typedef struct ig_j_call ig_j_call;

typedef struct ig_j_list {
    ig_j_value *v;
    uint32_t n, cap;
} ig_j_list;

typedef struct ig_j_dict { /* in order of insertion */
    ig_j_pair *v;
    uint32_t n, cap;
} ig_j_dict;

struct ig_j_value {
    ig_j_kind kind;
    bool is_markup; /* a string that `safe` has marked: what is added to it by + is escaped */
    union {
        bool yes;
        int64_t i;
        double f;
        ig_text text;   /* UTF-8; of an undefined value its name */
        ig_j_list list; /* of a list, tuple or view */
        ig_j_dict dict;
        ig_j_list *rest;  /* of an iterator */
        ig_j_dict *names; /* of a namespace */
        ig_j_cycler *cycler;
        ig_j_loop *loop;
        const ig_j_macro *macro;
        const ig_j_builtin *function;
        const ig_j_method *method;
    };
};

struct ig_j_cycler {
    ig_j_list items;
    uint32_t at; /* the current one */
};

struct ig_j_pair {
    ig_j_value key, value;
};

typedef struct ig_j_scope {
    struct ig_j_scope *parent;
    ig_j_dict names;
} ig_j_scope;

struct ig_j_macro {
    const struct ig_j_node *node;
    ig_j_scope *scope; /* in which it was defined */
};

/* ---- a rendering ------------------------------------------------------- */

typedef struct ig_j_pool {
    char *base;
    size_t used, size;
} ig_j_pool;

bool ig_j_pool_open(ig_j_pool *p, size_t size);
void *ig_j_pool_take(ig_j_pool *p, size_t n_bytes); /* zeroed; NULL if it is used up */
void ig_j_pool_close(ig_j_pool *p);

typedef enum ig_j_jump { IG_J_JUMP_NONE, IG_J_JUMP_BREAK, IG_J_JUMP_CONTINUE } ig_j_jump;

typedef struct ig_j_render {
    ig_j_pool pool;
    uint64_t steps;
    int depth, line;
    ig_j_jump jump;
    ig_j_scope *scope;
    ig_buffer *out;
    ig_j_value captured; /* what the filters of a block begin with */
    struct tm now;
    ig_status status;
    ig_error *err;
} ig_j_render;

/* Keeps the first failure, with its line before it. Returns none. */
ig_j_value ig_j_refuse(ig_j_render *r, ig_status status, const char *format, ...) IG_PRINTF(3, 4);
/* Counts steps; false once the rendering has failed. */
bool ig_j_spend(ig_j_render *r, size_t n);
bool ig_j_enter(ig_j_render *r); /* a level deeper, and a step; r->depth-- leaves it */
void *ig_j_take(ig_j_render *r, size_t n_bytes);

/* ---- making and reading values (value.c) ------------------------------- */

#define IG_J_NAMED(literal) ((ig_text){literal, sizeof(literal) - 1})
static inline ig_j_value ig_j_undefined(ig_text name) { return (ig_j_value){.kind = IG_J_UNDEFINED, .text = name}; }
static inline ig_j_value ig_j_none(void) { return (ig_j_value){.kind = IG_J_NONE}; }
static inline ig_j_value ig_j_bool(bool yes) { return (ig_j_value){.kind = IG_J_BOOL, .yes = yes}; }
static inline ig_j_value ig_j_int(int64_t i) { return (ig_j_value){.kind = IG_J_INT, .i = i}; }
static inline ig_j_value ig_j_float(double f) { return (ig_j_value){.kind = IG_J_FLOAT, .f = f}; }
static inline ig_j_value ig_j_string(ig_text text) { return (ig_j_value){.kind = IG_J_STRING, .text = text}; }
static inline ig_j_value ig_j_listed(ig_j_kind kind, ig_j_list list) {
    return (ig_j_value){.kind = kind, .list = list};
}
static inline ig_j_value ig_j_dictionary(ig_j_dict dict) { return (ig_j_value){.kind = IG_J_DICT, .dict = dict}; }
ig_j_value ig_j_iterator(ig_j_render *r, ig_j_list list);
/* The same string, marked as `of` is. */
static inline ig_j_value ig_j_like(ig_j_value v, ig_j_value of) {
    v.is_markup = v.kind == IG_J_STRING && of.is_markup;
    return v;
}

static inline bool ig_j_is_number(ig_j_value v) {
    return v.kind == IG_J_BOOL || v.kind == IG_J_INT || v.kind == IG_J_FLOAT;
}
static inline bool ig_j_is_whole(ig_j_value v) { return v.kind == IG_J_BOOL || v.kind == IG_J_INT; }
static inline int64_t ig_j_whole(ig_j_value v) { return v.kind == IG_J_BOOL ? v.yes : v.i; }
static inline double ig_j_number(ig_j_value v) { return v.kind == IG_J_FLOAT ? v.f : (double)ig_j_whole(v); }
const char *ig_j_kind_name(ig_j_value v);

void ig_j_list_add(ig_j_render *r, ig_j_list *l, ig_j_value v);
ig_j_value *ig_j_dict_find(ig_j_render *r, const ig_j_dict *d, ig_j_value key); /* NULL: it has none */
ig_j_value *ig_j_dict_named(ig_j_render *r, const ig_j_dict *d, ig_text name);
void ig_j_dict_set(ig_j_render *r, ig_j_dict *d, ig_j_value key, ig_j_value v);
void ig_j_dict_add(ig_j_render *r, ig_j_dict *d, ig_j_value key, ig_j_value v); /* a key that it does not have */
ig_j_value ig_j_dict_item(ig_j_render *r, ig_j_pair pair);                      /* (key, value) */

bool ig_j_truth(ig_j_value v);
bool ig_j_equal(ig_j_render *r, ig_j_value a, ig_j_value b);
int ig_j_compare(ig_j_render *r, ig_j_value a, ig_j_value b); /* negative, 0 or positive */
bool ig_j_contains(ig_j_render *r, ig_j_value in, ig_j_value v);
/* What a loop over it sees. An iterator is empty afterwards. */
ig_j_list ig_j_iterate(ig_j_render *r, ig_j_value v);
bool ig_j_length(ig_j_render *r, ig_j_value v, int64_t *n); /* false: it has none */
ig_j_list ig_j_sorted(ig_j_render *r, ig_j_list values, ig_j_list keys, bool reverse);

/* Attributes as the dot and as brackets find them. */
ig_j_value ig_j_attribute(ig_j_render *r, ig_j_value of, ig_text name);
ig_j_value ig_j_item(ig_j_render *r, ig_j_value of, ig_j_value key);
ig_j_value ig_j_loop_attribute(ig_j_render *r, ig_j_loop *l, ig_text name);

/* ---- text (text.c, print.c) --------------------------------------------- */

bool ig_j_same(ig_text a, ig_text b);
/* Appends to a buffer within the bounds. */
void ig_j_put(ig_j_render *r, ig_buffer *b, ig_text text);
/* Appends as Python's str() shows it. */
void ig_j_put_value(ig_j_render *r, ig_buffer *b, ig_j_value v);
/* A string of the buffer's text; closes it. */
ig_j_value ig_j_take_string(ig_j_render *r, ig_buffer *b);
ig_text ig_j_to_text(ig_j_render *r, ig_j_value v);    /* str() */
ig_j_value ig_j_escaped(ig_j_render *r, ig_j_value v); /* for HTML, marked */
ig_j_value ig_j_joined(ig_j_render *r, ig_text a, ig_text b);
ig_j_value ig_j_to_json(ig_j_render *r, ig_j_call *c); /* the filter */

/* The first character, at least one byte long; n > 0. */
size_t ig_j_char(ig_text text, int32_t *code);
bool ig_j_char_is_space(int32_t code);
size_t ig_j_char_count(ig_j_render *r, ig_text text);
/* The byte at which a character begins. */
size_t ig_j_char_offset(ig_text text, size_t i);
#define IG_J_ABSENT ((size_t)-1)
size_t ig_j_find(ig_j_render *r, ig_text in, ig_text what, size_t from); /* a byte, or IG_J_ABSENT */
size_t ig_j_find_last(ig_j_render *r, ig_text in, ig_text what);
enum { IG_J_LEFT = 1, IG_J_RIGHT = 2 };
ig_text ig_j_strip(ig_text text, const ig_text *chars, int sides); /* chars NULL: blanks */
ig_j_value ig_j_stripped(ig_j_render *r, ig_text text, ig_j_value chars, int sides);
bool ig_j_spend_chars(ig_j_render *r, ig_text text);
ig_j_value ig_j_replace(ig_j_render *r, ig_text in, ig_text from, ig_text to, int64_t at_most);
ig_j_list ig_j_split(ig_j_render *r, ig_text text, ig_text by, int64_t at_most); /* at_most cuts; -1: all */
ig_j_list ig_j_split_lines(ig_j_render *r, ig_text text);
typedef enum ig_j_case { IG_J_LOWER, IG_J_UPPER, IG_J_CAPITAL, IG_J_TITLE, IG_J_HEADLINE } ig_j_case;
/* TITLE: letters behind others are small. HEADLINE: those behind blanks, hyphens and brackets are large. */
ig_j_value ig_j_in_case(ig_j_render *r, ig_text text, ig_j_case to);
bool ig_j_is_case(ig_j_render *r, ig_text text, ig_j_case is);

/* ---- what templates call ------------------------------------------------ */

struct ig_j_call {
    ig_j_value self; /* what is filtered or tested; the object of a method */
    ig_j_value *v;   /* those that the callee names are there, undefined where not given */
    uint32_t n;      /* that were given */
    ig_j_dict named; /* by name, of callees that name none */
};

/* The first argument, or another value where it was not given. */
static inline ig_j_value ig_j_given(const ig_j_call *c, ig_j_value otherwise) {
    return c->n || c->v[0].kind != IG_J_UNDEFINED ? c->v[0] : otherwise;
}

typedef ig_j_value ig_j_builtin_fn(ig_j_render *r, ig_j_call *c);

struct ig_j_builtin {
    const char *name; /* or names, a blank between */
    ig_j_builtin_fn *fn;
    const char *takes; /* names of its arguments, a blank between; NULL: any */
    uint32_t least;    /* arguments */
};

struct ig_j_method {
    ig_j_value self;
    const ig_j_builtin *builtin;
};

/* The one that is called `name` of n; NULL if there is none. */
const ig_j_builtin *ig_j_builtin_find(const ig_j_builtin *table, size_t n, ig_text name);
const ig_j_builtin *ig_j_filter_named(ig_text name);
const ig_j_builtin *ig_j_list_filter_named(ig_text name); /* the part of them that is for lists */
const ig_j_builtin *ig_j_test_named(ig_text name);
const ig_j_builtin *ig_j_function_named(ig_text name);
/* NULL: this kind of value has no such method. */
const ig_j_builtin *ig_j_method_named(ig_j_value of, ig_text name);
ig_j_value ig_j_builtin_call(ig_j_render *r, const ig_j_builtin *f, ig_j_call *c);

/* Arguments of a kind that must be; an empty one after a failure. */
ig_text ig_j_want_string(ig_j_render *r, ig_j_value v);
int64_t ig_j_want_int(ig_j_render *r, ig_j_value v, int64_t otherwise); /* otherwise: where it is undefined or none */

#endif
