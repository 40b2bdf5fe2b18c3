/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved conversations: what is written is read, byte by byte, and nothing else is taken for one.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "cli/messages.h"

static void test_round_trip(void **state) {
    static const char *const contents[] = {
        "Be brief.", "", "\"quoted\" \\ \x01 \x7f\n", "\xe2\x82\xac", "\xff\xfe\xc3( half \xe2\x82", "0", "\xc0\x80"};
    ig_cli_messages m = {0}, back = {0};
    (void)state;
    for (size_t i = 0; i < IG_COUNT(contents); i++)
        assert_true(ig_cli_messages_add(&m, i == 0 ? "system" : i % 2 ? "user" : "assistant", contents[i]));
    assert_int_equal(ig_cli_messages_system(&m), 1);
    char *text = ig_cli_messages_write(&m);
    assert_non_null(text);
    assert_null(ig_cli_messages_read(&back, text, strlen(text)));
    assert_int_equal(back.n, m.n);
    for (size_t i = 0; i < m.n; i++) {
        assert_string_equal(back.v[i].role, m.v[i].role);
        assert_string_equal(back.v[i].content, contents[i]);
    }
    for (size_t n = 0; n < strlen(text); n++) { /* none that is cut short */
        ig_cli_messages cut = {0};
        assert_non_null(ig_cli_messages_read(&cut, text, n));
        assert_true(!cut.v && !cut.n);
    }
    ig_cli_messages_cut(&m, 1);
    assert_int_equal(m.n, 1);
    free(text);
    ig_cli_messages_close(&m);
    ig_cli_messages_close(&back);
}

#define U "{\"role\":\"user\",\"content\":\"a\"}"
#define A "{\"role\":\"assistant\",\"content\":\"b\"}"
#define S "{\"role\":\"system\",\"content\":\"c\"}"
#define ALL(messages) "{\"version\":1,\"messages\":[" messages "]}"
#define ONE(rest) ALL("{\"role\":\"user\"," rest "}," A)

static void test_order(void **state) {
    static const char *const good[] = {ALL(U "," A), ALL(S "," U "," A "," U "," A), ALL(S),
                                       "{\"messages\":[" U "," A "],\"version\":1}"};
    static const char *const bad[] = {
        ALL(""),           ALL(U),       ALL(A),       ALL(A "," U),       ALL(U "," A "," U),
        ALL(U "," S),      ALL(S "," S), ALL(S "," A), ALL(U "," U "," A), ALL(U "," A "," S),
        ALL(U "," A "," A)};
    (void)state;
    for (size_t i = 0; i < IG_COUNT(good); i++) {
        ig_cli_messages m = {0};
        assert_null(ig_cli_messages_read(&m, good[i], strlen(good[i])));
        ig_cli_messages_close(&m);
    }
    for (size_t i = 0; i < IG_COUNT(bad); i++) {
        ig_cli_messages m = {0};
        assert_string_equal(ig_cli_messages_read(&m, bad[i], strlen(bad[i])), "the messages are out of order");
        assert_true(!m.v && !m.n);
    }
}

static void test_hostile(void **state) {
    static const char *const bad[] = {
        "",
        "null",
        "[]",
        "{}",
        "{\"version\":1}",
        "{\"version\":\"1\",\"messages\":[]}",
        "{\"version\":2,\"messages\":[" U "," A "]}",
        "{\"version\":1,\"messages\":{}}",
        "{\"version\":1,\"messages\":\""
        "x\"}",
        "{\"version\":1,\"messages\":[" U "," A "],\"more\":0}",
        "{\"version\":1,\"version\":1,\"messages\":[" U "," A "]}",
        ALL(U "," A) "x",
        ALL("1," A),
        ALL("[]," A),
        ALL("{\"role\":\"user\"}," A),
        ALL("{\"content\":\"a\"}," A),
        ALL("{\"role\":1,\"content\":\"a\"}," A),
        ALL("{\"role\":\"tool\",\"content\":\"a\"}," A),
        ALL("{\"role\":\"User\",\"content\":\"a\"}," A),
        ONE("\"content\":7"),
        ONE("\"content\":null"),
        ONE("\"content\":\"a\",\"hex\":\"61\""),
        ONE("\"content\":\"a\",\"name\":\"n\""),
        ONE("\"content\":\"a\\u0000b\""),
        ONE("\"content\":\"\\ud800\""),
        ONE("\"content\":\"\xff\""),
        ONE("\"content\":\"\xc0\x80\""),
        ONE("\"hex\":\"6\""),
        ONE("\"hex\":\"616\""),
        ONE("\"hex\":\"6g\""),
        ONE("\"hex\":\"FF\""),
        ONE("\"hex\":\"6100\""),
    };
    (void)state;
    for (size_t i = 0; i < IG_COUNT(bad); i++) {
        ig_cli_messages m = {0};
        if (!ig_cli_messages_read(&m, bad[i], strlen(bad[i]))) fail_msg("%s is taken", bad[i]);
        assert_true(!m.v && !m.n);
    }
    enum { DEEP = 1 << 20 };
    ig_cli_messages m = {0};
    char *deep = malloc(DEEP);
    assert_non_null(deep);
    memset(deep, '[', DEEP);
    assert_string_equal(ig_cli_messages_read(&m, deep, DEEP), "it is no JSON");
    free(deep);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
