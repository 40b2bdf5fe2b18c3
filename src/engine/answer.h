/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer in the making: the next token of a session, its text on the way out, and what ends it. Text that may turn
 * out to begin a stop string is held back until it is known not to. ig_generate() and the scheduler both drive it; who
 * drives it appends the tokens to the session.
 */
#ifndef IG_ENGINE_ANSWER_H
#define IG_ENGINE_ANSWER_H

#include "engine/session.h"

/* A token as it is taken, before its text: the session's logits are those that it was taken from. `is_end`: it ends the
 * answer, and has no text. */
typedef void (*ig_answer_token_fn)(void *user, int32_t id, bool is_end);

typedef struct ig_answer {
    ig_session *session;
    ig_sampler *sampler;
    const ig_generate_options *o; /* borrowed */
    ig_answer_token_fn on_token;  /* NULL: nobody wants to know */
    void *token_user;
    bool no_replacement; /* what is left of a character at the end is dropped; else it is shown as U+FFFD */

    ig_detok_stream detok;
    int32_t *ends; /* [n_ends] tokens that end it; none if it has no least length */
    size_t n_ends;
    char *held; /* text not yet shown: at most the longest stop string and two tokens' */
    size_t n_held;
    bool is_interrupted; /* on_text wants no more */
    int n_tokens;        /* taken, without the end token */
    ig_finish finish;    /* once it has ended */
    int stop;            /* number of the stop string that has ended it */
} ig_answer;

/* Whether answers of the model can have these options. */
ig_status ig_answer_check(const ig_generate_options *o, const ig_model *m, ig_error *err);
/* For the fields before the blank line, which the caller has set; the others are zero. */
ig_status ig_answer_open(ig_answer *a, ig_error *err);
void ig_answer_close(ig_answer *a);

/* Whether it has as many tokens as were asked for. */
bool ig_answer_is_full(const ig_answer *a);
/* Takes a token from the session's logits and shows its text. Either the answer has ended, or the token is to be
 * appended to the session. */
ig_status ig_answer_next(ig_answer *a, int32_t *id, bool *has_ended, ig_error *err);
/* Shows what was held back, unless a stop string ended the answer, or what is left of a character completes one. */
void ig_answer_finish(ig_answer *a);

#endif
