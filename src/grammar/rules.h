/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of a grammar as one network of nodes over bytes of UTF-8, and how it is built. A way through a rule leads
 * from its first node to an END; where it meets a CALL it goes through another rule on the way.
 */
#ifndef IG_GRAMMAR_RULES_H
#define IG_GRAMMAR_RULES_H

#include "infinigen.h"

typedef enum ig_rule_kind {
    IG_RULE_SKIP, /* goes on at `next`; none is left once the rules are finished */
    IG_RULE_BYTE, /* takes a byte from low to high */
    IG_RULE_FORK, /* goes on at `next` or at `other` */
    IG_RULE_CALL, /* goes through the rule that begins at node `other`, then on */
    IG_RULE_END
} ig_rule_kind;

typedef struct ig_rule_node {
    uint8_t kind, low, high;
    uint32_t next, other; /* 0: none */
} ig_rule_node;

enum { IG_RULE_NODES_MAX = 1 << 20, IG_RULE_TOKEN_BYTES = 4, IG_RULE_TOKEN_MARK = 0xff };

/* How a token without a text, which no text stands for, is spelled: this byte is not in UTF-8. */
void ig_rule_spell_token(uint8_t bytes[IG_RULE_TOKEN_BYTES], int32_t id);

typedef struct ig_rules {
    ig_rule_node *nodes; /* [n] of which node 0 is none */
    uint32_t n, cap;
    uint32_t root;    /* first node of the rule that a text must go through */
    bool is_endless;  /* no text ever comes to the end of that rule */
    ig_status status; /* of building: once it is not IG_OK, nothing is added */
} ig_rules;

void ig_rules_close(ig_rules *r);

/* A part of a rule while it is built: entered at `first`, left by `last`, a SKIP whose next is not known yet. Its nodes
 * are all those that were added between begin and end of its building, and lead nowhere else. */
typedef struct ig_fragment {
    uint32_t first, last;
} ig_fragment;

/* Code points from low to high. */
typedef struct ig_range {
    uint32_t low, high;
} ig_range;

uint32_t ig_rules_add(ig_rules *r, ig_rule_kind kind, uint32_t next, uint32_t other);
ig_fragment ig_rules_empty(ig_rules *r);
ig_fragment ig_rules_call(ig_rules *r, uint32_t other);
/* *f, then g. */
void ig_rules_append(ig_rules *r, ig_fragment *f, ig_fragment g);
/* *all becomes *all or `one`; `end` is a SKIP that all alternatives lead to. */
void ig_rules_either(ig_rules *r, uint32_t *all, ig_fragment one, uint32_t end);
/* f, whose nodes are those from `begin` on, from `least` to `most` times; UINT32_MAX: as often as one likes. */
ig_fragment ig_rules_repeat(ig_rules *r, uint32_t begin, ig_fragment f, uint32_t least, uint32_t most);
/* One code point of the ranges [n], which are put in order; or, if `others`, one that is not in them. Surrogates are
 * none. *is_empty: there is no such code point. */
ig_fragment ig_rules_characters(ig_rules *r, ig_range *ranges, size_t n, bool others, bool *is_empty);

/* A token by itself, as ig_rule_spell_token() has it. */
ig_fragment ig_rules_token(ig_rules *r, int32_t id);
/* The number of the token whose spelling begins at this node; -1: none does. */
int32_t ig_rules_token_at(const ig_rules *r, uint32_t node);

/* *first: the first node of a rule that begins with itself, which could go on for ever without a byte; 0: there is
 * none. Of finished rules. IG_E_MEMORY. */
ig_status ig_rules_check(const ig_rules *r, uint32_t *first);
/* Takes alternatives out that no text ever comes to the end of; finds out if there is nothing else. Of finished rules.
 * IG_E_MEMORY. */
ig_status ig_rules_trim(ig_rules *r);

/* GBNF, as llama.cpp reads it (grammars/README.md there), to rules; but a rule may not be given twice. Tokens without a
 * text are known by number, <[2]>, and not by name; other tokens are not. No rule may begin with itself. IG_E_FORMAT
 * names the line. IG_E_LIMIT: it is too large. */
ig_status ig_rules_parse(ig_rules *out, const char *gbnf, ig_error *err);

#endif
