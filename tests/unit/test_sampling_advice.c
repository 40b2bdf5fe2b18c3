/* SPDX-License-Identifier: Apache-2.0
 *
 * What a model's files say of sampling, in GGUF and in generation_config.json.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/model.h"
#include "unit/temp_dir.h"
#include "unit/tiny_gguf.h"

static ig_sampler_options advised_of(const ig_sampling_advice *a) {
    ig_model m = {.sampling = *a};
    ig_sampler_options o = {.temperature = 0.5f, .top_k = 7, .top_p = 0.6f, .min_p = 0.1f, .repeat_last_n = 3};
    ig_model_get_sampling(&m, &o);
    return o;
}

static ig_sampler_options of_json(const char *text) {
    temp_dir dir = temp_dir_open();
    ig_sampling_advice a;
    if (text) temp_dir_write(&dir, "generation_config.json", text, strlen(text));
    ig_sampling_advice_read(&a, NULL, dir.path);
    temp_dir_close(&dir);
    return advised_of(&a);
}

static void in_json(void **state) {
    (void)state;
    ig_sampler_options o = of_json("{\"temperature\": 0.7, \"top_p\": 1, \"top_k\": 20, \"repetition_penalty\": 1.05}");
    assert_true(o.temperature == 0.7f && o.top_p == 1 && o.top_k == 20 && o.repeat_penalty == 1.05f);
    assert_true(o.min_p == 0.1f && o.repeat_last_n == 3);
    /* out of range, of another kind, not whole: not said */
    o = of_json(
        "{\"temperature\": -1, \"top_p\": 0, \"top_k\": 2.5, \"min_p\": \"0.3\", \"repetition_penalty\": null}");
    assert_true(o.temperature == 0.5f && o.top_p == 0.6f && o.top_k == 7 && o.min_p == 0.1f);
    for (int i = 0; i < 3; i++) {
        o = of_json(i == 0 ? NULL : i == 1 ? "[1]" : "{\"temperature\":");
        assert_true(o.temperature == 0.5f && o.top_k == 7);
    }
}

static void in_gguf(void **state) {
    (void)state;
    tiny t = tiny_valid();
    size_t n;
    tiny_f32(&t, "general.sampling.temp", 0.25f);
    tiny_i32(&t, "general.sampling.top_k", 64);
    tiny_u32(&t, "general.sampling.penalty_last_n", 128);
    tiny_bool(&t, "general.sampling.top_p", 1);
    uint8_t *data = tiny_write(&t, &n);
    ig_gguf *g;
    ig_sampling_advice a;
    assert_int_equal(ig_gguf_open_memory(&g, data, n, "tiny", NULL), IG_OK);
    ig_sampling_advice_read(&a, g, NULL);
    ig_sampler_options o = advised_of(&a);
    assert_true(o.temperature == 0.25f && o.top_k == 64 && o.repeat_last_n == 128 && o.top_p == 0.6f);
    ig_gguf_close(g);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_json), cmocka_unit_test(in_gguf)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
