/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters by request: "lora" says how much of each a request takes, as llama-server's clients do, or its "model" is
 * the name of one, as vLLM's. Requests that say nothing take what the server was started with, or was told last.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/routes.h"

/* ---- the server's -------------------------------------------------------------------------- */

static size_t n_adapters(const ig_server *s) { return (size_t)s->info.n_adapters; }

/* Of two that are called the same the first one is meant. */
static void warn_of_names(const ig_server *s) {
    const char *name;
    for (size_t i = 1; (name = ig_server_name(s, i)); i++)
        if (ig_server_find(s, name, strlen(name)) != (int)i)
            ig_server_say(s, "an adapter is called '%s', as another or the model is: no request gets it by its name",
                          name);
}

ig_status ig_server_open_adapters(ig_server *s, ig_error *err) {
    ig_server_adapters *a = &s->adapters;
    a->names = json_pack("[s]", s->o->alias);
    a->scales = calloc(n_adapters(s) + 1, sizeof *a->scales);
    bool ok = a->names && a->scales;
    for (size_t i = 0; ok && i < n_adapters(s); i++) {
        a->scales[i] = s->info.adapters[i].scale;
        ok = json_array_append_new(a->names, ig_text_string(s->info.adapters[i].name)) == 0;
    }
    if (!ok) return ig_text_fail(err, IG_E_MEMORY, "out of memory for a list of adapters");
    warn_of_names(s);
    return IG_OK;
}

void ig_server_close_adapters(ig_server *s) {
    json_decref(s->adapters.names);
    free(s->adapters.scales);
    s->adapters = (ig_server_adapters){NULL, NULL};
}

const char *ig_server_name(const ig_server *s, size_t i) {
    return json_string_value(json_array_get(s->adapters.names, i));
}

int ig_server_find(const ig_server *s, const char *name, size_t n) {
    const char *own;
    for (size_t i = 0; (own = ig_server_name(s, i)); i++)
        if (strncmp(own, name, n) == 0 && !own[n]) return (int)i;
    return -1;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What a list says, which is a field or (NULL) the body, to scales [n_adapters]; of those that are not in it nothing is
 * taken. */
static bool read_list(ig_call *c, const json_t *list, const char *field, double *scales) {
    static const char *const known[] = {"id", "scale", NULL};
    const ig_server *s = c->server;
    const char *name = field ? field : "the body";
    json_t *item;
    size_t i;
    if (!json_is_array(list)) return ig_refuse(c, 400, field, "%s must be a list of adapters", name);
    memset(scales, 0, n_adapters(s) * sizeof *scales);
    if (json_array_size(list) > n_adapters(s))
        return ig_refuse(c, 400, field, "%s has more than the server's %d adapters", name, s->info.n_adapters);
    json_array_foreach(list, i, item) {
        int64_t id = -1;
        double scale = 0;
        if (!json_is_object(item) || !ig_field(item, "id") || !ig_field(item, "scale"))
            return ig_refuse(c, 400, field, "%s: item %zu must be an object with \"id\" and \"scale\"", name, i);
        if (!ig_field_others(c, item, "lora.", known) ||
            !ig_field_number(c, item, "scale", -IG_ADAPTER_SCALE_MAX, IG_ADAPTER_SCALE_MAX, &scale))
            return false;
        if (!ig_json_whole(ig_field(item, "id"), &id) || id < 0 || id >= s->info.n_adapters)
            return ig_refuse(c, 400, field,
                             "%s: item %zu: there is no such adapter, of %d: GET /lora-adapters lists them", name, i,
                             s->info.n_adapters);
        scales[id] = scale;
    }
    return true;
}

static void copy_defaults(ig_server *s, double *scales) {
    pthread_mutex_lock(&s->lock);
    memcpy(scales, s->adapters.scales, n_adapters(s) * sizeof *scales);
    pthread_mutex_unlock(&s->lock);
}

/* ---- of a request -------------------------------------------------------------------------------- */

bool ig_exchange_read_adapters(ig_exchange *x) {
    ig_server *s = x->call->server;
    const json_t *list = ig_field(x->body, "lora");
    const char *name = json_string_value(ig_field(x->body, "model"));
    int named = name ? ig_server_find(s, name, strlen(name)) : 0;
    double scales[IG_ADAPTERS_MAX] = {0};
    x->model_name = ig_server_name(s, named > 0 ? (size_t)named : 0);
    x->adapter_scales = calloc(n_adapters(s) + 1, sizeof *x->adapter_scales);
    if (!x->adapter_scales) return ig_refuse(x->call, 500, NULL, "out of memory for a list of adapters");
    if (!list && named > 0)
        scales[named - 1] = s->o->adapter_scales ? s->o->adapter_scales[named - 1] : 1;
    else if (!list)
        copy_defaults(s, scales);
    else if (!read_list(x->call, list, "lora", scales))
        return false;
    for (size_t i = 0; i < n_adapters(s); i++) x->adapter_scales[i] = (float)scales[i];
    x->ask.adapter_scales = x->adapter_scales;
    return true;
}

/* ---- the route ---------------------------------------------------------------------------------- */

static void tell(ig_call *c) {
    ig_server *s = c->server;
    json_t *list = json_array();
    double scales[IG_ADAPTERS_MAX];
    bool ok = true;
    copy_defaults(s, scales);
    for (size_t i = 0; ok && i < n_adapters(s); i++)
        ok = json_array_append_new(
                 list, json_pack("{s:i, s:s, s:o, s:f, s:s, s:s}", "id", (int)i, "name", ig_server_name(s, i + 1),
                                 "path", ig_text_string(s->info.adapters[i].path), "scale", scales[i], "task_name", "",
                                 "prompt_prefix", "")) == 0;
    ig_reply_json(c, ig_json_if(ok, list));
}

static void change(ig_call *c) {
    ig_server *s = c->server;
    json_t *list = ig_body(c, JSON_ARRAY);
    double scales[IG_ADAPTERS_MAX];
    if (list && read_list(c, list, NULL, scales)) {
        pthread_mutex_lock(&s->lock);
        memcpy(s->adapters.scales, scales, n_adapters(s) * sizeof *scales);
        pthread_mutex_unlock(&s->lock);
        ig_reply_json(c, json_pack("{s:b}", "success", 1));
    }
    json_decref(list);
}

void ig_route_adapters(ig_call *c) {
    if (c->is_post)
        change(c);
    else
        tell(c);
}
