/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer that keeps to a grammar: which tokens may come next.
 */
#ifndef IG_GRAMMAR_CONSTRAINT_H
#define IG_GRAMMAR_CONSTRAINT_H

#include "grammar/words.h"

typedef struct ig_constraint ig_constraint;

/* `words` must outlast it. Memory for all answers is taken here. Errors are those of ig_rules_parse(). */
ig_status ig_constraint_open(ig_constraint **out, const ig_words *words, const char *gbnf, ig_error *err);
void ig_constraint_close(ig_constraint *c);

/* A new answer begins. */
void ig_constraint_restart(ig_constraint *c);
/* *mask: a bit for each token of the vocabulary, bit id % 64 of word id / 64, 1 if it may come next: words that the
 * rules go on with, and end tokens where a text may end. Until the next call. IG_E_ARG: the rules take too much to
 * follow here. */
ig_status ig_constraint_mask(ig_constraint *c, const uint64_t **mask, ig_error *err);
/* The token, one of the last mask, has come. */
void ig_constraint_take(ig_constraint *c, int32_t id);
/* Whether the answer is complete, and nothing can follow. */
bool ig_constraint_is_done(const ig_constraint *c);

#endif
