/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in whole numbers: each form's against its definition, number by number; then what does not fit, every byte of
 * the header changed, and every allocation failing.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/half.h"
#include "kernel/kernel.h"
#include "model/weight_unpack.h"
#include "unit/count_memory.h"
#include "unit/tiny_safetensors.h"

enum { ROWS = 16, COLS = 128, GROUP = 64, GROUPS = COLS / GROUP, ALL = ROWS * COLS };

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

/* Codes first, then scales, then zeros; last g_idx, or the shape. */
#define AWQ                                                                                                   \
    "{" T("a.qweight", "I32", "[128,2]", "[0,1024]") "," T("a.scales", "F16", "[2,16]", "[1024,1088]") "," T( \
        "a.qzeros", "I32", "[2,2]", "[1088,1104]") "}"
#define GPTQ                                                                                                  \
    "{" T("a.qweight", "I32", "[16,16]", "[0,1024]") "," T("a.scales", "F16", "[2,16]", "[1024,1088]") "," T( \
        "a.qzeros", "I32", "[2,2]", "[1088,1104]") "," T("a.g_idx", "I32", "[128]", "[1104,1616]") "}"
#define GPTQ_8                                                                                                \
    "{" T("a.qweight", "I32", "[32,16]", "[0,2048]") "," T("a.scales", "F16", "[2,16]", "[2048,2112]") "," T( \
        "a.qzeros", "I32", "[2,4]", "[2112,2144]") "}"
#define COMPRESSED                                                                                                   \
    "{" T("a.weight_packed", "I32", "[16,16]", "[0,1024]") "," T(                                                    \
        "a.weight_scale", "F16", "[16,2]", "[1024,1088]") "," T("a.weight_zero_point", "I32", "[2,2]",               \
                                                                "[1088,1104]") "," T("a.weight_shape", "I64", "[2]", \
                                                                                     "[1104,1120]") "}"
#define BYTES                                                                                                      \
    "{" T("a.weight", "I8", "[16,128]", "[0,2048]") "," T("a.weight_scale", "F16", "[16,1]", "[2048,2080]") "," T( \
        "b", "F32", "[1]", "[2080,2084]") "}"

static ig_device *device;

enum { FOUR_BITS = ROWS * COLS / 2, EIGHT_BITS = ROWS * COLS };

typedef struct form {
    const char *header;
    size_t n_codes, n_data;
    int bits;
    ig_type type;
    int zero; /* of all; -1: any */
    int zero_offset;
    /* Where the code of a weight, the scale and the zero of a group are: which word, and the place in it. */
    void (*find)(size_t at[3][2], int row, int column, int g);
} form;

static void find_awq(size_t at[3][2], int row, int column, int g) {
    static const size_t places[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    at[0][0] = (size_t)(column * 2 + row / 8), at[0][1] = places[row % 8];
    at[1][0] = (size_t)(g * ROWS + row);
    at[2][0] = (size_t)(g * 2 + row / 8), at[2][1] = places[row % 8];
}

static void find_gptq(size_t at[3][2], int row, int column, int g) {
    at[0][0] = (size_t)(column / 8 * ROWS + row), at[0][1] = (size_t)column % 8;
    at[1][0] = (size_t)(g * ROWS + row);
    at[2][0] = (size_t)(g * 2 + row / 8), at[2][1] = (size_t)row % 8;
}

/* Columns are of one group and the other in turn. */
static void find_gptq_in_turn(size_t at[3][2], int row, int column, int g) {
    (void)g;
    find_gptq(at, row, column, column % GROUPS);
}

static void find_gptq_8(size_t at[3][2], int row, int column, int g) {
    at[0][0] = (size_t)(column / 4 * ROWS + row), at[0][1] = (size_t)column % 4;
    at[1][0] = (size_t)(g * ROWS + row);
    at[2][0] = (size_t)(g * 4 + row / 4), at[2][1] = (size_t)row % 4;
}

static void find_compressed(size_t at[3][2], int row, int column, int g) {
    at[0][0] = (size_t)(row * COLS + column) / 8, at[0][1] = (size_t)column % 8;
    at[1][0] = (size_t)(row * GROUPS + g);
    at[2][0] = (size_t)(row / 8 * GROUPS + g), at[2][1] = (size_t)row % 8;
}

static void find_bytes(size_t at[3][2], int row, int column, int g) {
    (void)g;
    at[0][0] = (size_t)(row * COLS + column) / 4, at[0][1] = (size_t)column % 4;
    at[1][0] = (size_t)row;
    at[2][0] = 0, at[2][1] = 0;
}

static const form forms[] = {
    {AWQ, FOUR_BITS, 1104, 4, IG_TYPE_Q4_1, -1, 1, find_awq}, /* AWQ's zeros have no offset */
    {AWQ, FOUR_BITS, 1104, 4, IG_TYPE_Q4_0, 8, 0, find_awq},
    {GPTQ, FOUR_BITS, 1616, 4, IG_TYPE_Q4_1, -1, 1, find_gptq},
    {GPTQ, FOUR_BITS, 1616, 4, IG_TYPE_Q4_0, 8, 1, find_gptq},
    {GPTQ, FOUR_BITS, 1616, 4, IG_TYPE_Q4_0, 8, 0, find_gptq},
    {GPTQ_8, EIGHT_BITS, 2144, 8, IG_TYPE_Q8_0, 128, 1, find_gptq_8},
    {GPTQ_8, EIGHT_BITS, 2144, 8, IG_TYPE_Q8_0, -1, 1, find_gptq_8},    /* rounded */
    {GPTQ, FOUR_BITS, 1616, 4, IG_TYPE_Q8_0, -1, 1, find_gptq_in_turn}, /* rounded */
    {COMPRESSED, FOUR_BITS, 1120, 4, IG_TYPE_Q4_1, -1, 1, find_compressed},
    {COMPRESSED, FOUR_BITS, 1120, 4, IG_TYPE_Q4_0, 8, 1, find_compressed},
    {BYTES, EIGHT_BITS, 2084, 8, IG_TYPE_Q8_0, 128, 1, find_bytes},
};

/* A file of that form whose codes are random, and where its data is. */
static uint8_t *make_file(const form *f, size_t *n, uint8_t **data) {
    uint8_t *bytes = tiny_safetensors(f->header, f->n_data, n);
    uint32_t random = 1;
    *data = bytes + *n - f->n_data;
    for (size_t i = 0; i < f->n_data; i++) {
        random = random * 1664525 + 1013904223;
        (*data)[i] = (uint8_t)(random >> 24);
    }
    uint8_t *at = *data + f->n_codes;
    int n_scales = f->find == find_bytes ? ROWS : ROWS * GROUPS;
    for (int i = 0; i < n_scales; i++, at += 2) memcpy(at, &(uint16_t){(uint16_t)(0x2c00 + 37 * i)}, 2);
    uint8_t stored = (uint8_t)(f->zero - (f->find == find_awq || f->find == find_compressed ? 0 : f->zero_offset));
    if (f->zero >= 0 && f->find != find_bytes)
        memset(at, f->bits == 8 ? stored : stored * 17, (size_t)(ROWS * GROUPS * f->bits / 8));
    at += ROWS * GROUPS * f->bits / 8;
    bool is_in_turn = f->find == find_gptq_in_turn;
    for (int32_t i = 0; i < COLS && (f->find == find_gptq || is_in_turn); i++, at += 4)
        memcpy(at, &(int32_t){is_in_turn ? i % GROUPS : i / GROUP}, 4);
    if (f->find == find_compressed) memcpy(at, (int64_t[]){ROWS, COLS}, 16);
    return bytes;
}

static uint32_t number_at(const uint8_t *data, const size_t at[2], int bits) {
    uint32_t word;
    memcpy(&word, data + 4 * at[0], 4);
    return word >> ((size_t)bits * at[1]) & ((1u << bits) - 1);
}

/* The weight that the definition makes. */
static float weight_of(const form *f, const uint8_t *data, int row, int column) {
    size_t at[3][2] = {{0}};
    uint16_t half;
    f->find(at, row, column, column / GROUP);
    int code = (int)number_at(data, at[0], f->bits), zero = f->zero;
    memcpy(&half, data + f->n_codes + 2 * at[1][0], 2);
    if (f->find == find_bytes) return ig_f16_f32(half) * (float)(int8_t)code;
    if (zero < 0) {
        zero = (int)number_at(data + f->n_codes + ROWS * GROUPS * 2, at[2], f->bits);
        zero += f->find == find_awq || f->find == find_compressed ? 0 : f->zero_offset;
    }
    return ig_f16_f32(half) * (float)(code - zero);
}

static void numbers_are_kept(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const form *f = &forms[i];
        size_t n;
        uint8_t *data, *bytes = make_file(f, &n, &data), *kept = malloc(f->n_data);
        ig_safetensors *s;
        ig_error err = {0};
        memcpy(kept, data, f->n_data);
        if (ig_safetensors_open_memory(&s, bytes, n, "tiny", &err)) fail_msg("%s", err.text);
        if (ig_weights_unpack(s, device, &(ig_config){.file.zero_offset = f->zero_offset}, &(ig_loading){0}, &err))
            fail_msg("form %zu: %s", i, err.text);
        const ig_tensor *t = ig_safetensors_tensor(s, "a.weight");
        assert_non_null(t);
        assert_int_equal(ig_safetensors_n_tensors(s), f->find == find_bytes ? 2 : 1);
        assert_int_equal(t->type, f->type);
        assert_int_equal(t->dims[0], COLS);
        assert_int_equal(t->dims[1], ROWS);
        float w[ALL];
        ig_kernels_get(IG_CPU_SCALAR)->dequantize[t->type](w, t->data, ALL);
        for (int k = 0; k < ALL; k++) {
            float wanted = weight_of(f, kept, k / COLS, k % COLS);
            /* Scales are at most 0.19. The minimum of Q4_1 is a 16-bit float, up to 16 of these; and of what is
             * rounded to 8 bits the largest one is up to 2^bits of them. */
            float largest = 0.19f * (float)(1 << f->bits), allowed = t->type == IG_TYPE_Q4_1 ? largest / 2048
                                                                     : f->zero < 0           ? largest / 127 / 1.99f
                                                                                             : 0;
            if (!(fabsf(w[k] - wanted) <= allowed))
                fail_msg("form %zu: weight %d is %g, must be %g", i, k, (double)w[k], (double)wanted);
        }
        ig_safetensors_close(s);
        free(bytes);
        free(kept);
    }
}

static const float small_floats[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* Floats of 4 bits with scales of 8 for each 16, and a factor of all, which divides or multiplies. */
static void sixteens_are_kept(void **state) {
    enum { N = 4, CODES = N * COLS / 2, SCALES = N * COLS / 16, ALL_BYTES = CODES + SCALES + 4 };
    static const char *const headers[] = {
        "{" T("a.weight_packed", "U8", "[4,64]", "[0,256]") "," T(
            "a.weight_scale", "F8_E4M3", "[4,8]", "[256,288]") "," T("a.weight_global_scale", "F32", "[1]",
                                                                     "[288,292]") "}",
        "{" T("a.weight", "U8", "[4,64]", "[0,256]") "," T("a.weight_scale", "F8_E4M3", "[4,8]", "[256,288]") "," T(
            "a.weight_scale_2", "F32", "[]", "[288,292]") "}"};
    (void)state;
    for (int is_factor = 0; is_factor < 2; is_factor++)
        for (int fault = 0; fault < 3; fault++) {
            size_t n;
            ig_safetensors *s;
            ig_error err = {0};
            uint8_t *bytes = tiny_safetensors(headers[is_factor], ALL_BYTES, &n), *data = bytes + n - ALL_BYTES;
            for (int i = 0; i < CODES; i++) data[i] = (uint8_t)(i * 37 + i / 7);
            for (int i = 0; i < SCALES; i++) data[CODES + i] = (uint8_t)(3 * i);
            if (fault == 1) data[CODES + 5] = 0x81; /* a scale below 0 */
            memcpy(data + CODES + SCALES, &(float){fault == 2 ? 0 : is_factor ? 0.25f : 4}, 4);
            if (ig_safetensors_open_memory(&s, bytes, n, "tiny", &err)) fail_msg("%s", err.text);
            ig_status status = ig_weights_unpack(s, device, &(ig_config){0}, &(ig_loading){0}, &err);
            assert_int_equal(status, fault ? IG_E_FORMAT : IG_OK);
            if (fault) assert_non_null(strstr(err.text, "and its scales are not those of NVFP4"));
            const ig_tensor *t = ig_safetensors_tensor(s, "a.weight"), *scale = ig_safetensors_tensor(s, "a.scale");
            float w[N * COLS];
            if (!fault) {
                assert_non_null(scale);
                assert_int_equal(scale->n_dims, 1);
                assert_true(*(const float *)scale->data == 0.25f);
                assert_int_equal(t->type, IG_TYPE_NVFP4);
                ig_kernels_get(IG_CPU_SCALAR)->dequantize[t->type](w, t->data, N * COLS);
            }
            for (int k = 0; !fault && k < N * COLS; k++) {
                float wanted = small_floats[data[k / 2] >> (k % 2 * 4) & 15] * ig_f8_f32(data[CODES + k / 16]);
                if (w[k] != wanted) fail_msg("weight %d is %g, must be %g", k, (double)w[k], (double)wanted);
            }
            ig_safetensors_close(s);
            free(bytes);
        }
}

/* Floats of 4 bits of two experts: rows of one tensor take turns, those of the other do not. */
static void experts_are_kept(void **state) {
    enum { EXPERTS = 2, EXPERT_ROWS = 6, N = EXPERTS * EXPERT_ROWS, CODES = N * COLS / 2, SCALES = N * COLS / 32 };
    static const struct {
        const char *header, *name;
        bool is_mixed;
    } cases[] = {
        {"{" T("e.gate_up_proj_blocks", "U8", "[2,6,4,16]", "[0,768]") "," T("e.gate_up_proj_scales", "U8", "[2,6,4]",
                                                                             "[768,816]") "}",
         "e.gate_up_proj", true},
        {"{" T("e.down_proj_blocks", "U8", "[2,6,4,16]", "[0,768]") "," T("e.down_proj_scales", "U8", "[2,6,4]",
                                                                          "[768,816]") "}",
         "e.down_proj", false},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        size_t n;
        ig_safetensors *s;
        ig_error err = {0};
        uint8_t *bytes = tiny_safetensors(cases[c].header, CODES + SCALES, &n), *data = bytes + n - CODES - SCALES;
        for (int i = 0; i < CODES; i++) data[i] = (uint8_t)(i * 37 + i / 7);
        for (int i = 0; i < SCALES; i++) data[CODES + i] = (uint8_t)(100 + i);
        if (ig_safetensors_open_memory(&s, bytes, n, "tiny", &err)) fail_msg("%s", err.text);
        if (ig_weights_unpack(s, device, &(ig_config){0}, &(ig_loading){0}, &err)) fail_msg("%s", err.text);
        const ig_tensor *t = ig_safetensors_tensor(s, cases[c].name);
        assert_non_null(t);
        assert_int_equal(t->type, IG_TYPE_MXFP4);
        assert_true(t->n_dims == 3 && t->dims[0] == COLS && t->dims[1] == EXPERT_ROWS && t->dims[2] == EXPERTS);
        float w[N * COLS];
        ig_kernels_get(IG_CPU_SCALAR)->dequantize[t->type](w, t->data, N * COLS);
        for (int k = 0; k < N * COLS; k++) {
            int y = k / COLS, x = k % COLS, in_expert = y % EXPERT_ROWS, half = EXPERT_ROWS / 2;
            if (cases[c].is_mixed) y += in_expert % half * 2 + in_expert / half - in_expert;
            int code = data[(y * COLS + x) / 2] >> (x % 2 * 4) & 15;
            float wanted = ldexpf(small_floats[code], 100 + (y * COLS + x) / 32 - 127);
            if (w[k] != wanted) fail_msg("%s: weight %d is %g, must be %g", t->name, k, (double)w[k], (double)wanted);
        }
        ig_safetensors_close(s);
        free(bytes);
    }
}

/* What unpack() says of a form whose data has been changed at some byte, in an int32. */
static ig_status unpack_changed(const form *f, size_t at, int32_t value, ig_error *err) {
    size_t n;
    uint8_t *data, *bytes = make_file(f, &n, &data);
    ig_safetensors *s;
    memcpy(data + at, &value, sizeof value);
    assert_int_equal(ig_safetensors_open_memory(&s, bytes, n, "tiny", err), IG_OK);
    ig_status status =
        ig_weights_unpack(s, device, &(ig_config){.file.zero_offset = f->zero_offset}, &(ig_loading){0}, err);
    ig_safetensors_close(s);
    free(bytes);
    return status;
}

static void refuses_what_does_not_fit(void **state) {
    (void)state;
    static const struct {
        int form;
        size_t at;
        int32_t value;
        ig_status wanted;
        const char *text;
    } cases[] = {
        {2, 1104 + 4 * 70, 2, IG_E_FORMAT, "'a.g_idx' holds numbers that are not those of groups"},
        {2, FOUR_BITS, 0x7c00, IG_E_FORMAT, "'a.scales' holds a scale"},
        {8, 1104, 15, IG_E_FORMAT, "'a.weight_packed' and its scales, zeros and shape"},
        {8, 1112, 64, IG_E_FORMAT, "'a.weight_packed' and its scales, zeros and shape"},
        {8, 1112, -128, IG_E_FORMAT, "'a.weight_packed' and its scales, zeros and shape"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ig_error err = {0};
        ig_status status = unpack_changed(&forms[cases[i].form], cases[i].at, cases[i].value, &err);
        if (status != cases[i].wanted || !strstr(err.text, cases[i].text))
            fail_msg("case %zu: %d '%s', must say '%s'", i, (int)status, err.text, cases[i].text);
    }
}

/* Whatever the header becomes: an answer, and no byte outside of the file or of what was taken. */
static void survives_changed_headers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        size_t n, n_same = 0;
        uint8_t *data, *bytes = make_file(&forms[i], &n, &data);
        for (size_t at = 8; at < (size_t)(data - bytes); at++)
            for (int change = 1; change < 16; change += change < 4 ? 1 : 4) {
                ig_safetensors *s;
                uint8_t kept = bytes[at];
                bytes[at] = (uint8_t)(kept ^ change);
                if (!ig_safetensors_open_memory(&s, bytes, n, "tiny", NULL)) {
                    ig_status status =
                        ig_weights_unpack(s, device, &(ig_config){.file.zero_offset = 1}, &(ig_loading){0}, NULL);
                    n_same += status == IG_OK;
                    ig_safetensors_close(s);
                    free(bytes), bytes = make_file(&forms[i], &n, &data); /* what was read may have left memory */
                }
                bytes[at] = kept;
            }
        assert_true(n_same < n);
        free(bytes);
    }
}

static void survives_failing_allocations(void **state) {
    (void)state;
#ifdef MEMORY_IS_COUNTED
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (long at = 0;; at++) {
            size_t n;
            uint8_t *data, *bytes = make_file(&forms[i], &n, &data);
            ig_safetensors *s;
            assert_int_equal(ig_safetensors_open_memory(&s, bytes, n, "tiny", NULL), IG_OK);
            memory_count_start(at);
            ig_status status = ig_weights_unpack(s, device, &(ig_config){.file.zero_offset = forms[i].zero_offset},
                                                 &(ig_loading){0}, NULL);
            bool has_failed = memory_count.fail_at < 0;
            memory_count_stop();
            ig_safetensors_close(s);
            free(bytes);
            if (!has_failed) {
                assert_int_equal(status, IG_OK);
                break;
            }
            assert_int_equal(status, IG_E_MEMORY);
        }
#else
    skip();
#endif
}

static int setup(void **state) {
    (void)state;
    return ig_device_open_cpu(&device, IG_CPU_SCALAR, 2, NULL) != IG_OK;
}

static int teardown(void **state) {
    (void)state;
    ig_device_close(device);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_kept),         cmocka_unit_test(sixteens_are_kept),
        cmocka_unit_test(experts_are_kept),         cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(survives_changed_headers), cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
