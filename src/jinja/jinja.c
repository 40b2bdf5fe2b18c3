/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates from beginning to end: parsed once, rendered with variables that come as JSON.
 */
#define _GNU_SOURCE
#include "jinja/jinja.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "jinja/node.h"

/* ---- parsing ----------------------------------------------------------------- */

static bool is_utf8(const char *text, size_t n) {
    utf8proc_int32_t code;
    utf8proc_ssize_t size;
    for (; n; text += size, n -= (size_t)size) {
        size = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &code);
        if (size <= 0) return false;
    }
    return true;
}

/* Copies the text with "\n" for each end of a line, without the last one. */
static bool copy_source(ig_jinja *t, const char *text, size_t n_bytes) {
    char *copy = ig_j_pool_take(&t->pool, n_bytes + 2);
    size_t n = 0;
    if (!copy) return false;
    for (size_t i = 0; i < n_bytes; i++) {
        bool is_pair = text[i] == '\r' && i + 1 < n_bytes && text[i + 1] == '\n';
        if (!is_pair) copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (n && copy[n - 1] == '\n') copy[--n] = 0;
    t->source = (ig_text){copy, n};
    return true;
}

static ig_j_lexer lexer_of(const ig_jinja *t) {
    return (ig_j_lexer){.source = t->source, .line = 1, .inside = IG_J_TOKEN_DATA};
}

ig_status ig_jinja_parse(ig_jinja **out, const char *text, size_t n_bytes, ig_error *err) {
    if (n_bytes > IG_JINJA_TEMPLATE_BYTES)
        return ig_fail(err, IG_E_LIMIT, "chat template: %zu bytes, more than %d", n_bytes, IG_JINJA_TEMPLATE_BYTES);
    if (!is_utf8(text, n_bytes)) return ig_fail(err, IG_E_FORMAT, "chat template: it is not UTF-8");
    ig_jinja *t = calloc(1, sizeof *t);
    if (!t || !ig_j_pool_open(&t->pool, IG_JINJA_TREE_BYTES) || !copy_source(t, text, n_bytes)) {
        ig_jinja_close(t);
        return ig_fail_memory(err, "chat template", IG_JINJA_TREE_BYTES);
    }
    ig_j_parser p = {.lexer = lexer_of(t), .pool = &t->pool, .err = err};
    ig_status s = ig_j_parse(&p, &t->body);
    if (s) {
        ig_jinja_close(t);
        return s;
    }
    *out = t;
    return IG_OK;
}

void ig_jinja_close(ig_jinja *t) {
    if (!t) return;
    ig_j_pool_close(&t->pool);
    free(t);
}

/* ---- rendering ----------------------------------------------------------------- */

static ig_j_value from_json(ig_j_render *r, const json_t *j);

static ig_j_value from_array(ig_j_render *r, const json_t *j) {
    ig_j_list list = {0};
    for (size_t i = 0; i < json_array_size(j) && !r->status; i++)
        ig_j_list_add(r, &list, from_json(r, json_array_get(j, i)));
    return ig_j_listed(IG_J_LIST, list);
}

/* Its keys differ, so none is looked for before it is added. */
static ig_j_value from_object(ig_j_render *r, const json_t *j) {
    json_t *object = (json_t *)(uintptr_t)j; /* jansson's iterators are for writers too */
    ig_j_dict dict = {0};
    for (void *at = json_object_iter(object); at && !r->status; at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        ig_j_dict_add(r, &dict, ig_j_string((ig_text){key, strlen(key)}), from_json(r, json_object_iter_value(at)));
    }
    return ig_j_dictionary(dict);
}

static ig_j_value from_json(ig_j_render *r, const json_t *j) {
    ig_j_value v = ig_j_none();
    if (!ig_j_enter(r)) return v;
    if (json_is_object(j))
        v = from_object(r, j);
    else if (json_is_array(j))
        v = from_array(r, j);
    else if (json_is_string(j))
        v = ig_j_string((ig_text){json_string_value(j), json_string_length(j)});
    else if (json_is_integer(j))
        v = ig_j_int(json_integer_value(j));
    else if (json_is_real(j))
        v = ig_j_float(json_real_value(j));
    else if (json_is_boolean(j))
        v = ig_j_bool(json_is_true(j));
    r->depth--;
    return v;
}

ig_status ig_jinja_render(ig_buffer *out, const ig_jinja *t, const json_t *variables, time_t now, ig_error *err) {
    ig_buffer text = {0};
    ig_j_scope scope = {0};
    ig_j_render r = {.steps = IG_JINJA_STEPS, .line = 1, .scope = &scope, .out = &text, .err = err};
    if (!json_is_object(variables)) return ig_fail(err, IG_E_ARG, "the variables of a chat template are no object");
    if (!ig_j_pool_open(&r.pool, IG_JINJA_VALUE_BYTES))
        return ig_fail_memory(err, "chat template", IG_JINJA_VALUE_BYTES);
    localtime_r(&now, &r.now);
    scope.names = from_json(&r, variables).dict;
    uint64_t more = (IG_JINJA_STEPS - r.steps) * IG_JINJA_STEPS_EACH;
    r.steps += more < IG_JINJA_STEPS_MORE ? more : IG_JINJA_STEPS_MORE;
    ig_j_exec(&r, t->body);
    if (!r.status) ig_buffer_add(out, text.data, text.size);
    if (!r.status && out->failed) r.status = ig_fail_memory(err, "chat prompt", text.size);
    ig_buffer_close(&text);
    ig_j_pool_close(&r.pool);
    return r.status;
}
