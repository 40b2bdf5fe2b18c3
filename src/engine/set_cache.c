/* SPDX-License-Identifier: Apache-2.0
 *
 * Another policy for a session that holds tokens: all but the KV store is made anew beside the old, the new policy is
 * shown the keys of the store, and then the two change places. So the old one is whole until nothing can fail.
 */
#include "engine/cache.h"
#include "engine/session.h"

#include <string.h>

#include "base/error.h"

static bool same_store(const ig_session_plan *p, const ig_session *s) {
    const ig_kv_options *a = &p->tiers, *b = &s->tiers;
    const ig_memory_options *x = &p->o.cache.memory, *y = &s->options.cache.memory;
    return a->type == b->type && a->ram_bytes == b->ram_bytes && a->disk_bytes == b->disk_bytes && x->map == y->map &&
           a->evict == b->evict && a->no_uring == b->no_uring && a->window == b->window &&
           x->vram_bytes == y->vram_bytes && x->limit == y->limit && x->share_answers == y->share_answers &&
           x->limit_bytes == y->limit_bytes && a->limit == b->limit && (a->n_dropping == b->n_dropping || !a->limit);
}

static ig_status check(const ig_session_plan *p, const ig_session *s, ig_error *err) {
    if (!same_store(p, s))
        return ig_fail(err, IG_E_ARG,
                       "KV policy %s cannot take over: how keys and values are kept (type, RAM, disk, VRAM, limit, "
                       "evict, windows) would change",
                       p->ops->info.name);
    if (ig_kv_has_dropped(s->seq.kv) && (!p->ops->takes_limit || ig_kv_has_disk(s->seq.kv)))
        return ig_fail(err, IG_E_UNSUPPORTED, "KV policy %s cannot take over a session that has dropped entries",
                       p->ops->info.name);
    if (s->n_tokens && !ig_cache_same_prompts(&p->o.cache, &s->options.cache))
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "KV policy %s cannot take over a session that holds tokens: what tokens of prompts choose makes "
                       "other keys and values",
                       p->ops->info.name);
    if (s->n_tokens && p->ops->info.sees_prompts)
        return ig_fail(
            err, IG_E_UNSUPPORTED,
            "KV policy %s must see the prompt being computed: it cannot take over a session that holds tokens",
            p->ops->info.name);
    if (s->n_tokens && ig_session_has_shadow(p))
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "an audit of KV policy %s, which drops entries, must see all of them: it cannot take over a "
                       "session that holds tokens",
                       p->ops->info.name);
    return IG_OK;
}

/* What stays as it is. */
static void take_over(ig_session *next, const ig_session *s) {
    next->own_cache = s->own_cache;
    next->seq.traced = s->seq.traced;
    next->n_tokens = s->n_tokens;
    next->has_logits = s->has_logits;
    next->n_prefilled = s->n_prefilled;
    next->n_taken = s->n_taken;
    next->most_tokens = s->most_tokens;
    next->drafter = s->drafter;
    next->draft = s->draft;
    next->prefill_seconds = s->prefill_seconds;
    memcpy(next->tokens, s->tokens, (size_t)s->n_tokens * sizeof *s->tokens);
    memcpy(next->logits, s->logits, (size_t)s->model->config.n_vocab * sizeof *s->logits);
}

ig_status ig_session_set_cache(ig_session *s, const ig_cache_options *options, ig_error *err) {
    if (!s || !options) return ig_fail(err, IG_E_ARG, "ig_session_set_cache: session and options are needed");
    ig_session_options o = s->options;
    ig_session_plan p;
    o.cache = *options;
    o.cache.memory.disk_path = ""; /* it is open already */
    o.cache.memory.store_path = NULL;
    o.cache.memory.n_sessions = s->options.cache.memory.n_sessions;
    ig_status status = ig_session_make_plan(&p, s->model, &o, err);
    if (status) return status;
    status = check(&p, s, err);
    if (!status) status = ig_session_drop_ahead(s, err);
    bool is_alone = !o.shared || s->own_cache; /* in its memory */
    if (status) {
        ig_session_give_sketch(s->model, p.sketch);
        return status;
    }
    ig_session next = {.model = s->model};
    status = ig_session_equip(&next, &p, s->seq.kv, err);
    ig_batch *turn = ig_batch_enter(&s->model->batch);
    if (!status) {
        take_over(&next, s);
        status = ig_sequence_replay(&next.seq, s->model->ctx->device, 0, s->n_tokens, err);
    }
    if (!status && !s->n_tokens && is_alone) /* for a policy that drops entries */
        status = ig_kv_replan(ig_kv_memory_of(s->seq.kv), &p.tiers, err);
    if (!status && is_alone) status = ig_kv_pin(ig_kv_memory_of(s->seq.kv), p.tiers.n_pinned_layers, err);
    if (status && turn)
        ig_kv_cut(s->seq.kv, s->n_tokens, NULL); /* ends the scan that failed; within a step there was none */
    else if (!status)
        ig_sequence_inherit(&next.seq, &s->seq);
    ig_batch_end(turn);
    ig_session_strip(status ? &next : s);
    if (!status) *s = next;
    return status;
}
