/* SPDX-License-Identifier: Apache-2.0
 *
 * Derived values and the checks between the numbers of a configuration.
 */
#include <math.h>

#include "base/error.h"
#include "model/config_check.h"

/* What YaRN's published rule derives: the gain, and the context that the frequencies are stretched to. */
static void derive_yarn(ig_config *c) {
    double n_ctx = c->rope_factor * c->rope_original_ctx;
    if (c->rope_gain == 0) c->rope_gain = 1 + 0.1 * log(c->rope_factor);
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
        if (c->head_dim > IG_MAX_HEAD_DIM)
            return ig_fail(err, IG_E_FORMAT, "%s: '%s' and '%s' make heads of %d, more than the %d allowed",
                           names->path, names->d_model, names->n_heads, c->head_dim, IG_MAX_HEAD_DIM);
    }
    if (c->attn_scale == 0) c->attn_scale = 1 / sqrt((double)c->head_dim);
    return IG_OK;
}

static bool is_scale(double x) { return x >= 1e-6 && x <= 1e6; }

/* The state is what the publication has, divided by residual_scale: what layers add is then what they give. Norms make
 * the same of it with an epsilon that is divided by the square. */
static ig_status derive_scales(ig_config *c, const ig_config_names *names, ig_error *err) {
    double *scales[] = {&c->embed_scale, &c->residual_scale, &c->logit_scale};
    for (int i = 0; i < 3; i++) {
        if (*scales[i] == 0) *scales[i] = 1;
        if (!is_scale(*scales[i]))
            return ig_fail(err, IG_E_FORMAT,
                           "%s: a scale of embeddings, residuals or logits is %g, must be 1e-6 to 1e6", names->path,
                           *scales[i]);
    }
    if (!is_scale(c->attn_scale))
        return ig_fail(err, IG_E_FORMAT, "%s: the scale of attention is %g, must be 1e-6 to 1e6", names->path,
                       c->attn_scale);
    c->embed_scale /= c->residual_scale;
    c->norm_eps = (float)((double)c->norm_eps / (c->residual_scale * c->residual_scale));
    return IG_OK;
}

static bool is_theta(double x) { return x > 1 && x <= 1e15; }

static ig_status check_rotation(const ig_config *c, const ig_config_names *names, ig_error *err) {
    if (c->n_rot % 2 || c->n_rot > c->head_dim)
        return ig_fail(err, IG_E_FORMAT, "%s: '%s' is %d, must be even and at most the head dimension %d", names->path,
                       names->n_rot, c->n_rot, c->head_dim);
    if (!(c->rope_gain >= 0.01 && c->rope_gain <= 100))
        return ig_fail(err, IG_E_FORMAT, "%s: the factor of rotated queries and keys is %g, must be 0.01 to 100",
                       names->path, c->rope_gain);
    if (!is_theta(c->rope_theta))
        return ig_fail(err, IG_E_FORMAT, "%s: '%s' is %g, must be above 1 and at most 1e15", names->path, names->theta,
                       c->rope_theta);
    for (int l = 0; l < c->n_layers; l++)
        if (c->rope_set[l] == IG_ROPE_LOCAL && !is_theta(c->rope_local_theta))
            return ig_fail(err, IG_E_FORMAT,
                           "%s: the base of layers with a window is %g, must be above 1 and at most 1e15", names->path,
                           c->rope_local_theta);
    return IG_OK;
}

ig_status ig_config_finish(ig_config *c, const ig_config_names *names, ig_error *err) {
    if (c->rope_blend == IG_BLEND_YARN) derive_yarn(c);
    if (c->rope_gain == 0) c->rope_gain = 1;
    ig_status s = check_heads(c, names, err);
    if (s) return s;
    if (!c->d_embed) c->d_embed = c->d_model;
    if (c->rope_linear == 0) c->rope_linear = 1;
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return ig_fail(err, IG_E_FORMAT, "%s: '%s' is %g, must lie between 0 and 1", names->path, names->eps,
                       (double)c->norm_eps);
    s = derive_scales(c, names, err);
    if (s || c->rope == IG_ROPE_NONE) return s;
    if (!c->n_rot) c->n_rot = c->head_dim;
    return check_rotation(c, names, err);
}
