/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations in JSON, written out in tests.
 */
#ifndef TESTS_JSON_CONFIG_H
#define TESTS_JSON_CONFIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "model/config.h"

/* What every configuration says. */
#define LLAMA                                                                                  \
    "\"vocab_size\":100,\"hidden_size\":48,\"num_hidden_layers\":3,\"num_attention_heads\":6," \
    "\"max_position_embeddings\":512,\"intermediate_size\":96"

static inline ig_config from_json(const char *text) {
    ig_config c;
    ig_error err = {0};
    if (ig_config_from_json(&c, text, strlen(text), "config.json", &err)) fail_msg("%s", err.text);
    return c;
}

static inline void refuses(const char *text, const char *named) {
    ig_config c;
    ig_error err = {0};
    assert_true(ig_config_from_json(&c, text, strlen(text), "config.json", &err));
    if (!strstr(err.text, named)) fail_msg("%s", err.text);
}

#endif
