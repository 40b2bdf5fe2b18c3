/* SPDX-License-Identifier: Apache-2.0
 *
 * What clients get where memory ends while a reply is put together: jansson goes on without what it has no memory for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "count_memory.h"
#include "server/call.h"
#include "text/json.h"

/* As replies are made: without a look at what each call says. */
static char *make_reply(void) {
    json_t *reply = json_object(), *list = json_array();
    for (int i = 0; i < 20; i++) json_array_append_new(list, json_integer(i));
    json_object_set_new(reply, "text", json_string("a text"));
    json_object_set_new(reply, "list", list);
    json_object_set_new(reply, "usage", json_pack("{s:i}", "tokens", 3));
    char *text = ig_reply_text(reply);
    json_decref(reply);
    return text;
}

/* Each allocation in turn fails: there is no reply then, and the next one is whole. */
static void memory_that_fails(void **state) {
    (void)state;
#ifdef MEMORY_IS_COUNTED
    ig_json_begin();
    char *whole = make_reply();
    assert_non_null(whole);
    for (long fail_at = 0;; fail_at++) {
        memory_count_start(fail_at);
        char *text = make_reply();
        bool has_failed = memory_count.fail_at < 0;
        memory_count_stop();
        if (text) assert_string_equal(text, whole);
        if (has_failed) assert_null(text);
        free(text);
        text = make_reply();
        assert_non_null(text);
        assert_string_equal(text, whole);
        free(text);
        if (has_failed) continue;
        assert_true(fail_at > 20);
        break;
    }
    free(whole);
#else
    skip();
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_that_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
