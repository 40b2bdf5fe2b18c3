/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines about a server and its requests. What clients send is shown as JSON strings only, so that it can neither end a
 * line nor drive a terminal.
 */
#define _GNU_SOURCE
#include "cli/serve_log.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/app.h"

enum { METHOD_SHOWN = 32, PATH_SHOWN = 256 }; /* bytes: a client may send more */

static json_t *start_line(const ig_cli_options *o, const char *level) {
    char text[40], whole[64];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(whole, sizeof whole, "%s.%03ldZ", text, now.tv_nsec / 1000000);
    return json_pack("{s:s, s:s, s:o*}", "time", whole, "level", level, "name",
                     o->log_name ? ig_text_string(o->log_name) : NULL);
}

/* The UTF-8 character at *at, which is stepped over. */
static unsigned next_character(const char **at) {
    unsigned first = (unsigned char)*(*at)++, n_more = first < 0xc0 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    unsigned code = n_more ? first & (0x3f >> n_more) : first;
    while (n_more--) code = code << 6 | ((unsigned char)*(*at)++ & 0x3f);
    return code;
}

/* Controls, and what turns, joins or hides text that is beside it; those below U+0020 are escaped in any JSON. */
static bool is_control(unsigned code) {
    static const unsigned ranges[][2] = {{0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x200b, 0x200f},
                                         {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i][0] && code <= ranges[i][1]) return true;
    return false;
}

/* As JSON, to be freed, with controls as escapes: what other languages write stays readable. Takes `value`. */
static char *dump(json_t *value, size_t flags) {
    char *text = ig_text_of_json(value, flags), *out = NULL;
    size_t n_out;
    FILE *f = text ? open_memstream(&out, &n_out) : NULL;
    for (const char *at = text, *from; f && *(from = at);) {
        unsigned code = next_character(&at);
        if (is_control(code))
            fprintf(f, "\\u%04x", code);
        else
            fwrite(from, 1, (size_t)(at - from), f);
    }
    if (f) fclose(f);
    free(text);
    json_decref(value);
    return out;
}

/* ---- lines, to be freed --------------------------------------------------------------- */

static char *format(const char *how, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *how, ...) {
    char *text;
    va_list args;
    va_start(args, how);
    int n = vasprintf(&text, how, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

/* Takes the object. */
static char *json_line(json_t *line) {
    char *text = dump(line, JSON_COMPACT | JSON_REAL_PRECISION(9)), *whole = text ? format("%s\n", text) : NULL;
    free(text);
    return whole;
}

static json_t *client_text(const char *text, size_t n) { return ig_text_stringn(text ? text : "", n); }

static size_t shown(const char *path) { return strnlen(path, PATH_SHOWN); }

static char *message_line(const ig_cli_options *o, const char *level, const char *text) {
    if (strcmp(o->log_format, "json") != 0)
        return format("infinigen serve: %s%s%s\n", o->log_name ? o->log_name : "", o->log_name ? ": " : "", text);
    json_t *line = start_line(o, level);
    json_object_set_new(line, "message", client_text(text, strlen(text)));
    return json_line(line);
}

/* ---- writing ----------------------------------------------------------------------------- */

static atomic_bool is_waiting; /* somebody does, for room */
static atomic_uint n_left_out;

/* Whether standard error takes PIPE_BUF bytes before so many milliseconds are over, without holding up who writes. */
static bool takes_more(int milliseconds) {
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, 0) != 0) return true;
    atomic_store(&is_waiting, true);
    bool has_room = poll(&out, 1, milliseconds) != 0;
    atomic_store(&is_waiting, false);
    return has_room;
}

/* Frees the line. False: nobody has read it. */
static bool write_line(char *line, int milliseconds) {
    size_t n = line ? strlen(line) : 0;
    bool has_room = takes_more(milliseconds);
    for (size_t done = 0, more; has_room && done < n; done += more, has_room = done == n || takes_more(milliseconds)) {
        more = n - done < PIPE_BUF ? n - done : PIPE_BUF;
        fwrite(line + done, 1, more, stderr);
    }
    free(line);
    return has_room;
}

/* Takes the line; NULL: there was no memory for it. Where nobody reads the log, answers do not wait for it: one of them
 * does for a moment, and then lines are left out until somebody reads. */
static void put(const ig_cli_options *o, char *line) {
    enum { PATIENCE = 200 }; /* ms */
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    char text[80];
    if (atomic_load(&is_waiting)) {
        atomic_fetch_add(&n_left_out, 1);
        free(line);
        return;
    }
    pthread_mutex_lock(&turn);
    unsigned n = atomic_load(&n_left_out);
    snprintf(text, sizeof text, "nobody read the log: %u lines are left out", n);
    if (n && takes_more(0) && write_line(message_line(o, "warn", text), PATIENCE)) atomic_fetch_sub(&n_left_out, n);
    if (!write_line(line, atomic_load(&n_left_out) ? 0 : PATIENCE)) atomic_fetch_add(&n_left_out, 1);
    pthread_mutex_unlock(&turn);
}

void ig_cli_serve_log(const ig_cli_options *o, const char *level, const char *text) {
    put(o, message_line(o, level, text));
}

void ig_cli_serve_say(void *user, const char *line) { ig_cli_serve_log(user, "info", line); }

/* ---- requests ---------------------------------------------------------------------- */

static const char *level_of(const ig_server_record *r) {
    return r->status >= 500 || r->failure ? "error" : r->status >= 400 || !r->is_whole ? "warn" : "info";
}

static char *record_json(const ig_cli_options *o, const ig_server_record *r, bool with_body) {
    json_t *line = start_line(o, level_of(r));
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
    return json_line(line);
}

/* "text" with its quotes, to be freed. */
static char *quoted(const char *text, size_t n) { return dump(client_text(text, n), JSON_ENCODE_ANY); }

static char *record_text(const ig_cli_options *o, const ig_server_record *r, bool with_body) {
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
    char *whole = format("infinigen serve: %s%s%s%s%s%s%s\n", o->log_name ? o->log_name : "", o->log_name ? ": " : "",
                         line, failure ? ", failed: " : "", failure ? failure : "", body ? ": " : "", body ? body : "");
    free(path);
    free(failure);
    free(body);
    return whole;
}

void ig_cli_serve_record(void *user, const ig_server_record *r) {
    const ig_cli_options *o = user;
    bool with_body = o->log_prompts && r->n_body;
    put(o, strcmp(o->log_format, "json") == 0 ? record_json(o, r, with_body) : record_text(o, r, with_body));
}
