/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch's memory: laid out twice, first to count, then to take.
 */
#define _GNU_SOURCE
#include "model/batch.h"

#include <string.h>

#include "base/compiler.h"
#include "base/error.h"
#include "device/context.h"

/* What layers with a recurrence want, and queries that have their gates beside them. */
static void lay_out_mixed(ig_batch *b, const ig_config *c, size_t rows) {
    ig_space *a = &b->space;
    const ig_recurrence_shape *s = &c->recurrence;
    size_t heads = (size_t)c->n_heads, channels = ig_recurrence_channels(s), values = (size_t)s->n_value_heads,
           wide = c->is_gate_in_q ? 2 * heads * (size_t)c->head_dim : 0;
    b->mixed[0] = ig_space_device(a, rows * (channels > wide ? channels : wide) * sizeof(float));
    b->mixed[1] = ig_space_device(a, rows * channels * sizeof(float));
    b->mixed_gate = ig_space_device(a, rows * values * (size_t)s->value_dim * sizeof(float));
    size_t narrow = s->kind == IG_KIMI_DELTA ? (size_t)s->key_dim : 0;
    b->gates = ig_space_device(a, rows * values * (1 + (size_t)ig_recurrence_decays(s)) * sizeof(float));
    for (int i = 0; i < 2; i++) b->narrow[i] = ig_space_device(a, rows * narrow * sizeof(float));
    b->recurrences = ig_space_host(a, c->n_recurrent ? rows * sizeof *b->recurrences : 0);
    b->halves = ig_space_host(a, c->is_gate_in_q ? 2 * rows * heads * sizeof *b->halves : 0);
}

/* Latents of queries and of rows, and heads: their queries, then their values. */
static void lay_out_latents(ig_batch *b, const ig_config *c, size_t rows) {
    const ig_latent_shape *s = &c->latent;
    size_t each = (size_t)ig_max_int(s->key_dim + c->rope.n, s->value_dim) * sizeof(float);
    if (!s->kv_rank) return;
    b->q_latent = ig_space_device(&b->space, rows * (size_t)s->q_rank * sizeof(float));
    b->latent = ig_space_device(&b->space, rows * (size_t)s->kv_rank * sizeof(float));
    b->rotating = ig_space_device(&b->space, rows * (size_t)c->rope.n * sizeof(float));
    b->heads = ig_space_device(&b->space, rows * (size_t)c->n_heads * each);
}

/* What layers get of tokens beside the state. */
static void lay_out_inputs(ig_batch *b, const ig_config *c, size_t rows) {
    ig_space *a = &b->space;
    size_t all = rows * (size_t)c->n_layers, each = (size_t)c->d_layer_input * sizeof(float);
    b->inputs = ig_space_device(a, all * each);
    for (int i = 0; i < 2; i++) b->input[i] = ig_space_device(a, rows * each);
    b->input_rows = ig_space_host(a, each ? all * sizeof *b->input_rows : 0);
}

static void lay_out(ig_batch *b, const ig_context *ctx, const ig_config *c, const ig_step_need *need) {
    ig_layer_heads layers = ig_config_heads(c);
    size_t rows = (size_t)need->max_rows, d = (size_t)ig_max_int(c->d_model, c->d_embed),
           heads = (size_t)ig_config_widest_heads(c), mixed = (size_t)ig_config_mixed(c);
    size_t wide = 2 * (rows < IG_FFN_ROWS ? rows : IG_FFN_ROWS) * (size_t)ig_config_widest_ff(c);
    size_t few_logits = (size_t)c->n_vocab * (rows < IG_STEP_ROWS ? rows : IG_STEP_ROWS);
    if (wide < few_logits) wide = few_logits;
    b->logit_rows = (int)(wide / (size_t)c->n_vocab);
    if (b->logit_rows > need->max_rows) b->logit_rows = need->max_rows;
    b->ffn_rows = ctx->device->ops->is_host ? IG_FFN_ROWS : IG_FFN_ROWS_THERE;
    size_t hidden = 2 * (size_t)ig_min_int(need->max_rows, b->ffn_rows) * (size_t)ig_config_widest_ff(c);
    if (wide < hidden) wide = hidden;
    ig_space *a = &b->space;
    b->h = ig_space_device(a, rows * d * sizeof(float));
    b->x = ig_space_device(a, rows * (d > mixed ? d : mixed) * sizeof(float));
    b->gate = c->has_attn_gate ? ig_space_device(a, rows * heads * sizeof(float)) : NULL;
    lay_out_mixed(b, c, rows);
    lay_out_inputs(b, c, rows);
    lay_out_latents(b, c, rows);
    b->y = ig_space_device(a, rows * d * sizeof(float));
    b->beside = ig_config_is_side_by_side(c) ? ig_space_device(a, rows * d * sizeof(float)) : NULL;
    b->wide = ig_space_device(a, wide * sizeof(float));
    ig_routes_lay_out(a, &b->routes, c, need->max_rows, b->ffn_rows);
    b->logits.dev = b->logits.host = b->wide;
    if (!ctx->device->ops->is_host)
        b->logits.host = ig_space_host(a, (size_t)b->logit_rows * (size_t)c->n_vocab * sizeof(float));
    b->shares = ig_space_twin(a, rows * (size_t)c->n_adapters);
    b->cs = ig_space_twin(a, rows * (size_t)ig_config_rotated(c));
    b->ids = ig_space_host(a, rows * sizeof *b->ids);
    b->positions = ig_space_host(a, rows * sizeof *b->positions);
    b->segments = ig_space_host(a, rows * sizeof *b->segments);
    b->most_looks = 1 + IG_LAYER_LOOKS * c->n_layers;
    b->looks = ig_space_host(a, (size_t)b->most_looks * sizeof *b->looks);
    b->peaks = ig_space_host(a, ((size_t)b->most_looks + 1) * sizeof *b->peaks);
    ig_step_lay_out(a, &b->rows, &layers, ctx->n_threads, need);
    b->rows.out = b->x;
}

static ig_device_need device_need(const ig_config *c, const ig_step_need *need) {
    const ig_latent_shape *latent = &c->latent;
    int widest = ig_max_int(ig_max_int(ig_config_widest_ff(c), ig_config_mixed(c)),
                            ig_max_int(ig_max_int(c->d_model, c->d_embed), c->d_layer_input));
    int of_head = ig_max_int(ig_max_int(latent->key_dim, latent->kv_rank), latent->value_dim);
    of_head = (int)ig_round_up((size_t)of_head + 8, IG_HEAD_COLUMN);
    widest = ig_max_int(ig_max_int(widest, c->experts.width), ig_max_int(latent->q_rank, c->n_heads * of_head));
    ig_device_need device = {.max_rows = need->max_rows,
                             .max_in = widest,
                             .max_rank = c->low_rank,
                             .max_entries = need->n_ctx,
                             .heads = {.n_heads = ig_max_int(c->n_heads, c->local_heads),
                                       .n_kv_heads = ig_max_int(c->n_kv_heads, c->local_kv_heads),
                                       .head_dim = c->head_dim},
                             .mail_bytes = need->mail_bytes};
    return device;
}

void ig_batch_plan(uint64_t bytes[IG_PLACES], const ig_context *ctx, const ig_config *c, const ig_step_need *need) {
    ig_batch b = {.space.dev = ctx->device};
    ig_device_need device = device_need(c, need);
    lay_out(&b, ctx, c, need);
    for (int p = 0; p < IG_PLACES; p++) bytes[p] = b.space.at[p].used;
    ctx->device->ops->plan(ctx->device, bytes, &device);
}

void ig_batch_init(ig_batch *b) {
    pthread_mutexattr_t kind;
    memset(b, 0, sizeof *b);
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_init(&b->turn, &kind);
    pthread_mutexattr_destroy(&kind);
}

void ig_batch_close(ig_batch *b) {
    ig_space_close(&b->space);
    pthread_mutex_destroy(&b->turn);
}

ig_status ig_batch_begin(ig_batch *b, ig_error *err) {
    if (pthread_mutex_lock(&b->turn) == 0) return IG_OK;
    return ig_fail(err, IG_E_ARG, "a session was called from within a step of the same model");
}

ig_batch *ig_batch_enter(ig_batch *b) { return pthread_mutex_lock(&b->turn) == 0 ? b : NULL; }

void ig_batch_end(ig_batch *b) {
    if (b) pthread_mutex_unlock(&b->turn);
}

static ig_step_need larger(const ig_step_need *a, const ig_step_need *b) {
    return (ig_step_need){.max_rows = ig_max_int(a->max_rows, b->max_rows),
                          .n_ctx = ig_max_int(a->n_ctx, b->n_ctx),
                          .select_bytes = a->select_bytes > b->select_bytes ? a->select_bytes : b->select_bytes,
                          .streams = a->streams || b->streams,
                          .kept_entries = ig_max_int(a->kept_entries, b->kept_entries),
                          .weighs = a->weighs || b->weighs,
                          .drops = a->drops || b->drops,
                          .scans = ig_max_int(a->scans, b->scans),
                          .mail_bytes = a->mail_bytes > b->mail_bytes ? a->mail_bytes : b->mail_bytes};
}

static bool is_same(const ig_step_need *a, const ig_step_need *b) {
    return a->max_rows == b->max_rows && a->n_ctx == b->n_ctx && a->select_bytes == b->select_bytes &&
           a->streams == b->streams && a->kept_entries == b->kept_entries && a->weighs == b->weighs &&
           a->drops == b->drops && a->scans == b->scans && a->mail_bytes == b->mail_bytes;
}

static ig_status grow(ig_batch *b, const ig_context *ctx, const ig_config *c, const ig_step_need *want, ig_error *err) {
    ig_batch next = {.space.dev = ctx->device};
    lay_out(&next, ctx, c, want);
    size_t bytes = ig_space_bytes(&next.space);
    if (!ig_space_open(&next.space)) return ig_fail_memory(err, "scratch of a step", bytes);
    ig_space_close(&b->space);
    b->space = next.space;
    lay_out(b, ctx, c, want);
    b->have = *want;
    atomic_store(&b->bytes, bytes);
    return IG_OK;
}

ig_status ig_batch_reserve(ig_batch *b, ig_context *ctx, const ig_config *c, const ig_step_need *need, ig_error *err) {
    ig_device_need device = device_need(c, need);
    ig_status s = ctx->device->ops->reserve(ctx->device, &device, err);
    if (!s) s = ig_batch_begin(b, err);
    if (s) return s;
    ig_step_need want = larger(&b->have, need);
    if (!is_same(&b->have, &want)) s = grow(b, ctx, c, &want, err);
    ig_batch_end(b);
    return s;
}
