/* SPDX-License-Identifier: Apache-2.0 */
#include "prepare/text_pass.h"

ig_status ig_text_pass_open(ig_text_pass *p, ig_model *m, const int32_t *ids, int n_tokens, int max_rows,
                            ig_error *err) {
    const ig_config *c = &m->config;
    ig_kv_options in = {.device = m->ctx->device, .state_bytes = ig_config_state_bytes(c)};
    ig_kv_shape kv = ig_config_kv_shape(c, n_tokens, max_rows);
    ig_policy_shape policy = {.n_layers = ig_config_attention_layers(c),
                              .n_heads = c->n_heads,
                              .n_kv_heads = c->n_kv_heads,
                              .head_dim = c->head_dim,
                              .n_ctx = n_tokens,
                              .scale = (float)c->attn_scale,
                              .cap = (float)c->score_cap,
                              .window = c->window,
                              .kernels = ig_kernels_get(m->ctx->level),
                              .device = m->ctx->device};
    ig_cache_options cache = {.policy = "full"};
    ig_sequence_plan seq = {.ops = &ig_policy_full, .policy = &policy, .options = &cache};
    ig_step_need need = {.max_rows = max_rows, .n_ctx = n_tokens};
    *p = (ig_text_pass){.m = m, .ids = ids, .n_tokens = n_tokens};
    ig_batch_init(&p->batch);
    ig_status s = ig_model_check_ids(m, ids, 0, n_tokens, err);
    if (!s) s = ig_sequence_open(&p->seq, &seq, err);
    if (!s) s = ig_kv_open(&p->seq.kv, &kv, &in, err);
    if (!s) s = ig_batch_reserve(&p->batch, m->ctx, c, &need, err);
    return s;
}

ig_status ig_text_pass_run(ig_text_pass *p, int first, int n, ig_error *err) {
    ig_segment *seg = p->batch.segments;
    *seg = (ig_segment){.seq = &p->seq, .ids = p->ids + first, .first = first, .n = n, .dense = true, .err = err};
    ig_status s = ig_batch_begin(&p->m->batch, err); /* steps of sessions use the weights' memory too */
    if (s) return s;
    s = ig_forward(p->m, &p->batch, 1, err);
    ig_batch_end(&p->m->batch);
    return s ? s : seg->status;
}

void ig_text_pass_close(ig_text_pass *p) {
    if (!p->m) return;
    ig_batch_close(&p->batch);
    ig_sequence_close(&p->seq);
    ig_kv_close(p->seq.kv);
}
