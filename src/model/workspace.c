/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass's scratch: one arena, laid out twice, first to count, then to take.
 */
#include "base/error.h"
#include "model/forward.h"

static void lay_out(ig_workspace *ws, const ig_model *m, const ig_workspace_need *need) {
    const ig_config *c = &m->config;
    size_t rows = (size_t)need->max_rows, d = (size_t)(c->d_model > c->d_embed ? c->d_model : c->d_embed);
    size_t n_heads = (size_t)c->n_heads, heads = n_heads * (size_t)c->head_dim,
           kv = (size_t)c->n_kv_heads * (size_t)c->head_dim;
    size_t wide = 2 * (rows < IG_FFN_ROWS ? rows : IG_FFN_ROWS) * (size_t)c->d_ff;
    size_t few_logits = (size_t)c->n_vocab * (rows < 16 ? rows : 16);
    if (wide < few_logits) wide = few_logits;
    ws->max_rows = need->max_rows;
    ws->logit_rows = (int)(wide / (size_t)c->n_vocab);
    if (ws->logit_rows > need->max_rows) ws->logit_rows = need->max_rows;
    ws->select_bytes = ig_round_up(need->select_bytes, IG_ALIGN);
    ig_arena *a = &ws->arena;
    ws->h = ig_arena_take(a, rows * d * sizeof(float));
    ws->x = ig_arena_take(a, rows * (d > heads ? d : heads) * sizeof(float));
    ws->y = ig_arena_take(a, rows * d * sizeof(float));
    ws->q = ig_arena_take(a, rows * heads * sizeof(float));
    ws->k = ig_arena_take(a, rows * kv * sizeof(float));
    ws->v = ig_arena_take(a, rows * kv * sizeof(float));
    ws->wide = ig_arena_take(a, wide * sizeof(float));
    ws->cs = ig_arena_take(a, rows * (size_t)c->n_rot * sizeof(float));
    ws->lse = ig_arena_take(a, rows * n_heads * sizeof(float));
    ws->rest.value = ig_arena_take(a, rows * heads * sizeof(float));
    ws->rest.share = ig_arena_take(a, rows * n_heads * sizeof(float));
    ws->positions = ig_arena_take(a, rows * sizeof(int32_t));
    ws->jobs = ig_arena_take(a, rows * sizeof *ws->jobs);
    ws->views = ig_arena_take(a, rows * n_heads * sizeof *ws->views);
    ws->segments = ig_arena_take(a, rows * sizeof *ws->segments);
    ws->picks = ig_arena_take(a, n_heads * sizeof *ws->picks);
    ws->select_scratch = ig_arena_take(a, (size_t)m->ctx->n_threads * ws->select_bytes);
    size_t n_ctx = (size_t)need->n_ctx;
    if (need->weighs || need->drops) ws->weights = ig_arena_take(a, n_heads * n_ctx * sizeof(float));
    if (need->weighs) ws->dense = ig_arena_take(a, heads * sizeof(float));
    if (need->drops) ws->keep = ig_arena_take(a, (size_t)c->n_kv_heads * n_ctx * sizeof *ws->keep);
    if (!need->streams) return;
    ig_head_shape shape = {c->n_heads, c->n_kv_heads, c->head_dim, 0};
    size_t prefill = ig_attend_carry_floats(&shape, need->max_rows, 0);
    size_t decode = ig_attend_carry_floats(&shape, 0, need->n_ctx);
    ws->carry = ig_arena_take(a, (prefill > decode ? prefill : decode) * sizeof(float));
}

uint64_t ig_workspace_plan(const ig_model *m, const ig_workspace_need *need) {
    ig_workspace ws = {0};
    lay_out(&ws, m, need);
    return ws.arena.used;
}

ig_status ig_workspace_open(ig_workspace *ws, const ig_model *m, const ig_workspace_need *want, ig_error *err) {
    const ig_config *c = &m->config;
    int widest = c->d_ff;
    if (widest < c->d_model) widest = c->d_model;
    if (widest < c->d_embed) widest = c->d_embed;
    if (widest < c->n_heads * c->head_dim) widest = c->n_heads * c->head_dim;
    ig_device_need need = {.max_rows = want->max_rows,
                           .max_in = widest,
                           .max_entries = want->n_ctx,
                           .heads = {c->n_heads, c->n_kv_heads, c->head_dim, 0}};
    *ws = (ig_workspace){0};
    ig_status s = m->ctx->device->ops->reserve(m->ctx->device, &need, err);
    if (s) return s;
    lay_out(ws, m, want);
    size_t bytes = ws->arena.used;
    if (!ig_arena_open(&ws->arena)) return ig_fail_memory(err, "session scratch", bytes);
    lay_out(ws, m, want);
    return IG_OK;
}

void ig_workspace_close(ig_workspace *ws) { ig_arena_close(&ws->arena); }
