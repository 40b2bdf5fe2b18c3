/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of work: the reference first, then the rivals that can take over
 * the prefix, then those that must see it being computed, and then the same
 * with those whose keys and values are kept in another way, in a session of
 * their own.
 */
#include "eval/compare.h"

#include <stdlib.h>
#include <string.h>

#include "text/text.h"

/* One chunk at work. */
typedef struct round {
    ig_eval_comparison *c;
    int32_t *ids;
    int n;
    ig_eval_chunk_options options;
    ig_error *err;
} round;

bool ig_eval_same_store(const ig_memory_options *a, const ig_memory_options *b) {
    return a == b ||
           (!ig_eval_drops(a) && !ig_eval_drops(b) && ig_eval_same_text(a->type, b->type) &&
            ig_eval_same_text(a->evict, b->evict) && a->ram_bytes == b->ram_bytes && a->disk_bytes == b->disk_bytes);
}

ig_status ig_eval_comparison_open(ig_eval_comparison *c, int n_vocab, ig_error *err) {
    bool has_reference = false;
    for (int i = 0; i < c->n_rivals; i++) has_reference = has_reference || c->rivals[i].is_reference;
    c->reference = NULL;
    c->s = NULL;
    c->prefix_logits = malloc((size_t)n_vocab * sizeof *c->prefix_logits);
    if (!c->prefix_logits) return ig_text_fail(err, IG_E_MEMORY, "out of memory for the logits of a chunk");
    return has_reference ? ig_eval_reference_open(&c->reference, n_vocab, IG_EVAL_REFERENCE_BYTES, err) : IG_OK;
}

void ig_eval_comparison_close(ig_eval_comparison *c) {
    ig_session_close(c->s);
    free(c->prefix_logits);
    ig_eval_reference_close(c->reference);
    c->s = NULL;
    c->prefix_logits = NULL;
    c->reference = NULL;
}

static bool fits(const ig_eval_comparison *c, int i) {
    return c->s && ig_eval_same_store(&c->rivals[c->i_open].cache.memory, &c->rivals[i].cache.memory);
}

/* A session that rival i can use. */
static ig_status open_session(round *r, int i) {
    ig_eval_comparison *c = r->c;
    ig_session_options options = c->session;
    if (fits(c, i)) return IG_OK;
    ig_session_close(c->s);
    c->s = NULL;
    c->i_open = i;
    options.cache = c->rivals[i].cache;
    if (!ig_eval_drops(&options.cache.memory)) options.cache.policy = "full", options.cache.sketch = NULL;
    return ig_session_open(&c->s, c->model, &options, r->err);
}

/* The session holds the prefix, computed under `full`. */
static ig_status compute_prefix(round *r) {
    ig_session *s = r->c->s;
    ig_cache_options full = r->c->rivals[r->c->i_open].cache;
    full.policy = "full";
    full.sketch = NULL;
    ig_status status = ig_session_cut(s, 0, r->err);
    if (!status) status = ig_session_set_cache(s, &full, r->err);
    if (!status) status = ig_session_sync(s, r->ids, r->options.dense_prefix, r->err);
    if (status) return status;
    memcpy(r->c->prefix_logits, ig_session_logits(s), (size_t)r->options.n_vocab * sizeof *r->c->prefix_logits);
    return IG_OK;
}

/* The rest of the chunk under rival i, from the prefix that the session holds. */
static ig_status score(round *r, int i, const float *first) {
    ig_eval_comparison *c = r->c;
    ig_eval_score result;
    r->options.reference = c->reference;
    r->options.keep = c->rivals[i].is_reference;
    ig_status status = ig_eval_chunk_rest(&result, c->s, r->ids, r->n, first, &r->options, r->err);
    if (!status) c->scored(c->user, i, &result, c->s);
    c->rivals[i].is_done = true;
    return status;
}

/* Does nothing if rival i cannot have what the session holds. */
static ig_status score_from_prefix(round *r, int i) {
    ig_session *s = r->c->s;
    ig_eval_rival *rival = &r->c->rivals[i];
    ig_status status = ig_session_cut(s, r->options.dense_prefix, r->err);
    if (status || ig_session_tokens(s, NULL) < r->options.dense_prefix) return status;
    status = ig_session_set_cache(s, &rival->cache, r->err);
    if (status == IG_E_UNSUPPORTED) {
        rival->from_start = true;
        return IG_OK;
    }
    return status ? status : score(r, i, r->c->prefix_logits);
}

static ig_status score_from_start(round *r, int i) {
    ig_eval_comparison *c = r->c;
    ig_status status = ig_session_cut(c->s, 0, r->err);
    if (!status) status = ig_session_set_cache(c->s, &c->rivals[i].cache, r->err);
    if (!status) status = ig_session_sync(c->s, r->ids, r->options.dense_prefix, r->err);
    return status ? status : score(r, i, ig_session_logits(c->s));
}

/* Without a dense prefix: all of the chunk under rival i. */
static ig_status score_whole(round *r, int i) {
    ig_eval_comparison *c = r->c;
    ig_eval_score result;
    ig_status status = ig_session_set_cache(c->s, &c->rivals[i].cache, r->err);
    if (!status) status = ig_eval_chunk(&result, c->s, r->ids, r->n, &r->options, r->err);
    if (!status) c->scored(c->user, i, &result, c->s);
    c->rivals[i].is_done = true;
    return status;
}

/* Every rival that can use the session of rival i, the reference before the others. */
static ig_status score_alike(round *r, int i) {
    ig_eval_comparison *c = r->c;
    bool is_shared = false, whole = !r->options.dense_prefix;
    ig_status status = open_session(r, i);
    if (status) return status;
    for (int k = 0; k < c->n_rivals; k++) {
        ig_eval_rival *rival = &c->rivals[k];
        rival->from_start = rival->from_start || ig_eval_drops(&rival->cache.memory);
        is_shared = is_shared || (fits(c, k) && !rival->from_start);
    }
    if (is_shared && !whole) status = compute_prefix(r);
    if (is_shared && !whole && !status && !c->rivals[i].from_start) status = score_from_prefix(r, i);
    for (int k = 0; is_shared && !whole && !status && k < c->n_rivals; k++)
        if (fits(c, k) && !c->rivals[k].is_done && !c->rivals[k].from_start) status = score_from_prefix(r, k);
    for (int k = 0; !status && k < c->n_rivals; k++)
        if (fits(c, k) && !c->rivals[k].is_done) status = whole ? score_whole(r, k) : score_from_start(r, k);
    return status;
}

ig_status ig_eval_compare_chunk(ig_eval_comparison *c, int32_t *ids, int n, const ig_eval_chunk_options *options,
                                ig_error *err) {
    round r = {c, ids, n, *options, err};
    ig_status status = IG_OK;
    if (options->bos >= 0) ids[0] = options->bos;
    if (c->reference) ig_eval_reference_clear(c->reference);
    for (int i = 0; i < c->n_rivals; i++) c->rivals[i].is_done = false;
    for (int i = 0; !status && i < c->n_rivals; i++)
        if (c->rivals[i].is_reference) status = score_alike(&r, i);
    for (int i = 0; !status && i < c->n_rivals; i++)
        if (!c->rivals[i].is_done) status = score_alike(&r, i);
    return status;
}
