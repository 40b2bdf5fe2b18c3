/* SPDX-License-Identifier: Apache-2.0
 *
 * A text goes through the model with dense attention, in scratch and KV of its own, for a tap to look at.
 */
#ifndef IG_PREPARE_TEXT_PASS_H
#define IG_PREPARE_TEXT_PASS_H

#include "model/forward.h"

typedef struct ig_text_pass {
    ig_model *m;
    const int32_t *ids; /* [n_tokens] the caller's */
    int n_tokens;
    ig_batch batch; /* its own: it may be larger than the model's sessions want; the tap goes here */
    ig_sequence seq;
} ig_text_pass;

/* For steps of up to max_rows tokens. IG_E_ARG if a token is not of the vocabulary. Close it in any case. */
ig_status ig_text_pass_open(ig_text_pass *p, ig_model *m, const int32_t *ids, int n_tokens, int max_rows,
                            ig_error *err);
/* Tokens [first, first + n), of which those before have gone through. */
ig_status ig_text_pass_run(ig_text_pass *p, int first, int n, ig_error *err);
/* Of zeros: nothing. */
void ig_text_pass_close(ig_text_pass *p);

#endif
