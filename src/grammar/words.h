/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tokens of a vocabulary are as texts, in order, so that those that begin alike are looked at once.
 */
#ifndef IG_GRAMMAR_WORDS_H
#define IG_GRAMMAR_WORDS_H

#include <pthread.h>

#include "token/tokenizer.h"

typedef struct ig_word {
    const char *text; /* [size] bytes, at least one */
    int32_t id;
    uint16_t size, common; /* common: bytes that it begins with as the word before does */
} ig_word;

/* Control tokens, which have no text, are words as the rules spell them; ids that stand for nothing and bytes that no
 * text has are none. */
typedef struct ig_words {
    pthread_mutex_t lock;
    ig_word *v; /* [n] */
    int n;
    ig_word **of; /* [n_vocab] the word of a token; NULL: it is none */
    int n_vocab;
    int32_t *ends; /* [n_ends] tokens that end an answer */
    int n_ends;
    char *texts;
} ig_words;

void ig_words_init(ig_words *w);
/* Makes them unless they are there, of the first n_vocab tokens, which the model has logits for. Any thread. */
ig_status ig_words_make(ig_words *w, const ig_tokenizer *t, int n_vocab, ig_error *err);
void ig_words_close(ig_words *w);

#endif
