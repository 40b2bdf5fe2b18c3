/* SPDX-License-Identifier: Apache-2.0
 *
 * Derived values and the checks between the numbers of a configuration.
 */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/config_check.h"

/* What YaRN's published rule derives: the gain, and the context that the frequencies are stretched to. */
static void derive_yarn(ig_config *c) {
    double n_ctx = c->rope.factor * c->rope.original_ctx;
    if (c->rope.gain == 0) c->rope.gain = 1 + 0.1 * log(c->rope.factor);
    if (n_ctx > c->n_ctx_train) c->n_ctx_train = n_ctx < IG_MAX_CTX ? (int)n_ctx : IG_MAX_CTX;
}

static ig_status check_heads(ig_config *c, const ig_config_names *names, ig_error *err) {
    if (!c->n_kv_heads) c->n_kv_heads = c->n_heads;
    if (c->n_heads % c->n_kv_heads)
        return ig_fail(err, IG_E_FORMAT, "%s: '%s' (%d) is no multiple of '%s' (%d)", names->path, names->n_heads,
                       c->n_heads, names->n_kv_heads, c->n_kv_heads);
    if (!c->head_dim) {
        if (c->d_model % c->n_heads)
            return ig_fail(err, IG_E_FORMAT, "%s: '%s' (%d) is no multiple of '%s' (%d)", names->path, names->d_model,
                           c->d_model, names->n_heads, c->n_heads);
        c->head_dim = c->d_model / c->n_heads;
        if (c->head_dim > IG_KV_DIMS)
            return ig_fail(err, IG_E_FORMAT, "%s: '%s' and '%s' make heads of %d, more than the %d allowed",
                           names->path, names->d_model, names->n_heads, c->head_dim, IG_KV_DIMS);
    }
    if (c->attn_scale == 0) c->attn_scale = 1 / sqrt((double)c->head_dim);
    if (c->rope.growth_length == 0) c->rope.growth_length = c->rope.original_ctx;
    return IG_OK;
}

/* The state is what the publication has, divided by residual_scale: what layers add is then what they give. Norms make
 * the same of it with an epsilon that is divided by the square. */
static void derive_scales(ig_config *c) {
    if (c->embed_scale == 0) c->embed_scale = 1;
    if (c->residual_scale == 0) c->residual_scale = 1;
    if (c->logit_scale == 0) c->logit_scale = 1;
    if (c->experts.scale == 0) c->experts.scale = 1;
    if (c->experts.shared_scale == 0) c->experts.shared_scale = 1;
    c->embed_scale /= c->residual_scale;
    c->norms.inner_eps = c->norms.eps;
    c->norms.eps = (float)((double)c->norms.eps / (c->residual_scale * c->residual_scale));
    if (c->norms.after_eps == 0) c->norms.after_eps = c->norms.eps;
}

static ig_status check_recurrence(ig_config *c, const ig_config_names *names, ig_error *err) {
    const ig_recurrence_shape *s = &c->recurrence;
    for (int l = 0; l < c->n_layers; l++) {
        c->n_recurrent += c->is_recurrent[l] || c->is_state_beside;
        if (c->is_recurrent[l] && c->is_state_beside)
            return ig_fail(err, IG_E_UNSUPPORTED, "%s: layer %d does not attend ('%s' is 0), which all must",
                           names->path, l, names->n_kv_heads);
        if (c->is_recurrent[l] && c->window[l])
            return ig_fail(err, IG_E_UNSUPPORTED, "%s: layer %d has a window and does not attend", names->path, l);
    }
    if (!c->n_recurrent) return IG_OK;
    if (!ig_config_attention_layers(c))
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: no layer attends, so that there are no keys and values",
                       names->path);
    if (!s->n_taps)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: '%s' is 0 in some layers, which is not supported", names->path,
                       names->n_kv_heads);
    if (s->kind == IG_SHORT_CONVOLUTION) return IG_OK;
    if (s->n_value_heads % s->n_key_heads)
        return ig_fail(err, IG_E_FORMAT, "%s: recurrent layers have %d value heads, no multiple of their %d key heads",
                       names->path, s->n_value_heads, s->n_key_heads);
    if (s->key_dim % 16 || s->value_dim % 16 || s->key_dim > IG_RECURRENCE_DIMS || s->value_dim > IG_RECURRENCE_DIMS)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: heads of recurrent layers of %d and %d: need multiples of 16, at most %d", names->path,
                       s->key_dim, s->value_dim, IG_RECURRENCE_DIMS);
    return IG_OK;
}

/* Numbers keys and values. */
static ig_status number_layers(ig_config *c, const ig_config_names *names, ig_error *err) {
    int n = 0, last[2] = {-1, -1}; /* without a window, and with one */
    for (int l = 0; l < c->n_layers; l++) {
        int *own = &last[c->window[l] > 0];
        if (l < c->n_layers - c->n_layers_sharing) {
            c->kv_layer[l] = (uint16_t)n;
            c->kv_window[n] = c->window[l];
            if (!c->is_recurrent[l]) *own = n++;
        } else if (*own >= 0 && !c->n_recurrent) {
            c->kv_layer[l] = (uint16_t)*own;
        } else {
            return ig_fail(err, IG_E_UNSUPPORTED,
                           "%s: layer %d has no keys, and no layer before it that it could share", names->path, l);
        }
    }
    return IG_OK;
}

/* Of layers with a window, if they are others. */
static ig_status check_local_heads(const ig_config *c, const ig_config_names *names, ig_error *err) {
    int n = c->local_kv_heads, d = c->local_head_dim;
    if (!n) return IG_OK;
    if (c->n_recurrent || c->file.is_qkv_fused || c->is_gate_in_q || c->norms.of_heads == IG_HEAD_NORM_ALL)
        return ig_fail(
            err, IG_E_UNSUPPORTED,
            "%s: layers with a window have other heads than the others, which is not supported where layers are "
            "recurrent, have a gate among queries, one matrix for q, k and v, or one norm of all heads",
            names->path);
    if (c->local_heads % n || d < 8 || d % 8 || d > c->head_dim)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: layers with a window have %d heads of %d for keys, which must be a multiple of 8 and at "
                       "most %d, for %d heads of queries",
                       names->path, n, d, c->head_dim, c->local_heads);
    return IG_OK;
}

/* Of experts, and of those that are chosen from the best groups. */
static ig_status check_experts(const ig_config *c, const ig_config_names *names, ig_error *err) {
    if (c->experts.n && ig_config_expert_layers(c) == 0)
        return ig_fail(err, IG_E_FORMAT, "%s: there are %d experts, and no layer has any", names->path, c->experts.n);
    if (c->experts.n_groups < 2) return IG_OK;
    if (c->experts.n % c->experts.n_groups || c->experts.n_groups_used < 1 ||
        c->experts.n_used > c->experts.n / c->experts.n_groups * c->experts.n_groups_used)
        return ig_fail(err, IG_E_FORMAT, "%s: %d of %d experts cannot be chosen from %d of %d groups", names->path,
                       c->experts.n_used, c->experts.n, c->experts.n_groups_used, c->experts.n_groups);
    return IG_OK;
}

/* Of heads that make keys and values of a latent. */
static ig_status check_latent(const ig_config *c, const ig_config_names *names, ig_error *err) {
    const ig_latent_shape *s = &c->latent;
    if (s->kv_rank % 16 || s->value_dim % 16 || s->key_dim % 8 || c->rope.n % 8)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: latents of %d with values of %d, keys of %d and %d that rotate: the first two must be "
                       "multiples of 16, the others of 8",
                       names->path, s->kv_rank, s->value_dim, s->key_dim, c->rope.n);
    if (c->head_dim > IG_KV_DIMS)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: a latent of %d with %d that rotate: %d together, at most %d are supported", names->path,
                       s->kv_rank, c->rope.n, c->head_dim, IG_KV_DIMS);
    return IG_OK;
}

/* Of what a model brings along to choose entries by. */
static ig_status check_index(const ig_config *c, const ig_config_names *names, ig_error *err) {
    const ig_index_shape *s = &c->index;
    if (!c->latent.q_rank && !s->block)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: an indexer whose queries are made of no latent is not supported",
                       names->path);
    if (s->block && (s->n_heads != c->n_kv_heads || s->dim % (16 * c->n_kv_heads)))
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: an indexer of %d heads of %d dimensions that chooses blocks for %d KV heads: need as many "
                       "heads, and a multiple of 16 dimensions for each",
                       names->path, s->n_heads, s->dim, c->n_kv_heads);
    if (s->dim % 8 || s->dim < c->rope.n)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: an indexer of %d dimensions, of which %d rotate: need a multiple of 8, no less than these",
                       names->path, s->dim, c->rope.n);
    return IG_OK;
}

int ig_config_expert_layers(const ig_config *c) {
    int n = 0;
    for (int l = 0; l < c->n_layers; l++) n += c->experts.n && !c->has_no_ffn[l] && !ig_config_is_plain(c, l);
    return n;
}

int ig_config_first_expert_layer(const ig_config *c) {
    int l = 0;
    while (l < c->n_layers - 1 && ig_config_is_plain(c, l)) l++;
    return l;
}

bool ig_config_join_parts(ig_config *c, const ig_part *parts, int n) {
    c->n_layers = 0;
    c->file.n_parts = n;
    c->file.has_numbered_parts = true;
    for (int i = 0; i < n; i++) {
        bool follows = i > 0 && parts[i - 1] != IG_PART_FFN;
        int l = c->n_layers;
        if (parts[i] == IG_PART_FFN && !follows) return false;
        if (parts[i] == IG_PART_FFN) {
            c->has_no_ffn[l - 1] = false;
            continue;
        }
        c->file.first_part[l] = (uint16_t)i;
        c->has_no_ffn[l] = true;
        c->is_recurrent[l] = parts[i] == IG_PART_RECURRENCE;
        c->n_layers++;
    }
    return n > 0;
}

ig_status ig_config_finish(ig_config *c, const ig_config_names *names, ig_error *err) {
    if (c->rope.blend == IG_BLEND_YARN) derive_yarn(c);
    if (c->rope.gain == 0) c->rope.gain = 1;
    if (!c->file.has_numbered_parts && memchr(c->has_no_ffn, true, sizeof c->has_no_ffn))
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: feed-forward layers of width 0 are not supported", names->path);
    ig_status s = check_heads(c, names, err);
    if (!s) s = check_recurrence(c, names, err);
    if (!s) s = number_layers(c, names, err);
    if (!s) s = check_local_heads(c, names, err);
    if (!s) s = check_experts(c, names, err);
    if (!s && c->latent.kv_rank) s = check_latent(c, names, err);
    if (!s && c->index.dim) s = check_index(c, names, err);
    if (s) return s;
    if (!c->d_embed) c->d_embed = c->d_model;
    if (c->rope.linear == 0) c->rope.linear = 1;
    if (!(c->norms.eps > 0 && c->norms.eps < 1))
        return ig_fail(err, IG_E_FORMAT, "%s: '%s' is %g, must lie between 0 and 1", names->path, names->eps,
                       (double)c->norms.eps);
    derive_scales(c);
    if (c->rope.kind == IG_ROPE_NONE) return IG_OK;
    if (!c->rope.n) c->rope.n = c->head_dim;
    if (c->rope.n % 2 || c->rope.n > c->head_dim)
        return ig_fail(err, IG_E_FORMAT, "%s: '%s' is %d, must be even and at most the head dimension %d", names->path,
                       names->n_rot, c->rope.n, c->head_dim);
    int local_dim = c->local_head_dim ? c->local_head_dim : c->head_dim;
    if (!c->rope.local_n) c->rope.local_n = c->local_head_dim ? local_dim : c->rope.n;
    if (c->rope.local_n % 2 || c->rope.local_n > local_dim)
        return ig_fail(err, IG_E_FORMAT,
                       "%s: of heads of layers with a window %d numbers rotate, must be even and at most %d",
                       names->path, c->rope.local_n, local_dim);
    /* Cosines and sines have the growth in them, also of what stands still behind pairs that turn. */
    if (c->rope.query_growth > 0 && c->rope.n != c->head_dim && c->rope.kind != IG_ROPE_ADJACENT)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: '%s' is %d, must be the head dimension %d where queries grow",
                       names->path, names->n_rot, c->rope.n, c->head_dim);
    if (!(c->rope.theta > 1 && c->rope.theta <= IG_MAX_THETA))
        return ig_fail(err, IG_E_FORMAT, "%s: '%s' is %g, must be above 1 and at most %g", names->path, names->theta,
                       c->rope.theta, IG_MAX_THETA);
    return IG_OK;
}
