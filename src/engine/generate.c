/* SPDX-License-Identifier: Apache-2.0
 *
 * The generation loop: sample, show the text, decode. Text that may turn out to begin a stop string is held
 * back until it is known not to.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/ranges.h"
#include "engine/session.h"

typedef struct output {
    const ig_generate_options *o;
    char *held; /* text not yet shown: at most longest + one token's */
    size_t n_held, longest;
    bool interrupted; /* the caller wants no more */
} output;

static void show(output *out, size_t n) {
    if (n && out->o->on_text && !out->interrupted) out->interrupted = out->o->on_text(out->o->user, out->held, n);
    memmove(out->held, out->held + n, out->n_held - n);
    out->n_held -= n;
}

/* Adds text; true if a stop string is complete (what precedes it has been shown). */
static bool push_text(output *out, const char *text, size_t n) {
    memcpy(out->held + out->n_held, text, n);
    out->n_held += n;
    size_t keep = out->n_held; /* first byte that may belong to a stop string */
    for (size_t i = 0; i < out->n_held; i++)
        for (size_t k = 0; k < out->o->n_stops; k++) {
            size_t len = strlen(out->o->stops[k]), left = out->n_held - i;
            if (!len || memcmp(out->held + i, out->o->stops[k], len < left ? len : left) != 0) continue;
            if (len <= left) {
                show(out, i);
                return true;
            }
            if (i < keep) keep = i;
        }
    show(out, keep);
    return false;
}

ig_generate_options ig_generate_defaults(void) { return (ig_generate_options){.n_predict = -1}; }

/* The loop proper; `out` holds the text. */
static ig_status generate(ig_generate_result *r, ig_session *s, ig_sampler *sampler, output *out, ig_error *err) {
    const ig_generate_options *o = out->o;
    ig_detok_stream detok = {.started = true}; /* it continues a text: a leading blank is part of it */
    char text[IG_TOKEN_BYTES_MAX];
    double start = ig_clock_seconds();
    r->finish = IG_FINISH_LENGTH;
    while (o->n_predict < 0 || r->n_tokens < o->n_predict) {
        int32_t id = ig_sampler_next(sampler, s);
        if (id < 0) return ig_fail(err, IG_E_ARG, "no token can come next: all have a logit of minus infinity");
        if (r->n_tokens == 0) r->first_token_seconds = ig_clock_seconds() - start;
        if (!o->ignore_end && ig_token_is_end(s->model, id)) {
            r->finish = IG_FINISH_END;
            break;
        }
        r->n_tokens++;
        if (push_text(out, text, ig_detok_push(&detok, s->model, id, o->special, text, sizeof text))) {
            out->n_held = 0;
            r->finish = IG_FINISH_STOP;
            break;
        }
        if (out->interrupted) {
            r->finish = IG_FINISH_INTERRUPTED;
            break;
        }
        if (s->n_tokens == s->options.n_ctx) {
            r->finish = IG_FINISH_CONTEXT;
            break;
        }
        ig_status status = ig_session_decode(&s, &id, 1, err);
        if (status) return status;
    }
    if (r->finish != IG_FINISH_STOP) {
        push_text(out, text, ig_detok_flush(&detok, text, sizeof text));
        show(out, out->n_held);
    }
    r->seconds = ig_clock_seconds() - start;
    return IG_OK;
}

ig_status ig_generate(ig_generate_result *result, ig_session *s, ig_sampler *sampler,
                      const ig_generate_options *options, ig_error *err) {
    ig_generate_result ignored;
    if (!s || !sampler) return ig_fail(err, IG_E_ARG, "ig_generate: session and sampler are needed");
    if (!ig_sampler_is_for(sampler, s->model))
        return ig_fail(err, IG_E_ARG, "ig_generate: the sampler was opened for another model");
    if (!s->has_logits) return ig_fail(err, IG_E_ARG, "ig_generate: the session holds no tokens yet");
    ig_generate_options o = options ? *options : ig_generate_defaults();
    ig_status status = ig_check_generate_options(&o, err);
    if (status) return status;
    output out = {.o = &o};
    for (size_t k = 0; k < o.n_stops; k++)
        if (strlen(o.stops[k]) > out.longest) out.longest = strlen(o.stops[k]);
    out.held = malloc(out.longest + 2 * IG_TOKEN_BYTES_MAX);
    if (!out.held) return ig_fail_memory(err, "generation", out.longest + 2 * IG_TOKEN_BYTES_MAX);
    if (!result) result = &ignored;
    *result = (ig_generate_result){0};
    status = generate(result, s, sampler, &out, err);
    free(out.held);
    return status;
}
