/* SPDX-License-Identifier: Apache-2.0
 *
 * Binding tensors of layers with latents.
 */
#include <string.h>

#include "base/error.h"
#include "model/weight_binder.h"

/* Keys of the latent, as a file has them, [n_heads][key_dim and others][kv_rank], to [n_heads][kv_rank][key_dim]. */
static void turn_keys(uint8_t *to, const ig_matrix *from, const ig_config *c) {
    size_t of_head = (size_t)(from->n_out / c->n_heads), rank = (size_t)c->latent.kv_rank,
           n = (size_t)c->latent.key_dim, size = from->row_bytes / rank;
    for (size_t h = 0; h < (size_t)c->n_heads; h++)
        for (size_t i = 0; i < n; i++) {
            const uint8_t *row = (const uint8_t *)from->w + (h * of_head + i) * from->row_bytes;
            for (size_t k = 0; k < rank; k++) memcpy(to + ((h * rank + k) * n + i) * size, row + k * size, size);
        }
}

/* One matrix of keys and values of all heads. */
static void bind_keys_and_values(ig_binder *b, ig_latent *l, int i) {
    const ig_config *c = b->c;
    int n = c->n_heads * (c->latent.key_dim + c->latent.value_dim);
    ig_tensor_name name = ig_bind_name(b, b->names.keys_values_up, i, ".weight");
    l->value_up = ig_bind_first(b, name.text, 2, 1, n, c->latent.kv_rank);
    if (b->status) return;
    l->is_value_up_made = l->value_up.type == IG_TYPE_F8_E4M3;
    if (l->is_value_up_made) {
        ig_matrix m = ig_bind_turnable(&l->value_up);
        void *to = ig_arena_take(&b->w->owned, ig_matrix_bytes(&m));
        if (to) ig_bind_copy_rows(to, &l->value_up, 0, m.n_out);
        m.w = to;
        l->value_up = m;
    }
    if (ig_type_get(l->value_up.type)->block > 1) {
        b->status = ig_fail(b->err, IG_E_UNSUPPORTED, "%s: tensor '%s' is of type %s, must be F32, F16 or BF16",
                            b->path, name.text, ig_type_get(l->value_up.type)->name);
        return;
    }
    l->is_key_up_made = true;
    l->key_up =
        (ig_matrix){.n_out = c->n_heads * c->latent.kv_rank, .n_in = c->latent.key_dim, .type = l->value_up.type};
    l->key_up.row_bytes = ig_type_row_bytes(ig_type_get(l->key_up.type), (size_t)l->key_up.n_in);
    void *made = ig_arena_take(&b->w->owned, ig_matrix_bytes(&l->key_up));
    l->key_up.w = made;
    if (made) turn_keys(made, &l->value_up, c);
}

/* A matrix of all heads, which a file has in as many parts. */
static ig_matrix bind_heads(ig_binder *b, const char *part, int i, int of_head, int n_in) {
    int n = b->c->n_heads;
    ig_matrix m = ig_bind_first(b, ig_bind_name(b, part, i, ".weight").text, 3, n, of_head, n_in);
    m.n_out = n * of_head;
    return m;
}

void ig_bind_latent(ig_binder *b, ig_layer *l, int i) {
    const ig_config *c = b->c;
    const ig_weight_names *n = &b->names;
    const ig_latent_shape *s = &c->latent;
    int q_in = s->q_rank ? s->q_rank : c->d_model;
    ig_latent *latent = &l->latent;
    if (s->q_rank) latent->q_in = ig_bind_plain(b, ig_bind_name(b, n->q_in, i, ".weight").text, s->q_rank, c->d_model);
    if (s->q_rank) l->q_norm = ig_bind_scale(b, n->q_in_norm, i, s->q_rank, 1);
    const char *q = s->q_rank ? n->q_up : n->q;
    l->q = ig_bind_plain(b, ig_bind_name(b, q, i, ".weight").text, c->n_heads * (s->key_dim + c->rope.n), q_in);
    ig_bind_parts(b, n->latent, i, (ig_matrix *[]){&l->k, &latent->rotating}, (int[]){s->kv_rank, c->rope.n}, 2,
                  c->d_model);
    l->k_norm = ig_bind_scale(b, n->latent_norm, i, s->kv_rank, 1);
    if (n->keys_values_up) {
        bind_keys_and_values(b, latent, i);
    } else {
        latent->key_up = bind_heads(b, n->keys_up, i, s->kv_rank, s->key_dim);
        latent->value_up = bind_heads(b, n->values_up, i, s->value_dim, s->kv_rank);
    }
    l->o = ig_bind_plain(b, ig_bind_name(b, n->o, i, ".weight").text, c->d_model, c->n_heads * s->value_dim);
}
