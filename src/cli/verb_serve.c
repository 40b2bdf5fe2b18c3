/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen serve`: flags into the server's options. What it says goes to standard error.
 */
#define _GNU_SOURCE
#include "cli/hub.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/serve_log.h"
#include "cli/serve_models.h"
#include "server/sandbox.h"
#include "server/server.h"

enum { POLICIES_MAX = 32 };

static const char *model_name(char name[256], const ig_cli_app *app) {
    if (app->o->alias) return app->o->alias;
    if (app->o->hub) return app->o->hub;
    return ig_cli_model_name(name, app->path);
}

/* The sketch of every policy that a request may ask for. */
static bool find_sketches(char *sketches[POLICIES_MAX], ig_cli_app *app) {
    const ig_policy_info *policy;
    const char *path;
    for (size_t i = 0; i < POLICIES_MAX && (policy = ig_cache_policy(i)); i++)
        if ((path = ig_cli_sketch(app, policy->name, app->o->kv_sketch.v[0])) && !(sketches[i] = strdup(path)))
            return false;
    return true;
}

/* Where it listens, and for whom. */
static int listen_options(ig_server_options *s, const ig_cli_options *o) {
    const ig_cli_environment around = ig_cli_read_environment();
    if (around.listeners && strcmp(around.listeners, "1") != 0) {
        ig_cli_complain(o, "LISTEN_FDS is '%s': one socket can be handed over, no more", around.listeners);
        return IG_EXIT_USAGE;
    }
    *s = (ig_server_options){.host = o->host,
                             .port = o->port,
                             .unix_path = o->unix_path,
                             .listener = around.listeners ? STDERR_FILENO + 1 : -1,
                             .key = o->api_key ? o->api_key : around.api_key,
                             .key_file = o->api_key_file,
                             .origins = o->allowed_origins,
                             .any_model = o->any_model,
                             .n_predict = o->predict,
                             .shows_thoughts = strcmp(o->reasoning_format, "none") == 0,
                             .limits = {.body_bytes = o->max_body,
                                        .connections = o->max_connections,
                                        .connections_each = o->max_connections_each,
                                        .header_seconds = o->header_timeout,
                                        .body_seconds = o->body_timeout,
                                        .idle_seconds = o->keep_alive,
                                        .request_seconds = o->request_timeout},
                             .drain_seconds = o->drain,
                             .is_handed_on = around.is_handed_on,
                             .is_sandboxed = o->sandbox,
                             .say = ig_cli_serve_say,
                             .on_request = ig_cli_serve_record,
                             .user = (void *)o};
    return IG_EXIT_OK;
}

/* With the model, which is there now. */
static int serve(ig_server *server, ig_server_options *s, ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    char name[256], *sketches[POLICIES_MAX] = {NULL};
    ig_error err = {0};
    s->alias = model_name(name, app);
    s->variables = app->variables;
    s->model = app->model;
    s->pooling = strcmp(o->pooling, "auto") == 0   ? app->info.pooling
                 : strcmp(o->pooling, "mean") == 0 ? IG_POOLING_MEAN
                                                   : IG_POOLING_LAST;
    s->adapter_scales = app->adapters.scales;
    s->sampler = ig_cli_sampler_options(app, 0);
    s->native_sampler = ig_cli_native_sampler(app);
    s->scheduler = ig_scheduler_defaults();
    s->scheduler.session = ig_cli_session_options(app);
    s->scheduler.session.progress = NULL;
    s->scheduler.session.cache.memory.n_sessions = o->parallel;
    s->scheduler.n_queue = o->queue;
    s->scheduler.piece_seconds = o->piece_ms / 1e3;
    /* ig_cli_sketch() has one place for the path that it finds. */
    const char *found = s->scheduler.session.cache.sketch;
    char *own = found ? strdup(found) : NULL;
    s->scheduler.session.cache.sketch = own;
    s->sketches = (const char *const *)sketches;
    bool has_all = (own || !found) && find_sketches(sketches, app);
    int code = has_all ? ig_cli_check_draft(app, &s->scheduler.session) : ig_cli_complain(o, "out of memory");
    if (!code && ig_server_run(server, &err)) code = ig_cli_fail(o, &err);
    for (size_t i = 0; i < POLICIES_MAX; i++) free(sketches[i]);
    free(own);
    return code;
}

/* The folder of a path in it, in place. */
static char *folder_of(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) return strcpy(path, ".");
    slash[slash == path] = 0;
    return path;
}

/* The folder of the files that a model's are links to, as in snapshots of the hub; "": there is none. */
static void find_linked(char out[4096], const char *model) {
    char inside[4096 + 16], *found;
    snprintf(inside, sizeof inside, "%s/config.json", model);
    if ((found = realpath(inside, NULL)) || (ig_cli_number_of_part(model) && (found = realpath(model, NULL))))
        snprintf(out, 4096, "%s", folder_of(found));
    free(found);
}

/* From here on the files that a server needs are all there are; the model is fetched before, if it has to be, and named
 * by its path from then on. */
static int close_all_but(ig_cli_options *o, const ig_cli_adapters *adapters) {
    enum { OTHERS = 15 };
    static char model[4096], files[4096], draft[4096], drafts[4096], spill[4096], sketches[4096], at[4096],
        linked[2][4096];
    const char *own[3] = {NULL},
               *read[OTHERS + IG_ADAPTERS_MAX + 1] = {
                   files, drafts, ig_cli_path(sketches, sizeof sketches, IG_PLACE_CACHE, "sketches") ? sketches : "",
                   o->kv_sketch.n ? o->kv_sketch.v[0] : "", o->api_key_file ? o->api_key_file : "",
                   o->chat_template ? o->chat_template : "", linked[0], linked[1],
                   /* for libc and SQLite, and to find the address of --host */
                   "/dev/urandom", "/etc/localtime", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf",
                   "/etc/resolv.conf", "/etc/gai.conf"};
    size_t n = 0;
    ig_error err = {0};
    int code = ig_cli_find_model(model, sizeof model, o);
    for (int i = 0; i < adapters->n; i++) read[OTHERS + i] = adapters->list[i].path;
    if (!code) code = ig_cli_find_draft_model(draft, sizeof draft, o);
    if (code) return code;
    if (!o->alias) o->alias = o->hub;
    o->model = model, o->hub = NULL;
    if (*draft) o->draft_model = draft, o->draft_hub = NULL;
    snprintf(files, sizeof files, "%s", model);
    snprintf(drafts, sizeof drafts, "%s", draft);
    if (ig_cli_number_of_part(model)) folder_of(files); /* the others lie there */
    if (ig_cli_number_of_part(draft)) folder_of(drafts);
    find_linked(linked[0], model);
    if (*draft) find_linked(linked[1], draft);
    if (o->kv_store && mkdir(o->kv_store, 0700) != 0 && errno != EEXIST)
        return ig_cli_complain(o, "%s: %s", o->kv_store, strerror(errno));
    if (o->kv_store) own[n++] = o->kv_store;
    if ((o->kv_ram || o->kv_disk) && (own[n] = ig_cli_spill_folder(spill, o))) n++;
    if (o->unix_path) snprintf(at, sizeof at, "%s", o->unix_path);
    const ig_sandbox s = {.own = own, .read = read, .socket = o->unix_path ? folder_of(at) : NULL};
    return ig_sandbox_files(&s, &err) ? ig_cli_fail(o, &err) : IG_EXIT_OK;
}

static int close_files(ig_cli_options *o) {
    ig_cli_adapters adapters = {0};
    int code = ig_cli_read_adapters(&adapters, o);
    if (!code) code = close_all_but(o, &adapters);
    ig_cli_free_adapters(&adapters);
    return code;
}

/* It waits until the server takes signals. */
static void hold(int number) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
}

/* Clients hear of it while the model is opened, and a port that is taken is known before. */
static int open_and_serve(const ig_cli_options *o) {
    ig_cli_app app;
    ig_server_options options;
    ig_server *server;
    ig_error err = {0};
    int code = listen_options(&options, o);
    /* From here on there may be a socket in the file system, which does not stay behind. */
    ig_cli_catch_interrupts(!o->api_key_file);
    if (!code && ig_server_open(&server, &options, &err)) code = ig_cli_fail(o, &err);
    if (code) return code;
    code = ig_cli_open(&app, o, false);
    /* Until here they end the start; one that comes later ends the server once it has started. */
    hold(SIGINT);
    hold(SIGTERM);
    hold(SIGHUP);
    if (!code && ig_cli_interrupted()) code = ig_cli_fail(o, &(ig_error){IG_E_INTERRUPTED, "interrupted"});
    if (!code) code = serve(server, &options, &app);
    ig_server_close(server);
    return ig_cli_close(&app, code);
}

/* Each of the models that are here has a process of its own, which the options are for. */
static int serve_many(const ig_cli_options *o) {
    ig_cli_models models;
    ig_server_options options;
    ig_server *server;
    ig_error err = {0};
    int code = listen_options(&options, o);
    if (!code) code = ig_cli_models_find(&models, o);
    if (code) return code;
    options.models = models.list;
    options.n_models = models.n;
    options.most_models = o->models_max;
    options.sleep_seconds = o->sleep_idle;
    options.command = models.command;
    options.is_sandboxed = false;
    /* There may be a socket in the file system, which does not stay behind: the server takes them. */
    hold(SIGINT);
    hold(SIGTERM);
    hold(SIGHUP);
    if (ig_server_open(&server, &options, &err)) {
        code = ig_cli_fail(o, &err);
    } else {
        if (ig_server_run(server, &err)) code = ig_cli_fail(o, &err);
        ig_server_close(server);
    }
    ig_cli_models_free(&models);
    return code;
}

int ig_cli_serve(const ig_cli_options *o) {
    if (o->sandbox && strcmp(o->device, "cpu") != 0) {
        ig_cli_complain(o, "--sandbox lets no driver of a GPU through: leave it or --device out");
        return IG_EXIT_USAGE;
    }
    if (o->api_key_file) hold(SIGHUP);
    if (!o->model) return serve_many(o);
    ig_cli_options own = *o;
    int code = o->sandbox ? close_files(&own) : IG_EXIT_OK;
    if (code) return code;
    /* A connection is a thread. Of many arenas each would grow, for hours, to the most that any of them once needed. */
    mallopt(M_ARENA_MAX, 2);
    return open_and_serve(&own);
}
