/* SPDX-License-Identifier: Apache-2.0
 *
 * RoPE in a config.json: its base, and the rules that stretch it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/config_hf.h"

/* Where both state it, the model's own field counts. */
static int read_original_ctx(ig_hf_reader *r, const json_t *rope, int absent) {
    static const char key[] = "original_max_position_embeddings";
    return ig_hf_int(r, ig_hf_get(r->root, key) ? r->root : rope, key, IG_MAX_CTX, absent);
}

/* Of both rules that stretch some frequencies. */
static void check_stretch(ig_hf_reader *r, const ig_config *c, const char *low, const char *high) {
    if (r->status) return;
    if (c->rope.factor < 1 || c->rope.factor > 1e6) {
        ig_hf_fail_kind(r, "factor", "1 to 1e6");
    } else if (c->rope.high_freq < c->rope.low_freq ||
               (c->rope.high_freq == c->rope.low_freq && c->rope.blend == IG_BLEND_YARN)) {
        char above[64];
        snprintf(above, sizeof above, "above '%s'", low);
        ig_hf_fail_kind(r, high, above);
    }
}

static void read_llama3(ig_hf_reader *r, ig_config *c, const json_t *rope) {
    c->rope.blend = IG_BLEND_LLAMA3;
    c->rope.factor = ig_hf_number(r, rope, "factor", IG_HF_ABSENT);
    c->rope.low_freq = ig_hf_number(r, rope, "low_freq_factor", IG_HF_ABSENT);
    c->rope.high_freq = ig_hf_number(r, rope, "high_freq_factor", IG_HF_ABSENT);
    c->rope.original_ctx = read_original_ctx(r, rope, IG_HF_ABSENT);
    check_stretch(r, c, "low_freq_factor", "high_freq_factor");
}

static void check_gain(ig_hf_reader *r, const ig_config *c) {
    if (c->rope.gain != 0 && !(c->rope.gain >= IG_LEAST_GAIN && c->rope.gain <= IG_MAX_GAIN)) /* also of a NaN */
        ig_hf_fail_kind(r, "attention_factor", "0.01 to 100, also as 'mscale' makes it");
}

/* The gain is stated, or follows from two weights, or from the factor alone. */
static void read_yarn(ig_hf_reader *r, ig_config *c, const json_t *rope) {
    c->rope.blend = IG_BLEND_YARN;
    c->rope.factor = ig_hf_number(r, rope, "factor", IG_HF_ABSENT);
    c->rope.low_freq = ig_hf_number(r, rope, "beta_slow", 1);
    c->rope.high_freq = ig_hf_number(r, rope, "beta_fast", 32);
    c->rope.original_ctx = read_original_ctx(r, rope, c->n_ctx_train);
    check_stretch(r, c, "beta_slow", "beta_fast");
    c->rope.gain = ig_hf_number(r, rope, "attention_factor", 0);
    double weight = ig_hf_number(r, rope, "mscale", 0), of_all = ig_hf_number(r, rope, "mscale_all_dim", 0);
    if (r->status) return;
    if (c->rope.gain == 0 && weight > 0 && of_all > 0)
        c->rope.gain = (1 + 0.1 * weight * log(c->rope.factor)) / (1 + 0.1 * of_all * log(c->rope.factor));
    check_gain(r, c);
    c->rope.is_exact = json_is_false(ig_hf_get(rope, "truncate"));
}

/* Of families that state rope.n (Phi-3). One list is for contexts up to the original one, and one for longer ones,
 * which a model with any has throughout: keys that are kept can't change when a context has grown. */
static void read_longrope(ig_hf_reader *r, ig_config *c, const json_t *rope) {
    c->rope.original_ctx = read_original_ctx(r, rope, 4096);
    bool is_long = c->n_ctx_train > c->rope.original_ctx;
    const char *name = is_long ? "long_factor" : "short_factor";
    const json_t *factors = ig_hf_get(rope, name);
    int n = c->rope.n / 2;
    c->rope.blend = IG_BLEND_LONGROPE;
    if (!json_is_array(factors) || json_array_size(factors) != (size_t)n) {
        ig_hf_fail_kind(r, name, "a list with one number for each frequency");
        return;
    }
    for (int i = 0; i < n; i++) {
        c->rope.divisors[i] = (float)json_number_value(json_array_get(factors, (size_t)i));
        if (!(c->rope.divisors[i] >= 1e-6f && c->rope.divisors[i] <= 1e6f))
            ig_hf_fail_kind(r, name, "a list of numbers of 1e-6 to 1e6");
    }
    c->rope.factor = ig_hf_number(r, rope, "factor", c->n_ctx_train / c->rope.original_ctx);
    c->rope.gain = ig_hf_number(r, rope, "attention_factor", 0);
    if (c->rope.gain == 0)
        c->rope.gain = c->rope.factor > 1 ? sqrt(1 + log(c->rope.factor) / log(c->rope.original_ctx)) : 1;
    check_gain(r, c);
}

static bool is_of_proportions(const ig_config *c) {
    return strncmp(c->architecture, "gemma4", 6) == 0 || strcmp(c->architecture, "lfm3") == 0;
}

/* Of all frequencies of a head the first ones, which are divided by a factor; the others do not rotate (Gemma 4). */
static void read_proportional(ig_hf_reader *r, ig_config *c, const json_t *rope) {
    double share = ig_hf_number(r, rope, "partial_rotary_factor", 1), factor = ig_hf_number(r, rope, "factor", 1);
    if (r->status) return;
    if (share > 1) ig_hf_fail_kind(r, "partial_rotary_factor", "at most 1");
    if (factor < 1e-6 || factor > 1e6) ig_hf_fail_kind(r, "factor", "1e-6 to 1e6");
    if (r->status) return;
    c->rope.blend = IG_BLEND_LONGROPE;
    for (int i = 0; i < c->rope.n / 2; i++)
        c->rope.divisors[i] = i < (int)floor(share * c->rope.n / 2) ? (float)factor : INFINITY;
}

/* The base of Hunyuan's frequencies is multiplied by alpha^(d / (d - 2)), d their number twice. */
static void read_alpha(ig_hf_reader *r, ig_config *c, const json_t *rope) {
    double d = c->head_dim ? c->head_dim : c->d_model / c->n_heads;
    double alpha = ig_hf_number(r, rope, "alpha", IG_HF_ABSENT);
    if (d > 2) c->rope.theta *= pow(alpha, d / (d - 2));
}

/* Some families state the rules of layers with a window and of others apart: these are the others'. */
static const json_t *split_rope(ig_hf_reader *r, ig_config *c, const json_t *rope) {
    const json_t *full = ig_hf_get(rope, "full_attention"), *local = ig_hf_get(rope, "sliding_attention");
    if (c->rope.local_theta == 0 || !full) return rope;
    c->rope.local_theta = ig_hf_theta(r, local, "rope_theta", c->rope.local_theta);
    if (local && strcmp(ig_hf_text(r, local, "rope_type", "default"), "default") != 0)
        ig_hf_refuse(r, "sliding_attention", "another rope_type than 'default'");
    return full;
}

const json_t *ig_hf_rope_object(const ig_hf_reader *r) {
    const json_t *both = ig_hf_get(r->root, "rope_parameters");
    return both ? both : ig_hf_get(r->root, "rope_scaling");
}

void ig_hf_read_growth(ig_hf_reader *r, ig_config *c) {
    const json_t *rope = ig_hf_rope_object(r);
    c->rope.query_growth = ig_hf_number(r, rope, "llama_4_scaling_beta", IG_HF_ABSENT);
    c->rope.original_ctx = ig_hf_int(r, rope, "original_max_position_embeddings", IG_MAX_CTX, IG_HF_ABSENT);
    if (c->rope.query_growth > IG_MAX_GAIN) ig_hf_fail_kind(r, "llama_4_scaling_beta", "at most 100");
}

/* Both spellings: "rope_scaling" beside "rope_theta", or one "rope_parameters". What is stated nowhere is as c has it.
 */
void ig_hf_rope(ig_hf_reader *r, ig_config *c) {
    const char *name = ig_hf_get(r->root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *rope = ig_hf_get(r->root, name);
    const char *key;
    json_t *member;
    c->rope.kind = IG_ROPE_HALF;
    c->rope.theta = ig_hf_number(r, r->root, "rope_theta", c->rope.theta > 0 ? c->rope.theta : 10000);
    if (!rope) return;
    if (strcmp(name, "rope_parameters") == 0 && ig_hf_get(r->root, "rope_scaling"))
        ig_hf_refuse(r, "rope_scaling", "set beside 'rope_parameters'");
    if (!json_is_object(rope)) {
        ig_hf_fail_kind(r, name, "an object");
        return;
    }
    rope = split_rope(r, c, rope);
    json_object_foreach((json_t *)(uintptr_t)rope, key, member) {
        if (json_is_object(member)) ig_hf_refuse(r, name, key);
    }
    c->rope.theta = ig_hf_number(r, rope, "rope_theta", c->rope.theta);
    if (!c->rope.n && ig_hf_number(r, rope, "partial_rotary_factor", 1) != 1)
        ig_hf_refuse(r, name, "partial_rotary_factor");
    const char *type = ig_hf_text(r, rope, "rope_type", ig_hf_text(r, rope, "type", "default"));
    if (strcmp(type, "llama3") == 0) {
        read_llama3(r, c, rope);
    } else if (c->rope.n && (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)) {
        read_longrope(r, c, rope);
    } else if (is_of_proportions(c) && strcmp(type, "proportional") == 0) {
        read_proportional(r, c, rope);
    } else if (strncmp(c->architecture, "hunyuan_v1_", 11) == 0 && strcmp(type, "dynamic") == 0) {
        read_alpha(r, c, rope);
    } else if (strcmp(type, "yarn") == 0) {
        read_yarn(r, c, rope);
    } else if (strcmp(type, "linear") == 0) {
        c->rope.linear = ig_hf_number(r, rope, "factor", IG_HF_ABSENT);
        if (!r->status && (c->rope.linear < 1e-6 || c->rope.linear > 1e6)) ig_hf_fail_kind(r, "factor", "1e-6 to 1e6");
    } else if (strcmp(type, "default") != 0 && strcmp(type, "mrope") != 0 && !r->status) {
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED,
                    "%s: '%s' is of type '%.60s', which is not supported for this architecture", r->path, name, type);
    }
}
