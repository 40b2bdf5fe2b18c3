/* SPDX-License-Identifier: Apache-2.0
 *
 * Which models there are, and requests that are handed on: see router.h.
 */
#define _GNU_SOURCE
#include "server/router.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "server/api.h"
#include "server/children.h"
#include "text/clock.h"

/* ---- which model ------------------------------------------------------------------------------ */

/* The name, or the same without what Ollama's clients put behind it where no tag was chosen. */
static int find_model(const ig_server *s, const char *name) {
    size_t n = strlen(name), n_tag = strlen(":latest");
    int found = -1;
    for (size_t i = 0; i < s->o->n_models; i++) {
        const char *own = s->o->models[i].name;
        if (strcmp(own, name) == 0) return (int)i;
        bool is_tagged = n > n_tag && strcmp(name + n - n_tag, ":latest") == 0 && strlen(own) == n - n_tag;
        if (is_tagged && strncmp(own, name, n - n_tag) == 0) found = (int)i;
    }
    return found;
}

static int refuse_name(ig_call *c, const char *name) {
    c->refusal.code = "model_not_found";
    ig_refuse(c, 404, "model", "there is no model '%.128s' here: GET /v1/models lists them", name);
    return -1;
}

/* The only one there is, or the one that was asked last; -1: there is none. */
static int usual_model(const ig_server *s) { return s->o->n_models == 1 ? 0 : ig_children_latest(s->children); }

static int known_model(ig_call *c, const char *name) {
    int i = find_model(c->server, name);
    if (i < 0 && c->server->o->any_model) i = usual_model(c->server);
    return i < 0 ? refuse_name(c, name) : i;
}

static int unnamed_model(ig_call *c) {
    int i = usual_model(c->server);
    if (i < 0) ig_refuse(c, 400, "model", "which model is missing: GET /v1/models lists them");
    return i;
}

/* A form's blanks may be written as +. */
static const char *name_of_query(const ig_call *c, char *name, size_t cap) {
    if (!ig_head_query(c->head, "model", name, cap)) return NULL;
    for (char *at = name; find_model(c->server, name) < 0 && (at = strchr(at, '+'));) *at = ' ';
    return name;
}

/* The one that a body names, or the query; for a request without a body none is loaded. -1: refused. */
static int asked_model(ig_call *c) {
    char of_query[1024];
    const char *name = NULL;
    json_t *body = NULL;
    if (c->is_post) body = ig_body(c, c->route->handle == ig_route_adapters ? JSON_ARRAY : JSON_OBJECT);
    bool ok = !c->is_post || (body && ig_field_text(c, body, "name", &name) && ig_field_text(c, body, "model", &name));
    if (ok && !name) name = name_of_query(c, of_query, sizeof of_query);
    int i = !ok ? -1 : name ? known_model(c, name) : unnamed_model(c);
    json_decref(body);
    if (i < 0 || c->is_post || ig_children_stage(c->server->children, (size_t)i) == IG_CHILD_READY) return i;
    ig_refuse(c, 503, "model", "the model '%.128s' is not loaded", c->server->o->models[i].name);
    return -1;
}

/* ---- handing on -------------------------------------------------------------------------------- */

enum { ROUND_MS = 100 }; /* as seldom a call is looked at */

/* Fields that are of this connection, or that this server has seen to. */
static bool is_own_field(const char *name) {
    static const char *const own[] = {"Authorization", "Connection",    "Content-Length", "Expect",
                                      "Host",          "Keep-Alive",    "Origin",         "TE",
                                      "Trailer",       "Upgrade",       "X-Api-Key",      "Transfer-Encoding",
                                      IG_OWNER_FIELD,  IG_ADDRESS_FIELD};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcasecmp(own[i], name) == 0) return true;
    return false;
}

/* The head of the request as the process gets it, malloc'ed. Paths of routes need no escapes. */
static char *make_head(const ig_call *c, size_t *n) {
    char *text = NULL, address[INET6_ADDRSTRLEN];
    FILE *to = open_memstream(&text, n);
    if (!to) return NULL;
    fprintf(to, "%s %s HTTP/1.%d\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n", c->head->method,
            c->route->path, !c->head->is_1_0, c->n_body);
    fprintf(to, IG_OWNER_FIELD ": %016llx\r\n" IG_ADDRESS_FIELD ": %s\r\n", (unsigned long long)ig_call_owner(c),
            ig_call_client(c, address));
    for (size_t i = 0; i < c->head->n_fields; i++)
        if (!is_own_field(c->head->fields[i].name))
            fprintf(to, "%s: %s\r\n", c->head->fields[i].name, c->head->fields[i].value);
    fputs("\r\n", to);
    if (fclose(to) == 0) return text;
    free(text);
    return NULL;
}

/* What cannot be sent is of no matter where the process has answered already, or the call has ended. */
static void send_all(const ig_call *c, int fd, const char *data, size_t n) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    while (n && !atomic_load(&c->ended)) {
        ssize_t sent = send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) return;
        if (sent < 0) poll(&p, 1, ROUND_MS);
        if (sent > 0) data += sent, n -= (size_t)sent;
    }
}

static bool ask(const ig_call *c, int fd) {
    size_t n;
    char *head = make_head(c, &n);
    if (!head) return false;
    send_all(c, fd, head, n);
    send_all(c, fd, c->body, c->n_body);
    free(head);
    return true;
}

/* More of the reply; 0: no more comes, or the call has ended. */
static size_t receive(const ig_call *c, int fd, char *to, size_t most) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, ROUND_MS) <= 0)
        if (atomic_load(&c->ended)) return 0;
    ssize_t n = recv(fd, to, most, 0);
    return n > 0 ? (size_t)n : 0;
}

static void refuse_ended(ig_call *c) {
    c->closes = atomic_load(&c->ended) == IG_CALL_GONE; /* nobody is there to be answered */
    if (c->closes) return;
    ig_refuse(c, 503, NULL,
              atomic_load(&c->ended) ? "the server is being shut down" : "the process that serves the model has ended");
    c->refusal.may_retry = true;
}

/* The reply as it comes, with what a page of elsewhere needs to read it. False: there was none. */
static bool hand_back(ig_call *c, int fd) {
    enum { BYTES = 32 << 10, FIRST_MAX = 256 };
    char buffer[BYTES], origin[IG_ORIGIN_BYTES + 64] = "";
    const char *end = NULL;
    size_t n = 0, more = 1;
    while (!end && more && n < FIRST_MAX) {
        n += more = receive(c, fd, buffer + n, FIRST_MAX - n);
        end = memchr(buffer, '\n', n);
    }
    unsigned status = 0;
    buffer[n] = 0;
    if (!end || sscanf(buffer, "HTTP/1.1 %3u", &status) != 1) return false;
    if (c->origin) snprintf(origin, sizeof origin, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", c->origin);
    size_t n_first = (size_t)(end + 1 - buffer);
    struct iovec parts[] = {{buffer, n_first}, {origin, strlen(origin)}, {buffer + n_first, n - n_first}};
    c->closes = c->is_answered = c->is_handed_on = true;
    ig_server_count_reply(c, status);
    bool goes_on = ig_wire_send(c->wire, parts, 3);
    while (goes_on && (n = receive(c, fd, buffer, BYTES))) {
        struct iovec part = {buffer, n};
        goes_on = ig_wire_send(c->wire, &part, 1);
    }
    return true;
}

/* Whether the process is soon seen to have ended. */
static bool has_ended(const ig_call *c, size_t i) {
    enum { ROUNDS = 100, NANOSECONDS = 10000000 };
    for (int r = 0; r < ROUNDS && !atomic_load(&c->ended); r++) {
        if (ig_children_stage(c->server->children, i) != IG_CHILD_READY) return true;
        nanosleep(&(struct timespec){.tv_nsec = NANOSECONDS}, NULL);
    }
    return false;
}

/* A model that is to leave memory. */
static bool sends_away(ig_call *c, int i) {
    enum { MOST_BYTES = 4096 }; /* of a body without a question */
    json_t *body = i >= 0 && c->is_post && c->n_body <= MOST_BYTES ? ig_body(c, JSON_OBJECT) : NULL;
    bool leaves = body && ig_ollama_sends_away(c, body);
    json_decref(body);
    if (!leaves) return false;
    ig_children_leave(c->server->children, (size_t)i);
    ig_ollama_say_done(c, c->server->o->models[i].name, "unload");
    return true;
}

/* The process sees a client that has gone by the end of its own connection. */
static void hand_on(ig_call *c) {
    ig_children *children = c->server->children;
    int i = asked_model(c);
    if (c->route->handle == ig_route_ollama && sends_away(c, i)) return;
    for (int tries = 0; i >= 0; tries++) {
        int fd = ig_children_take(children, (size_t)i, c);
        if (fd < 0) return;
        double began = ig_text_seconds();
        bool is_asked = ask(c, fd), is_answered = is_asked && hand_back(c, fd);
        ig_children_give(children, (size_t)i, fd);
        if (!is_asked) ig_refuse(c, 500, NULL, "out of memory for a request");
        if (!is_asked || is_answered) return;
        /* One that had ended already, which nobody had seen yet, gets a successor. */
        if (tries || ig_text_seconds() - began >= 1 || !has_ended(c, (size_t)i)) {
            refuse_ended(c);
            return;
        }
    }
}

/* ---- the lists ------------------------------------------------------------------------------------ */

static json_t *model_json(const ig_server *s, size_t i) {
    static const char *const stages[] = {[IG_CHILD_OFF] = "unloaded",
                                         [IG_CHILD_LOADING] = "loading",
                                         [IG_CHILD_READY] = "loaded",
                                         [IG_CHILD_LEAVING] = "loaded",
                                         [IG_CHILD_ENDING] = "unloaded"};
    const ig_server_model *m = &s->o->models[i];
    json_t *model = json_pack("{s:o, s:s, s:I, s:s, s:o, s:{s:s}}", "id", ig_text_string(m->name), "object", "model",
                              "created", (json_int_t)s->created, "owned_by", "infinigen", "path",
                              ig_text_string(m->path), "status", "value", stages[ig_children_stage(s->children, i)]);
    return ig_model_entry(model, s->created);
}

static json_t *ollama_json(const ig_server *s, size_t i) {
    const ig_server_model *m = &s->o->models[i];
    return ig_ollama_model(m->name, s->created, m->bytes,
                           json_pack("{s:s, s:s, s:s, s:[], s:s, s:s}", "parent_model", "", "format", "gguf", "family",
                                     "", "families", "parameter_size", "", "quantization_level", ""));
}

/* Of all, or of those that are loaded. */
static json_t *list_json(const ig_server *s, json_t *(*one)(const ig_server *s, size_t i), bool are_loaded) {
    json_t *list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; ok && i < s->o->n_models; i++)
        if (!are_loaded || ig_children_stage(s->children, i) == IG_CHILD_READY)
            ok = json_array_append_new(list, one(s, i)) == 0;
    return ig_json_if(ok, list);
}

static void tell_models(ig_call *c) {
    static const char below[] = "/v1/models/";
    const char *path = c->head->path;
    if (strncmp(path, below, sizeof below - 1) != 0) {
        ig_reply_json(c, ig_models_list(list_json(c->server, model_json, false)));
        return;
    }
    int i = find_model(c->server, path + sizeof below - 1);
    if (i < 0)
        refuse_name(c, path + sizeof below - 1);
    else
        ig_reply_json(c, model_json(c->server, (size_t)i));
}

static void tell_tags(ig_call *c) {
    ig_reply_json(c, json_pack("{s:o}", "models", list_json(c->server, ollama_json, false)));
}

static void tell_loaded(ig_call *c) {
    ig_reply_json(c, json_pack("{s:o}", "models", list_json(c->server, ollama_json, true)));
}

/* What Ollama's clients ask of every model that is listed: for that none is loaded. A file is mapped, and a directory,
 * whose weights may have to be unpacked, is not. */
static void show_unloaded(ig_call *c, const ig_server_model *model) {
    ig_error err = {0};
    struct stat st;
    bool is_folder = stat(model->path, &st) == 0 && S_ISDIR(st.st_mode);
    const ig_model_options how = {.metadata_only = is_folder, .no_repack = !is_folder};
    ig_context *ctx = NULL;
    ig_model *m = NULL;
    ig_model_info info;
    ig_context_options options = ig_context_defaults();
    options.n_threads = 1;
    ig_status status = ig_context_open(&ctx, &options, &err);
    if (!status) status = ig_model_open(&m, ctx, model->path, &how, &err);
    if (status) {
        ig_server_say(c->server, "%s", err.text);
        ig_refuse(c, 500, "model", "the model '%.128s' cannot be read: the server's log says why", model->name);
    } else {
        ig_model_get_info(m, &info);
        ig_reply_json(c, ig_ollama_shown(&info, model->name, false));
    }
    ig_model_close(m);
    ig_context_close(ctx);
}

static void tell_shown(ig_call *c) {
    int i = asked_model(c);
    if (i >= 0 && ig_children_stage(c->server->children, (size_t)i) == IG_CHILD_READY)
        hand_on(c);
    else if (i >= 0)
        show_unloaded(c, &c->server->o->models[i]);
}

/* ---- loading ahead, and the opposite ------------------------------------------------------------------ */

static bool is_of_one(ig_call *c) {
    return !c->server->children && !ig_refuse(c, 404, NULL, "there is no %s here: one model is served", c->head->path);
}

void ig_route_load(ig_call *c) {
    int i = is_of_one(c) ? -1 : asked_model(c), fd = i < 0 ? -1 : ig_children_take(c->server->children, (size_t)i, c);
    if (fd < 0) return;
    ig_children_give(c->server->children, (size_t)i, fd);
    ig_reply_json(c, json_pack("{s:b}", "success", 1));
}

void ig_route_unload(ig_call *c) {
    int i = is_of_one(c) ? -1 : asked_model(c);
    if (i < 0) return;
    ig_children_leave(c->server->children, (size_t)i);
    ig_reply_json(c, json_pack("{s:b}", "success", 1));
}

/* ---- the whole ------------------------------------------------------------------------------------------ */

void ig_router_answer(ig_call *c) {
    static const struct {
        void (*of_one)(ig_call *c), (*here)(ig_call *c);
    } own[] = {{ig_route_models, tell_models},
               {ig_route_ollama_models, tell_tags},
               {ig_route_ollama_loaded, tell_loaded},
               {ig_route_ollama_show, tell_shown},
               {ig_route_health, ig_route_health},
               {ig_route_version, ig_route_version},
               {ig_route_ollama_version, ig_route_ollama_version},
               {ig_route_page, ig_route_page},
               {ig_route_load, ig_route_load},
               {ig_route_unload, ig_route_unload}};
    ig_watch_call(&c->server->watch, c->wire->connection, c);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i].of_one == c->route->handle) {
            own[i].here(c);
            return;
        }
    if (c->route->methods[0] == 'O')
        c->route->handle(c); /* a browser's question before it sends anything */
    else
        hand_on(c);
}
