/* SPDX-License-Identifier: Apache-2.0
 *
 * DRY ("don't repeat yourself", p-e-w 2023): tokens that would go on with a repetition get lower logits.
 *
 * A token that came earlier behind a copy of the last n tokens is lowered by multiplier base^(n - allowed length), n
 * being the longest such copy, if it is at least the allowed length. What repeats goes back no further than to where a
 * breaker last began, such as a new line; and a token that has a breaker in it is never lowered.
 */
#ifndef IG_ENGINE_DRY_H
#define IG_ENGINE_DRY_H

#include "infinigen.h"
#include "token/tokenizer.h"

typedef struct ig_dry {
    const ig_tokenizer *tokenizer; /* NULL: there is none, and nothing breaks */
    double multiplier, base;       /* 0: off */
    int allowed, last_n;
    char **breakers; /* [n_breakers] copies */
    size_t n_breakers, longest;
    int32_t *copied; /* [room] scratch */
    int room;
} ig_dry;

/* IG_E_MEMORY; also then to be given to ig_dry_close(). */
ig_status ig_dry_open(ig_dry *d, const ig_sampler_options *o, const ig_tokenizer *t, ig_error *err);
void ig_dry_close(ig_dry *d);
/* Of the tokens [n] that came. longest: [n_vocab] zeros, and so it is left. IG_E_MEMORY: nothing is changed. */
ig_status ig_dry_lower(ig_dry *d, float *logits, int32_t *longest, const int32_t *tokens, int n, ig_error *err);

#endif
