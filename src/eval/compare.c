/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of work: the reference first, then the rivals that can take over
 * the prefix, then those that must see it being computed.
 */
#include "eval/compare.h"

#include <stdlib.h>
#include <string.h>

#include "eval/fail.h"

/* One chunk at work. */
typedef struct round {
    ig_eval_comparison *c;
    ig_session *s;
    const int32_t *ids;
    int n;
    ig_eval_chunk_options options;
    ig_error *err;
} round;

ig_status ig_eval_comparison_open(ig_eval_comparison *c, int n_vocab, ig_error *err) {
    bool has_reference = false;
    for (int i = 0; i < c->n_rivals; i++) has_reference = has_reference || c->rivals[i].is_reference;
    c->reference = NULL;
    c->prefix_logits = malloc((size_t)n_vocab * sizeof *c->prefix_logits);
    if (!c->prefix_logits) return ig_eval_fail(err, IG_E_MEMORY, "out of memory for the logits of a chunk");
    return has_reference ? ig_eval_reference_open(&c->reference, n_vocab, IG_EVAL_REFERENCE_BYTES, err) : IG_OK;
}

void ig_eval_comparison_close(ig_eval_comparison *c) {
    free(c->prefix_logits);
    ig_eval_reference_close(c->reference);
    c->prefix_logits = NULL;
    c->reference = NULL;
}

/* The session holds the prefix, computed under `full`. */
static ig_status compute_prefix(round *r) {
    ig_cache_options full = r->c->rivals[0].cache;
    full.policy = "full";
    full.sketch = NULL;
    ig_status status = ig_session_cut(r->s, 0, r->err);
    if (!status) status = ig_session_set_cache(r->s, &full, r->err);
    if (!status) status = ig_session_sync(r->s, r->ids, r->options.dense_prefix, r->err);
    if (status) return status;
    memcpy(r->c->prefix_logits, ig_session_logits(r->s), (size_t)r->options.n_vocab * sizeof *r->c->prefix_logits);
    return IG_OK;
}

/* The rest of the chunk under rival i, from the prefix that the session holds. */
static ig_status score(round *r, int i, const float *first) {
    const ig_eval_comparison *c = r->c;
    ig_eval_score result;
    r->options.reference = c->reference;
    r->options.keep = c->rivals[i].is_reference;
    ig_status status = ig_eval_chunk_rest(&result, r->s, r->ids, r->n, first, &r->options, r->err);
    if (!status) c->scored(c->user, i, &result, r->s);
    return status;
}

/* *taken: false if rival i cannot have what the session holds. */
static ig_status score_from_prefix(bool *taken, round *r, int i) {
    ig_eval_rival *rival = &r->c->rivals[i];
    *taken = false;
    ig_status status = ig_session_cut(r->s, r->options.dense_prefix, r->err);
    if (status || ig_session_tokens(r->s, NULL) < r->options.dense_prefix) return status;
    status = ig_session_set_cache(r->s, &rival->cache, r->err);
    if (status == IG_E_UNSUPPORTED) {
        rival->from_start = true;
        return IG_OK;
    }
    *taken = true;
    return status ? status : score(r, i, r->c->prefix_logits);
}

static ig_status score_from_start(round *r, int i) {
    ig_status status = ig_session_cut(r->s, 0, r->err);
    if (!status) status = ig_session_set_cache(r->s, &r->c->rivals[i].cache, r->err);
    if (!status) status = ig_session_sync(r->s, r->ids, r->options.dense_prefix, r->err);
    return status ? status : score(r, i, ig_session_logits(r->s));
}

/* Rival number k in the order of work: the reference, if there is one, before the others. */
static int nth_rival(const ig_eval_comparison *c, int k) {
    int at = -1;
    for (int i = 0; i < c->n_rivals; i++)
        if (c->rivals[i].is_reference) at = i;
    if (at <= 0) return k;
    return k == 0 ? at : k <= at ? k - 1 : k;
}

ig_status ig_eval_compare_chunk(ig_eval_comparison *c, ig_session *s, int32_t *ids, int n,
                                const ig_eval_chunk_options *options, ig_error *err) {
    round r = {c, s, ids, n, *options, err};
    bool is_shared = false, *waits = calloc((size_t)c->n_rivals, sizeof *waits);
    ig_status status = IG_OK;
    if (!waits) return ig_eval_fail(err, IG_E_MEMORY, "out of memory");
    if (options->bos >= 0) ids[0] = options->bos;
    if (c->reference) ig_eval_reference_clear(c->reference);
    for (int i = 0; i < c->n_rivals; i++) is_shared = is_shared || !c->rivals[i].from_start;
    if (is_shared) status = compute_prefix(&r);
    for (int k = 0; !status && k < c->n_rivals; k++) {
        int i = nth_rival(c, k);
        bool taken = false;
        if (!c->rivals[i].from_start) status = score_from_prefix(&taken, &r, i);
        waits[i] = !taken;
    }
    for (int i = 0; !status && i < c->n_rivals; i++)
        if (waits[i]) status = score_from_start(&r, i);
    free(waits);
    return status;
}
