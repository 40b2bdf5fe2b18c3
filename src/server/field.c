/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of a request's body, each of the type that it must have: what is wrong is refused by name.
 */
#define _GNU_SOURCE
#include "server/call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *ig_field(const json_t *object, const char *name) {
    json_t *v = json_object_get(object, name);
    return json_is_null(v) ? NULL : v;
}

bool ig_field_bool(ig_call *c, const json_t *object, const char *name, bool *out) {
    const json_t *v = ig_field(object, name);
    if (!v) return true;
    if (!json_is_boolean(v)) return ig_refuse(c, 400, name, "%s must be true or false", name);
    *out = json_is_true(v);
    return true;
}

bool ig_json_whole(const json_t *v, int64_t *out) {
    double x = json_number_value(v);
    if (json_is_integer(v)) return *out = json_integer_value(v), true;
    if (!json_is_real(v) || x != floor(x) || !(fabs(x) <= 0x1p53)) return false;
    return *out = (int64_t)x, true;
}

bool ig_json_token(const json_t *v, int n_vocab, int32_t *out) {
    int64_t id;
    if (!ig_json_whole(v, &id) || id < 0 || id >= n_vocab) return false;
    *out = (int32_t)id;
    return true;
}

bool ig_field_int(ig_call *c, const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out) {
    const json_t *v = ig_field(object, name);
    int64_t x;
    if (!v) return true;
    if (!ig_json_whole(v, &x) || x < min || x > max)
        return ig_refuse(c, 400, name, "%s must be a whole number from %lld to %lld", name, (long long)min,
                         (long long)max);
    *out = x;
    return true;
}

bool ig_field_number(ig_call *c, const json_t *object, const char *name, double min, double max, double *out) {
    const json_t *v = ig_field(object, name);
    if (!v) return true;
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= min && x <= max))
        return ig_refuse(c, 400, name, "%s must be a number from %g to %g", name, min, max);
    *out = x;
    return true;
}

bool ig_field_text(ig_call *c, const json_t *object, const char *name, const char **out) {
    const json_t *v = ig_field(object, name);
    if (!v) return true;
    if (!json_is_string(v)) return ig_refuse(c, 400, name, "%s must be a string", name);
    *out = json_string_value(v);
    return true;
}

bool ig_field_model(ig_call *c, const json_t *object) {
    const char *name = NULL;
    if (!ig_field_text(c, object, "model", &name)) return false;
    if (!name || c->server->o->any_model || ig_server_find(c->server, name, strlen(name)) >= 0) return true;
    return ig_refuse_model(c, name);
}

bool ig_refuse_model(ig_call *c, const char *name) {
    bool has_others = c->server->info.n_adapters > 0;
    c->refusal.code = "model_not_found";
    return ig_refuse(c, 404, "model", "there is no model '%.128s' here, but '%s'%s", name, c->server->o->alias,
                     has_others ? " and its adapters: GET /v1/models lists them" : "");
}

/* A small body can be large once it is read: how deep it goes, and how many values it has, is counted before. */
size_t ig_json_values(const char *text, size_t n) {
    size_t depth = 0, deepest = 0, n_nodes = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (in_string)
            continue;
        else if (c == '[' || c == '{')
            deepest = ++depth > deepest ? depth : deepest;
        else if ((c == ']' || c == '}') && depth)
            depth--;
        else
            n_nodes += c == ',' || c == ':';
    }
    return deepest <= IG_SERVER_DEPTH_MAX ? n_nodes : SIZE_MAX;
}

static json_t *read_json(ig_call *c) {
    json_error_t error;
    bool failed;
    json_t *body = ig_json_of_text(c->body ? c->body : "", c->n_body, JSON_REJECT_DUPLICATES, &error, &failed);
    if (failed)
        ig_refuse(c, 500, NULL, "out of memory for the values of a body of %zu bytes", c->n_body);
    else if (!body && json_error_code(&error) == json_error_null_character)
        ig_refuse(c, 400, NULL, "the body has the character \\u0000, which texts may not have, before byte %d",
                  error.position);
    else if (!body)
        ig_refuse(c, 400, NULL, "the body is not JSON as it should be: %s at byte %d", error.text, error.position);
    return body;
}

json_t *ig_body_object(ig_call *c) { return ig_body(c, JSON_OBJECT); }

json_t *ig_body(ig_call *c, json_type type) {
    if (c->body && ig_json_values(c->body, c->n_body) > IG_SERVER_NODES_MAX) {
        ig_refuse(c, 400, NULL, "the body has more than %d values, or goes deeper than %d", IG_SERVER_NODES_MAX,
                  IG_SERVER_DEPTH_MAX);
        return NULL;
    }
    json_t *body = read_json(c);
    if (body && json_typeof(body) != type)
        ig_refuse(c, 400, NULL, "the body must be a JSON %s", type == JSON_ARRAY ? "list" : "object");
    if (!c->refusal.status) return body;
    json_decref(body);
    return NULL;
}

/* ---- texts ------------------------------------------------------------------------------- */

bool ig_refuse_long(ig_call *c, const char *field, size_t n) {
    int most = ig_scheduler_ctx(c->server->scheduler);
    char has[32] = "more";
    if (n) snprintf(has, sizeof has, "%zu", n);
    c->refusal.code = "context_length_exceeded";
    /* Clients know it by its first words, which are OpenAI's. */
    return ig_refuse(c, 400, field, "This model's maximum context length is %d tokens, but the prompt has %s.", most,
                     has);
}

/* Room for so many tokens in place of what the list has. */
static bool make_room(ig_call *c, ig_token_list *out, size_t n) {
    free(out->v);
    out->n = 0;
    out->v = malloc((n ? n : 1) * sizeof *out->v);
    return out->v || ig_refuse(c, 500, NULL, "out of memory for %zu tokens", n);
}

static void empty(ig_token_list *list) {
    free(list->v);
    *list = (ig_token_list){0};
}

bool ig_tokens_up_to(ig_call *c, const char *field, const char *text, size_t n, int flags, size_t most,
                     ig_token_list *out, bool *are_more) {
    const ig_model *m = c->server->o->model;
    ig_error err = {0};
    size_t cap = n + 8 < most ? n + 8 : most;
    *out = (ig_token_list){0};
    *are_more = false;
    for (;; cap = most) { /* a second round for the few texts with more tokens than bytes */
        if (!make_room(c, out, cap)) return false;
        ig_status s = ig_tokenize(&out->n, m, text, n, flags | IG_TOKENIZE_CAPPED, out->v, cap, &err);
        *are_more = out->n > cap;
        if (!s) return true;
        if (!*are_more || cap == most) break;
    }
    empty(out);
    return *are_more || ig_refuse_error(c, field, &err);
}

/* It says how many there are, unless that is very many. */
bool ig_tokens_of_prompt(ig_call *c, const char *field, const char *text, size_t n, int flags, ig_token_list *out) {
    size_t most = (size_t)ig_scheduler_ctx(c->server->scheduler);
    size_t most_counted = most < IG_SERVER_NODES_MAX ? IG_SERVER_NODES_MAX : most;
    bool are_more;
    if (!ig_tokens_up_to(c, field, text, n, flags, most_counted, out, &are_more)) return false;
    if (!are_more && out->n <= most) return true;
    size_t n_tokens = out->n;
    empty(out);
    return ig_refuse_long(c, field, n_tokens);
}

static bool is_inside_character(const char *at) { return (*at & 0xc0) == 0x80; }

bool ig_tokens_of_part(ig_call *c, const char *field, const char *text, size_t n, size_t most, bool is_end,
                       ig_token_list *out) {
    enum { BYTES_PER_TOKEN = 32 };
    ig_error err = {0};
    size_t seen = n / BYTES_PER_TOKEN < most ? n : most * BYTES_PER_TOKEN, cap = seen + 8;
    const char *begin = is_end ? text + n - seen : text, *end = begin + seen;
    while (begin > text && begin < end && is_inside_character(begin)) begin++;
    while (end < text + n && begin < end && is_inside_character(end)) end--;
    *out = (ig_token_list){0};
    for (;; cap = out->n) { /* as above */
        if (!make_room(c, out, cap)) return false;
        ig_status s = ig_tokenize(&out->n, c->server->o->model, begin, (size_t)(end - begin), 0, out->v, cap, &err);
        if (s) break;
        if (out->n > cap) continue;
        size_t lost = out->n > most ? out->n - most : 0;
        out->n -= lost;
        if (is_end) memmove(out->v, out->v + lost, out->n * sizeof *out->v);
        return true;
    }
    empty(out);
    return ig_refuse_error(c, field, &err);
}
