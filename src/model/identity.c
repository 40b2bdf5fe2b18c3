/* SPDX-License-Identifier: Apache-2.0
 *
 * Which model this is. Its identity is a hash of what decides its queries and keys, namely architecture, shapes, RoPE,
 * windows, norms, the names, types and sizes of all tensors, and samples of their bytes; and of adapters that every
 * session takes, unless it says otherwise, which are hashed whole.
 */
#include "model/identity.h"

#include <string.h>

#include <xxhash.h>

enum { SAMPLES = 32, SAMPLE_BYTES = 64, PIECE_BYTES = 1 << 20, MOST_PIECES = 64, DIVISORS = 256 };

static uint64_t hash(uint64_t h, const void *data, size_t n_bytes) { return XXH3_64bits_withSeed(data, n_bytes, h); }

static uint64_t hash_text(uint64_t h, const char *text) { return hash(h, text, strlen(text)); }

static uint64_t hash_samples(uint64_t h, const ig_tensor *t) {
    size_t n = t->n_bytes < SAMPLE_BYTES ? t->n_bytes : SAMPLE_BYTES, last = t->n_bytes - n;
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t at = last / (SAMPLES - 1) * i;
        h = hash(h, (const uint8_t *)t->data + at, n);
    }
    return h;
}

static uint64_t hash_config(uint64_t h, const ig_config *c) {
    const int64_t shapes[] = {
        c->n_layers, c->n_heads,    c->n_kv_heads,          c->head_dim, c->d_model, c->d_ff, c->n_vocab, c->rope.kind,
        c->rope.n,   c->rope.blend, (int64_t)c->norms.order};
    const double numbers[] = {c->rope.theta,     c->rope.linear,       c->rope.factor, c->rope.low_freq,
                              c->rope.high_freq, c->rope.original_ctx, c->attn_scale,  (double)c->norms.eps};
    h = hash_text(h, c->architecture);
    h = hash(h, shapes, sizeof shapes);
    h = hash(h, c->window, (size_t)c->n_layers * sizeof *c->window);
    h = hash(h, numbers, sizeof numbers);
    /* What came later counts where it is there, so that models have kept their identities. */
    const double later[] = {c->rope.gain, c->embed_scale, c->logit_scale, c->rope.local_theta, (double)c->norms.offset};
    static const double plain[] = {1, 1, 1, 0, 0};
    if (memcmp(later, plain, sizeof plain) != 0) h = hash(h, later, sizeof later);
    const int64_t experts[] = {c->experts.n, c->experts.n_used, c->experts.is_share_of_all};
    if (c->experts.n) h = hash(h, experts, sizeof experts);
    const double others[] = {c->n_plain_layers, c->d_ff_plain, c->experts.d_shared, c->experts.routing,
                             c->experts.scale};
    if (c->experts.routing || c->experts.d_shared) h = hash(h, others, sizeof others);
    const double queries[] = {c->rope.query_growth, c->norms.follow_rope};
    if (c->rope.query_growth > 0 || c->norms.follow_rope) h = hash(h, queries, sizeof queries);
    const double unrotated[] = {c->rope.growth_length, c->norms.are_of_rotated, c->has_chunks, c->experts.step};
    if (c->rope.grows_unrotated || c->norms.are_of_rotated || c->has_chunks || c->experts.step)
        h = hash(h, unrotated, sizeof unrotated);
    const double windows[] = {c->local_kv_heads, c->local_head_dim, c->n_layers_sharing, c->logit_cap,
                              c->are_keys_values + 2 * c->norms.of_values + 4 * c->experts.is_shared_beside};
    if (c->local_kv_heads || c->n_layers_sharing || c->norms.of_values) h = hash(h, windows, sizeof windows);
    const ig_latent_shape *latent = &c->latent;
    const int64_t latents[] = {latent->kv_rank,   latent->q_rank,      latent->key_dim,
                               latent->value_dim, c->experts.n_groups, c->experts.n_groups_used};
    if (latent->kv_rank || c->experts.n_groups > 1) h = hash(h, latents, sizeof latents);
    const int64_t index[] = {c->index.n_heads, c->index.dim, c->index.n_chosen, c->is_index_adjacent};
    if (c->index.dim) h = hash(hash(h, index, sizeof index), c->index_layer, (size_t)c->n_layers * sizeof(uint16_t));
    const int64_t blocks[] = {c->index.block, c->index.n_local};
    if (c->index.block) h = hash(h, blocks, sizeof blocks);
    const ig_recurrence_shape *s = &c->recurrence;
    const int64_t recurrence[] = {s->n_key_heads, s->n_value_heads, s->key_dim,
                                  s->value_dim,   s->n_taps,        s->is_tiled + 2 * s->has_gate_pairs + 4 * s->kind};
    if (c->n_recurrent) h = hash(hash(h, recurrence, sizeof recurrence), c->is_recurrent, (size_t)c->n_layers);
    if (c->is_state_beside) h = hash(h, &c->multipliers, sizeof c->multipliers);
    const double caps[] = {c->score_cap, c->experts.shared_scale};
    if (c->score_cap > 0 || c->experts.shared_scale != 1) h = hash(h, caps, sizeof caps);
    const double norms[] = {(double)c->norms.after_eps, c->norms.is_final_whole, c->norms.of_embeddings,
                            c->norms.of_heads_are_plain};
    if (c->norms.of_embeddings) h = hash(h, norms, sizeof norms);
    if (c->file.has_numbered_parts) h = hash(h, c->file.first_part, (size_t)c->n_layers * sizeof *c->file.first_part);
    for (int l = 0; l < c->n_layers; l++)
        if (c->rope.set[l]) h = hash(h, &(int64_t){l * IG_ROPE_SETS + c->rope.set[l]}, sizeof(int64_t));
    size_t n = c->rope.n / 2 > DIVISORS ? (size_t)c->rope.n / 2 : DIVISORS;
    return c->rope.blend == IG_BLEND_LONGROPE ? hash(h, c->rope.divisors, n * sizeof *c->rope.divisors) : h;
}

static bool is_adapted(const ig_model *m) { return m->adapters_hash[0] || m->adapters_hash[1]; }

uint64_t ig_model_identity_of(const ig_model *m) {
    uint64_t h = hash_config(1, &m->config);
    for (size_t i = 0; i < ig_model_count_tensors(m); i++) {
        const ig_tensor *t = ig_model_tensor_at(m, i);
        uint64_t sizes[] = {(uint64_t)t->type, (uint64_t)t->n_dims, t->dims[0], t->dims[1], t->dims[2], t->dims[3]};
        h = hash_text(h, t->name);
        h = hash(h, sizes, sizeof sizes);
        h = hash_samples(h, t);
    }
    return is_adapted(m) ? hash(h, m->adapters_hash, sizeof m->adapters_hash) : h;
}

/* ---- all of the weights -------------------------------------------------------------------- */

/* Bytes are hashed by pieces, and then the pieces' hashes with those of what came before. */
typedef struct pieces {
    XXH128_hash_t h[1 + MOST_PIECES]; /* of what came before, and of these */
    const uint8_t *data;
    size_t n_bytes;
    bool is_read_once; /* nothing uses the mapped bytes any more: their pages leave memory again */
} pieces;

static void hash_piece(void *arg, int task, int thread) {
    pieces *p = arg;
    size_t begin = (size_t)task * PIECE_BYTES, left = p->n_bytes - begin, n = left < PIECE_BYTES ? left : PIECE_BYTES;
    (void)thread;
    p->h[1 + task] = XXH3_128bits(p->data + begin, n);
    if (p->is_read_once) ig_file_forget(p->data + begin, n);
}

static void hash_tensor(pieces *p, ig_device *d, const ig_tensor *t) {
    const size_t most = (size_t)MOST_PIECES * PIECE_BYTES;
    for (size_t at = 0; at < t->n_bytes; at += p->n_bytes) {
        p->data = (const uint8_t *)t->data + at;
        p->n_bytes = t->n_bytes - at < most ? t->n_bytes - at : most;
        int n = (int)((p->n_bytes + PIECE_BYTES - 1) / PIECE_BYTES);
        d->ops->parallel(d, n, hash_piece, p);
        p->h[0] = XXH3_128bits(p->h, (size_t)(1 + n) * sizeof *p->h);
    }
}

void ig_model_hash_weights(uint64_t out[2], const ig_model *m) {
    bool is_elsewhere = m->weights.replaced_bytes || m->stream || m->lane;
    pieces p = {.h = {{0, 0}}, .is_read_once = is_elsewhere};
    if (m->copied_bytes) {
        memcpy(out, m->copied_hash, sizeof m->copied_hash);
        return;
    }
    for (size_t i = 0; i < ig_model_count_tensors(m); i++) hash_tensor(&p, m->ctx->device, ig_model_tensor_at(m, i));
    if (is_adapted(m)) p.h[0] = XXH3_128bits_withSeed(p.h, sizeof *p.h, m->adapters_hash[0] ^ m->adapters_hash[1]);
    out[0] = p.h[0].low64;
    out[1] = p.h[0].high64;
}
