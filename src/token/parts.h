/* SPDX-License-Identifier: Apache-2.0
 *
 * What a tokenizer is made of, for the files that build one: gguf, Hugging Face JSON, SentencePiece.
 */
#ifndef IG_TOKEN_PARTS_H
#define IG_TOKEN_PARTS_H

#include <string.h>

#include "token/match.h"
#include "token/merge.h"
#include "token/pretoken.h"
#include "token/tokenizer.h"
#include "token/utf8.h"

/* When a blank is put before the text (SentencePiece). */
typedef enum ig_prefix {
    IG_PREFIX_NEVER,
    IG_PREFIX_ALWAYS, /* before the text and behind every added token */
    IG_PREFIX_FIRST,  /* before the text */
} ig_prefix;

struct ig_tokenizer {
    ig_vocab vocab;
    ig_merge_rules rules;
    ig_match added, added_normalized;
    bool added_are_normal; /* the texts of the second are written as in normalised text */
    ig_normal_form form;
    ig_pretoken pretoken;
    bool byte_fallback;   /* of a tokenizer.json: tokens written <0x0A> stand for bytes, else they are like others */
    bool sentencepiece;   /* blanks are written U+2581, words are not split by expressions */
    bool blanks_last;     /* sentencepiece: only after both searches for added tokens */
    bool cut_every_blank; /* sentencepiece: a word begins at every blank */
    bool cut_at_blank;    /* sentencepiece: no token goes on over a blank, so words may be cut there */
    bool prefix_once;     /* no second blank before text that begins with one */
    ig_prefix prefix;
    int32_t limit;    /* tokens added from this id on are left out, which the model has no row for; 0: none is */
    int32_t bos, eos; /* -1: none */
    bool adds_bos, adds_eos;
    int32_t *suppressed; /* [n_suppressed]; in order, each once, when the tokenizer is finished */
    size_t n_suppressed;
    char *chat_template; /* NULL: none */
};

#define IG_BLANK "\xe2\x96\x81" /* U+2581, a blank in SentencePiece vocabularies */
static inline bool ig_is_blank_at(const char *text, size_t n, size_t at) {
    return n - at >= 3 && memcmp(text + at, IG_BLANK, 3) == 0;
}

/* A tokenizer with no tokens, ids -1. NULL without memory. */
ig_tokenizer *ig_tokenizer_new(void);
/* Whether a text may change between the two searches for added tokens. */
static inline bool ig_tokenizer_normalizes(const ig_tokenizer *t) {
    return t->sentencepiece || t->form != IG_NORMAL_NONE;
}
/* Appends a text as the second stage of encoding sees it: in normal form, or with its blanks written for SentencePiece
 * and one before it if `blank_first`. False without memory. */
bool ig_tokenizer_normalize(const ig_tokenizer *t, ig_buffer *out, ig_text text, bool blank_first);
/* The last step of every builder: hash, added tokens, byte tokens, end tokens; checks what they all must keep.
 * `where` names the file in errors. */
ig_status ig_tokenizer_finish(ig_tokenizer *t, const char *where, ig_error *err);
/* Flags `id` as one that ends a generation; an id out of range is ignored. */
void ig_tokenizer_set_end(ig_tokenizer *t, int64_t id);
/* Room for n ids in `suppressed`, of which none is there yet; false without memory. */
bool ig_tokenizer_room_for_suppressed(ig_tokenizer *t, size_t n);
/* Whether a token of this text ends a generation in the models known. Not "</s>", which may be an ordinary word. */
bool ig_tokenizer_names_end(ig_text text);
/* The byte of a token written "<0x0A>", or -1. */
int ig_tokenizer_byte_of(const char *text, size_t n);
/* Merge rule `i` of a builder: both parts as the file writes them, which is in letters for bytes where rules are
 * bytewise. */
ig_status ig_tokenizer_add_merge(ig_tokenizer *t, ig_text left, ig_text right, uint32_t i, const char *where,
                                 ig_error *err);

/* Ranks of a SentencePiece vocabulary from scores[n_vocab]: the best score first, equal scores share one. */
ig_status ig_tokenizer_rank_scores(ig_tokenizer *t, const float *scores, const char *where, ig_error *err);

#endif
