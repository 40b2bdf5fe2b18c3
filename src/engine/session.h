/* SPDX-License-Identifier: Apache-2.0
 *
 * ig_session: one timeline of tokens, its KV store and policy, and scratch for its batches.
 */
#ifndef IG_ENGINE_SESSION_H
#define IG_ENGINE_SESSION_H

#include "model/forward.h"

struct ig_session {
    ig_model *model;
    ig_session_options options;
    ig_sketch_file sketch; /* maps of the policy's sketch, if it has some */
    ig_sequence seq;
    ig_workspace ws;
    ig_arena arena;  /* of the arrays below and of seq's */
    int32_t *tokens; /* [n_ctx] */
    int n_tokens;
    float *logits; /* [n_vocab] after the last token */
    bool has_logits;
    uint64_t n_prefilled, n_decoded;
    double prefill_seconds, decode_seconds;
};

#endif
