/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the translation share. Each schema that needs a rule of its own gets a name when it is first met
 * and its rule later (schema.c), so that nothing recurses into schemas and those that refer to themselves are as any
 * other.
 */
#ifndef IG_GRAMMAR_SCHEMA_PARTS_H
#define IG_GRAMMAR_SCHEMA_PARTS_H

#include "base/buffer.h"
#include "base/error.h"
#include "format/json.h"

/* Rules that are the same in every grammar. The first are the types. */
typedef enum ig_schema_common {
    IG_COMMON_OBJECT,
    IG_COMMON_ARRAY,
    IG_COMMON_STRING,
    IG_COMMON_NUMBER,
    IG_COMMON_INTEGER,
    IG_COMMON_BOOLEAN,
    IG_COMMON_NULL,
    IG_COMMON_VALUE,
    IG_COMMON_MEMBER,
    IG_COMMON_NATURAL,
    IG_COMMON_DATE_TIME, /* formats of strings */
    IG_COMMON_DATE,
    IG_COMMON_TIME,
    IG_COMMON_DURATION,
    IG_COMMON_UUID,
    IG_COMMON_EMAIL,
    IG_COMMON_URI,
    IG_COMMON_HOSTNAME,
    IG_COMMON_IPV4,
    IG_COMMON_IPV6,
    IG_COMMON_DAY, /* parts of these */
    IG_COMMON_LEAP_YEAR,
    IG_COMMON_HOUR,
    IG_COMMON_SIXTY,
    IG_COMMON_SPAN_DATE,
    IG_COMMON_SPAN_TIME,
    IG_COMMON_SPAN_N,
    IG_COMMON_ATOM,
    IG_COMMON_LABEL,
    IG_COMMON_LAST_LABEL,
    IG_COMMON_URI_CHAR,
    IG_COMMON_URI_END,
    IG_COMMON_BYTE,
    IG_COMMON_WORD,
    IG_COMMON_IPV6_END,
    IG_COMMON_CHAR,
    IG_COMMON_UNIT,
    IG_COMMON_HEX,
    IG_COMMON_SPACE,
    IG_N_COMMON
} ig_schema_common;

/* Sets of common rules and types, and with the rest of groups of keywords: a keyword that only matters to a type is of
 * the group with the type's bit. */
#define IG_BIT(common) (1ull << (common))
#define IG_TYPES (IG_BIT(IG_COMMON_NULL + 1) - 1)
#define IG_KEY_TYPE IG_BIT(IG_N_COMMON)      /* type */
#define IG_KEY_REF IG_BIT(IG_N_COMMON + 1)   /* $ref */
#define IG_KEY_ALL IG_BIT(IG_N_COMMON + 2)   /* allOf */
#define IG_KEY_ANY IG_BIT(IG_N_COMMON + 3)   /* anyOf, oneOf */
#define IG_KEY_VALUE IG_BIT(IG_N_COMMON + 4) /* enum, const */

enum {
    IG_SCHEMA_PLACE = 160, /* bytes of a place and of a name; longer ones are cut */
    IG_SCHEMA_NAME = 64,
    IG_SCHEMA_REPEAT = 10000 /* the most that one repetition counts to */
};

typedef struct ig_schema_at {
    const json_t *schema;
    char place[IG_SCHEMA_PLACE]; /* where in the document, for errors */
} ig_schema_at;

typedef struct ig_schema_rule {
    char name[IG_SCHEMA_NAME]; /* never with "--" in it: that marks rules that belong to this one */
    ig_schema_at at;
    uint64_t keys;            /* groups of the schema's keywords */
    size_t choice, n_choices; /* if the rule is one of others: which, in the writer's `choices` */
    bool is_grounded;         /* known not to lead to itself through such choices */
} ig_schema_rule;

typedef struct ig_schema_writer {
    const json_t *root;
    ig_buffer out;         /* whole rules */
    ig_buffer line;        /* what the rule being written says */
    ig_buffer below;       /* rules that belong to it */
    ig_schema_rule *rules; /* the common ones, then those of schemas in the order of the output */
    size_t n_rules;
    json_t *known;     /* names of rules; and by the addresses of schemas the numbers of their rules */
    size_t n_clashes;  /* names that were taken */
    ig_buffer choices; /* [] uint32_t: numbers of rules */
    uint64_t used;     /* common rules */
    size_t n_repeated; /* what all repetitions count to together */
    ig_error *err;
} ig_schema_writer;

typedef struct ig_schema_span {
    size_t min, max; /* max: SIZE_MAX for no end */
} ig_schema_span;

/* schema_rules.c: writing */
bool ig_schema_names_open(ig_schema_writer *w);                                        /* false without memory */
bool ig_schema_name(ig_schema_writer *w, char name[IG_SCHEMA_NAME], const char *hint); /* a new one; the same */
void ig_schema_write_common(ig_schema_writer *w);                                      /* those that are used */
ig_status ig_schema_check_size(const ig_schema_writer *w);
void ig_schema_literal(ig_buffer *b, const char *text, size_t n);
void ig_schema_class_char(ig_buffer *b, uint32_t code);  /* between [ and ] */
void ig_schema_times(ig_buffer *b, ig_schema_span span); /* ?, *, {2,3}; not for a maximum of 0 */
/* Counts what repetitions come to; IG_E_LIMIT. */
ig_status ig_schema_expand(ig_schema_writer *w, const ig_schema_at *at, size_t n);
ig_status ig_schema_repeat(ig_schema_writer *w, const ig_schema_at *at, ig_schema_span span); /* the same, bounded */

/* schema_keys.c: reading */
ig_schema_at ig_schema_child(const ig_schema_at *at, const json_t *schema, const char *keyword, const char *key);
ig_status ig_schema_keys(const ig_schema_writer *w, uint64_t *keys, const ig_schema_at *at);
/* IG_E_UNSUPPORTED if a keyword of `keys` stands in the schema. */
ig_status ig_schema_refuse(const ig_schema_writer *w, const ig_schema_at *at, uint64_t keys);
ig_status ig_schema_types(const ig_schema_writer *w, uint64_t *types, const ig_schema_at *at); /* 0 if it names none */
/* Keywords of counts. IG_E_LIMIT over IG_SCHEMA_REPEAT. */
ig_status ig_schema_read_span(const ig_schema_writer *w, ig_schema_span *span, const ig_schema_at *at, const char *min,
                              const char *max);
ig_status ig_schema_follow(const ig_schema_writer *w, ig_schema_at *at); /* to what its $ref names */

/* schema.c: the number of the rule for a schema. `hint` and `key`: what to call it. */
ig_status ig_schema_rule_of(ig_schema_writer *w, size_t *rule, const ig_schema_at *at, const char *hint,
                            const char *key);

/* Each writes to w->line what a schema allows of a type; with keywords of that type in it. */
ig_status ig_schema_object(ig_schema_writer *w, const ig_schema_rule *rule);
ig_status ig_schema_array(ig_schema_writer *w, const ig_schema_rule *rule);
ig_status ig_schema_string(ig_schema_writer *w, const ig_schema_at *at);
ig_status ig_schema_pattern(ig_schema_writer *w, const ig_schema_at *at);
ig_status ig_schema_integer(ig_schema_writer *w, const ig_schema_at *at);
ig_status ig_schema_number(ig_schema_writer *w, const ig_schema_at *at);

/* The schema's format, if it constrains values; any other is a remark ("path", "password"), as if it were not there. */
const json_t *ig_schema_format(const ig_schema_at *at);
/* IG_E_UNSUPPORTED if there is one. */
ig_status ig_schema_refuse_format(const ig_schema_writer *w, const ig_schema_at *at);

#endif
