/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenisers: text -> words, by one or several regular expressions, each splitting the pieces the one before it
 * left.
 */
#ifndef IG_TOKEN_PRETOKEN_H
#define IG_TOKEN_PRETOKEN_H

#include "format/gguf.h"

enum {
    IG_PRETOKEN_STEPS_MAX = 8,
    IG_PRETOKEN_BYTES_MAX = 4096, /* of all expressions together */
};

typedef struct ig_pretoken_step {
    void *code;                /* pcre2_code */
    char *where;               /* the expression's origin, for errors */
    uint32_t weight;           /* work units that a move of the match counts; 0: known to be linear, not counted */
    bool keep_match, keep_gap; /* which pieces go on: what matched, what lies between */
} ig_pretoken_step;

typedef struct ig_pretoken {
    ig_pretoken_step steps[IG_PRETOKEN_STEPS_MAX];
    int n_steps;
    size_t n_bytes; /* of the expressions */
} ig_pretoken;

/* The expression of GPT-2, which a tokenizer.json calls "ByteLevel". */
extern const char ig_pretoken_gpt2[];

/* Adds a step; `literal` takes the expression as plain text. Errors, also later ones, say `where` it comes from. */
ig_status ig_pretoken_add(ig_pretoken *p, ig_text expression, bool literal, const char *where, ig_error *err);
/* Adds the steps of a name as in GGUF's tokenizer.ggml.pre. *ignore_merges and *add_bos are what the name implies.
 * IG_E_UNSUPPORTED for an unknown name. */
ig_status ig_pretoken_named(ig_pretoken *p, ig_text name, bool *ignore_merges, bool *add_bos, const char *where,
                            ig_error *err);
void ig_pretoken_close(ig_pretoken *p);

typedef ig_status (*ig_pretoken_fn)(void *user, size_t at, size_t size, ig_error *err);

/* Where the words of a text go, and what finding them has cost. A text that is split in several runs has one of these,
 * so that the bound holds for the text: IG_PRETOKEN_WORK_FREE + IG_PRETOKEN_WORK_PER_BYTE * bytes. Expressions of real
 * models stay 20 times below it on any text. */
typedef struct ig_pretoken_sink {
    ig_pretoken_fn word;
    void *user;
    uint64_t work, allowed; /* begin with 0 */
} ig_pretoken_sink;

enum { IG_PRETOKEN_WORK_FREE = 1 << 20, IG_PRETOKEN_WORK_PER_BYTE = 768 };

/* Hands out the words of `text` (valid UTF-8) in order. Any number of threads may use one `p`.
 * An expression that needs too much work or memory for this text fails with IG_E_LIMIT; the count of work is the same
 * on every machine. */
ig_status ig_pretoken_run(const ig_pretoken *p, ig_pretoken_sink *sink, const char *text, size_t n, ig_error *err);

#endif
