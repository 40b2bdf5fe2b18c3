/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen inspect`: what is in a model, and what memory a context takes.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <string.h>

typedef struct type_sum {
    char type[32];
    int n_tensors;
    uint64_t bytes;
} type_sum;

enum { TYPES_MAX = 32 };

/* Tensors by type, in order of first appearance. */
static int sum_types(type_sum sums[TYPES_MAX], const ig_model *model) {
    ig_tensor_info t;
    int n = 0;
    for (size_t i = 0; ig_model_tensor(model, i, &t); i++) {
        int k = 0;
        while (k < n && strcmp(sums[k].type, t.type) != 0) k++;
        if (k == TYPES_MAX) continue;
        if (k == n) {
            sums[n++] = (type_sum){.n_tensors = 0};
            snprintf(sums[k].type, sizeof sums[k].type, "%s", t.type);
        }
        sums[k].n_tensors++;
        sums[k].bytes += t.bytes;
    }
    return n;
}

static void print_tensors(const ig_model *model) {
    ig_tensor_info t;
    printf("\nTensors\n");
    for (size_t i = 0; ig_model_tensor(model, i, &t); i++) {
        char shape[128] = "", size[32];
        size_t n = 0;
        for (int d = 0; d < t.n_dims && d < 4; d++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%llu", d ? " x " : "", (unsigned long long)t.dims[d]);
        ig_cli_put("  ", 2);
        ig_cli_put(t.name, strlen(t.name));
        printf("%*s %-5s %-24s %10s\n", (int)(strlen(t.name) < 40 ? 40 - strlen(t.name) : 1), "", t.type, shape,
               ig_cli_size(size, t.bytes));
    }
}

static void print_meta(const ig_model *model) {
    const char *key;
    char value[256];
    printf("\nMetadata\n");
    for (size_t i = 0; ig_model_meta(model, i, &key, value, sizeof value); i++) {
        for (char *p = value; *p; p++)
            if (*p == '\n' || *p == '\t') *p = ' ';
        ig_cli_put("  ", 2);
        ig_cli_put(key, strlen(key));
        printf("%*s ", (int)(strlen(key) < 44 ? 44 - strlen(key) : 1), "");
        ig_cli_put(value, strnlen(value, 100));
        putchar('\n');
    }
}

static void print_model(const ig_model_info *m) {
    printf("\nArchitecture  %s, %d layers, %d heads (%d KV), head dimension %d, width %d, FFN %d\n", m->architecture,
           m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim, m->d_model, m->d_ff);
    printf("Vocabulary    %d tokens%s\n", m->n_vocab, m->has_tokenizer ? "" : ", no tokenizer");
    printf("Context       %d tokens", m->n_ctx_train);
    if (m->sliding_window) printf(", sliding window %d", m->sliding_window);
    printf("\nChat          %s\n", m->chat_format[0]      ? m->chat_format
                                   : m->has_chat_template ? "template not recognised"
                                                          : "none");
}

static void print_plan(const ig_cli_app *app, const ig_cache_plan_info *plan, const char *policy) {
    char a[32];
    printf("\nMemory for a context of %d tokens, policy %s\n", plan->n_ctx, policy);
    printf("  weights  %10s", ig_cli_size(a, plan->weights));
    if (app->o->no_mmap)
        printf("  (copied)\n");
    else
        printf("  (%s repacked, the rest mapped from the file)\n", ig_cli_size(a, app->info.private_bytes));
    printf("  KV       %10s\n", ig_cli_size(a, plan->kv));
    printf("  sketch   %10s\n", ig_cli_size(a, plan->sketch));
    printf("  scratch  %10s\n", ig_cli_size(a, plan->scratch));
    printf("  total    %10s\n", ig_cli_size(a, plan->total));
}

/* `plan` is NULL of a model that can only be listed. */
static void print_text(const ig_cli_app *app, const ig_cache_plan_info *plan, const char *policy) {
    const ig_model_info *m = &app->info;
    const char *name = m->name[0] ? m->name : app->path;
    char a[32];
    printf("Model         ");
    ig_cli_put(name, strlen(name));
    if (plan) {
        print_model(m);
    } else {
        printf("\nArchitecture  ");
        ig_cli_put(m->architecture, strlen(m->architecture));
        printf("\nNot run here  %s\n", app->unusable.text);
    }
    printf("Parameters    %.1f million in %s\n", (double)m->n_params / 1e6, ig_cli_size(a, m->weight_bytes));

    type_sum sums[TYPES_MAX];
    int n = sum_types(sums, app->model);
    printf("\nTensor types\n");
    for (int i = 0; i < n; i++)
        printf("  %-8s %5d  %10s\n", sums[i].type, sums[i].n_tensors, ig_cli_size(a, sums[i].bytes));
    if (plan) print_plan(app, plan, policy);
    print_meta(app->model);
    if (app->o->tensors) print_tensors(app->model);
}

static json_t *json_of_meta(const ig_model *model) {
    json_t *meta = json_object();
    const char *key;
    char value[4096];
    for (size_t i = 0; ig_model_meta(model, i, &key, value, sizeof value); i++)
        json_object_set_new(meta, key, ig_cli_json_text(value, strlen(value)));
    return meta;
}

static json_t *json_of_tensors(const ig_model *model) {
    json_t *list = json_array();
    ig_tensor_info t;
    for (size_t i = 0; ig_model_tensor(model, i, &t); i++) {
        json_t *dims = json_array();
        for (int d = 0; d < t.n_dims && d < 4; d++) json_array_append_new(dims, json_integer((json_int_t)t.dims[d]));
        json_t *tensor = json_object();
        json_object_set_new(tensor, "name", ig_cli_json_text(t.name, strlen(t.name)));
        json_object_set_new(tensor, "type", json_string(t.type));
        json_object_set_new(tensor, "dims", dims);
        json_object_set_new(tensor, "bytes", json_integer((json_int_t)t.bytes));
        json_array_append_new(list, tensor);
    }
    return list;
}

static void add_model(json_t *r, const ig_model_info *m) {
    const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {
        {"n_layers", m->n_layers}, {"n_heads", m->n_heads},         {"n_kv_heads", m->n_kv_heads},
        {"head_dim", m->head_dim}, {"d_model", m->d_model},         {"d_ff", m->d_ff},
        {"n_vocab", m->n_vocab},   {"n_ctx_train", m->n_ctx_train}, {"sliding_window", m->sliding_window},
    };
    json_object_set_new(r, "chat_format", json_string(m->chat_format));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(r, numbers[i].name, json_integer(numbers[i].value));
}

static void add_plan(json_t *r, const ig_cache_plan_info *plan, const ig_model_info *m, const char *policy) {
    json_object_set_new(r, "policy", json_string(policy));
    json_object_set_new(r, "context", json_integer(plan->n_ctx));
    json_object_set_new(
        r, "memory",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)plan->weights, "private",
                  (json_int_t)m->private_bytes, "kv", (json_int_t)plan->kv, "sketch", (json_int_t)plan->sketch,
                  "scratch", (json_int_t)plan->scratch, "total", (json_int_t)plan->total));
}

static int print_object(const ig_cli_app *app, const ig_cache_plan_info *plan, const char *policy) {
    const ig_model_info *m = &app->info;
    json_t *r = json_object();
    json_object_set_new(r, "model", ig_cli_json_text(app->path, strlen(app->path)));
    json_object_set_new(r, "name", ig_cli_json_text(m->name, strlen(m->name)));
    json_object_set_new(r, "architecture", ig_cli_json_text(m->architecture, strlen(m->architecture)));
    json_object_set_new(r, "n_params", json_integer((json_int_t)m->n_params));
    if (plan) {
        add_model(r, m);
        add_plan(r, plan, m, policy);
    } else {
        json_object_set_new(r, "unsupported", ig_cli_json_text(app->unusable.text, strlen(app->unusable.text)));
    }

    json_t *types = json_object();
    type_sum sums[TYPES_MAX];
    int n = sum_types(sums, app->model);
    for (int i = 0; i < n; i++)
        json_object_set_new(types, sums[i].type,
                            json_pack("{s:i, s:I}", "tensors", sums[i].n_tensors, "bytes", (json_int_t)sums[i].bytes));
    json_object_set_new(r, "tensor_types", types);
    json_object_set_new(r, "metadata", json_of_meta(app->model));
    if (app->o->tensors) json_object_set_new(r, "tensors", json_of_tensors(app->model));
    return ig_cli_print_json(r);
}

int ig_cli_inspect(const ig_cli_options *o) {
    ig_cli_app app;
    ig_cache_plan_info plan;
    ig_error err = {0};
    int code = ig_cli_open(&app, o, false);
    if (!code) {
        bool is_usable = app.unusable.status == IG_OK;
        ig_session_options options = ig_cli_session_options(&app);
        if (is_usable && ig_cache_plan(&plan, app.model, &options, &err))
            code = ig_cli_fail(o, &err);
        else if (o->json)
            code = print_object(&app, is_usable ? &plan : NULL, options.cache.policy);
        else
            print_text(&app, is_usable ? &plan : NULL, options.cache.policy);
    }
    return ig_cli_close(&app, code);
}
