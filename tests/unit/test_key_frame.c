/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of packed keys: scores do not change but for what softmax ignores, keys come back, and keys with a large bias
 * lose far less to 4 bits, wherever they stand and whichever channels RoPE turns together.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/random.h"
#include "kernel/kernel.h"
#include "model/key_frame.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, GROUP = HEADS / KV_HEADS, DIM = 64, ROT = 48, N_KEYS = 400 };

static const ig_head_shape shape = {HEADS, KV_HEADS, DIM, 1};
static float biases[LAYERS][KV_HEADS * DIM];
static ig_rope_frequencies frequencies[IG_ROPE_SETS];
static double *const inv_freq = frequencies[IG_ROPE_MAIN];
static ig_layer layers[LAYERS];
static ig_weights weights = {.layers = layers};

static ig_config config_of(ig_rope_kind rope) {
    ig_config c = {.n_layers = LAYERS, .n_heads = HEADS, .n_kv_heads = KV_HEADS, .head_dim = DIM, .rope.kind = rope};
    c.rope.n = rope == IG_ROPE_NONE ? 0 : ROT;
    c.rope.gain = 1;
    return c;
}

static double noise(ig_random *r) { return 2 * ig_random_unit(r) - 1; }

/* Large biases in slow pairs, a few fast pairs and channels that are not turned. */
static int set_up(void **state) {
    ig_random r = {7};
    (void)state;
    for (int i = 0; i < ROT / 2; i++) inv_freq[i] = pow(1e6, -2.0 * i / ROT);
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < KV_HEADS * DIM; i++) {
            int at = i % DIM;
            biases[l][i] = (float)(noise(&r) * (at == 3 ? 20 : (at >= 44 && at < 48) || at == 55 ? 150 : 0.5));
        }
        layers[l] = (ig_layer){.k = {.bias = biases[l]}};
    }
    return 0;
}

static ig_key_frames open_frames(const ig_config *c) {
    ig_key_frames f;
    ig_error err = {0};
    if (ig_key_frames_open(&f, c, &weights, frequencies, &err)) fail_msg("%s", err.text);
    return f;
}

/* A key as the forward pass makes it: noise of size 1 and the bias, rotated. */
static void make_key(float *key, const ig_config *c, const float *bias, int position, ig_random *r) {
    int half = c->rope.n / 2;
    for (int i = 0; i < DIM; i++) key[i] = bias[i] + (float)noise(r);
    for (int i = 0; i < half; i++) {
        int a = c->rope.kind == IG_ROPE_ADJACENT ? 2 * i : i, b = c->rope.kind == IG_ROPE_ADJACENT ? a + 1 : half + i;
        double cs = cos(position * inv_freq[i]), sn = sin(position * inv_freq[i]), x = (double)key[a],
               y = (double)key[b];
        key[a] = (float)(x * cs - y * sn);
        key[b] = (float)(x * sn + y * cs);
    }
}

static void query_heads_agree(void **state) {
    (void)state;
    ig_config c = config_of(IG_ROPE_HALF);
    ig_key_frames f = open_frames(&c);
    bool scaled = false;
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < DIM; i++) {
                float s = f.layers[l].scale[h * DIM + i];
                int exponent;
                assert_true(s >= 1 && frexpf(s, &exponent) == 0.5f);
                assert_true(s == f.layers[l].scale[h / GROUP * GROUP * DIM + i]);
                scaled = scaled || s > 1;
            }
    assert_true(scaled);
    ig_key_frames_close(&f);
}

/* q k = (q scale) kept + q origin, the last of which is the same for all keys. */
static void scores_are_shifted(void **state) {
    (void)state;
    ig_config c = config_of(IG_ROPE_HALF);
    ig_key_frames f = open_frames(&c);
    ig_random r = {1};
    for (int n = 0; n < N_KEYS; n++) {
        int layer = n % LAYERS, head = n % HEADS, kv = head / GROUP;
        const ig_key_frame *frame = &f.layers[layer];
        float key[DIM], kept[DIM], back[DIM];
        uint16_t half[DIM];
        double plain = 0, framed = 0;
        make_key(key, &c, biases[layer] + kv * DIM, n * 20, &r);
        ig_key_frame_enter(kept, frame, &shape, kv, key);
        for (int i = 0; i < DIM; i++) {
            double q = noise(&r), scale = (double)frame->scale[head * DIM + i];
            plain += q * (double)key[i];
            framed += q * scale * (double)kept[i] + q * (double)frame->origin[kv * DIM + i];
            half[i] = ig_f32_f16(kept[i]);
        }
        assert_true(fabs(plain - framed) < 1e-4);
        ig_key_frame_leave(half, frame, &shape, kv);
        for (int i = 0; i < DIM; i++) {
            back[i] = ig_f16_f32(half[i]);
            float most = fabsf(kept[i]) * frame->scale[head * DIM + i] + fabsf(key[i]);
            assert_true(fabsf(back[i] - key[i]) < 1e-3f * (1 + most));
        }
    }
    ig_key_frames_close(&f);
}

/* Mean square of what 4 bits change in a score, less what they change in all of a query's scores. */
static double score_error(const ig_config *c, const ig_key_frame *frame, int layer, int last) {
    const ig_kernels *k = ig_kernels_get(IG_CPU_SCALAR);
    ig_random r = {3};
    float q[DIM];
    double sum = 0, squares = 0;
    for (int i = 0; i < DIM; i++) q[i] = (float)noise(&r);
    for (int n = 0; n < N_KEYS; n++) {
        float key[DIM], kept[DIM];
        uint8_t codes[DIM / 2];
        uint16_t got[DIM];
        ig_kv_line line;
        double error = 0;
        make_key(key, c, biases[layer], n * last / N_KEYS, &r);
        if (frame)
            ig_key_frame_enter(kept, frame, &shape, 0, key);
        else
            memcpy(kept, key, sizeof key);
        k->kv_pack[IG_KV_Q4](codes, &line, kept, DIM);
        k->kv_unpack[IG_KV_Q4](got, &(ig_kv_packed){codes, &line}, 1, DIM);
        for (int i = 0; i < DIM; i++)
            error += (double)(q[i] * (frame ? frame->scale[i] : 1)) * (double)(ig_f16_f32(got[i]) - kept[i]);
        sum += error, squares += error * error;
    }
    return squares / N_KEYS - sum / N_KEYS * sum / N_KEYS;
}

static void biases_cost_little(void **state) {
    (void)state;
    static const ig_rope_kind ropes[] = {IG_ROPE_NONE, IG_ROPE_HALF, IG_ROPE_ADJACENT};
    for (int i = 0; i < 3; i++) {
        ig_config c = config_of(ropes[i]);
        ig_key_frames f = open_frames(&c);
        for (int l = 0; l < LAYERS; l++) {
            double plain = score_error(&c, NULL, l, 8000), framed = score_error(&c, &f.layers[l], l, 8000);
            double later = score_error(&c, &f.layers[l], l, 32000);
            if (framed > plain / 10) fail_msg("rope %d layer %d: %g, without frames %g", ropes[i], l, framed, plain);
            assert_true(later < plain / 2);
        }
        ig_key_frames_close(&f);
    }
}

static void unbiased_keys_have_none(void **state) {
    (void)state;
    ig_config c = config_of(IG_ROPE_HALF);
    static const float norm[DIM];
    layers[0].k_norm = norm;
    ig_key_frames f = open_frames(&c);
    assert_null(f.layers);
    layers[0].k_norm = NULL;
    layers[0].k.bias = NULL;
    f = open_frames(&c);
    assert_null(f.layers);
    ig_key_frames_close(&f);
    layers[0].k.bias = biases[0];
}

/* A bias may be any number that a file can hold. */
static void wild_biases_are_finite(void **state) {
    (void)state;
    ig_config c = config_of(IG_ROPE_HALF);
    float kept = biases[0][0];
    biases[0][0] = 3e38f;
    ig_key_frames f = open_frames(&c);
    for (int i = 0; i < DIM; i++) {
        assert_true(isfinite(f.layers[0].origin[i]));
        assert_true(f.layers[0].scale[i] <= 65536);
    }
    ig_key_frames_close(&f);
    biases[0][0] = kept;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_heads_agree),      cmocka_unit_test(scores_are_shifted),
        cmocka_unit_test(biases_cost_little),     cmocka_unit_test(unbiased_keys_have_none),
        cmocka_unit_test(wild_biases_are_finite),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
