/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: a request as it comes from a socket. Its head is read, it is decided who may enter, and the fields of
 * its body are checked, as the end of the path says whose they are. Chunks are read where the head says so.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void expect(bool is_right) {
    if (!is_right) abort();
}

/* Whatever was read in pieces ends where it ends as a whole. */
static size_t find_head(const char *text, size_t n) {
    size_t whole = ig_head_find(text, n, 0), part = 0, seen = 0;
    for (size_t have = 0; have <= n && !part; have += 1 + have / 3) {
        part = ig_head_find(text, have, seen);
        seen = have;
    }
    expect(!part || part == whole || (whole == n && part < n));
    return whole;
}

static void check_head(const ig_head *h) {
    expect(*h->method && h->n_fields <= IG_HEAD_FIELDS_MAX && !(h->has_length && h->is_chunked));
    for (const char *at = h->path; *at; at++) expect((unsigned char)*at >= ' ' && *at != 127);
    for (size_t i = 0; i < h->n_fields; i++)
        expect(*h->fields[i].name && !strpbrk(h->fields[i].name, " \t\r\n:") && !strpbrk(h->fields[i].value, "\r\n"));
}

/* The chunks' bytes, in a buffer of n; false: they are not as they must be. */
static bool join_chunks(char *out, size_t *n_out, const char *text, size_t n) {
    const char *end = text + n;
    *n_out = 0;
    for (;;) {
        uint64_t size;
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        if (!line_end || !ig_chunk_size(&size, text, (size_t)(line_end - text))) return false;
        text = line_end + 1;
        if (size == 0) return true;
        if (size > (size_t)(end - text)) return false;
        memcpy(out + *n_out, text, (size_t)size);
        *n_out += (size_t)size;
        text += size;
        line_end = memchr(text, '\n', (size_t)(end - text));
        if (!line_end) return false;
        (void)ig_chunk_is_trailer(text, (size_t)(line_end - text));
        text = line_end + 1;
    }
}

/* What is refused has a status and a text, and can be told as JSON. */
static void check_refusal(const ig_call *c) {
    json_t *told = ig_refusal_json(&c->refusal);
    expect(c->refusal.status >= 400 && c->refusal.text[0] && told);
    json_decref(told);
}

static const ig_api *api_of(const char *path) {
    static const struct {
        const char *end;
        const ig_api *api;
    } all[] = {{"chat/completions", &ig_api_chat}, {"/completion", &ig_api_native}, {"/infill", &ig_api_infill}};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t n_end = strlen(all[i].end);
        if (n >= n_end && strcmp(path + n - n_end, all[i].end) == 0) return all[i].api;
    }
    return &ig_api_completions;
}

static void check_body(ig_call *c) {
    size_t n = strlen(c->head->path);
    ig_exchange *x = calloc(1, sizeof *x);
    if (!x) exit(1);
    x->call = c;
    x->api = api_of(c->head->path);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    x->body = ig_body_object(c);
    bool ok = x->body && ig_exchange_read(x);
    x->stage = x->thoughts && n % 2 ? IG_THOUGHTS_BEGUN : IG_THOUGHTS_OVER; /* as a prompt would say */
    ok = ok && (!x->api->is_chat || ig_exchange_constrain(x));
    expect(ok == !c->refusal.status);
    if (ok) {
        expect(x->n >= 1 && x->n <= 16 && x->ask.generate.n_stops <= 64 && x->n_top <= IG_REQUEST_TOP_MAX);
        expect(!x->tools.must_call || (x->tools.list && x->grammar));
        expect(x->model_name && fabsf(x->adapter_scales[0]) <= IG_ADAPTER_SCALE_MAX &&
               fabsf(x->adapter_scales[1]) <= IG_ADAPTER_SCALE_MAX);
        expect(x->cache.budget >= 0 && x->cache.budget <= 1 && x->cache.n_recent >= 1 && x->cache.n_sinks >= 0);
    } else {
        check_refusal(c);
    }
    ig_exchange_close(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    static char key[1][IG_SERVER_KEY_BYTES] = {"a-key"};
    static ig_tool_format format = {
        .has_lists = true, .begin = "[", .before = "<call ", .middle = ">", .after = "</call>", .end = "]"};
    static const ig_adapter adapters[] = {{.name = "one", .scale = 1}, {.name = "two", .scale = -0.5}};
    static ig_server server = {.info = {.adapters = adapters, .n_adapters = 2},
                               .lock = PTHREAD_MUTEX_INITIALIZER,
                               .tool_format = &format,
                               .keys = {.lock = PTHREAD_MUTEX_INITIALIZER, .n = 1, .keys = key},
                               .fields = {.lock = PTHREAD_MUTEX_INITIALIZER}};
    ig_server_options options = {
        .alias = "model", .key = key[0], .host = "127.0.0.1", .scheduler = ig_scheduler_defaults()};
    ig_head head;
    ig_call c = {.server = &server, .head = &head};
    const char *text = (const char *)data, *why = NULL;
    size_t n = find_head(text, n_bytes);
    server.o = &options;
    server.thoughts = ig_thought_marks_find("</think>");
    if (!server.adapters.names && ig_server_open_adapters(&server, NULL)) exit(1);
    if (!n) return 0;
    char *copy = malloc(n + 1), *body = malloc(n_bytes - n + 1);
    if (!copy || !body) exit(1);
    memcpy(copy, text, n);
    unsigned status = ig_head_read(&head, copy, n, &why);
    expect(why || !status);
    if (!status) {
        check_head(&head);
        if (!ig_server_may_enter(&c, false)) check_refusal(&c);
        c.refusal = (ig_refusal){0};
        c.body = body;
        c.n_body = n_bytes - n;
        memcpy(body, text + n, c.n_body);
        if (!head.is_chunked || join_chunks(body, &c.n_body, text + n, n_bytes - n)) check_body(&c);
    }
    free(body);
    free(copy);
    return 0;
}
