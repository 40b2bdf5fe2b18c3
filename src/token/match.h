/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding added tokens in text: a trie, the longest token at the leftmost place. Its edges lie in a table, so that a
 * step costs the same however many tokens there are, and added tokens are at most IG_MATCH_BYTES_MAX bytes long: a
 * search stays linear in the text.
 */
#ifndef IG_TOKEN_MATCH_H
#define IG_TOKEN_MATCH_H

#include "token/vocab.h"

struct ig_tokenizer;

enum { IG_MATCH_BYTES_MAX = 256 };

typedef struct ig_match {
    ig_merges steps; /* from a node, by a byte, to a node */
    int32_t *ids;    /* [n] token that ends at a node, -1: none; NULL: there are no tokens */
    int32_t n;
    bool begins[256]; /* a token begins with this byte */
} ig_match;

/* Takes in the added tokens of t->vocab whose IG_TOKEN_NORMALIZED flag is as `normalized`, as they are written in the
 * text where they are looked for; no two may be equal. Errors begin with `where`. */
ig_status ig_match_open(ig_match *m, const struct ig_tokenizer *t, bool normalized, const char *where, ig_error *err);
void ig_match_close(ig_match *m);

/* What was found; id -1: nothing. */
typedef struct ig_match_hit {
    size_t start, end; /* with the blanks that the token takes along */
    int32_t id;
} ig_match_hit;

/* The first token at or after `from`; control and unknown tokens only if `special`. */
ig_match_hit ig_match_next(const ig_match *m, const ig_vocab *v, const char *text, size_t n, size_t from, bool special);

#endif
