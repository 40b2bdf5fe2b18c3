/* SPDX-License-Identifier: Apache-2.0
 *
 * The generation loop of one session: take a token, show its text, decode.
 */
#include "base/clock.h"
#include "base/error.h"
#include "engine/answer.h"
#include "engine/sampler.h"

ig_generate_options ig_generate_defaults(void) { return (ig_generate_options){.n_predict = -1}; }

/* The loop proper. */
static ig_status generate(ig_generate_result *r, ig_answer *a, ig_error *err) {
    double start = ig_clock_seconds();
    bool has_ended = false;
    while (!has_ended && !ig_answer_is_full(a)) {
        int32_t id;
        ig_status status = ig_answer_next(a, &id, &has_ended, err);
        r->n_tokens = a->n_tokens;
        if (status) return status;
        if (r->first_token_seconds == 0) r->first_token_seconds = ig_clock_seconds() - start;
        if (!has_ended) status = ig_session_decode(&a->session, &id, 1, err);
        if (status) return status;
    }
    ig_answer_finish(a);
    ig_status status = ig_session_drop_ahead(a->session, err);
    r->finish = a->finish;
    r->seconds = ig_clock_seconds() - start;
    return status;
}

ig_status ig_generate(ig_generate_result *result, ig_session *s, ig_sampler *sampler,
                      const ig_generate_options *options, ig_error *err) {
    ig_generate_result ignored;
    if (!s || !sampler) return ig_fail(err, IG_E_ARG, "ig_generate: session and sampler are needed");
    if (!ig_sampler_is_for(sampler, s->model))
        return ig_fail(err, IG_E_ARG, "ig_generate: the sampler was opened for another model");
    if (!s->has_logits)
        return ig_fail(err, IG_E_ARG,
                       "ig_generate: the session has no logits of its last token: sync its tokens first");
    ig_generate_options o = options ? *options : ig_generate_defaults();
    ig_status status = ig_answer_check(&o, s->model, err);
    if (status) return status;
    ig_answer a = {.session = s, .sampler = sampler, .o = &o};
    if (!result) result = &ignored;
    *result = (ig_generate_result){0};
    status = ig_answer_open(&a, err);
    if (!status) status = generate(result, &a, err);
    ig_answer_close(&a);
    return status;
}
