/* SPDX-License-Identifier: Apache-2.0
 *
 * Flags into library objects: opening the context and the model with a
 * progress bar, options of sessions and samplers, tokens of a text.
 */
#define _GNU_SOURCE
#include "cli/app.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "cli/chat_prompt.h"
#include "cli/serve_log.h"
#include "cli/values.h"
#include "eval/choice.h"
#include "text/clock.h"

static const char *const level_names[] = {"error", "warn", "info", "debug", NULL};

static ig_log_level most_logged;

/* What repeats one of the last warnings, as each session of a bench or a server may do, is no news. */
static bool is_news(const char *text) {
    enum { REMEMBERED = 16 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char last[REMEMBERED][256];
    static unsigned n;
    bool is_known = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < REMEMBERED; i++) is_known |= strncmp(last[i], text, sizeof last[i] - 1) == 0;
    if (!is_known) snprintf(last[n++ % REMEMBERED], sizeof last[0], "%s", text);
    pthread_mutex_unlock(&lock);
    return !is_known;
}

void ig_cli_log(void *user, ig_log_level level, const char *text) {
    const ig_cli_options *o = user;
    if (level > most_logged || (level == IG_LOG_WARN && !is_news(text))) return;
    if (o->verb->bit == IG_VERB_SERVE) {
        ig_cli_serve_log(o, level_names[level], text);
    } else {
        ig_cli_clear_bar();
        fprintf(stderr, "infinigen: %s\n", text);
    }
}

static bool holds(const ig_cli_texts *list, const char *text) {
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->v[i], text) == 0) return true;
    return false;
}

/* The first of the policies of which something holds; NULL: none. */
static const char *first_that(bool (*holds_of)(const ig_policy_info *p), const ig_cli_app *app) {
    for (int i = 0; i < app->o->kv_policy.n; i++)
        if (holds_of(ig_cache_policy_find(ig_cli_policy(app, i)))) return ig_cli_policy(app, i);
    return NULL;
}

static bool sees_prompts(const ig_policy_info *p) { return p->sees_prompts; }

static bool takes_mass(const ig_policy_info *p) { return p->takes_mass; }

static bool takes_alpha(const ig_policy_info *p) { return p->takes_alpha; }

static bool takes_sketch(const ig_policy_info *p) { return p->sketch != IG_SKETCH_NONE; }

static bool has_window(const ig_policy_info *p) { return !p->uses_everything && !p->ignores_window; }

static bool chooses_in_prompts(const ig_policy_info *p) { return p->chooses_in_prompts; }

/* --kv-limit 100% is none. */
static bool limits_all(const ig_cli_options *o) {
    for (int i = 0; i < o->kv_limit.n; i++)
        if (o->kv_limit.v[i].share >= 1) return false;
    return o->kv_limit.n > 0;
}

static bool differs(const ig_cli_numbers *list, double own) {
    return list->n > 1 || (list->n && (list->v[0] < own || list->v[0] > own));
}

static bool asks_for_sketch(const ig_cli_options *o) {
    for (int i = 0; i < o->kv_sketch.n; i++)
        if (strcmp(o->kv_sketch.v[i], "none") != 0) return true;
    return false;
}

/* Options that none of the policies looks at. */
static void warn_of_deaf_policies(const ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    const struct {
        const void *option;
        const char *name;
        bool (*is_heard)(const ig_policy_info *p);
        bool is_of_limit; /* it spares these entries, too */
    } all[] = {{&o->kv_mass, "--kv-mass", takes_mass, false},
               {&o->kv_locality, "--kv-locality", takes_mass, false},
               {&o->kv_inertia, "--kv-inertia", takes_mass, false},
               {&o->no_kv_rest, "--no-kv-rest", takes_mass, false},
               {&o->kv_sinks, "--kv-sinks", has_window, true},
               {&o->kv_recent, "--kv-recent", has_window, true},
               {asks_for_sketch(o) ? &o->kv_sketch : NULL, "--kv-sketch", takes_sketch, false}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        bool is_heard = !o->kv_policy.n || !ig_cli_is_given(o, all[i].option) ||
                        (o->kv_limit.n && all[i].is_of_limit) || first_that(all[i].is_heard, app);
        char text[128];
        if (is_heard) continue;
        snprintf(text, sizeof text, "%s does nothing with the policy %s", all[i].name, ig_cli_policy(app, 0));
        ig_cli_log((void *)o, IG_LOG_WARN, text);
    }
}

/* Options that were given and have nothing to do. */
static void warn_of_idle_options(const ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    const ig_cache_options own = ig_cache_defaults();
    const bool stores = o->kv_store != NULL, is_full = o->kv_policy.n == 1 && holds(&o->kv_policy, "full");
    const bool has_columns = first_that(takes_alpha, app);
    const bool is_prompt = o->verb->bit == IG_VERB_PERPLEXITY && !o->dense_prefix; /* all of it */
    const bool is_index = first_that(chooses_in_prompts, app);
    const bool chooses = o->kv_budget.n || (ig_cli_is_given(o, &o->kv_policy) && !is_full);
    const bool compares = (o->verb->bit & (IG_VERB_PERPLEXITY | IG_VERB_EVAL)) && holds(&o->kv_policy, "full") &&
                          (o->kv_policy.n > 1 || o->kv_budget.n > 1) && !is_prompt;
    const char *sees = first_that(sees_prompts, app);
    char no_store[128];
    snprintf(no_store, sizeof no_store, "the policy %s takes nothing from a store, and keeps nothing there",
             sees ? sees : "");
    bool drops_prompts = false;
    for (int i = 0; i < o->n_prompt.n; i++)
        drops_prompts |= o->breakdown && o->n_prompt.v[i] && ig_cli_is_given(o, &o->n_prompt);
    const struct {
        bool is_idle;
        const char *text;
    } all[] = {
        {is_full && o->kv_budget.n, "--kv-budget does nothing with the policy full"},
        {is_prompt && chooses && !is_index,
         "without --dense-prefix every token is computed with dense attention, whatever the policy but indexer"},
        {is_prompt && o->kv_limit.n,
         "without --dense-prefix entries are dropped between steps of -ub tokens only, and each step sees all of its "
         "own"},
        {compares && limits_all(o), "--kv-limit holds for full as well, with which others are compared"},
        {compares && !holds(&o->kv_type, "f16"),
         "--kv-type holds for full as well, with which others are compared: f16 in its list makes that the reference"},
        {drops_prompts, "--breakdown is of generations: -p does nothing"},
        {is_prompt && (o->audit || o->audit_trace), "without --dense-prefix no token is there to audit"},
        {!has_columns && differs(&o->kv_alpha, own.alpha), "--kv-alpha does nothing without infinigen-osdi24"},
        {!has_columns && differs(&o->kv_partial, own.partial), "--kv-partial does nothing without infinigen-osdi24"},
        {o->lora_waits && !o->adapters.n, "--lora-init-without-apply does nothing without --lora FILE"},
        {!stores && o->kv_store_size, "--kv-store-size does nothing without --kv-store DIR"},
        {stores && o->kv_limit.n, "with --kv-limit nothing is taken from a store, and nothing kept there"},
        {stores && sees, no_store},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is_idle) ig_cli_log((void *)o, IG_LOG_WARN, all[i].text);
}

/* Where -ngl, a flag of llama.cpp's, is not heeded to the letter. */
static void warn_of_gpu_layers(const ig_cli_app *app) {
    const char *n = app->o->gpu_layers;
    char text[160] = "";
    if (!n || strcmp(n, "auto") == 0 || app->o->server) return;
    if (strcmp(ig_context_device(app->ctx), "cpu") == 0)
        snprintf(text, sizeof text,
                 "-ngl %s: no GPU computes here ('infinigen devices' lists them): all layers stay on the CPU", n);
    else if (!app->o->weights_vram && atoi(n) > 0 && atoi(n) < app->info.n_layers)
        snprintf(text, sizeof text,
                 "-ngl %s: the GPU has all %d layers; --weights-vram SIZE leaves some of them in RAM", n,
                 app->info.n_layers);
    if (*text) ig_cli_log((void *)app->o, IG_LOG_WARN, text);
}

static int environment_choice(const ig_cli_options *o, const char *name, const char *value,
                              const char *const *choices) {
    char why[IG_CLI_WHY_BYTES];
    int i = ig_cli_find_choice(value, choices, why);
    if (i < 0) ig_cli_complain(o, "%s: '%s' %s", name, value, why);
    return i;
}

/* What is logged: warnings, unless -v or IG_LOG ask for more or less. */
static int choose_log(ig_log_level *level, const ig_cli_options *o, const char *wanted) {
    if (wanted && *wanted) {
        int i = environment_choice(o, "IG_LOG", wanted, level_names);
        if (i < 0) return IG_EXIT_USAGE;
        *level = (ig_log_level)i;
    } else {
        *level = o->verbose ? IG_LOG_INFO : IG_LOG_WARN;
    }
    return IG_EXIT_OK;
}

static int choose_cpu(ig_cpu_level *level, const ig_cli_options *o, const char *mask) {
    const char *wanted = o->cpu ? o->cpu : mask;
    *level = IG_CPU_BEST;
    if (!wanted || !*wanted) return IG_EXIT_OK;
    int i = environment_choice(o, "IG_CPU_MASK", wanted, ig_cli_cpu_levels);
    if (i < 0) return IG_EXIT_USAGE;
    *level = (ig_cpu_level)i;
    return IG_EXIT_OK;
}

/* The disk tier's own folder, before anything is opened: the tier itself could only say that there is none. */
static int make_spill_folder(const ig_cli_options *o) {
    char spill[4096];
    bool is_used = (o->kv_ram || o->kv_disk) && !o->kv_disk_path && o->verb->bit != IG_VERB_INSPECT;
    if (!is_used || !ig_cli_path(spill, sizeof spill, IG_PLACE_CACHE, "kv/") || ig_cli_make_folders(spill))
        return IG_EXIT_OK;
    return ig_cli_complain(o, "%s: the folder for keys and values cannot be made: %s (--kv-disk-path names another)",
                           spill, strerror(errno));
}

static int open_draft_model(ig_cli_app *app) {
    char path[sizeof app->path];
    ig_error err = {0};
    int code = ig_cli_find_draft_model(path, sizeof path, app->o);
    if (code || !*path) return code;
    ig_cli_progress bar = ig_cli_progress_start("loading", "bytes");
    ig_model_options model = ig_model_defaults();
    model.no_mmap = app->o->no_mmap;
    model.no_repack = app->o->no_repack;
    model.progress = ig_cli_on_progress;
    model.progress_user = &bar;
    ig_status status = ig_model_open(&app->draft_model, app->ctx, path, &model, &err);
    ig_cli_progress_end(&bar);
    return status ? ig_cli_fail(app->o, &err) : IG_EXIT_OK;
}

/* What the options name is read, and what they and the environment say of the context. */
static int read_inputs(ig_cli_app *app, ig_context_options *context) {
    const ig_cli_options *o = app->o;
    ig_cli_environment environment = ig_cli_read_environment();
    int code = choose_log(&most_logged, o, environment.log);
    if (!code) code = choose_cpu(&context->cpu_level, o, environment.cpu);
    if (!code) code = ig_cli_find_model(app->path, sizeof app->path, o);
    if (!code) code = make_spill_folder(o);
    if (!code) code = ig_cli_read_grammar(&app->grammar, o);
    if (!code) code = ig_cli_read_template(&app->chat_template, o);
    if (!code) code = ig_cli_read_adapters(&app->adapters, o);
    if (!code) code = ig_cli_template_variables(&app->variables, o);
    context->n_threads = o->threads > 0 ? o->threads : 0;
    context->device = o->device;
    context->plan_only = o->verb->bit == IG_VERB_INSPECT && !o->activations;
    context->log = ig_cli_log;
    context->log_user = (void *)o;
    return code;
}

/* Of a model that cannot run `inspect` shows what its files say. */
static int open_model(ig_cli_app *app, bool tokenizer_only) {
    const ig_cli_options *o = app->o;
    ig_error err = {0};
    ig_cli_progress bar = ig_cli_progress_start("loading", "bytes");
    ig_model_options model = ig_model_defaults();
    model.tokenizer_only = tokenizer_only;
    model.no_mmap = o->no_mmap;
    model.no_repack = o->no_repack;
    model.weights_ram = tokenizer_only ? 0 : o->weights_ram;
    model.weights_vram = tokenizer_only ? 0 : o->weights_vram;
    model.chat_template = app->chat_template;
    model.adapters = app->adapters.list;
    model.n_adapters = tokenizer_only ? 0 : app->adapters.n;
    model.progress = ig_cli_on_progress;
    model.progress_user = &bar;
    ig_status status = ig_model_open(&app->model, app->ctx, app->path, &model, &err);
    ig_cli_progress_end(&bar);
    if (!status) return IG_EXIT_OK;
    model.metadata_only = true;
    model.weights_ram = model.weights_vram = 0;
    model.n_adapters = 0;
    bool may_show = o->verb->bit == IG_VERB_INSPECT && status != IG_E_INTERRUPTED && status != IG_E_MEMORY &&
                    !o->weights_ram && !o->weights_vram && !app->adapters.n;
    if (!may_show || ig_model_open(&app->model, app->ctx, app->path, &model, NULL) != IG_OK)
        return ig_cli_fail(o, &err);
    app->unusable = err;
    return IG_EXIT_OK;
}

/* What the options say of the model, now that it is there. */
static int check_model(ig_cli_app *app, bool tokenizer_only) {
    if (!tokenizer_only && !app->unusable.status) {
        warn_of_idle_options(app);
        warn_of_deaf_policies(app);
        warn_of_gpu_layers(app);
    }
    if (app->chat_template && app->info.chat_error) {
        ig_cli_complain(app->o, "--chat-template: %s", app->info.chat_error);
        return IG_EXIT_USAGE;
    }
    int code = ig_cli_check_variables(app);
    if (!code) code = ig_cli_open_trace(app);
    return code || tokenizer_only ? code : ig_cli_calibrate(app);
}

int ig_cli_open(ig_cli_app *app, const ig_cli_options *o, bool tokenizer_only) {
    ig_error err = {0};
    ig_context_options context = ig_context_defaults();
    memset(app, 0, sizeof *app);
    app->o = o;
    if (o->no_mmap && o->weights_ram) {
        ig_cli_complain(o, "--no-mmap copies all weights into memory: leave it or --weights-ram out");
        return IG_EXIT_USAGE;
    }
    int code = read_inputs(app, &context);
    if (code) return code;
    if (ig_context_open(&app->ctx, &context, &err)) return ig_cli_fail(o, &err);

    ig_cli_catch_interrupts(false);
    double start = ig_text_seconds();
    code = open_model(app, tokenizer_only);
    if (!code && !tokenizer_only) code = open_draft_model(app);
    if (code) return code;
    app->load_seconds = ig_text_seconds() - start;
    ig_model_get_info(app->model, &app->info);
    return check_model(app, tokenizer_only);
}

int ig_cli_close(ig_cli_app *app, int code) {
    code = ig_cli_close_trace(app, code);
    ig_model_close(app->draft_model);
    ig_model_close(app->model);
    ig_context_close(app->ctx);
    free(app->grammar);
    free(app->chat_template);
    ig_cli_free_adapters(&app->adapters);
    json_decref(app->variables);
    app->model = app->draft_model = NULL;
    app->ctx = NULL;
    app->grammar = app->chat_template = NULL;
    app->variables = NULL;
    return code;
}

const char *ig_cli_spill_folder(char spill[4096], const ig_cli_options *o) {
    if (o->kv_disk_path || !ig_cli_path(spill, 4096, IG_PLACE_CACHE, "kv/.")) return o->kv_disk_path;
    ig_cli_make_folders(spill); /* if that fails, ig_cli_open() says why */
    spill[strlen(spill) - 2] = 0;
    return spill;
}

/* A limit on RAM or a size of the disk tier asks for the tier; what is not said is as large as the context needs. */
static void set_memory(ig_memory_options *m, ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    m->type = o->kv_type.v[0];
    m->limit = o->kv_limit.v[0].share;
    m->limit_bytes = o->kv_limit.v[0].number;
    m->evict = o->kv_evict.v[0];
    m->no_uring = o->no_uring;
    m->whole_windows = o->swa_full;
    m->vram_bytes = o->kv_vram;
    m->store_path = o->kv_store;
    m->store_bytes = o->kv_store_size;
    m->share_answers = o->reuse_answers;
    if (!o->kv_ram && !o->kv_disk && !o->kv_map) return;
    m->ram_bytes = o->kv_ram;
    m->map = o->kv_map;
    m->disk_bytes = o->kv_disk || o->kv_map ? o->kv_disk : UINT64_MAX >> 2;
    m->disk_path = ig_cli_spill_folder(app->spill, o);
}

void ig_cli_use_policy(ig_cli_app *app, ig_cache_options *cache, const char *policy, const char *sketch) {
    cache->policy = policy;
    cache->sketch = ig_cli_sketch(app, policy, sketch);
}

const char *ig_cli_policy(const ig_cli_app *app, int i) {
    const ig_cli_texts *given = &app->o->kv_policy;
    return ig_cli_is_given(app->o, given) ? given->v[i] : app->info.policy;
}

const char *ig_cli_prompt_policy(const char *policy) {
    return ig_cache_policy_find(policy)->chooses_in_prompts ? policy : "full";
}

void ig_cli_set_budget(ig_cache_options *cache, ig_cli_amount budget) {
    cache->budget = budget.share;
    cache->budget_entries = (int)budget.number;
}

ig_session_options ig_cli_session_options(ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    ig_session_options s = ig_session_defaults();
    s.n_ctx = o->ctx;
    s.n_batch = o->batch;
    s.n_draft = o->draft < IG_DRAFT_MAX ? o->draft : IG_DRAFT_MAX;
    s.draft_model = app->draft_model;
    ig_cli_use_policy(app, &s.cache, ig_cli_policy(app, 0), o->kv_sketch.v[0]);
    s.cache.alpha = o->kv_alpha.v[0];
    s.cache.partial = o->kv_partial.v[0];
    s.cache.speculate = o->speculate;
    s.cache.audit_every = o->audit || !o->audit_trace ? o->audit : 1;
    if (app->trace.audits.file) {
        s.cache.on_audit = ig_cli_on_audit;
        s.cache.audit_user = &app->trace;
    }
    if (app->trace.steps.file) {
        s.cache.trace = ig_cli_on_step;
        s.cache.trace_user = &app->trace;
    }
    ig_cli_set_budget(&s.cache, o->kv_budget.v[0]);
    s.cache.mass = o->kv_mass;
    s.cache.locality = o->kv_locality;
    s.cache.inertia = o->kv_inertia;
    s.cache.no_rest = o->no_kv_rest;
    s.cache.n_sinks = o->kv_sinks;
    s.cache.n_recent = o->kv_recent;
    s.cache.n_dense_layers = o->kv_dense_layers;
    s.cache.no_prefetch = o->no_prefetch;
    set_memory(&s.cache.memory, app);
    app->prompt = ig_cli_progress_start("prompt", "tokens");
    s.progress = ig_cli_on_progress;
    s.progress_user = &app->prompt;
    return s;
}

/* Why nothing can be computed ahead, where that is so: text [n]. */
static void tell_why_no_draft(char *text, size_t n, const ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    const char *sees = first_that(sees_prompts, app);
    if (sees) snprintf(text, n, "by the policy %s", sees);
    const struct {
        bool is_so;
        const char *text;
    } all[] = {
        {!o->draft, "with --draft 0"},
        {o->kv_limit.n, "with --kv-limit"},
        {o->reuse_answers, "with --reuse-answers"},
        {o->kv_trace, "with --kv-trace"},
        {o->audit || o->audit_trace, "with --audit"},
        {o->batch == 1, "with --batch-size 1"},
        {o->speculate && strcmp(o->speculate, "paper") == 0, "with --speculate paper"},
        {!sees, "on a GPU, by models whose layers share keys or carry large states, and in contexts of millions"},
    };
    for (size_t i = sizeof all / sizeof *all; i-- > 0;)
        if (all[i].is_so) snprintf(text, n, "%s", all[i].text);
}

int ig_cli_check_draft(const ig_cli_app *app, const ig_session_options *options) {
    const ig_cli_options *o = app->o;
    ig_cache_plan_info plan;
    ig_error err = {0};
    bool is_asked = app->draft_model || (options->n_draft && ig_cli_is_given(o, &o->draft));
    if (!is_asked) return IG_EXIT_OK;
    if (ig_cache_plan(&plan, app->model, options, &err)) return ig_cli_fail(o, &err);
    if (plan.n_draft) return IG_EXIT_OK;
    char why[128];
    tell_why_no_draft(why, sizeof why, app);
    ig_cli_complain(o, "%s: leave it out: nothing is computed ahead %s", app->draft_model ? "-md" : "--draft", why);
    return IG_EXIT_USAGE;
}

ig_status ig_cli_open_session(ig_session **out, ig_cache **cache, const ig_cli_app *app, ig_session_options *options,
                              int n_sessions, ig_error *err) {
    ig_status status = IG_OK;
    *out = NULL;
    *cache = NULL;
    if (options->cache.memory.store_path) {
        options->cache.memory.n_sessions = n_sessions;
        status = ig_cache_open(cache, app->model, options, err);
        options->shared = *cache;
    }
    return status ? status : ig_session_open(out, app->model, options, err);
}

void ig_cli_commit(const ig_cli_app *app, ig_cache *cache) {
    ig_error err = {0};
    if (cache && ig_cache_commit(cache, &err)) ig_cli_complain(app->o, "the prompt is not kept: %s", err.text);
}

ig_status ig_cli_sync(ig_cli_app *app, ig_session *s, const int32_t *ids, size_t n, ig_error *err) {
    app->prompt = ig_cli_progress_start("prompt", "tokens");
    ig_status status = ig_session_sync(s, ids, (int)n, err);
    ig_cli_progress_end(&app->prompt);
    return status;
}

uint64_t ig_cli_seed(const ig_cli_options *o) {
    uint32_t seed;
    if (o->seed >= 0) return (uint64_t)o->seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed) seed = (uint32_t)time(NULL);
    return seed;
}

/* What no flag says is as the model's files have it, if they say it. */
static void take_advice(ig_sampler_options *s, const ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    ig_sampler_options advised = *s;
    ig_model_get_sampling(app->model, &advised);
    if (!ig_cli_is_given(o, &o->temperature)) s->temperature = advised.temperature;
    if (!ig_cli_is_given(o, &o->top_k)) s->top_k = advised.top_k;
    if (!ig_cli_is_given(o, &o->top_p)) s->top_p = advised.top_p;
    if (!ig_cli_is_given(o, &o->min_p)) s->min_p = advised.min_p;
    if (!ig_cli_is_given(o, &o->typical_p)) s->typical_p = advised.typical_p;
    if (!ig_cli_is_given(o, &o->repeat_penalty)) s->repeat_penalty = advised.repeat_penalty;
    if (!ig_cli_is_given(o, &o->repeat_last_n)) s->repeat_last_n = advised.repeat_last_n;
    if (!ig_cli_is_given(o, &o->xtc_probability)) s->xtc_probability = advised.xtc_probability;
    if (!ig_cli_is_given(o, &o->xtc_threshold)) s->xtc_threshold = advised.xtc_threshold;
}

/* What the options say. */
static ig_sampler_options given_sampler(const ig_cli_app *app, uint64_t seed) {
    const ig_cli_options *o = app->o;
    ig_sampler_options s = ig_sampler_defaults();
    s.temperature = (float)o->temperature;
    s.top_k = o->top_k > 0 ? o->top_k : 0;
    s.top_p = fmaxf((float)o->top_p, FLT_MIN); /* the likeliest one is always left */
    s.min_p = (float)o->min_p;
    s.typical_p = (float)o->typical_p;
    s.top_n_sigma = (float)o->top_n_sigma;
    s.xtc_probability = (float)o->xtc_probability;
    s.xtc_threshold = (float)o->xtc_threshold;
    s.repeat_penalty = (float)o->repeat_penalty;
    s.presence_penalty = (float)o->presence_penalty;
    s.frequency_penalty = (float)o->frequency_penalty;
    s.logit_bias = o->logit_bias.v;
    s.n_logit_bias = (size_t)o->logit_bias.n;
    s.repeat_last_n = o->repeat_last_n;
    s.dry_multiplier = (float)o->dry_multiplier;
    s.dry_base = (float)o->dry_base;
    s.dry_allowed_length = o->dry_allowed_length;
    s.dry_last_n = o->dry_last_n;
    if (o->dry_breakers.n) s.dry_breakers = o->dry_breakers.v;
    bool is_none = o->dry_breakers.n == 1 && strcmp(o->dry_breakers.v[0], "none") == 0;
    s.n_dry_breakers = is_none ? 0 : (size_t)o->dry_breakers.n;
    s.dynatemp_range = (float)o->dynatemp_range;
    s.dynatemp_exponent = (float)o->dynatemp_exponent;
    s.grammar = app->grammar;
    s.seed = seed;
    return s;
}

ig_sampler_options ig_cli_sampler_options(const ig_cli_app *app, uint64_t seed) {
    ig_sampler_options s = given_sampler(app, seed);
    take_advice(&s, app);
    return s;
}

ig_sampler_options ig_cli_native_sampler(const ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    ig_sampler_options s = given_sampler(app, 0);
    if (!ig_cli_is_given(o, &o->temperature)) s.temperature = 0.8f;
    if (!ig_cli_is_given(o, &o->top_k)) s.top_k = 40;
    if (!ig_cli_is_given(o, &o->top_p)) s.top_p = 0.95f;
    if (!ig_cli_is_given(o, &o->min_p)) s.min_p = 0.05f;
    take_advice(&s, app);
    return s;
}

int ig_cli_tokens(int32_t **ids, size_t *n, const ig_cli_app *app, const char *text, size_t n_text, int flags) {
    ig_error err = {0};
    return ig_eval_tokenize(ids, n, app->model, text, n_text, flags, &err) ? ig_cli_fail(app->o, &err) : IG_EXIT_OK;
}

/* The next id at *text, which is moved past it; -1: it is none of n_vocab. */
static int32_t next_id(const char **text, int n_vocab) {
    char *end;
    errno = 0;
    long id = isdigit((unsigned char)**text) ? strtol(*text, &end, 10) : -1;
    if (errno || id < 0 || id >= n_vocab || (*end && !isspace((unsigned char)*end))) return -1;
    *text = end;
    return (int32_t)id;
}

/* Tokens that stand in a file (--tokens), ids apart by white space, malloc'ed: at least one, all of the model's
 * vocabulary. The exit code. */
static int read_ids(int32_t **ids, size_t *n, const ig_cli_app *app, const char *path) {
    ig_cli_text text = {0};
    int code = ig_cli_read_file(&text, app->o, path);
    *n = 0;
    *ids = code ? NULL : malloc((text.n / 2 + 1) * sizeof **ids);
    if (!code && !*ids) code = ig_cli_complain(app->o, "out of memory for the tokens of %s", path);
    for (const char *p = text.data; !code; (*n)++) {
        while (isspace((unsigned char)*p)) p++;
        if (p == text.data + text.n) break;
        (*ids)[*n] = next_id(&p, app->info.n_vocab);
        if ((*ids)[*n] < 0)
            code = ig_cli_complain(app->o, "%s: number %zu is no token of the vocabulary of %d", path, *n + 1,
                                   app->info.n_vocab);
    }
    if (!code && !*n) code = ig_cli_complain(app->o, "%s: there are no tokens in it", path);
    free(text.data);
    if (!code) return IG_EXIT_OK;
    free(*ids);
    *ids = NULL;
    return code;
}

int ig_cli_file_tokens(int32_t **ids, size_t *n, const ig_cli_app *app, const ig_cli_text *text) {
    if (app->o->tokens) return read_ids(ids, n, app, app->o->tokens);
    return ig_cli_tokens(ids, n, app, text->data, text->n, IG_TOKENIZE_ADD_SPECIAL);
}

enum { COUNTED_BYTES = 1 << 16 }; /* of a text that does not fit: what is longer is not tokenised to its end */

int ig_cli_prompt_tokens(int32_t **ids, size_t *n, const ig_cli_app *app, const ig_cli_text *text, int flags,
                         size_t most) {
    if (text->n < most) return ig_cli_tokens(ids, n, app, text->data, text->n, flags);
    ig_error err = {0};
    *ids = malloc(most * sizeof **ids);
    if (!*ids) return ig_cli_complain(app->o, "out of memory for %zu tokens", most);
    if (!ig_tokenize(n, app->model, text->data, text->n, flags | IG_TOKENIZE_CAPPED, *ids, most, &err))
        return IG_EXIT_OK;
    free(*ids);
    *ids = NULL;
    if (*n <= most) return ig_cli_fail(app->o, &err);
    if (text->n <= COUNTED_BYTES && !ig_tokenize(n, app->model, text->data, text->n, flags, NULL, 0, &err))
        return ig_cli_complain(app->o, "the prompt has %zu tokens, but the context holds %zu (-c)", *n, most);
    return ig_cli_complain(app->o, "the prompt has more than %zu tokens, but the context holds %zu (-c)", most, most);
}
