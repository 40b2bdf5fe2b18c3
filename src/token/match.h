/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding added tokens in text: a trie, the longest token at the leftmost place. Added tokens are at most
 * IG_MATCH_BYTES_MAX bytes long, so that a search stays linear in the text.
 */
#ifndef IG_TOKEN_MATCH_H
#define IG_TOKEN_MATCH_H

#include "token/vocab.h"

enum { IG_MATCH_BYTES_MAX = 1024 };

typedef struct ig_match_node {
    int32_t child, sibling; /* 0: none */
    int32_t id;             /* token that ends here, -1: none */
    unsigned char byte;
} ig_match_node;

typedef struct ig_match {
    ig_match_node *nodes; /* [n], the first one is unused */
    int32_t n;
    int32_t roots[256]; /* 0: no token begins with this byte */
} ig_match;

/* Takes in the added tokens whose IG_TOKEN_NORMALIZED flag is as `normalized`. *duplicate is a token equal to an
 * earlier one, or -1. False without memory. */
bool ig_match_open(ig_match *m, const ig_vocab *v, bool normalized, int32_t *duplicate);
void ig_match_close(ig_match *m);

/* What was found; id -1: nothing. */
typedef struct ig_match_hit {
    size_t start, end; /* with the blanks that the token takes along */
    int32_t id;
} ig_match_hit;

/* The first token at or after `from`; control and unknown tokens only if `special`. */
ig_match_hit ig_match_next(const ig_match *m, const ig_vocab *v, const char *text, size_t n, size_t from, bool special);

#endif
