/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to a plan: what a session is to be and what memory it takes, before any is taken.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/ranges.h"
#include "engine/cache.h"

enum { DEFAULT_CTX = 8192, DEFAULT_BATCH = 512 };

ig_cache_options ig_cache_defaults(void) {
    return (ig_cache_options){.locality = 0.5,
                              .inertia = 8,
                              .n_sinks = 4,
                              .n_recent = 32,
                              .n_dense_layers = -1,
                              .memory.vram_bytes = IG_VRAM_AUTO,
                              .alpha = 4,
                              .partial = 0.3};
}

ig_session_options ig_session_defaults(void) {
    return (ig_session_options){.n_batch = DEFAULT_BATCH, .cache = ig_cache_defaults()};
}

void ig_session_forget_names(ig_cache_options *o, const char *policy) {
    ig_memory_options *m = &o->memory;
    o->policy = policy;
    o->sketch = o->speculate = o->salt = m->type = m->disk_path = m->evict = m->store_path = NULL;
}

static bool is_for(const ig_sketch_shape *made_for, const ig_model *m) {
    const ig_config *c = &m->config;
    int n_heads = made_for->kind == IG_SKETCH_SKEW ? c->n_heads : c->n_kv_heads;
    return made_for->model == m->identity && made_for->n_layers == ig_config_attention_layers(c) &&
           made_for->n_heads == n_heads && made_for->head_dim == c->head_dim;
}

/* What opening sessions changes of a model, beside the memory of its steps. */
static ig_sketches *sketches_of(const ig_model *m) { return &((ig_model *)(uintptr_t)m)->sketches; }

void ig_session_give_sketch(const ig_model *m, const ig_sketch_file *f) { ig_sketches_give(sketches_of(m), f); }

/* Whether a sketch that is open can be used: if not, either it is an error or *usable is false. */
static ig_status check_sketch(bool *usable, const ig_sketch_shape *made_for, const ig_session_plan *p,
                              const ig_model *m, ig_error *err) {
    const char *path = p->o.cache.sketch;
    if (!is_for(made_for, m))
        return ig_fail(err, IG_E_ARG, "%s: this sketch was prepared for another model than %s", path, m->path);
    if (made_for->kind != p->ops->info.sketch)
        return ig_fail(err, IG_E_ARG, "%s: this sketch is of the kind %s; the KV policy %s takes the kind %s", path,
                       ig_sketch_kind_name(made_for->kind), p->ops->info.name,
                       ig_sketch_kind_name(p->ops->info.sketch));
    *usable = made_for->kind != IG_SKETCH_BALANCED || made_for->n_ctx >= p->o.n_ctx;
    if (!*usable) /* worse than none beyond the positions it has seen */
        ig_log(m->ctx, IG_LOG_WARN, "%s was prepared for a context of %d tokens, not %d: it is not used", path,
               made_for->n_ctx, p->o.n_ctx);
    return IG_OK;
}

/* Takes the sketch file of the options, if the policy wants it. */
static ig_status take_sketch(ig_session_plan *p, const ig_model *m, ig_error *err) {
    if (!p->o.cache.sketch || p->ops->info.sketch == IG_SKETCH_NONE) return IG_OK;
    const ig_sketch_file *f;
    bool usable = false;
    ig_status s = ig_sketches_take(&f, sketches_of(m), p->o.cache.sketch, err);
    if (!s) s = check_sketch(&usable, &f->shape, p, m, err);
    if (usable)
        p->sketch = f;
    else
        ig_session_give_sketch(m, f);
    return s;
}

/* Whether layers with a window keep all that they have seen. Where others carry states, a text goes on from places that
 * both have, of which there would be few. */
static bool keeps_windows(const ig_model *m, const ig_memory_options *o) {
    return o->whole_windows || m->config.n_recurrent;
}

/* Where keys and values may lie. Layers that use every entry in each step stay in RAM if others can leave it. */
static ig_status plan_tiers(ig_session_plan *p, const ig_model *m, ig_error *err) {
    const ig_memory_options *o = &p->o.cache.memory;
    bool is_host = m->ctx->device->ops->is_host;
    p->tiers = (ig_kv_options){.ram_bytes = o->ram_bytes,
                               .disk_bytes = o->disk_bytes,
                               .disk_path = o->disk_path,
                               .no_uring = o->no_uring,
                               .window = keeps_windows(m, o) ? NULL : m->config.kv_window,
                               .state_bytes = ig_config_state_bytes(&m->config),
                               .is_mapped = o->map && is_host,
                               .is_paged = o->map && !is_host,
                               .ctx = m->ctx,
                               .device = m->ctx->device};
    if (p->tiers.is_paged && (o->disk_bytes || o->ram_bytes || (o->vram_bytes && o->vram_bytes != IG_VRAM_AUTO)))
        return ig_fail(
            err, IG_E_ARG,
            "keys and values whose pages a GPU's driver moves have no disk tier, and no limit on RAM or VRAM");
    if (o->store_path && m->config.n_recurrent)
        return ig_fail(
            err, IG_E_UNSUPPORTED,
            "%s: no store of prefixes is kept for it, since its recurrent layers would have to be stored too", m->path);
    if (p->tiers.is_mapped && (o->disk_bytes || !o->ram_bytes))
        return ig_fail(err, IG_E_ARG, "mapped keys and values need a limit on their RAM, and no disk tier");
    if (o->ram_bytes && !o->disk_bytes && !o->map)
        return ig_fail(err, IG_E_ARG, "a limit on the KV cache's RAM needs a disk tier for the rest");
    if (is_host && o->vram_bytes && o->vram_bytes != IG_VRAM_AUTO)
        return ig_fail(err, IG_E_ARG, "copies of keys and values in a GPU's memory: this context computes on the CPU");
    if ((o->disk_bytes || p->tiers.is_mapped) && !o->disk_path)
        return ig_fail(err, IG_E_ARG, "KV disk tier: no directory given");
    if (p->ops->stages[0].run) p->tiers.n_pinned_layers = p->o.cache.n_dense_layers;
    p->tiers.n_sequences = o->n_sessions;
    ig_status s = ig_kv_type_parse(&p->tiers.type, o->type, err);
    return s ? s : ig_evict_parse(&p->tiers.evict, o->evict ? o->evict : "counter", err);
}

static uint64_t count_sequences(const ig_session_plan *p) {
    return p->o.cache.memory.n_sessions > 0 ? (uint64_t)p->o.cache.memory.n_sessions : 1;
}

/* Slots of a KV head of a sequence that a policy keeps something of. */
static int count_slots(const ig_session_plan *p) {
    int more = p->policy.block_tokens > IG_UNIT_SLOTS ? p->policy.block_tokens : IG_UNIT_SLOTS;
    return ig_policy_slots(&p->policy) + (p->tiers.share ? more : 0);
}

/* Lists of a sequence that the device helps to choose. */
static int count_scans(const ig_session_plan *p) {
    return ig_policy_is_helped(p->ops, p->policy.device) ? ig_policy_lists(p->ops, &p->policy) : 0;
}

/* What a step hands to a GPU, with a token of each sequence, or where tokens of prompts choose, too, of a batch: jobs
 * and views of what a layer keeps, reads and guesses; twice its lists to choose from, with a bit for each block; the
 * units that are being filled; numbers of blocks and pieces; where states lie, for both operations of a layer that has
 * some. What the GPU is told of written blocks is not foreseen. */
static size_t plan_mail(const ig_session_plan *p, const ig_config *c) {
    if (p->policy.device->ops->is_host) return 0;
    size_t scans = (size_t)count_scans(p), blocks = (size_t)(p->o.n_ctx / p->policy.block_tokens + 1);
    size_t views = (size_t)ig_max_int(count_scans(p), ig_max_int(p->kv.n_kv_heads, p->kv.local_kv_heads));
    size_t jobs =
        3 * (views * sizeof(ig_kv_view) + sizeof(ig_attention)) + 2 * scans * (sizeof(ig_scan_list) + blocks / 8);
    size_t bytes = (size_t)p->kv.n_layers * jobs + 3 * blocks * sizeof(uint32_t) +
                   2 * (size_t)c->n_recurrent * sizeof(ig_recurrence);
    if (scans)
        bytes += 2 * (p->ops->plan_copies(&p->policy, &p->o.cache, 2 * IG_UNIT_SLOTS) -
                      p->ops->plan_copies(&p->policy, &p->o.cache, IG_UNIT_SLOTS));
    uint64_t n = count_sequences(p), most = (uint64_t)p->o.n_batch;
    return bytes * (size_t)(n < most && !p->ops->info.chooses_in_prompts ? n : most);
}

/* What the sessions' sketches take in RAM: of each what its policy says, but the sketch file, which is there once. */
static uint64_t plan_sketches(const ig_session_plan *p) {
    uint64_t n = count_sequences(p), file = p->sketch ? p->sketch->file.size : 0;
    return p->ops->plan ? n * (p->ops->plan(&p->policy, &p->o.cache, count_slots(p)) - file) + file : 0;
}

/* What copies of sketches take of a GPU's memory. */
static uint64_t plan_sketch_copies(const ig_session_plan *p) {
    if (!ig_policy_is_helped(p->ops, p->policy.device)) return 0;
    return count_sequences(p) * p->ops->plan_copies(&p->policy, &p->o.cache, count_slots(p));
}

/* What copies of blocks may take of it: unless that is said, most of what is free after scratch, sketches and states.
 */
static uint64_t plan_vram(const ig_session_plan *p, const ig_model *m) {
    ig_device *d = m->ctx->device;
    if (p->o.cache.memory.vram_bytes != IG_VRAM_AUTO) return p->o.cache.memory.vram_bytes;
    if (d->ops->is_host || d->ops->is_plan || p->o.shared || p->tiers.is_paged) return 0;
    uint64_t room = d->ops->room(d), scratch[IG_PLACES];
    ig_batch_plan(scratch, m->ctx, &m->config, &p->scratch);
    uint64_t first = scratch[IG_PLACE_DEVICE] + plan_sketch_copies(p) + ig_kv_plan_vram(&p->kv, &p->tiers);
    return room > first ? (room - first) / 8 * 7 : 0;
}

/* Entries that a KV head of n_layers layers may have, by ig_memory_options.limit or limit_bytes. */
static ig_status count_limit(int *out, const ig_session_plan *p, int n_layers, ig_error *err) {
    const ig_cache_options *o = &p->o.cache;
    int n_ctx = p->kv.n_ctx, least = p->ops->info.ignores_window ? 2 : o->n_sinks + o->n_recent + 1;
    double layer = (double)ig_kv_entry_bytes(&p->kv, &p->tiers) * p->kv.n_kv_heads;
    ig_kv_options one = p->tiers;
    one.n_sequences = 1;
    double all = (double)ig_kv_token_bytes(&p->kv, &p->tiers);
    double dense = (all - layer * n_layers) * n_ctx - (double)ig_kv_plan_let_go(&p->kv, &one);
    double bytes = (double)o->memory.limit_bytes;
    double n = bytes > 0 ? floor((bytes - dense) / (layer * n_layers)) : ig_pick_share(o->memory.limit, n_ctx);
    char text[64];
    if (n < least && bytes > 0)
        return ig_fail(err, IG_E_LIMIT, "KV limit of %.0f bytes is too small: this context and policy need at least %s",
                       bytes, ig_bytes_text(text, (uint64_t)(dense + layer * n_layers * least)));
    if (n < least)
        return ig_fail(err, IG_E_LIMIT, "KV limit of %g %% is too small: a KV head has %.0f entries then and needs %d",
                       o->memory.limit * 100, n, least);
    *out = n < n_ctx ? (int)n : 0;
    return IG_OK;
}

/* What is dropped for ever: beyond the limit, or by the policy. */
static ig_status plan_limit(ig_session_plan *p, ig_error *err) {
    const ig_cache_options *o = &p->o.cache;
    int n_layers = ig_policy_sparse_layers(&p->policy, o);
    if (p->ops->limit) {
        const ig_policy policy = {p->ops, p->policy, *o};
        p->tiers.n_dropping = n_layers;
        p->tiers.n_kept = ig_policy_count(&policy, p->o.n_ctx);
    }
    if (o->memory.limit == 0 && !o->memory.limit_bytes) return IG_OK;
    if (!p->ops->takes_limit)
        return ig_fail(err, IG_E_ARG, "KV limit: the policy %s takes none%s", p->ops->info.name,
                       p->ops->limit ? ", its budget is one" : "");
    if (o->memory.disk_bytes)
        return ig_fail(err, IG_E_ARG, "KV limit: not together with a disk tier, which drops nothing");
    if (!n_layers)
        return ig_fail(err, IG_E_ARG, "KV limit: all layers are dense or have a window, and drop nothing by it");
    ig_status s = count_limit(&p->tiers.limit, p, n_layers, err);
    if (p->tiers.limit) p->tiers.n_dropping = n_layers;
    return s;
}

/* What the next layer's entries are guessed from. */
static ig_status plan_speculation(ig_session_plan *p, ig_error *err) {
    static const char *const names[] = {"none", "norm", "late", "paper", "auto"}; /* as in ig_speculation */
    const char *name = p->o.cache.speculate;
    p->speculate = p->ops->guess_is_final ? IG_SPECULATE_PAPER : IG_SPECULATE_AUTO;
    if (!name) return IG_OK;
    for (size_t i = 0; i < IG_COUNT(names); i++)
        if (strcmp(name, names[i]) == 0) {
            p->speculate = (ig_speculation)i;
            return IG_OK;
        }
    return ig_fail(err, IG_E_ARG, "speculation '%s' is unknown; there are: auto, late, norm, paper, none", name);
}

/* Of what each token ahead needs for itself so many fit into the memory that they may take. */
static int fit_ahead(size_t each) {
    static const size_t most_bytes = (size_t)64 << 20;
    size_t n = each ? most_bytes / each : 0;
    return n < IG_DRAFT_MAX ? (int)n : IG_DRAFT_MAX;
}

/* Tokens ahead are decoded as they would be later, and taken back where others come. That is not for what a step cannot
 * take back, nor for what tells of each step. Answers that are shared may have entries of others' from their next token
 * on. */
static bool can_draft(const ig_session_plan *p, const ig_model *m, bool has_limit) {
    const ig_cache_options *o = &p->o.cache;
    bool is_told = o->trace || o->audit_every, drops = p->ops->limit || has_limit;
    bool can_go_back = m->ctx->device->ops->is_host && !m->config.n_layers_sharing && !drops;
    return can_go_back && !o->memory.share_answers && !is_told && !p->ops->guess_is_final &&
           p->speculate != IG_SPECULATE_PAPER;
}

/* Tokens ahead for which there may be states, of models that have them. */
static int plan_states_ahead(const ig_session_plan *p, const ig_model *m) {
    const ig_memory_options *o = &p->o.cache.memory;
    if (!can_draft(p, m, o->limit != 0 || o->limit_bytes)) return 0;
    int n = fit_ahead(ig_config_state_bytes(&m->config)),
        most = ig_min_int(p->o.n_draft, ig_min_int(n, IG_KV_CARRIED - 1));
    return p->o.shared ? ig_min_int(most, p->o.shared->tiers.n_ahead) : most;
}

static int plan_draft(const ig_session_plan *p, const ig_model *m) {
    if (!can_draft(p, m, p->tiers.limit > 0)) return 0;
    size_t lists = (size_t)ig_policy_lists(p->ops, &p->policy) * (size_t)p->o.n_ctx * sizeof(int32_t);
    int most = ig_min_int(p->o.n_draft, ig_min_int(p->o.n_batch - 1, fit_ahead(lists)));
    return m->config.n_recurrent ? ig_min_int(most, p->tiers.n_ahead) : most;
}

static void set_shapes(ig_session_plan *p, const ig_model *m) {
    const ig_config *c = &m->config;
    ig_layer_heads heads = ig_config_heads(c);
    p->kv = ig_config_kv_shape(c, p->o.n_ctx, p->o.n_batch);
    p->policy = (ig_policy_shape){.n_layers = ig_config_attention_layers(c),
                                  .n_heads = c->n_heads,
                                  .n_kv_heads = c->n_kv_heads,
                                  .head_dim = c->head_dim,
                                  .n_ctx = p->o.n_ctx,
                                  .scale = (float)c->attn_scale,
                                  .cap = (float)c->score_cap,
                                  .window = c->kv_window,
                                  .local = heads.local,
                                  .sink_scores = m->weights.sink_scores,
                                  .index = c->index,
                                  .index_layer = c->index_layer,
                                  .kernels = ig_kernels_get(m->ctx->level),
                                  .device = m->ctx->device};
    if (c->rope.kind == IG_ROPE_NONE && !c->latent.kv_rank && !m->weights.layers[0].q_norm)
        p->policy.n_query_in = c->d_model;
}

static ig_status check_scales(const float *scales, const ig_model *m, ig_error *err) {
    for (int i = 0; scales && i < m->n_adapters; i++)
        if (!(fabsf(scales[i]) <= IG_ADAPTER_SCALE_MAX))
            return ig_fail(err, IG_E_ARG, "ig_session_options.adapter_scales[%d] must be from -%d to %d", i,
                           IG_ADAPTER_SCALE_MAX, IG_ADAPTER_SCALE_MAX);
    return IG_OK;
}

/* Entries of a list that tokens of prompts keep from layer to layer; 0: no layer goes by another's choice. */
static int count_kept(const ig_session_plan *p) {
    const ig_policy policy = {p->ops, p->policy, p->o.cache};
    int n_kept = 0;
    for (int l = 0; l < p->policy.n_layers; l++) n_kept += ig_policy_keeps_choice(&policy, l);
    return n_kept && !ig_policy_takes_all(&policy, p->o.n_ctx) ? p->ops->most(&policy, p->o.n_ctx) : 0;
}

static ig_status find_policy(ig_session_plan *p, const ig_model *m, ig_error *err) {
    if (!p->o.cache.policy) p->o.cache.policy = ig_config_policy(&m->config);
    ig_status s = ig_policy_find(&p->ops, &p->o.cache, err);
    if (s || !p->ops->goes_by_index || m->config.index.dim) return s;
    return ig_fail(err, IG_E_ARG, "KV policy %s: the model brings no indexer along", p->ops->info.name);
}

static ig_status make_plan(ig_session_plan *p, const ig_model *m, const ig_session_options *options, ig_error *err) {
    if (!m->has_weights) return ig_fail(err, IG_E_ARG, "%s: was opened without its weights", m->path);
    ig_status s = ig_model_check(m, err);
    if (s) return s;
    const ig_config *c = &m->config;
    *p = (ig_session_plan){.o = options ? *options : ig_session_defaults()};
    s = ig_check_session_options(&p->o, err);
    if (!s) s = check_scales(p->o.adapter_scales, m, err);
    if (!s && p->o.shared) s = ig_cache_impose(&p->o, m, err);
    if (s) return s;
    if (p->o.n_ctx == 0) p->o.n_ctx = c->n_ctx_train < DEFAULT_CTX ? c->n_ctx_train : DEFAULT_CTX;
    if (c->learned_positions && p->o.n_ctx > c->learned_positions - c->position_offset)
        return ig_fail(err, IG_E_LIMIT, "context of %d tokens: %s has learned positions for %d only", p->o.n_ctx,
                       m->path, c->learned_positions - c->position_offset);
    set_shapes(p, m);
    s = find_policy(p, m, err);
    if (!s) s = plan_speculation(p, err);
    if (!s) s = plan_tiers(p, m, err);
    if (!s) p->tiers.n_ahead = plan_states_ahead(p, m);
    p->policy.block_tokens = ig_kv_block_tokens(&p->kv, p->tiers.type);
    if (!s) s = plan_limit(p, err);
    if (!s && c->n_layers_sharing && p->tiers.n_dropping)
        return ig_fail(
            err, IG_E_UNSUPPORTED,
            "%s: a KV limit, and policies that drop entries, are not for it: its last layers read entries of others "
            "later",
            m->path);
    if (!s && p->o.shared) s = ig_cache_check(p->o.shared, p, err);
    p->tiers.share = p->o.cache.memory.n_sessions > 0 && !p->tiers.limit;
    if (!s && p->tiers.limit) p->policy.n_slots = ig_kv_plan_slots(&p->kv, &p->tiers);
    if (!s) p->n_draft = p->policy.n_ahead = plan_draft(p, m);
    if (!s && p->n_draft && p->o.draft_model && !p->o.shared) s = ig_draft_model_check(p->o.draft_model, m, err);
    if (!s) s = take_sketch(p, m, err);
    if (s) return s;
    p->policy.sketch = p->sketch;
    p->scratch = (ig_step_need){.max_rows = p->o.n_batch,
                                .n_ctx = p->o.n_ctx,
                                .streams = p->tiers.disk_bytes > 0,
                                .weighs = p->ops->observe || p->o.cache.audit_every > 0,
                                .drops = p->tiers.n_dropping > 0,
                                .kept_entries = count_kept(p),
                                .scans = count_scans(p),
                                .mail_bytes = plan_mail(p, c),
                                .select_bytes = p->ops->scratch_bytes ? p->ops->scratch_bytes(&p->policy) : 0};
    p->tiers.vram_bytes = plan_vram(p, m);
    return IG_OK;
}

ig_status ig_session_make_plan(ig_session_plan *p, const ig_model *m, const ig_session_options *options,
                               ig_error *err) {
    if (m->ctx->device->ops->is_plan)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: nothing is computed in a context that is for plans only",
                       m->ctx->device_name);
    return make_plan(p, m, options, err);
}

bool ig_session_has_shadow(const ig_session_plan *p) { return p->o.cache.audit_every > 0 && p->tiers.n_dropping > 0; }

/* Weights of a model as they lie: in a stream's memory, on a GPU and for it, or mapped, copied and in panels. */
static uint64_t count_weights(const ig_model *m, const ig_weight_stats *st) {
    if (st->vram_bytes) return st->vram_bytes + st->ram_bytes + m->weights.owned.size + m->copied_bytes;
    if (st->ram_bytes) return st->ram_bytes;
    return (m->copied_bytes ? m->copied_bytes : m->weights.stored_bytes) - m->weights.replaced_bytes +
           m->weights.owned.size + m->weights.panels.size;
}

/* What of it lies where, with a GPU; keys and values whose pages its driver moves in neither place. */
static void plan_places(ig_cache_plan_info *out, const ig_weight_stats *st, bool is_paged, uint64_t copies,
                        uint64_t sketches, const uint64_t scratch[IG_PLACES]) {
    ig_plan_place *gpu = &out->gpu, *locked = &out->locked;
    *gpu = (ig_plan_place){.weights = st->vram_bytes - st->slot_bytes,
                           .slots = st->slot_bytes,
                           .kv = copies,
                           .sketch = sketches,
                           .scratch = scratch[IG_PLACE_DEVICE]};
    *locked =
        (ig_plan_place){.weights = st->ram_bytes, .kv = is_paged ? 0 : out->kv, .scratch = scratch[IG_PLACE_HOST]};
    gpu->total = gpu->weights + gpu->slots + gpu->kv + gpu->sketch + gpu->scratch;
    locked->total = locked->weights + locked->slots + locked->kv + locked->scratch;
}

static ig_status plan_draft_sessions(uint64_t *bytes, const ig_session_plan *p, ig_error *err) {
    ig_cache_plan_info drafts = {0};
    ig_session_options o;
    if (!p->n_draft || !p->o.draft_model) return IG_OK;
    o = ig_draft_model_options(p);
    ig_status s = ig_cache_plan(&drafts, p->o.draft_model, &o, err);
    *bytes = drafts.total;
    return s;
}

static ig_status count_bytes(ig_cache_plan_info *out, const ig_session_plan *p, const ig_model *m, ig_error *err) {
    ig_weight_stats st;
    ig_model_get_weight_stats(m, &st);
    *out = (ig_cache_plan_info){.n_ctx = p->o.n_ctx, .n_draft = p->n_draft, .weights = count_weights(m, &st)};
    ig_status s = ig_kv_plan(&out->kv, &p->kv, &p->tiers, err);
    uint64_t n = count_sequences(p);
    out->sketch = plan_sketches(p);
    uint64_t scratch[IG_PLACES], own[IG_PLACES] = {0}, usage = 0, shadow = 0;
    ig_batch_plan(scratch, m->ctx, &m->config, &p->scratch);
    ig_session_plan_bytes(own, p, m);
    for (int i = 0; i < IG_PLACES; i++) scratch[i] += n * own[i];
    if (p->tiers.limit)
        usage = n * ig_usage_plan(p->tiers.evict, ig_policy_heads(&p->policy), ig_kv_plan_slots(&p->kv, &p->tiers));
    if (!s && ig_session_has_shadow(p))
        s = ig_kv_plan(&shadow, &p->kv, &(ig_kv_options){.type = p->tiers.type, .device = m->ctx->device}, err);
    scratch[IG_PLACE_HOST] += n * shadow;
    out->scratch = scratch[IG_PLACE_HOST] + scratch[IG_PLACE_DEVICE] + usage;
    uint64_t copies = ig_kv_plan_vram(&p->kv, &p->tiers), sketches = plan_sketch_copies(p);
    if (!s) s = plan_draft_sessions(&out->drafts, p, err);
    out->total = out->weights + out->kv + copies + out->sketch + sketches + out->scratch + out->drafts;
    if (!m->ctx->device->ops->is_host) plan_places(out, &st, p->tiers.is_paged, copies, sketches, scratch);
    return s;
}

ig_status ig_cache_plan(ig_cache_plan_info *out, const ig_model *m, const ig_session_options *options, ig_error *err) {
    if (!out || !m) return ig_fail(err, IG_E_ARG, "ig_cache_plan: model and result are needed");
    ig_session_plan p;
    ig_status s = make_plan(&p, m, options, err);
    if (s) return s;
    s = count_bytes(out, &p, m, err);
    ig_session_give_sketch(m, p.sketch);
    return s;
}

void ig_session_warn_of_size(const ig_session_plan *p, const ig_model *m) {
    ig_cache_plan_info info;
    char need[64], room[64];
    bool are_many = count_sequences(p) > 1;
    uint64_t available = ig_memory_available();
    if (!m->ctx->device->ops->is_host || count_bytes(&info, p, m, NULL) || info.total - info.weights <= available)
        return;
    ig_log(m->ctx, IG_LOG_WARN,
           "full contexts (%llu of %d tokens) will take %s of memory beside the weights, and %s are available: a limit "
           "for keys and values (--kv-ram SIZE)%s a smaller context (-c)%s less",
           (unsigned long long)count_sequences(p), p->o.n_ctx, ig_bytes_text(need, info.total - info.weights),
           ig_bytes_text(room, available), are_many ? "," : " or",
           are_many ? " or fewer of them (-np) take" : " takes");
}
