/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of /v1/responses and /v1/messages as those of a chat, while every allocation of JSON values fails in turn:
 * nothing is used after it was freed, and nothing is left. Each value has pages to itself, which are locked when it is
 * freed.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/api.h"

enum { N_PAGES = 4096 };

static struct {
    char *pages;
    size_t page, n_used, n_held;
    long fail_at; /* the allocation that fails, counted from 0; -1: none */
    bool has_failed;
} memory = {.fail_at = -1};

static void *take(size_t n) {
    bool fails = memory.fail_at >= 0 && memory.fail_at-- == 0;
    memory.has_failed |= fails;
    if (fails) return NULL;
    size_t n_pages = 1 + n / memory.page;
    assert_true(memory.n_used + n_pages <= N_PAGES);
    char *at = memory.pages + memory.n_used * memory.page;
    memory.n_used += n_pages;
    memory.n_held++;
    return at;
}

static void give(void *p) {
    if (!p) return;
    memory.n_held--;
    assert_int_equal(mprotect(p, memory.page, PROT_NONE), 0);
}

static void start(void) {
    assert_int_equal(mprotect(memory.pages, N_PAGES * memory.page, PROT_READ | PROT_WRITE), 0);
    memory.n_used = memory.n_held = 0;
    memory.has_failed = false;
}

typedef json_t *(*body_fn)(ig_call *c, const json_t *body);

static void fail_each(body_fn translate, const char *text) {
    static const ig_route route = {"/v1/test", "POST", false, NULL, NULL};
    for (long at = 0; at == 0 || memory.has_failed; at++) {
        ig_call call = {.route = &route};
        start();
        json_t *body = json_loads(text, 0, NULL);
        assert_non_null(body);
        memory.fail_at = at;
        json_t *out = translate(&call, body);
        memory.fail_at = -1;
        assert_int_equal(call.refusal.status, out ? 0 : 500); /* what may be absent may get lost */
        assert_true(out || memory.has_failed);
        json_decref(out);
        json_decref(body);
        assert_int_equal(memory.n_held, 0);
    }
}

static void responses(void **state) {
    (void)state;
    fail_each(ig_responses_body,
              "{\"input\": \"a\", \"instructions\": \"b\", \"max_output_tokens\": 3, \"top_logprobs\": 2,"
              " \"tools\": [{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}],"
              " \"tool_choice\": {\"type\": \"function\", \"name\": \"f\"}, \"reasoning\": {\"effort\": \"low\"},"
              " \"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"x\", \"schema\": {}}}}");
    fail_each(ig_responses_body,
              "{\"input\": [{\"role\": \"user\", \"content\": \"a\"},"
              " {\"type\": \"reasoning\", \"content\": [{\"type\": \"reasoning_text\", \"text\": \"b\"}]},"
              " {\"role\": \"assistant\", \"content\": [{\"type\": \"output_text\", \"text\": \"c\"}]},"
              " {\"type\": \"function_call\", \"call_id\": \"i\", \"name\": \"f\", \"arguments\": \"{}\"},"
              " {\"type\": \"function_call_output\", \"call_id\": \"i\", \"output\": \"d\"},"
              " {\"role\": \"user\", \"content\": [{\"type\": \"input_text\", \"text\": \"e\"}]}]}");
}

static void messages(void **state) {
    (void)state;
    fail_each(ig_messages_body,
              "{\"system\": \"a\", \"messages\": [{\"role\": \"user\", \"content\": \"b\"},"
              " {\"role\": \"assistant\", \"content\": [{\"type\": \"thinking\", \"thinking\": \"c\"},"
              " {\"type\": \"text\", \"text\": \"d\"}, {\"type\": \"tool_use\", \"id\": \"i\", \"name\": \"f\", "
              "\"input\": {}}]},"
              " {\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", \"tool_use_id\": \"i\"},"
              " {\"type\": \"text\", \"text\": \"e\"}]}], \"tools\": [{\"name\": \"f\", \"input_schema\": {}}],"
              " \"tool_choice\": {\"type\": \"tool\", \"name\": \"f\"}, \"stop_sequences\": [\"x\"],"
              " \"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": {}}}}");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(responses), cmocka_unit_test(messages)};
    memory.page = (size_t)sysconf(_SC_PAGESIZE);
    memory.pages = mmap(NULL, N_PAGES * memory.page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory.pages == MAP_FAILED) return 77;
    json_set_alloc_funcs(take, give);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
