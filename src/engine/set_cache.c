/* SPDX-License-Identifier: Apache-2.0
 *
 * Another policy for a session that holds tokens: all but the KV store is made anew beside the old, the new policy is
 * shown the keys of the store, and then the two change places. So the old one is whole until nothing can fail.
 */
#include "engine/session.h"

#include <string.h>

#include "base/error.h"

/* ---- the keys held ------------------------------------------------------------- */

/* Rows [begin, end) of a layer's entries, for the policy to see. */
typedef struct replay {
    ig_session *s;
    const ig_kv_view *views; /* [n_kv_heads] */
    int layer, begin, end;
} replay;

/* Task: one KV head. Of packed rows the policy sees what can be had of them. */
static void replay_task(void *arg, int head, int thread) {
    const replay *r = arg;
    const ig_kv_view *view = &r->views[head];
    const ig_key_frame *frame = ig_model_key_frame(r->s->model, view->type, r->layer);
    ig_policy *p = r->s->seq.policy;
    int d = p->shape.head_dim, end = view->n < r->end ? view->n : r->end;
    uint16_t plain[2][IG_KV_DIMS];
    (void)thread;
    for (int i = r->begin; i < end; i++) {
        int slot = view->index ? view->index[i] : view->first + i;
        const uint8_t *row = ig_kv_view_row(view, slot);
        const void *key = row, *value = row + view->v_offset;
        if (view->type != IG_KV_F16) {
            size_t n_lines = ig_kv_row_lines(view->type, d);
            const ig_kv_line *lines = view->lines + (size_t)slot * 2 * n_lines;
            p->shape.kernels->kv_unpack[view->type](plain[0], &(ig_kv_packed){key, lines}, 1, d);
            p->shape.kernels->kv_unpack[view->type](plain[1], &(ig_kv_packed){value, lines + n_lines}, 1, d);
            if (frame) ig_key_frame_leave(plain[0], frame, &r->s->model->config, head);
            key = plain[0], value = plain[1];
        }
        p->ops->append(p, r->layer, head, slot, key, value);
    }
}

static ig_status replay_layer(ig_session *s, int layer, int first, ig_error *err) {
    const ig_config *c = &s->model->config;
    ig_kv *kv = s->seq.kv;
    ig_device *d = s->model->ctx->device;
    ig_kv_view *views = s->ws.views;
    replay r = {.s = s, .views = views, .layer = layer, .begin = first, .end = s->seq.n_ctx};
    if (ig_kv_in_ram(kv, layer, first, ig_kv_entries(kv, layer, 0).n_slots)) {
        for (int h = 0; h < c->n_kv_heads; h++) {
            ig_entries e = ig_kv_entries(kv, layer, h);
            views[h] = ig_kv_fetch(kv, layer, h, e.slot, 0, e.n);
        }
        d->ops->parallel(d, c->n_kv_heads, replay_task, &r);
        return IG_OK;
    }
    for (int unit = first / IG_ATTEND_UNIT * IG_ATTEND_UNIT; unit < s->n_tokens; unit += IG_ATTEND_UNIT) {
        ig_status status = ig_kv_stream(kv, layer, unit, s->n_tokens, views, err);
        if (status) return status;
        r.begin = unit > first ? unit : first;
        r.end = unit + IG_ATTEND_UNIT;
        d->ops->parallel(d, c->n_kv_heads, replay_task, &r);
    }
    return IG_OK;
}

ig_status ig_session_replay(ig_session *s, int first, ig_error *err) {
    const ig_policy *p = s->seq.policy;
    ig_status status = IG_OK;
    for (int l = 0; !status && l < s->model->config.n_layers && first < s->n_tokens && p->ops->append; l++)
        if (!ig_policy_is_dense(p, l)) status = replay_layer(s, l, first, err);
    return status;
}

/* ---- changing places ------------------------------------------------------------ */

static bool same_store(const ig_session_plan *p, const ig_session *s) {
    const ig_kv_options *a = &p->tiers, *b = &s->tiers;
    return a->type == b->type && a->ram_bytes == b->ram_bytes && a->disk_bytes == b->disk_bytes &&
           a->evict == b->evict && a->no_uring == b->no_uring && p->o.cache.limit == s->options.cache.limit &&
           p->o.cache.limit_bytes == s->options.cache.limit_bytes && a->limit == b->limit &&
           (a->n_dropping == b->n_dropping || !a->limit);
}

static ig_status check(const ig_session_plan *p, const ig_session *s, ig_error *err) {
    if (!same_store(p, s))
        return ig_fail(err, IG_E_ARG,
                       "KV policy %s cannot take over: how keys and values are kept (type, RAM, disk, limit, evict) "
                       "would change",
                       p->ops->name);
    if (ig_kv_has_dropped(s->seq.kv) && (!p->ops->takes_limit || ig_kv_has_disk(s->seq.kv)))
        return ig_fail(err, IG_E_UNSUPPORTED, "KV policy %s cannot take over a session that has dropped entries",
                       p->ops->name);
    if (s->n_tokens && (p->ops->see_queries || p->ops->observe))
        return ig_fail(
            err, IG_E_UNSUPPORTED,
            "KV policy %s must see the prompt being computed: it cannot take over a session that holds tokens",
            p->ops->name);
    return IG_OK;
}

/* What stays as it is. */
static void take_over(ig_session *next, const ig_session *s) {
    next->seq.kv = s->seq.kv;
    next->seq.traced = s->seq.traced;
    next->n_tokens = s->n_tokens;
    next->has_logits = s->has_logits;
    next->n_prefilled = s->n_prefilled;
    next->prefill_seconds = s->prefill_seconds;
    memcpy(next->tokens, s->tokens, (size_t)s->n_tokens * sizeof *s->tokens);
    memcpy(next->logits, s->logits, (size_t)s->model->config.n_vocab * sizeof *s->logits);
}

ig_status ig_session_set_cache(ig_session *s, const ig_cache_options *options, ig_error *err) {
    if (!s || !options) return ig_fail(err, IG_E_ARG, "ig_session_set_cache: session and options are needed");
    ig_session_options o = s->options;
    ig_session_plan p;
    o.cache = *options;
    ig_status status = ig_session_make_plan(&p, s->model, &o, err);
    if (status) return status;
    status = check(&p, s, err);
    if (!status && !s->n_tokens) status = ig_kv_replan(s->seq.kv, &p.tiers, err); /* for a policy that drops entries */
    if (status) {
        ig_sketch_file_close(&p.sketch);
        return status;
    }
    ig_session next = {.model = s->model};
    status = ig_session_equip(&next, &p, err);
    if (!status) {
        take_over(&next, s);
        status = ig_session_replay(&next, 0, err);
    }
    if (!status) status = ig_kv_pin(s->seq.kv, p.tiers.n_pinned_layers, err);
    if (status) {
        ig_kv_cut(s->seq.kv, s->n_tokens, NULL); /* ends the scan that failed */
        ig_session_strip(&next);
        return status;
    }
    ig_session_strip(s);
    *s = next;
    s->seq.ws = &s->ws;
    if (s->seq.policy->shape.sketch) s->seq.policy->shape.sketch = &s->sketch;
    return IG_OK;
}
