/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV store: rows keep what was written, views find it, cutting back gives blocks free, budgets hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "kv/store.h"

static void resize(ig_kv *kv, const ig_kv_shape *s, int n) {
    ig_error err = {0};
    if (n < ig_kv_length(kv) && ig_kv_cut(kv, n, &err)) fail_msg("%s", err.text);
    for (int l = 0; l < s->n_layers; l++)
        if (ig_kv_extend(kv, l, n, &err)) fail_msg("%s", err.text);
}

static uint64_t ram_bytes(const ig_kv *kv) {
    ig_kv_stats st;
    ig_kv_get_stats(kv, &st);
    return st.ram_bytes;
}

static uint16_t stamp(int layer, int head, int token, int c) {
    return (uint16_t)(layer * 31 + head * 7 + token * 131 + c);
}

static void write_tokens(ig_kv *kv, const ig_kv_shape *s, int first, int n) {
    for (int l = 0; l < s->n_layers; l++)
        for (int h = 0; h < s->n_kv_heads; h++)
            for (int t = first; t < first + n; t++)
                for (int c = 0; c < s->head_dim; c++) {
                    ((uint16_t *)(void *)ig_kv_at(kv, l, h, t).key)[c] = stamp(l, h, t, c);
                    ((uint16_t *)(void *)ig_kv_at(kv, l, h, t).value)[c] = (uint16_t)~stamp(l, h, t, c);
                }
}

static const uint8_t *view_row(const ig_kv_view *v, int i) {
    int slot = v->index ? v->index[i] : v->first + i;
    return ig_kv_view_row(v, slot);
}

static void check_tokens(ig_kv *kv, const ig_kv_shape *s, const int32_t *index, int first, int n) {
    for (int l = 0; l < s->n_layers; l++)
        for (int h = 0; h < s->n_kv_heads; h++) {
            ig_kv_view v = ig_kv_fetch(kv, l, h, index, first, n);
            assert_int_equal(v.n, n);
            for (int i = 0; i < n; i++) {
                int token = index ? index[i] : first + i;
                uint16_t k[IG_KV_DIMS], w[IG_KV_DIMS];
                memcpy(k, view_row(&v, i), v.row_bytes);
                memcpy(w, view_row(&v, i) + v.v_offset, v.row_bytes);
                for (int c = 0; c < s->head_dim; c++) {
                    assert_int_equal(k[c], stamp(l, h, token, c));
                    assert_int_equal(w[c], (uint16_t)~stamp(l, h, token, c));
                }
            }
        }
}

static void rows_are_kept_at_every_head_dim(void **state) {
    (void)state;
    static const int dims[] = {8, 32, 64, 72, 80, 96, 128, 256, 512, 576};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        ig_kv_shape s = {.n_layers = 2, .n_kv_heads = 3, .head_dim = dims[i], .n_ctx = 77, .n_batch = 50};
        static const int32_t some[] = {0, 1, 15, 16, 17, 40, 76};
        ig_kv *kv;
        assert_int_equal(ig_kv_open(&kv, &s, NULL, NULL), IG_OK);
        resize(kv, &s, 30);
        write_tokens(kv, &s, 0, 30);
        resize(kv, &s, 77);
        write_tokens(kv, &s, 30, 47);
        check_tokens(kv, &s, NULL, 0, 77);
        check_tokens(kv, &s, NULL, 13, 50);
        check_tokens(kv, &s, some, 0, 7);
        ig_kv_close(kv);
    }
}

static void cutting_back_frees_and_reuses(void **state) {
    (void)state;
    ig_kv_shape s = {.n_layers = 3, .n_kv_heads = 2, .head_dim = 64, .n_ctx = 200, .n_batch = 200};
    ig_kv *kv;
    uint64_t plan;
    assert_int_equal(ig_kv_plan(&plan, &s, NULL, NULL), IG_OK);
    assert_int_equal(ig_kv_open(&kv, &s, NULL, NULL), IG_OK);
    assert_int_equal(ram_bytes(kv), 0);
    for (int round = 0; round < 50; round++) {
        int n = 1 + (round * 67) % 200;
        resize(kv, &s, n);
        assert_int_equal(ig_kv_length(kv), n);
        write_tokens(kv, &s, 0, n);
        check_tokens(kv, &s, NULL, 0, n);
        assert_true(ram_bytes(kv) <= plan);
        assert_true(ram_bytes(kv) >= (uint64_t)n * 3 * 2 * 64 * 4);
    }
    resize(kv, &s, 0);
    assert_int_equal(ram_bytes(kv), 0);
    ig_kv_close(kv);
}

/* Packed rows: two to sixteen times the tokens in a block, but never more than 512, and lines of their own for every
 * key and value. */
static void packed_blocks_hold_more(void **state) {
    static const int dims[] = {8, 64, 80, 128, 512};
    (void)state;
    for (int type = IG_KV_F16; type < IG_KV_TYPES; type++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            ig_kv_shape s = {.n_layers = 2, .n_kv_heads = 2, .head_dim = dims[i], .n_ctx = 700, .n_batch = 64};
            ig_kv_options o = {.type = (ig_kv_type)type}, bare = {0};
            size_t lines = type ? ((size_t)dims[i] + 63) / 64 : 0;
            uint64_t plan;
            ig_kv *kv, *half;
            ig_error err = {0};
            assert_int_equal(ig_kv_open(&kv, &s, &o, &err), IG_OK);
            assert_int_equal(ig_kv_open(&half, &s, &bare, &err), IG_OK);
            resize(kv, &s, s.n_ctx);
            ig_kv_view v = ig_kv_fetch(kv, 1, 1, NULL, 0, s.n_ctx), h = ig_kv_fetch(half, 1, 1, NULL, 0, 0);
            assert_int_equal(v.type, type);
            int most = h.shift + type;
            assert_int_equal(v.shift, 1 << most <= IG_ATTEND_UNIT ? most : 9);
            assert_int_equal(IG_ATTEND_UNIT % (1 << v.shift), 0);
            assert_int_equal(v.row_bytes, (size_t)dims[i] * 2 >> type);
            assert_ptr_equal(view_row(&v, 699), ig_kv_at(kv, 1, 1, 699).key);
            assert_ptr_equal(view_row(&v, 699) + v.v_offset, ig_kv_at(kv, 1, 1, 699).value);
            assert_ptr_equal(v.lines, ig_kv_at(kv, 1, 1, 0).lines);
            for (int l = 0; lines && l < 2; l++)
                for (int head = 0; head < 2; head++)
                    for (int t = 0; t < s.n_ctx; t++)
                        memset(ig_kv_at(kv, l, head, t).lines, l * 2 + head + t, 2 * lines * sizeof(ig_kv_line));
            for (int t = 0; lines && t < s.n_ctx; t++)
                assert_int_equal(v.lines[(size_t)t * 2 * lines + 2 * lines - 1].min, (uint8_t)(3 + t) * 0x101);
            assert_int_equal(ig_kv_plan(&plan, &s, &o, &err), IG_OK);
            assert_true(ram_bytes(kv) == plan);
            ig_kv_close(kv);
            ig_kv_close(half);
        }
    ig_kv *kv;
    ig_error err = {0};
    ig_kv_options wrong = {.type = IG_KV_TYPES};
    assert_int_equal(
        ig_kv_open(&kv, &(ig_kv_shape){.n_layers = 1, .n_kv_heads = 1, .head_dim = 64, .n_ctx = 8, .n_batch = 8},
                   &wrong, &err),
        IG_E_ARG);
}

/* A row that is a key and its value takes the room of one, and a frame no more than its block. */
static void rows_may_be_both(void **state) {
    static const int dims[] = {40, 64, 576};
    (void)state;
    for (int type = IG_KV_F16; type < IG_KV_TYPES; type++)
        for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
            ig_kv_shape s = {.n_layers = 2,
                             .n_kv_heads = 1,
                             .head_dim = dims[i],
                             .are_values_keys = true,
                             .n_ctx = 96,
                             .n_batch = 96};
            ig_kv_options o = {.type = (ig_kv_type)type};
            size_t row_bytes = (size_t)dims[i] * 2 >> type;
            uint64_t plan;
            ig_kv *kv;
            ig_error err = {0};
            assert_int_equal(ig_kv_open(&kv, &s, &o, &err), IG_OK);
            resize(kv, &s, 96);
            for (int t = 0; t < 96; t++) {
                assert_ptr_equal(ig_kv_at(kv, 1, 0, t).key, ig_kv_at(kv, 1, 0, t).value);
                memset(ig_kv_at(kv, 1, 0, t).key, t, row_bytes);
            }
            ig_kv_view v = ig_kv_fetch(kv, 1, 0, NULL, 0, 96);
            assert_int_equal(v.v_offset, 0);
            for (int t = 0; t < 96; t++) assert_int_equal(view_row(&v, t)[row_bytes - 1], t);
            size_t each = ig_round_up(row_bytes << v.shift, 64);
            assert_int_equal(ig_kv_token_bytes(&s, &o),
                             2 * ((each >> v.shift) + 2 * ig_kv_row_lines(o.type, dims[i]) * sizeof(ig_kv_line)));
            assert_int_equal(ig_kv_plan(&plan, &s, &o, &err), IG_OK);
            assert_true(ram_bytes(kv) == plan);
            ig_kv_close(kv);
        }
}

static void refuses_what_it_cannot_hold(void **state) {
    (void)state;
    ig_kv *kv;
    ig_error err = {0};
    assert_int_equal(
        ig_kv_open(&kv, &(ig_kv_shape){.n_layers = 1, .n_kv_heads = 1, .head_dim = 12, .n_ctx = 8, .n_batch = 8}, NULL,
                   &err),
        IG_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "head dimension 12"));
    assert_int_equal(
        ig_kv_open(
            &kv, &(ig_kv_shape){.n_layers = 512, .n_kv_heads = 1024, .head_dim = 512, .n_ctx = 1 << 24, .n_batch = 512},
            NULL, &err),
        IG_E_LIMIT);
    ig_kv_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_kept_at_every_head_dim), cmocka_unit_test(cutting_back_frees_and_reuses),
        cmocka_unit_test(packed_blocks_hold_more),         cmocka_unit_test(rows_may_be_both),
        cmocka_unit_test(refuses_what_it_cannot_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
