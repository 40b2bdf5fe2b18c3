/* SPDX-License-Identifier: Apache-2.0
 *
 * Samplers, as generation and scores of answers see them; infinigen.h says what they are.
 */
#ifndef IG_ENGINE_SAMPLER_H
#define IG_ENGINE_SAMPLER_H

#include "engine/session.h"

/* Whether a sampler can have these options. */
ig_status ig_sampler_check(const ig_sampler_options *o, const ig_model *m, ig_error *err);
/* True if it was opened for this model. */
bool ig_sampler_is_for(const ig_sampler *sampler, const ig_model *m);
/* ig_sampler_next() for a session that has logits of its model: a token, and none of `without`. IG_E_ARG: there is
 * none. */
ig_status ig_sampler_take(int32_t *id, ig_sampler *sampler, const ig_session *s, const int32_t *without,
                          size_t n_without, ig_error *err);
/* Logits of a session that has some, with minus infinity for what the model's files suppress: those that the scores of
 * answers are of. Until the sampler is used again. */
const float *ig_sampler_possible(ig_sampler *sampler, const ig_session *s);
/* Whether the answer is complete as its grammar has it, and nothing can follow. */
bool ig_sampler_is_done(const ig_sampler *sampler);

#endif
