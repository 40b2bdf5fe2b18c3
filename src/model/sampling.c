/* SPDX-License-Identifier: Apache-2.0 */
#include "model/sampling.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "base/file.h"
#include "format/json.h"
#include "model/model.h"

#define OF(field) offsetof(ig_sampler_options, field)

/* Names in either kind of file; NULL: it has none. */
static const struct {
    const char *gguf, *hf;
    size_t offset;
    bool is_int;
    double min, max;
} known[IG_SAMPLING_ADVICES] = {
    {"temp", "temperature", OF(temperature), false, 0, 100},
    {"top_k", "top_k", OF(top_k), true, 0, INT_MAX},
    {"top_p", "top_p", OF(top_p), false, 0.001, 1},
    {"min_p", "min_p", OF(min_p), false, 0, 1},
    {NULL, "typical_p", OF(typical_p), false, 0.001, 1},
    {"penalty_repeat", "repetition_penalty", OF(repeat_penalty), false, 0.01, 100},
    {"penalty_last_n", NULL, OF(repeat_last_n), true, -1, INT_MAX},
    {"xtc_probability", NULL, OF(xtc_probability), false, 0, 1},
    {"xtc_threshold", NULL, OF(xtc_threshold), false, 0, 1},
};

static void note(ig_sampling_advice *out, size_t i, double value) {
    out->is_said[i] = value >= known[i].min && value <= known[i].max && (!known[i].is_int || value == floor(value));
    out->value[i] = value;
}

static void read_gguf(ig_sampling_advice *out, const ig_gguf *g) {
    for (size_t i = 0; i < IG_SAMPLING_ADVICES; i++) {
        char key[64];
        double value;
        ig_status ignored = IG_OK;
        if (!known[i].gguf) continue;
        snprintf(key, sizeof key, "general.sampling.%s", known[i].gguf);
        if (ig_gguf_float(g, key, &value, &ignored, NULL)) note(out, i, value);
    }
}

static void read_json(ig_sampling_advice *out, const json_t *config) {
    for (size_t i = 0; i < IG_SAMPLING_ADVICES; i++) {
        const json_t *value = known[i].hf ? json_object_get(config, known[i].hf) : NULL;
        if (json_is_number(value)) note(out, i, json_number_value(value));
    }
}

void ig_sampling_advice_read(ig_sampling_advice *out, const ig_gguf *g, const char *directory) {
    char path[4096];
    size_t n_bytes;
    json_t *config = NULL;
    *out = (ig_sampling_advice){0};
    if (g) {
        read_gguf(out, g);
        return;
    }
    int n = snprintf(path, sizeof path, "%s/generation_config.json", directory);
    if (n > 0 && (size_t)n < sizeof path && ig_path_exists(path) && !ig_json_load(&config, &n_bytes, path, NULL))
        read_json(out, config);
    json_decref(config);
}

void ig_model_get_sampling(const ig_model *m, ig_sampler_options *options) {
    if (!m || !options) return;
    for (size_t i = 0; i < IG_SAMPLING_ADVICES; i++) {
        void *at = (char *)options + known[i].offset;
        if (!m->sampling.is_said[i]) continue;
        if (known[i].is_int)
            *(int *)at = (int)m->sampling.value[i];
        else
            *(float *)at = (float)m->sampling.value[i];
    }
}
