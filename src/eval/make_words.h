/* SPDX-License-Identifier: Apache-2.0
 *
 * What made tasks consist of: names and codes of which no two are alike, and
 * filler to hide them in, which is a text of the user's or sentences of the
 * project's own.
 */
#ifndef IG_EVAL_MAKE_WORDS_H
#define IG_EVAL_MAKE_WORDS_H

#include <stdio.h>

#include "eval/random.h"
#include "text/text.h"

/* ---- names ----------------------------------------------------------------- */

enum {
    IG_EVAL_NAME_BYTES = 32,
    IG_EVAL_PAIRS = 128 * 128, /* of two words: "amber-anchor" */
    IG_EVAL_SYLLABLES = 70 * 70 * 70,
};

/* n different names: pairs of words, or where there are not enough of them words of three syllables, of which there are
 * IG_EVAL_SYLLABLES. Give each to ig_eval_name(). free() them. NULL: no memory, or too many. */
uint32_t *ig_eval_names(ig_eval_random *r, size_t n);
/* The same, syllables only. */
uint32_t *ig_eval_syllable_names(ig_eval_random *r, size_t n);
void ig_eval_name(char out[IG_EVAL_NAME_BYTES], uint32_t name);
/* Code number i of a sample, six small letters; all those of one `first` differ. */
void ig_eval_code(char out[7], uint64_t first, uint32_t i);
/* n capital letters. */
void ig_eval_letters(char *out, int n, ig_eval_random *r);

/* ---- filler ----------------------------------------------------------------- */

typedef struct ig_eval_filler ig_eval_filler;

/* The sentences of a text, which is UTF-8; of NULL the built-in ones. `name` is for errors. */
ig_status ig_eval_filler_open(ig_eval_filler **out, const char *name, const char *text, size_t n_text, ig_error *err);
void ig_eval_filler_close(ig_eval_filler *filler);
/* Sentences from a random one on, in the order of the text, which begins anew at its end. */
uint64_t ig_eval_filler_start(const ig_eval_filler *filler, ig_eval_random *r);
/* Writes sentence number `i` from `start`, without a blank around it. */
void ig_eval_filler_put(FILE *f, const ig_eval_filler *filler, uint64_t start, uint64_t i);
/* The same line every time. */
extern const char ig_eval_noise[];

#endif
