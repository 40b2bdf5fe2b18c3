/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines about a server and its requests. What clients send is shown as JSON strings only, so that it can neither end a
 * line nor drive a terminal.
 */
#define _GNU_SOURCE
#include "cli/serve_log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/app.h"

enum { METHOD_SHOWN = 32, PATH_SHOWN = 256 }; /* bytes: a client may send more */

static json_t *start_line(const char *level) {
    char text[40], whole[64];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(whole, sizeof whole, "%s.%03ldZ", text, now.tv_nsec / 1000000);
    return json_pack("{s:s, s:s}", "time", whole, "level", level);
}

/* Prints and drops it. */
static void put_line(json_t *line) {
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) fprintf(stderr, "%s\n", text);
    free(text);
    json_decref(line);
}

static json_t *client_text(const char *text, size_t n) { return ig_cli_json_text(text ? text : "", n); }

static size_t shown(const char *path) { return strnlen(path, PATH_SHOWN); }

void ig_cli_serve_log(const ig_cli_options *o, const char *level, const char *text) {
    if (strcmp(o->log_format, "json") != 0) {
        fprintf(stderr, "infinigen serve: %s\n", text);
        return;
    }
    json_t *line = start_line(level);
    json_object_set_new(line, "message", client_text(text, strlen(text)));
    put_line(line);
}

void ig_cli_serve_say(void *user, const char *line) { ig_cli_serve_log(user, "info", line); }

/* ---- requests ---------------------------------------------------------------------- */

static const char *level_of(const ig_server_record *r) {
    return r->status >= 500 || r->failure ? "error" : r->status >= 400 || !r->is_whole ? "warn" : "info";
}

static void put_json(const ig_server_record *r, bool with_body) {
    json_t *line = start_line(level_of(r));
    json_object_set_new(line, "id", r->id ? json_string(r->id) : json_null());
    json_object_set_new(line, "client", json_string(r->client));
    json_object_set_new(line, "method", client_text(r->method, strnlen(r->method, METHOD_SHOWN)));
    json_object_set_new(line, "path", client_text(r->path, shown(r->path)));
    json_object_set_new(line, "status", r->status ? json_integer(r->status) : json_null());
    json_object_set_new(line, "complete", json_boolean(r->is_whole));
    if (r->refusal) json_object_set_new(line, "error", json_string(r->refusal));
    if (r->failure) json_object_set_new(line, "reason", client_text(r->failure, strlen(r->failure)));
    if (r->is_exchange) {
        json_object_set_new(line, "prompt_tokens", json_integer(r->n_prompt));
        json_object_set_new(line, "cached_tokens", json_integer(r->n_cached));
        json_object_set_new(line, "new_tokens", json_integer(r->n_new));
        json_object_set_new(line, "first_token_ms",
                            r->first_token_seconds < 0 ? json_null() : json_real(r->first_token_seconds * 1e3));
    }
    json_object_set_new(line, "total_ms", json_real(r->seconds * 1e3));
    if (with_body) json_object_set_new(line, "body", client_text(r->body, r->n_body));
    put_line(line);
}

/* "text" with its quotes, to be freed. */
static char *quoted(const char *text, size_t n) {
    json_t *value = client_text(text, n);
    char *out = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    return out;
}

static void put_text(const ig_server_record *r, bool with_body) {
    char line[1024], status[32] = "no reply";
    char *path = quoted(r->path, shown(r->path)), *body = with_body ? quoted(r->body, r->n_body) : NULL,
         *failure = r->failure ? quoted(r->failure, strlen(r->failure)) : NULL;
    if (r->status) snprintf(status, sizeof status, "%u", r->status);
    int n = snprintf(line, sizeof line, "%s %.*s %.300s: %s%s", r->client, METHOD_SHOWN, r->method, path ? path : "",
                     status, r->is_whole ? "" : ", not read to its end");
    if (r->is_exchange)
        n += snprintf(line + n, sizeof line - (size_t)n, ", prompt %d (%d cached), new %d", r->n_prompt, r->n_cached,
                      r->n_new);
    if (r->first_token_seconds >= 0)
        n += snprintf(line + n, sizeof line - (size_t)n, ", first after %.0f ms", r->first_token_seconds * 1e3);
    snprintf(line + n, sizeof line - (size_t)n, ", done after %.0f ms", r->seconds * 1e3);
    fprintf(stderr, "infinigen serve: %s%s%s%s%s\n", line, failure ? ", failed: " : "", failure ? failure : "",
            body ? ": " : "", body ? body : "");
    free(path);
    free(failure);
    free(body);
}

void ig_cli_serve_record(void *user, const ig_server_record *r) {
    const ig_cli_options *o = user;
    bool with_body = o->log_prompts && r->n_body;
    if (strcmp(o->log_format, "json") == 0)
        put_json(r, with_body);
    else
        put_text(r, with_body);
}
