/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters by request: "lora" says how much of each a request takes, as llama-server's clients do, or its "model" is
 * the name of one, as vLLM's. Requests that say nothing take what the server was started with, or was told last.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api.h"
#include "server/routes.h"

static const double most_scale = 1000;

/* ---- the server's -------------------------------------------------------------------------- */

static size_t n_adapters(const ig_server *s) { return (size_t)s->info.n_adapters; }

ig_status ig_server_open_adapters(ig_server *s, ig_error *err) {
    s->adapters.names = json_array();
    s->adapters.scales = calloc(n_adapters(s) + 1, sizeof *s->adapters.scales);
    bool ok = s->adapters.names && s->adapters.scales;
    for (size_t i = 0; ok && i < n_adapters(s); i++) {
        s->adapters.scales[i] = (float)s->info.adapters[i].scale;
        ok = json_array_append_new(s->adapters.names, ig_text_string(s->info.adapters[i].name)) == 0;
    }
    return ok ? IG_OK : ig_text_fail(err, IG_E_MEMORY, "out of memory for a list of adapters");
}

void ig_server_close_adapters(ig_server *s) {
    json_decref(s->adapters.names);
    free(s->adapters.scales);
    s->adapters.names = NULL;
    s->adapters.scales = NULL;
}

const char *ig_server_adapter(const ig_server *s, size_t i) {
    return json_string_value(json_array_get(s->adapters.names, i));
}

static bool is_name(const char *own, const char *name, size_t n) { return strncmp(own, name, n) == 0 && !own[n]; }

/* Its number, or of none n_adapters(): the model's own name comes before theirs. */
static size_t find(const ig_server *s, const char *name, size_t n) {
    size_t i = is_name(s->o->alias, name, n) ? n_adapters(s) : 0;
    while (i < n_adapters(s) && !is_name(ig_server_adapter(s, i), name, n)) i++;
    return i;
}

const char *ig_server_own_name(const ig_server *s, const char *name, size_t n) {
    return is_name(s->o->alias, name, n) ? s->o->alias : ig_server_adapter(s, find(s, name, n));
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* What a list says, to scales [n_adapters]; of those that are not in it nothing is taken. */
static bool read_list(ig_call *c, const json_t *list, const char *name, float *scales) {
    static const char *const known[] = {"id", "scale", NULL};
    const ig_server *s = c->server;
    json_t *item;
    size_t i;
    if (!json_is_array(list)) return ig_refuse(c, 400, name, "%s must be a list of adapters", name);
    memset(scales, 0, n_adapters(s) * sizeof *scales);
    if (json_array_size(list) > n_adapters(s))
        return ig_refuse(c, 400, name, "%s has more than the server's %d adapters", name, s->info.n_adapters);
    json_array_foreach(list, i, item) {
        int64_t id = -1;
        double scale = 0;
        if (!json_is_object(item) || !ig_field(item, "id") || !ig_field(item, "scale"))
            return ig_refuse(c, 400, name, "%s: item %zu must be an object with \"id\" and \"scale\"", name, i);
        if (!ig_field_others(c, item, "lora.", known) ||
            !ig_field_number(c, item, "scale", -most_scale, most_scale, &scale))
            return false;
        if (!ig_json_whole(ig_field(item, "id"), &id) || id < 0 || id >= s->info.n_adapters)
            return ig_refuse(c, 400, name,
                             "%s: item %zu: there is no such adapter, of %d: GET /lora-adapters lists them", name, i,
                             s->info.n_adapters);
        scales[id] = (float)scale;
    }
    return true;
}

static void copy_defaults(ig_server *s, float *scales) {
    pthread_mutex_lock(&s->lock);
    memcpy(scales, s->adapters.scales, n_adapters(s) * sizeof *scales);
    pthread_mutex_unlock(&s->lock);
}

/* ---- of a request -------------------------------------------------------------------------------- */

bool ig_exchange_read_adapters(ig_exchange *x) {
    ig_server *s = x->call->server;
    const json_t *list = ig_field(x->body, "lora");
    const char *name = json_string_value(ig_field(x->body, "model"));
    size_t named = name ? find(s, name, strlen(name)) : n_adapters(s);
    x->model_name = named < n_adapters(s) ? ig_server_adapter(s, named) : s->o->alias;
    x->adapter_scales = calloc(n_adapters(s) + 1, sizeof *x->adapter_scales);
    if (!x->adapter_scales) return ig_refuse(x->call, 500, NULL, "out of memory for a list of adapters");
    x->ask.adapter_scales = x->adapter_scales;
    if (list) return read_list(x->call, list, "lora", x->adapter_scales);
    if (named < n_adapters(s))
        x->adapter_scales[named] = 1;
    else
        copy_defaults(s, x->adapter_scales);
    return true;
}

/* ---- the route ---------------------------------------------------------------------------------- */

static void tell(ig_call *c) {
    ig_server *s = c->server;
    json_t *list = json_array();
    float *scales = calloc(n_adapters(s) + 1, sizeof *scales);
    if (scales) copy_defaults(s, scales);
    for (size_t i = 0; scales && i < n_adapters(s); i++)
        json_array_append_new(list, json_pack("{s:i, s:s, s:o, s:f, s:s, s:s}", "id", (int)i, "name",
                                              ig_server_adapter(s, i), "path", ig_text_string(s->info.adapters[i].path),
                                              "scale", (double)scales[i], "task_name", "", "prompt_prefix", ""));
    bool is_whole = scales && json_array_size(list) == n_adapters(s);
    free(scales);
    if (!is_whole) json_decref(list);
    ig_reply_json(c, is_whole ? list : NULL);
}

static void change(ig_call *c) {
    ig_server *s = c->server;
    json_t *list = ig_body(c, JSON_ARRAY);
    float *scales = list ? calloc(n_adapters(s) + 1, sizeof *scales) : NULL;
    if (list && !scales) ig_refuse(c, 500, NULL, "out of memory for a list of adapters");
    if (scales && read_list(c, list, "the body", scales)) {
        pthread_mutex_lock(&s->lock);
        memcpy(s->adapters.scales, scales, n_adapters(s) * sizeof *scales);
        pthread_mutex_unlock(&s->lock);
        ig_reply_json(c, json_pack("{s:b}", "success", 1));
    }
    free(scales);
    json_decref(list);
}

void ig_route_adapters(ig_call *c) {
    if (c->is_post)
        change(c);
    else
        tell(c);
}
