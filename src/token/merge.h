/* SPDX-License-Identifier: Apache-2.0
 *
 * The merge loop of byte-pair encoding, n log n in the length of a word, with six bytes of memory for each of its
 * bytes. One loop serves both families: byte-level BPE looks a pair of ids up in the merge table, SentencePiece looks
 * the joined bytes up in the vocabulary and ranks by score.
 */
#ifndef IG_TOKEN_MERGE_H
#define IG_TOKEN_MERGE_H

#include "token/ids.h"
#include "token/vocab.h"

typedef struct ig_merge_rules {
    const ig_vocab *vocab;
    ig_merges merges;      /* used unless `ranks` */
    uint32_t *ranks;       /* [n_vocab] 0 is the best score; NULL: ranks come from the merge table */
    bool bytewise;         /* a word starts as bytes, not as characters */
    bool whole_words;      /* a word that is a token is taken whole, before any merge */
    bool fuse_unknown;     /* one unknown token for a run of them */
    int32_t unknown;       /* for what no token covers; -1: it is left out */
    int32_t byte_ids[256]; /* tokens of single bytes, -1: none */
} ig_merge_rules;

/* Work space of one encode call. Zero it to start. */
typedef struct ig_merge_space {
    int32_t *symbols;
    uint64_t *heap;
    size_t n_heap, cap_symbols, cap_heap;
} ig_merge_space;

void ig_merge_space_close(ig_merge_space *s);
/* Appends the tokens of one word. IG_E_MEMORY, or IG_E_LIMIT for a word over 2 GiB or more ids than there may be: if
 * the word's length shows that, before any work; out->n is above out->cap then. */
ig_status ig_merge_word(const ig_merge_rules *r, ig_merge_space *s, const char *word, size_t n, ig_ids *out,
                        ig_error *err);

#endif
