/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/activations.h"
#include "infinigen_tools.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { N_RATIOS = 4, N_COSINES = 3, DEFAULT_TOKENS = 2048 };

static const double ratios[N_RATIOS] = {0.1, 0.2, 0.3, 0.4}; /* of columns; the paper's is 0.3 */
static const char *const cosines[N_COSINES] = {"input", "attention", "ffn"};
static const struct {
    const char *name;
    size_t offset; /* of an ig_column_sums */
    bool skewed;
} parts[] = {{"q", offsetof(ig_head_activations, q), false},
             {"k", offsetof(ig_head_activations, k), false},
             {"q_skewed", offsetof(ig_head_activations, q_skewed), true},
             {"k_skewed", offsetof(ig_head_activations, k_skewed), true}};
enum { N_PARTS = sizeof parts / sizeof parts[0] };

/* Of a layer, or sums of them. */
typedef struct numbers {
    double cosine[N_COSINES];
    double energy[N_PARTS][N_RATIOS];
} numbers;

typedef struct measuring {
    const ig_cli_app *app;
    ig_cli_progress bar;
    numbers sum;
    double *column; /* [head_dim] scratch */
    json_t *layers;
} measuring;

/* ---- numbers -------------------------------------------------------------------- */

/* As the policy infinigen-osdi24 counts them. */
static int columns_of(double ratio, int head_dim) {
    int n = (int)(ratio * head_dim + 1e-9);
    return n ? n : 1;
}

static int by_falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Adds the share of the energy that lies in the first columns, after skewing, or else in the best ones. */
static void add_energy(double *shares, double *column, const double *energy, int head_dim, bool skewed) {
    double total = 0, part = 0;
    memcpy(column, energy, (size_t)head_dim * sizeof *column);
    if (!skewed) qsort(column, (size_t)head_dim, sizeof *column, by_falling);
    for (int i = 0; i < head_dim; i++) total += column[i];
    for (int r = 0, i = 0; r < N_RATIOS && total > 0; r++) {
        for (int n = columns_of(ratios[r], head_dim); i < n; i++) part += column[i];
        shares[r] += part / total;
    }
}

static const ig_column_sums *part_of(const ig_head_activations *head, size_t part) {
    return (const ig_column_sums *)((const char *)head + parts[part].offset);
}

static numbers numbers_of(const ig_layer_activations *layer, double *column) {
    numbers n = {.cosine = {layer->input_cosine, layer->attention_cosine, layer->ffn_cosine}};
    for (size_t p = 0; p < N_PARTS; p++) {
        for (int h = 0; h < layer->n_heads; h++)
            add_energy(n.energy[p], column, part_of(&layer->heads[h], p)->energy, layer->head_dim, parts[p].skewed);
        for (int r = 0; r < N_RATIOS; r++) n.energy[p][r] /= layer->n_heads;
    }
    return n;
}

static void add_numbers(numbers *sum, const numbers *more) {
    for (int i = 0; i < N_COSINES; i++) sum->cosine[i] += more->cosine[i];
    for (int p = 0; p < N_PARTS; p++)
        for (int r = 0; r < N_RATIOS; r++) sum->energy[p][r] += more->energy[p][r];
}

/* ---- JSON ----------------------------------------------------------------------- */

static json_t *json_of_array(const double *x, int n, double divisor) {
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, json_real(x[i] / divisor));
    return array;
}

/* "cosine" and "energy" of the sum of so many layers, of which so many have cosines. */
static json_t *json_of_numbers(const numbers *n, int n_layers, int n_cosines) {
    json_t *cosine = n_cosines ? json_object() : json_null(), *energy = json_object();
    for (int i = 0; i < N_COSINES && n_cosines; i++)
        json_object_set_new(cosine, cosines[i], json_real(n->cosine[i] / n_cosines));
    for (int p = 0; p < N_PARTS; p++)
        json_object_set_new(energy, parts[p].name, json_of_array(n->energy[p], N_RATIOS, n_layers));
    return json_pack("{s:o, s:o}", "cosine", cosine, "energy", energy);
}

static json_t *json_of_heads(const ig_layer_activations *layer) {
    json_t *heads = json_array();
    for (int h = 0; h < layer->n_heads; h++) {
        json_t *head = json_object();
        for (size_t p = 0; p < N_PARTS; p++)
            json_object_set_new(head, parts[p].name,
                                json_of_array(part_of(&layer->heads[h], p)->magnitude, layer->head_dim, 1));
        json_array_append_new(heads, head);
    }
    return heads;
}

static json_t *json_of_all(const measuring *m, size_t n_tokens) {
    int n_layers = m->app->info.n_layers;
    json_t *all = json_of_numbers(&m->sum, n_layers, n_layers - 1), *columns = json_array();
    for (int r = 0; r < N_RATIOS; r++)
        json_array_append_new(columns, json_integer(columns_of(ratios[r], m->app->info.head_dim)));
    json_object_set_new(all, "tokens", json_integer((json_int_t)n_tokens));
    json_object_set_new(all, "ratios", json_of_array(ratios, N_RATIOS, 1));
    json_object_set_new(all, "columns", columns);
    json_object_set(all, "layers", m->layers);
    return all;
}

/* ---- measuring ---------------------------------------------------------------------- */

static bool on_layer(void *user, const ig_layer_activations *layer) {
    measuring *m = user;
    numbers n = numbers_of(layer, m->column);
    json_t *json = json_of_numbers(&n, 1, layer->layer > 0);
    if (m->app->o->json) json_object_set_new(json, "heads", json_of_heads(layer));
    json_array_append_new(m->layers, json);
    add_numbers(&m->sum, &n);
    return ig_cli_on_progress(&m->bar, (uint64_t)layer->layer + 1, (uint64_t)m->app->info.n_layers);
}

/* As many tokens as -c says, or the paper's 2048 where the model can take them. */
static size_t count_tokens(const ig_cli_app *app, size_t n) {
    int most = app->o->contexts.v[0], train = app->info.n_ctx_train;
    if (!most) most = train < DEFAULT_TOKENS ? train : DEFAULT_TOKENS;
    return n < (size_t)most ? n : (size_t)most;
}

static int measure(json_t **out, ig_cli_app *app, const int32_t *ids, size_t n) {
    ig_error err = {0};
    measuring m = {.app = app, .bar = ig_cli_progress_start("measuring", "layers"), .layers = json_array()};
    m.column = malloc((size_t)app->info.head_dim * sizeof *m.column);
    if (!m.column) return ig_cli_complain(app->o, "out of memory");
    ig_status status = ig_measure_activations(app->model, ids, (int)n, on_layer, &m, &err);
    ig_cli_progress_end(&m.bar);
    if (!status) *out = json_of_all(&m, n);
    json_decref(m.layers);
    free(m.column);
    return status ? ig_cli_fail(app->o, &err) : IG_EXIT_OK;
}

int ig_cli_measure_activations(json_t **out, ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    ig_cli_text text = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    *out = NULL;
    if (!o->activations && !o->tokens) return IG_EXIT_OK;
    if (app->unusable.status) return ig_cli_fail(o, &app->unusable);
    if (o->activations && o->tokens) {
        ig_cli_complain(o, "--activations and --tokens are both texts to measure: give one");
        return IG_EXIT_USAGE;
    }
    if (o->contexts.n > 1) {
        ig_cli_complain(o, "activations are measured over one length: -c takes no list");
        return IG_EXIT_USAGE;
    }
    int code = o->activations ? ig_cli_read_file(&text, o, o->activations) : IG_EXIT_OK;
    if (!code) code = ig_cli_file_tokens(&ids, &n, app, &text);
    if (!code) code = measure(out, app, ids, count_tokens(app, n));
    free(ids);
    free(text.data);
    return code;
}

/* ---- the table ------------------------------------------------------------------------ */

static double energy_of(const json_t *json, const char *part, size_t ratio) {
    return 100 * json_number_value(json_array_get(json_object_get(json_object_get(json, "energy"), part), ratio));
}

static void print_row(const char *name, const json_t *json) {
    const json_t *cosine = json_object_get(json, "cosine");
    printf("| %5s |", name);
    for (int i = 0; i < N_COSINES; i++) {
        const json_t *value = json_object_get(cosine, cosines[i]);
        if (value)
            printf(" %9.3f |", json_number_value(value));
        else
            printf(" %9s |", "");
    }
    for (int k = 0; k < 2; k++)
        for (size_t r = 0; r < N_RATIOS; r++)
            printf(" %3.0f, %3.0f |", energy_of(json, parts[k].name, r), energy_of(json, parts[k + 2].name, r));
    putchar('\n');
}

void ig_cli_print_activations(const json_t *measured) {
    const json_t *layers = json_object_get(measured, "layers"), *layer;
    size_t i;
    printf(
        "\nActivations over %d tokens\n"
        "  input, attention, FFN: cosine of a layer's input to the layer before's input and outputs\n"
        "  Q, K: percent of the energy in the best columns, and in as many first ones after skewing\n\n"
        "| layer | %9s | %9s | %9s |",
        (int)json_integer_value(json_object_get(measured, "tokens")), "input", "attention", "FFN");
    for (int k = 0; k < 2; k++)
        for (int r = 0; r < N_RATIOS; r++) printf("    %s %.1f |", k ? "K" : "Q", ratios[r]);
    printf("\n| ----: | --------: | --------: | --------: |");
    for (int r = 0; r < 2 * N_RATIOS; r++) printf(" -------: |");
    putchar('\n');
    json_array_foreach(layers, i, layer) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        print_row(name, layer);
    }
    print_row("mean", measured);
}
