/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen inspect`: what is in a model, what memory contexts take, and what its activations are over a text.
 */
#define _GNU_SOURCE
#include "cli/activations.h"
#include "cli/pairs.h"

#include <stdlib.h>
#include <string.h>

typedef struct type_sum {
    char type[32];
    int n_tensors;
    uint64_t bytes;
} type_sum;

enum { TYPES_MAX = 32 };

/* Tensors that are used by type, in order of first appearance; all of a model that can only be listed. */
static int sum_types(type_sum sums[TYPES_MAX], const ig_cli_app *app) {
    ig_tensor_info t;
    int n = 0;
    for (size_t i = 0; ig_model_tensor(app->model, i, &t); i++) {
        int k = 0;
        if (!t.is_used && !app->unusable.status) continue;
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

static void print_tensors(const ig_cli_app *app) {
    ig_tensor_info t;
    printf("\nTensors\n");
    for (size_t i = 0; ig_model_tensor(app->model, i, &t); i++) {
        char shape[128] = "", size[32];
        size_t n = 0;
        for (int d = 0; d < t.n_dims && d < 4; d++)
            n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%llu", d ? " x " : "", (unsigned long long)t.dims[d]);
        ig_cli_put("  ", 2);
        ig_cli_put(t.name, strlen(t.name));
        printf("%*s %-5s %-24s %10s%s\n", (int)(strlen(t.name) < 40 ? 40 - strlen(t.name) : 1), "", t.type, shape,
               ig_cli_size(size, t.bytes), t.is_used || app->unusable.status ? "" : "  not used");
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
    char state[32];
    printf("\nArchitecture  %s, %d layers, %d heads (%d KV), head dimension %d, width %d, FFN %d\n", m->architecture,
           m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim, m->d_model, m->d_ff);
    if (m->state_bytes)
        printf("Attention     in %d layers; %s carry a state, %s of each sequence\n", m->n_attention_layers,
               m->n_attention_layers < m->n_layers ? "the others" : "all", ig_cli_size(state, m->state_bytes));
    if (m->n_sharing_layers)
        printf("Attention     %d layers have keys and values; the last %d read those of others\n",
               m->n_attention_layers, m->n_sharing_layers);
    if (m->index_block)
        printf("Indexer       %d heads of %d choose %d blocks of %d entries of each KV head\n", m->n_index_heads,
               m->index_dim, m->n_index_chosen / m->index_block, m->index_block);
    else if (m->n_index_heads)
        printf("Indexer       %d heads of %d choose %d entries of a layer\n", m->n_index_heads, m->index_dim,
               m->n_index_chosen);
    char where[48] = "each layer";
    if (m->n_expert_layers < m->n_layers) snprintf(where, sizeof where, "each of %d layers", m->n_expert_layers);
    if (m->n_experts)
        printf("Experts       %d in %s, %d for a token%s\n", m->n_experts, where, m->n_experts_used,
               m->d_ff_shared ? " and one for all" : "");
    printf("Vocabulary    %d tokens%s\n", m->n_vocab, m->has_tokenizer ? "" : ", no tokenizer");
    printf("Context       %d tokens", m->n_ctx_train);
    if (m->sliding_window) printf(", sliding window %d", m->sliding_window);
    if (m->local_kv_heads) printf(" (%d KV heads of %d there)", m->local_kv_heads, m->local_head_dim);
    for (int i = 0; i < m->n_adapters; i++) {
        printf("\nAdapter       ");
        ig_cli_put(m->adapters[i].path, strlen(m->adapters[i].path));
        printf(", %g times", m->adapters[i].scale);
    }
    printf("\nChat          %s\n", m->chat_error ? m->chat_error : m->chat_template ? "by its own template" : "none");
}

/* What the memory of one of several choices is. */
typedef struct choice {
    const ig_cli_pair *pair;
    int batch; /* sequences */
    ig_cache_plan_info plan;
} choice;

typedef struct choices {
    choice *v; /* [n]; none of a model that can only be listed */
    int n;
} choices;

/* Every pair in every context with every number of sequences; free() them. The exit code. */
static int plan_all(choices *out, ig_cli_app *app, const ig_cli_pairs *pairs) {
    const ig_cli_options *o = app->o;
    ig_session_options options = ig_cli_session_options(app);
    ig_error err = {0};
    out->v = calloc((size_t)(pairs->n * o->contexts.n * o->batches.n), sizeof *out->v);
    if (!out->v) return ig_cli_complain(o, "out of memory");
    for (int p = 0; p < pairs->n; p++)
        for (int c = 0; c < o->contexts.n; c++)
            for (int b = 0; b < o->batches.n; b++) {
                choice *x = &out->v[out->n++];
                *x = (choice){.pair = &pairs->v[p], .batch = o->batches.v[b]};
                options.cache = x->pair->cache;
                options.cache.memory.n_sessions = x->batch > 1 ? x->batch : 0;
                options.n_ctx = o->contexts.v[c];
                if (ig_cache_plan(&x->plan, app->model, &options, &err)) return ig_cli_fail(o, &err);
            }
    return IG_EXIT_OK;
}

static void print_choices(const ig_cli_app *app, const choices *all) {
    char budget[32], settings[96], a[7][32];
    bool has_gpu = all->v->plan.gpu.total > 0;
    printf("\nMemory\n\n| %-16s | %7s | %-20s | %7s | %5s | %9s | %9s | %9s | %9s | %9s |%s\n", "policy", "budget",
           "settings", "context", "batch", "weights", "KV", "sketch", "scratch", "total",
           has_gpu ? "    on GPU | page-locked |" : "");
    printf(
        "| :--------------- | ------: | :------------------- | ------: | ----: | --------: | --------: | --------: | "
        "--------: | --------: |%s\n",
        has_gpu ? " --------: | ----------: |" : "");
    for (int i = 0; i < all->n; i++) {
        const choice *x = &all->v[i];
        const ig_cache_plan_info *p = &x->plan;
        printf("| %-16s | %7s | %-20s | %7d | %5d | %9s | %9s | %9s | %9s | %9s |", x->pair->cache.policy,
               ig_cli_pair_budget(budget, x->pair), ig_cli_pair_settings(settings, x->pair, p->n_ctx, app->o), p->n_ctx,
               x->batch, ig_cli_size(a[0], p->weights), ig_cli_size(a[1], p->kv), ig_cli_size(a[2], p->sketch),
               ig_cli_size(a[3], p->scratch), ig_cli_size(a[4], p->total));
        if (has_gpu) printf(" %9s | %11s |", ig_cli_size(a[5], p->gpu.total), ig_cli_size(a[6], p->locked.total));
        putchar('\n');
    }
}

/* The memory that a device has free; 0: there is no such device. */
static uint64_t free_of(const char *device) {
    ig_device_info d;
    for (size_t i = 0; ig_device_at(i, &d); i++)
        if (strcmp(d.device, device) == 0) return d.free_bytes;
    return 0;
}

/* Of weights that do not all fit, what every step reads. */
static void print_streamed(const ig_cli_app *app, const ig_weight_stats *st) {
    char a[32];
    const char *way = st->vram_bytes ? "copied" : "read";
    ig_cli_size(a, st->step_bytes);
    if (st->n_streamed_layers && st->n_experts)
        printf("  (%d layers of %d, without their experts, are %s in every step)\n", st->n_streamed_layers,
               app->info.n_layers, way);
    else if (!st->n_experts)
        printf("  (%d layers of %d are %s in every step, %s)\n", st->n_streamed_layers, app->info.n_layers, way, a);
    if (st->n_experts)
        printf("  (%d experts of %d at a time; in a step of one token up to %s are %s)\n", st->n_held_experts,
               st->n_experts, a, way);
}

/* What lies where: on the GPU, page-locked for it, and in other memory of the host. */
static void print_places(const ig_cli_app *app, const ig_cache_plan_info *plan, const ig_weight_stats *streamed) {
    const ig_plan_place *g = &plan->gpu, *l = &plan->locked;
    const struct {
        const char *name;
        uint64_t gpu, locked, all;
    } rows[] = {{"weights", g->weights, l->weights, plan->weights - g->slots},
                {"slots", g->slots, l->slots, g->slots},
                {"KV", g->kv, l->kv, plan->kv + g->kv},
                {"sketch", g->sketch, l->sketch, plan->sketch + g->sketch},
                {"scratch", g->scratch, l->scratch, plan->scratch},
                {"total", g->total, l->total, plan->total}};
    const char *device = ig_context_device(app->ctx);
    uint64_t left = free_of(device);
    char a[3][32];
    printf("%21s %12s %12s\n", device, "page-locked", "host");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("  %-8s %10s %12s %12s\n", rows[i].name, ig_cli_size(a[0], rows[i].gpu),
               ig_cli_size(a[1], rows[i].locked), ig_cli_size(a[2], rows[i].all - rows[i].gpu - rows[i].locked));
    if (streamed->step_bytes) print_streamed(app, streamed);
    if (left)
        printf("  free     %10s %25s\n", ig_cli_size(a[0], left), ig_cli_size(a[1], free_of("cpu")));
    else
        printf("  (%s is not here)\n", device);
}

static void print_plan(const ig_cli_app *app, const ig_cache_plan_info *plan, const char *policy) {
    char a[32];
    printf("\nMemory for a context of %d tokens, policy %s\n", plan->n_ctx, policy);
    ig_weight_stats streamed;
    ig_model_get_weight_stats(app->model, &streamed);
    if (plan->gpu.total) {
        print_places(app, plan, &streamed);
        return;
    }
    printf("  weights  %10s", ig_cli_size(a, plan->weights));
    if (app->o->no_mmap)
        printf("  (copied)\n");
    else if (streamed.ram_bytes)
        print_streamed(app, &streamed);
    else
        printf("  (%s repacked, the rest mapped from the file)\n", ig_cli_size(a, app->info.private_bytes));
    printf("  KV       %10s\n", ig_cli_size(a, plan->kv));
    printf("  sketch   %10s\n", ig_cli_size(a, plan->sketch));
    printf("  scratch  %10s\n", ig_cli_size(a, plan->scratch));
    if (plan->drafts) printf("  drafts   %10s\n", ig_cli_size(a, plan->drafts));
    printf("  total    %10s\n", ig_cli_size(a, plan->total));
}

static void print_text(const ig_cli_app *app, const choices *all, const json_t *activations) {
    const ig_model_info *m = &app->info;
    const char *name = m->name[0] ? m->name : app->path;
    char a[32];
    printf("Model         ");
    ig_cli_put(name, strlen(name));
    if (all->n) {
        print_model(m);
    } else {
        printf("\nArchitecture  ");
        ig_cli_put(m->architecture, strlen(m->architecture));
        printf("\nNot run here  %s\n", app->unusable.text);
    }
    printf("Parameters    %.1f million in %s\n", (double)m->n_params / 1e6, ig_cli_size(a, m->weight_bytes));

    type_sum sums[TYPES_MAX];
    int n = sum_types(sums, app);
    printf("\nTensor types\n");
    for (int i = 0; i < n; i++)
        printf("  %-8s %5d  %10s\n", sums[i].type, sums[i].n_tensors, ig_cli_size(a, sums[i].bytes));
    if (all->n == 1) print_plan(app, &all->v->plan, all->v->pair->cache.policy);
    if (all->n > 1) print_choices(app, all);
    print_meta(app->model);
    if (app->o->tensors) print_tensors(app);
    if (activations) ig_cli_print_activations(activations);
}

static json_t *json_of_meta(const ig_model *model) {
    json_t *meta = json_object();
    const char *key;
    char value[4096];
    for (size_t i = 0; ig_model_meta(model, i, &key, value, sizeof value); i++)
        json_object_set_new(meta, key, ig_text_string(value));
    return meta;
}

static json_t *json_of_tensors(const ig_cli_app *app) {
    json_t *list = json_array();
    ig_tensor_info t;
    for (size_t i = 0; ig_model_tensor(app->model, i, &t); i++) {
        json_t *dims = json_array();
        for (int d = 0; d < t.n_dims && d < 4; d++) json_array_append_new(dims, json_integer((json_int_t)t.dims[d]));
        json_t *tensor = json_object();
        json_object_set_new(tensor, "name", ig_text_string(t.name));
        json_object_set_new(tensor, "type", json_string(t.type));
        json_object_set_new(tensor, "dims", dims);
        json_object_set_new(tensor, "bytes", json_integer((json_int_t)t.bytes));
        if (!app->unusable.status) json_object_set_new(tensor, "used", json_boolean(t.is_used));
        json_array_append_new(list, tensor);
    }
    return list;
}

static void add_model(json_t *r, const ig_model_info *m) {
    const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {
        {"n_layers", m->n_layers},
        {"n_attention_layers", m->n_attention_layers},
        {"n_sharing_layers", m->n_sharing_layers},
        {"state_bytes", (json_int_t)m->state_bytes},
        {"n_heads", m->n_heads},
        {"n_kv_heads", m->n_kv_heads},
        {"head_dim", m->head_dim},
        {"d_model", m->d_model},
        {"d_ff", m->d_ff},
        {"n_vocab", m->n_vocab},
        {"n_ctx_train", m->n_ctx_train},
        {"sliding_window", m->sliding_window},
        {"local_kv_heads", m->local_kv_heads},
        {"local_head_dim", m->local_head_dim},
        {"index_heads", m->n_index_heads},
        {"index_dim", m->index_dim},
        {"index_chosen", m->n_index_chosen},
        {"index_block", m->index_block},
        {"n_experts", m->n_experts},
        {"n_experts_used", m->n_experts_used},
        {"n_expert_layers", m->n_expert_layers},
        {"d_ff_shared", m->d_ff_shared},
    };
    json_t *adapters = json_array();
    for (int i = 0; i < m->n_adapters; i++)
        json_array_append_new(adapters,
                              json_pack("{s:o, s:o, s:f}", "name", ig_text_string(m->adapters[i].name), "path",
                                        ig_text_string(m->adapters[i].path), "scale", m->adapters[i].scale));
    json_object_set_new(r, "adapters", adapters);
    json_object_set_new(r, "chat_format", json_string(m->chat_template && !m->chat_error ? "jinja" : ""));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(r, numbers[i].name, json_integer(numbers[i].value));
}

static json_t *json_of_place(const ig_plan_place *p) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)p->weights, "slots", (json_int_t)p->slots,
                     "kv", (json_int_t)p->kv, "sketch", (json_int_t)p->sketch, "scratch", (json_int_t)p->scratch,
                     "total", (json_int_t)p->total);
}

static json_t *json_of_plan(const ig_cache_plan_info *plan, const ig_model_info *m) {
    json_t *json =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "weights", (json_int_t)plan->weights, "private",
                  (json_int_t)m->private_bytes, "kv", (json_int_t)plan->kv, "sketch", (json_int_t)plan->sketch,
                  "scratch", (json_int_t)plan->scratch, "total", (json_int_t)plan->total);
    if (plan->drafts) json_object_set_new(json, "drafts", json_integer((json_int_t)plan->drafts));
    if (plan->gpu.total) {
        json_object_set_new(json, "gpu", json_of_place(&plan->gpu));
        json_object_set_new(json, "page_locked", json_of_place(&plan->locked));
    }
    return json;
}

static json_t *json_of_choices(const choices *all, const ig_model_info *m) {
    json_t *list = json_array();
    for (int i = 0; i < all->n; i++) {
        const choice *x = &all->v[i];
        json_t *json = json_pack("{s:i, s:i, s:o}", "context", x->plan.n_ctx, "batch", x->batch, "memory",
                                 json_of_plan(&x->plan, m));
        ig_cli_pair_fields(json, x->pair, x->plan.n_ctx);
        json_array_append_new(list, json);
    }
    return list;
}

static int print_object(const ig_cli_app *app, const choices *all, json_t *activations) {
    const ig_model_info *m = &app->info;
    json_t *r = json_object();
    json_object_set_new(r, "model", ig_text_string(app->path));
    json_object_set_new(r, "name", ig_text_string(m->name));
    json_object_set_new(r, "architecture", ig_text_string(m->architecture));
    json_object_set_new(r, "n_params", json_integer((json_int_t)m->n_params));
    if (all->n) {
        add_model(r, m);
        json_object_set_new(r, "policy", json_string(all->v->pair->cache.policy));
        json_object_set_new(r, "context", json_integer(all->v->plan.n_ctx));
        json_object_set_new(r, "memory", json_of_plan(&all->v->plan, m));
        if (all->n > 1) json_object_set_new(r, "plans", json_of_choices(all, m));
        ig_cli_report_weights(r, app);
    } else {
        json_object_set_new(r, "unsupported", ig_text_string(app->unusable.text));
    }

    json_t *types = json_object();
    type_sum sums[TYPES_MAX];
    int n = sum_types(sums, app);
    for (int i = 0; i < n; i++)
        json_object_set_new(types, sums[i].type,
                            json_pack("{s:i, s:I}", "tensors", sums[i].n_tensors, "bytes", (json_int_t)sums[i].bytes));
    json_object_set_new(r, "tensor_types", types);
    json_object_set_new(r, "metadata", json_of_meta(app->model));
    if (app->o->tensors) json_object_set_new(r, "tensors", json_of_tensors(app));
    if (activations) json_object_set(r, "activations", activations);
    return ig_cli_print_json(r);
}

int ig_cli_inspect(const ig_cli_options *o) {
    ig_cli_app app;
    ig_cli_pairs pairs = {0};
    choices all = {0};
    json_t *activations = NULL;
    int code = ig_cli_open(&app, o, false);
    if (!code && !app.unusable.status) {
        ig_session_options options = ig_cli_session_options(&app);
        code = ig_cli_open_pairs(&pairs, &app, &options.cache);
        if (!code) code = plan_all(&all, &app, &pairs);
    }
    if (!code) code = ig_cli_measure_activations(&activations, &app);
    if (!code && o->json)
        code = print_object(&app, &all, activations);
    else if (!code)
        print_text(&app, &all, activations);
    json_decref(activations);
    free(all.v);
    ig_cli_close_pairs(&pairs);
    return ig_cli_close(&app, code);
}
