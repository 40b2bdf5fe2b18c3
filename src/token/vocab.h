/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of tokens: bytes, kind and flags by id, and a hash from bytes to id over the tokens that
 * the tokenising algorithm itself can produce. Also the table of BPE merges, keyed by a pair of ids.
 * No look-up takes more than IG_PROBES_MAX steps: files whose keys are made to fall together are refused.
 */
#ifndef IG_TOKEN_VOCAB_H
#define IG_TOKEN_VOCAB_H

#include "base/buffer.h"
#include "format/gguf.h"

/* Numbered as in GGUF and SentencePiece; 0 is an id that no token has. */
typedef enum ig_token_kind {
    IG_TOKEN_HOLE,
    IG_TOKEN_NORMAL,
    IG_TOKEN_UNKNOWN,
    IG_TOKEN_CONTROL,
    IG_TOKEN_USER,
    IG_TOKEN_UNUSED,
    IG_TOKEN_BYTE,
} ig_token_kind;

enum { IG_PROBES_MAX = 256 }; /* a table of a million random keys comes to about 70 */

enum {
    IG_TOKEN_MODEL = 1,  /* the algorithm may produce it: it is in the hash */
    IG_TOKEN_ADDED = 2,  /* looked for in the text before the algorithm runs */
    IG_TOKEN_LSTRIP = 4, /* takes the blanks before it along */
    IG_TOKEN_RSTRIP = 8,
    IG_TOKEN_SINGLE_WORD = 16, /* only where no letter or digit touches it */
    IG_TOKEN_NORMALIZED = 32,  /* looked for in the normalised text */
    IG_TOKEN_END = 64,         /* ends a generation */
};

/* The flags that follow from a kind where a file says no more. */
static inline int ig_token_flags(ig_token_kind kind) {
    switch (kind) {
        case IG_TOKEN_NORMAL:
            return IG_TOKEN_MODEL;
        case IG_TOKEN_USER:
        case IG_TOKEN_CONTROL:
        case IG_TOKEN_UNKNOWN:
            return IG_TOKEN_ADDED;
        default:
            return 0;
    }
}

typedef struct ig_vocab_token {
    uint32_t at, size; /* bytes, in ig_vocab.bytes */
    uint8_t kind, flags;
} ig_vocab_token;

typedef struct ig_vocab {
    ig_vocab_token *tokens; /* [n] */
    int32_t n;
    ig_buffer bytes;
    int32_t *slots; /* [mask + 1] ids, -1 empty */
    uint32_t mask;
    uint32_t longest; /* bytes of the longest token in the hash */
} ig_vocab;

/* n holes; false without memory. */
bool ig_vocab_open(ig_vocab *v, int32_t n);
void ig_vocab_close(ig_vocab *v);
/* Sets the token `id` (0 <= id < n). False if memory is short or all bytes together pass 2 GiB. */
bool ig_vocab_put(ig_vocab *v, int32_t id, const char *bytes, size_t size, ig_token_kind kind, int flags);
/* Builds the hash over the tokens flagged IG_TOKEN_MODEL; no two of them may be equal. Errors begin with `where`. */
ig_status ig_vocab_index(ig_vocab *v, const char *where, ig_error *err);
/* The error that token `id` is there twice. */
ig_status ig_vocab_fail_twice(const ig_vocab *v, int32_t id, const char *where, ig_error *err);
/* Id of a token in the hash, or -1. */
int32_t ig_vocab_find(const ig_vocab *v, const char *bytes, size_t size);
ig_text ig_vocab_text(const ig_vocab *v, int32_t id);

typedef struct ig_merge_slot {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank;
    int32_t id; /* of the two together */
} ig_merge_slot;

typedef struct ig_merges {
    ig_merge_slot *slots; /* [mask + 1] */
    uint32_t mask;
} ig_merges;

/* Room for n merges; false without memory. */
bool ig_merges_open(ig_merges *m, uint32_t n);
void ig_merges_close(ig_merges *m);
/* The later of two equal pairs counts. False if too many pairs share a place in the table. */
bool ig_merges_put(ig_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id);
const ig_merge_slot *ig_merges_find(const ig_merges *m, int32_t left, int32_t right);

#endif
