/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files share that write the grammar of answers.
 */
#ifndef IG_SERVER_ANSWER_RULES_H
#define IG_SERVER_ANSWER_RULES_H

#include "server/answers.h"

/* The rules of an exchange. */
typedef struct ig_answer_rules {
    ig_exchange *x;
    const ig_tool_format *format;
    FILE *to;
    bool is_loose; /* arguments may be any object */
    size_t *work;  /* that schemas of single arguments may still make; 0: they were too many */
} ig_answer_rules;

/* ---- answer_grammar.c ---------------------------------------------------------------------- */

/* A mark, with any id where it has one. */
void ig_answer_mark(const ig_answer_rules *w, const char *mark);
/* A rule NAME for all texts before this mark. */
void ig_answer_text(const ig_answer_rules *w, const char *name, const char *mark);
/* A text of as many characters as a schema says, without the one that the mark behind it begins with; false: it says
 * nothing of that. */
bool ig_answer_sized(const ig_answer_rules *w, const json_t *schema, const char *mark);
/* Rules for a schema's values as JSON, of which the first is PREFIXroot; false: there are none. */
bool ig_answer_json(const ig_answer_rules *w, const json_t *function, const json_t *schema, const char *prefix);
/* Counts work. False, from then on: all of it is used up, and the grammar is refused. */
bool ig_answer_may_work(const ig_answer_rules *w, size_t n);
bool ig_answer_is_required(const json_t *parameters, const char *name);

/* ---- answer_quotes.c -------------------------------------------------------------------------- */

/* The rule toolI-root for a function's arguments with quotes, and all that it is made of but these: */
void ig_answer_quoted(const ig_answer_rules *w, const json_t *function, size_t i);
/* Those for values of any kind. */
void ig_answer_any_quoted(const ig_answer_rules *w);

#endif
