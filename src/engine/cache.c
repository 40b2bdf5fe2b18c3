/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that sessions share: opening, what it imposes on them, statistics.
 */
#include "engine/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/identity.h"

/* ---- opening ------------------------------------------------------------------------ */

/* What K and V of a prompt depend on beside its tokens, bit by bit, and how they are laid out. */
static ig_prefix_id root_of(const ig_model *m, const ig_kv_memory *memory, ig_kv_type type, bool has_answers,
                            bool is_stored) {
    enum { LAYOUT = 3 };
    struct {
        char version[32], cpu[16];
        uint64_t model, weights[2], piece_bytes;
        int32_t layout, type, piece_tokens, has_answers;
    } facts = {.model = m->identity,
               .piece_bytes = ig_kv_piece_bytes(memory),
               .layout = LAYOUT,
               .type = (int32_t)type,
               .piece_tokens = ig_kv_piece_tokens(memory),
               .has_answers = has_answers};
    if (is_stored) ig_model_hash_weights(facts.weights, m);
    snprintf(facts.version, sizeof facts.version, "%s", ig_version());
    snprintf(facts.cpu, sizeof facts.cpu, "%s", ig_context_arithmetic(m->ctx));
    return ig_prefix_root(&facts, sizeof facts);
}

/* Notes are about tokens: they serve every version, processor and KV type. */
static ig_prefix_id root_of_notes(const ig_model *m) {
    struct {
        char what[8];
        uint64_t model;
    } facts = {"notes", m->identity};
    return ig_prefix_root(&facts, sizeof facts);
}

/* Another root for each of the bytes that may follow this one. */
static ig_prefix_id root_behind(ig_prefix_id root, const void *bytes, size_t n) {
    const struct { ig_prefix_id root, bytes; } both = {root, ig_prefix_root(bytes, n)};
    return ig_prefix_root(&both, sizeof both);
}

/* Whether sessions with these scales compute what the model computes by itself. */
static bool are_own_scales(const ig_model *m, const float *scales) {
    for (int i = 0; scales && i < m->n_adapters; i++)
        if (scales[i] != (float)m->adapters[i].scale) return false;
    return true;
}

/* What keys and values of prompts depend on where tokens of these choose; else all 0. */
typedef struct chosen_by {
    char policy[16];
    double budget;
    int64_t entries;
} chosen_by;

static chosen_by in_prompts(const ig_cache_options *o) {
    chosen_by by = {0};
    ig_cache_options own = *o;
    const ig_policy_ops *ops;
    if (ig_policy_find(&ops, &own, NULL) || !ops->info.chooses_in_prompts) return by;
    snprintf(by.policy, sizeof by.policy, "%s", ops->info.name);
    by.budget = o->budget, by.entries = o->budget_entries;
    return by;
}

bool ig_cache_same_prompts(const ig_cache_options *a, const ig_cache_options *b) {
    chosen_by x = in_prompts(a), y = in_prompts(b);
    return memcmp(&x, &y, sizeof x) == 0;
}

ig_prefix_id ig_cache_root(const ig_cache *c, const ig_session_options *o) {
    const ig_model *m = c->model;
    const char *salt = o->cache.salt;
    ig_prefix_id root = salt ? root_behind(c->root, salt, strlen(salt)) : c->root;
    chosen_by by = in_prompts(&o->cache);
    if (*by.policy) root = root_behind(root, &by, sizeof by);
    if (are_own_scales(m, o->adapter_scales)) return root;
    root = root_behind(root, m->all_adapters_hash, sizeof m->all_adapters_hash);
    return root_behind(root, o->adapter_scales, (size_t)m->n_adapters * sizeof *o->adapter_scales);
}

static ig_status open_store(ig_cache *c, const ig_session_plan *p, ig_error *err) {
    char kind[64];
    const char *slash = strrchr(c->model->path, '/');
    snprintf(kind, sizeof kind, "%s, %s", ig_kv_type_name(p->tiers.type), ig_context_arithmetic(c->model->ctx));
    ig_keeper_options o = {.directory = p->o.cache.memory.store_path,
                           .model = slash ? slash + 1 : c->model->path,
                           .kind = kind,
                           .max_bytes = p->o.cache.memory.store_bytes,
                           .root = c->root,
                           .notes = root_of_notes(c->model)};
    return ig_keeper_open(&c->keeper, c->model->ctx, c->memory, &o, err);
}

/* If that fails, its sessions have no guesses. */
static void open_drafts(ig_cache *c, const ig_session_plan *p) {
    ig_error err;
    if (!p->n_draft || !p->o.draft_model) c->options.draft_model = NULL;
    if (!c->options.draft_model) return;
    ig_session_options o = ig_draft_model_options(p);
    if (ig_cache_open(&c->drafts, p->o.draft_model, &o, &err) == IG_OK) return;
    ig_log(c->model->ctx, IG_LOG_WARN, "the draft model guesses nothing: %s", err.text);
    c->options.draft_model = NULL;
}

/* As planned. */
static ig_status open_cache(ig_cache *c, ig_model *m, const ig_session_plan *p, ig_error *err) {
    *c = (ig_cache){
        .model = m, .options = p->o, .tiers = p->tiers, .least_dropping = p->tiers.limit ? p->tiers.n_dropping : 0};
    ig_status s = ig_kv_memory_open(&c->memory, &p->kv, &p->tiers, err);
    if (s) return s;
    bool is_stored = p->o.cache.memory.store_path != NULL;
    c->root = root_of(m, c->memory, p->tiers.type, p->o.cache.memory.share_answers, is_stored);
    if (is_stored) s = open_store(c, p, err);
    ig_session_forget_names(&c->options.cache, NULL);
    c->options.adapter_scales = NULL;
    c->options.cache.memory.type = ig_kv_type_name(p->tiers.type);
    c->options.cache.memory.evict = ig_evict_name(p->tiers.evict);
    c->tiers.disk_path = NULL;
    if (!s) open_drafts(c, p);
    return s;
}

ig_status ig_cache_open(ig_cache **out, ig_model *m, const ig_session_options *options, ig_error *err) {
    if (out) *out = NULL;
    if (!out || !m) return ig_fail(err, IG_E_ARG, "ig_cache_open: model and result are needed");
    ig_session_options o = options ? *options : ig_session_defaults();
    if (o.cache.memory.n_sessions == 0) o.cache.memory.n_sessions = 1;
    if (o.shared) return ig_fail(err, IG_E_ARG, "ig_cache_open: a cache does not lie in another");
    ig_session_plan p;
    ig_status s = ig_session_make_plan(&p, m, &o, err);
    if (s) return s;
    ig_session_warn_of_size(&p, m);
    ig_cache *c = calloc(1, sizeof *c);
    s = c ? open_cache(c, m, &p, err) : ig_fail_memory(err, "KV cache", sizeof *c);
    ig_session_give_sketch(m, p.sketch);
    if (s)
        ig_cache_close(c);
    else
        *out = c;
    return s;
}

void ig_cache_close(ig_cache *c) {
    if (!c) return;
    ig_cache_close(c->drafts);
    ig_keeper_close(&c->keeper);
    ig_kv_memory_close(c->memory);
    free(c);
}

ig_status ig_cache_commit(ig_cache *c, ig_error *err) {
    if (!c) return ig_fail(err, IG_E_ARG, "ig_cache_commit: a cache is needed");
    ig_batch *turn = ig_batch_enter(&c->model->batch);
    ig_status s = ig_keeper_commit(&c->keeper, err);
    ig_batch_end(turn);
    return s;
}

/* ---- sessions ------------------------------------------------------------------------ */

ig_status ig_cache_impose(ig_session_options *o, const ig_model *m, ig_error *err) {
    const ig_cache *c = o->shared;
    const ig_memory_options *from = &c->options.cache.memory;
    ig_memory_options *to = &o->cache.memory;
    if (c->model != m) return ig_fail(err, IG_E_ARG, "the KV cache was opened for another model");
    o->draft_model = c->options.draft_model;
    if (o->n_ctx == 0) o->n_ctx = c->options.n_ctx;
    if (o->n_ctx > c->options.n_ctx || o->n_batch > c->options.n_batch)
        return ig_fail(err, IG_E_LIMIT,
                       "a context of %d tokens in steps of %d: the KV cache was opened for at most %d and %d", o->n_ctx,
                       o->n_batch, c->options.n_ctx, c->options.n_batch);
    ig_memory_options memory = *from;
    memory.disk_path = from->disk_bytes || from->map ? "" : NULL; /* it is open already */
    memory.limit = to->limit;                                     /* see ig_cache_check() */
    memory.limit_bytes = to->limit_bytes;
    *to = memory;
    return IG_OK;
}

ig_status ig_cache_check(const ig_cache *c, const ig_session_plan *p, ig_error *err) {
    if (p->tiers.limit != c->tiers.limit)
        return ig_fail(err, IG_E_ARG, "the KV cache was opened with another limit than this session asks for");
    if (p->tiers.n_dropping > c->tiers.n_dropping)
        return ig_fail(err, IG_E_ARG,
                       "KV policy %s drops entries: the KV cache was opened with a policy that drops fewer or none",
                       p->ops->info.name);
    if (p->tiers.n_dropping < c->least_dropping)
        return ig_fail(err, IG_E_ARG,
                       "KV policy %s would drop entries in %d layers only: the KV cache, which has a limit, was opened "
                       "for %d",
                       p->ops->info.name, p->tiers.n_dropping, c->least_dropping);
    return IG_OK;
}

/* ---- statistics ------------------------------------------------------------------------- */

void ig_cache_get_stats(const ig_cache *c, ig_cache_stats *out) {
    if (!out) return;
    *out = (ig_cache_stats){0};
    if (!c) return;
    ig_batch *turn = ig_batch_enter(&c->model->batch);
    ig_kv_stats kv;
    ig_kv_memory_get_stats(c->memory, &kv);
    uint64_t piece = (uint64_t)ig_kv_piece_tokens(c->memory);
    *out = (ig_cache_stats){.n_sessions = (int)kv.n_sequences,
                            .tokens = kv.n_pieces * piece,
                            .kept_tokens = kv.n_kept_pieces * piece,
                            .taken_tokens = c->taken_tokens,
                            .read_tokens = c->keeper.n_taken * piece,
                            .put_tokens = c->keeper.n_kept * piece,
                            .kv_bytes = kv.ram_bytes,
                            .disk_bytes = kv.disk_bytes,
                            .sketch_bytes = kv.table_bytes,
                            .read_bytes = kv.read_bytes,
                            .written_bytes = kv.written_bytes,
                            .demoted = kv.demoted,
                            .recalled = kv.recalled,
                            .stall_seconds = kv.stall_seconds,
                            .vram_bytes = kv.vram_bytes,
                            .vram_hits = kv.bus.hits,
                            .vram_copied = kv.bus.copied,
                            .vram_rows = kv.bus.rows,
                            .vram_read_bytes = kv.bus.bytes};
    ig_batch_end(turn);
}
