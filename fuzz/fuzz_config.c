/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the text of a config.json. What is accepted must keep the promises of model/config.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void check(const ig_config *c) {
    bool is_right = c->n_layers >= 1 && c->n_layers <= IG_MAX_LAYERS && c->head_dim >= 1 && c->head_dim <= IG_KV_DIMS &&
                    c->n_heads >= 1 && c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0 && c->d_model >= 1 &&
                    c->d_ff >= 1 && c->d_embed >= 1 && c->n_vocab >= 1 && c->n_ctx_train >= 1 && c->norms.eps > 0 &&
                    c->rope.linear > 0 && c->attn_scale > 0;
    if (c->rope.kind != IG_ROPE_NONE)
        is_right =
            is_right && c->rope.n >= 2 && c->rope.n % 2 == 0 && c->rope.n <= c->head_dim && isfinite(c->rope.theta);
    for (int l = 0; l < c->n_layers; l++) is_right = is_right && c->window[l] >= 0;
    if (!is_right) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static ig_config c;
    ig_error err = {0};
    ig_status s = ig_config_from_json(&c, (const char *)data, n_bytes, "input", &err);
    if (s && (err.status != s || !strstr(err.text, "input"))) abort();
    if (!s) check(&c);
    return 0;
}
