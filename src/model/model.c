/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a model: files, configuration, weights, tokenizer, RoPE frequencies.
 */
#define _GNU_SOURCE
#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "model/identity.h"
#include "model/weight_unpack.h"

enum { MAX_GROUP = 128 }; /* query heads that share a KV head: one prefill tile must hold a position's group */

ig_model_options ig_model_defaults(void) { return (ig_model_options){0}; }

/* Llama 3.1's rule (transformers' rope_type "llama3"): long wavelengths are stretched by `factor`, short ones kept,
 * those between blended. */
static double llama3_frequency(const ig_config *c, double f) {
    double wavelength = 2 * acos(-1.0) / f;
    if (wavelength < c->rope.original_ctx / c->rope.high_freq) return f;
    if (wavelength > c->rope.original_ctx / c->rope.low_freq || c->rope.high_freq == c->rope.low_freq)
        return f / c->rope.factor; /* the latter: there are none between (Llama 4) */
    double smooth = (c->rope.original_ctx / wavelength - c->rope.low_freq) / (c->rope.high_freq - c->rope.low_freq);
    return (1 - smooth) * f / c->rope.factor + smooth * f;
}

/* The number i, not whole, of the frequency that makes so many turns in the original context. */
static double number_of(const ig_config *c, double turns) {
    return c->rope.n * log(c->rope.original_ctx / (turns * 2 * acos(-1.0))) / (2 * log(c->rope.theta));
}

/* YaRN's rule (arXiv 2309.00071; "yarn"): low frequencies are divided by `factor`, high ones kept, and those between
 * blended by their number, between whole numbers unless the model says otherwise. */
static double yarn_frequency(const ig_config *c, int i, double f) {
    double first = number_of(c, c->rope.high_freq), last = number_of(c, c->rope.low_freq);
    first = fmax(c->rope.is_exact ? first : floor(first), 0);
    last = fmin(c->rope.is_exact ? last : ceil(last), c->rope.n - 1);
    double divided = fmin(fmax((i - first) / (last == first ? 0.001 : last - first), 0), 1);
    return (1 - divided) * f + divided * f / c->rope.factor;
}

static void set_frequencies(ig_model *m) {
    const ig_config *c = &m->config;
    int n_local = ig_config_n_rot(c, IG_ROPE_LOCAL);
    for (int i = 0; i < n_local / 2; i++) m->inv_freq[IG_ROPE_LOCAL][i] = pow(c->rope.local_theta, -2.0 * i / n_local);
    for (int i = 0; i < c->rope.n / 2; i++) {
        double f = pow(c->rope.theta, -2.0 * i / c->rope.n) / c->rope.linear;
        if (c->rope.blend == IG_BLEND_LLAMA3) f = llama3_frequency(c, f);
        if (c->rope.blend == IG_BLEND_YARN) f = yarn_frequency(c, i, f);
        if (c->rope.blend == IG_BLEND_LONGROPE && !m->weights.rope_factors) f /= (double)c->rope.divisors[i];
        if (m->weights.rope_factors) f /= (double)m->weights.rope_factors[i];
        m->inv_freq[IG_ROPE_MAIN][i] = f;
    }
}

static ig_status open_stream(ig_model *m, const ig_model_options *o, ig_error *err) {
    size_t n = m->gguf ? ig_gguf_n_files(m->gguf) : ig_safetensors_n_files(m->st);
    ig_weight_file *files = calloc(n, sizeof *files);
    if (!files) return ig_fail_memory(err, "list of files", n * sizeof *files);
    for (size_t i = 0; i < n; i++)
        files[i].file =
            m->gguf ? ig_gguf_file(m->gguf, i, &files[i].path) : ig_safetensors_file(m->st, i, &files[i].path);
    ig_weight_stream_options options = {.ram_bytes = o->weights_ram,
                                        .fixed_bytes = m->weights.owned.size + m->key_frames.arena.size,
                                        .panels = o->no_repack ? NULL : m->ctx->device,
                                        .progress = o->progress,
                                        .progress_user = o->progress_user};
    ig_status s = IG_OK;
    if (m->config.experts.n)
        s = ig_expert_cache_open(&m->experts, &m->weights, &m->config, files, n, options.panels, err);
    if (m->experts) options.expert_bytes = ig_expert_cache_least(m->experts);
    if (!s) s = ig_weight_stream_open(&m->stream, &m->weights, m->config.n_layers, files, n, &options, err);
    free(files);
    if (s || !m->experts) return s;
    ig_weight_stats others;
    ig_weight_stream_get_stats(m->stream, &others);
    return ig_expert_cache_fill(m->experts, o->weights_ram - others.ram_bytes, o->progress, o->progress_user, err);
}

/* Whether all weights fit into a limit of a device's memory. */
static ig_status fit_all(bool *fits, ig_model *m, uint64_t vram_bytes, ig_error *err) {
    ig_weight_plan all;
    ig_status s = ig_weight_plan_open(&all, &m->weights, m->config.n_layers, true, NULL, NULL, err);
    if (s) return s;
    *fits = all.bytes <= vram_bytes;
    ig_weight_plan_close(&all);
    return IG_OK;
}

/* Experts get what all else leaves of the limit, if not all of them find room. */
static ig_status open_lanes(ig_model *m, ig_weight_lane_options *o, ig_error *err) {
    ig_device *d = m->ctx->device;
    bool fits = true;
    ig_status s = IG_OK;
    if (o->vram_bytes && m->config.experts.n)
        s = fit_all(&fits, m, o->vram_bytes < o->fixed_bytes ? 0 : o->vram_bytes - o->fixed_bytes, err);
    if (!s && !fits) s = ig_expert_lane_open(&m->expert_lane, d, &m->weights, &m->config, err);
    if (m->expert_lane) o->expert_bytes = ig_expert_lane_least(m->expert_lane);
    if (!s) s = ig_weight_lane_open(&m->lane, d, &m->weights, m->config.n_layers, o, err);
    if (s || !m->expert_lane) return s;
    ig_weight_stats others;
    ig_weight_lane_get_stats(m->lane, &others);
    return ig_expert_lane_fill(m->expert_lane, o->vram_bytes - others.vram_bytes, o->is_copied, o->progress,
                               o->progress_user, err);
}

/* A device with a memory of its own gets copies. */
static ig_status open_lane(ig_model *m, const ig_model_options *o, bool is_copied, ig_error *err) {
    ig_device *d = m->ctx->device;
    const ig_arena *vectors[] = {&m->weights.owned, &m->key_frames.arena};
    ig_weight_lane_options options = {.vram_bytes = o->weights_vram,
                                      .is_copied = is_copied,
                                      .progress = is_copied ? NULL : o->progress,
                                      .progress_user = o->progress_user};
    ig_status s = IG_OK;
    for (size_t i = 0; i < IG_COUNT(vectors) && !s; i++) {
        options.fixed_bytes += vectors[i]->size;
        if (vectors[i]->size) s = d->ops->bind(d, vectors[i]->base, vectors[i]->size, err);
    }
    return s ? s : open_lanes(m, &options, err);
}

static void close_lane(ig_model *m) {
    ig_device *d = m->ctx->device;
    if (d->ops->is_host) return;
    ig_expert_lane_close(m->expert_lane);
    ig_weight_lane_close(m->lane);
    d->ops->unbind(d, m->weights.owned.base);
    d->ops->unbind(d, m->key_frames.arena.base);
}

/* Of a map that is larger than memory the system keeps what was read last, which is what is read last again. */
static void warn_of_size(const ig_model *m) {
    uint64_t room = ig_memory_available(), bytes = m->weights.stored_bytes;
    char weights[64], available[64];
    if (bytes <= room) return;
    ig_log(m->ctx, IG_LOG_WARN,
           "%s: weights of %s are more than the %s of memory that are available: with a limit "
           "(--weights-ram SIZE) they are read faster",
           m->path, ig_bytes_text(weights, bytes), ig_bytes_text(available, room));
}

/* Mapped weights can leave memory when it is short, panels cannot. */
static bool has_room_for_panels(ig_model *m) {
    uint64_t bytes = ig_weights_panel_bytes(&m->weights, &m->config, m->ctx->device), room = ig_memory_available();
    if (bytes <= room / 4 * 3) return true;
    ig_log(m->ctx, IG_LOG_INFO,
           "%s: %llu bytes for weights in the order that is fastest are too many: they stay in the "
           "file's",
           m->path, (unsigned long long)bytes);
    return false;
}

/* What is left over of the files leaves memory again, where they are copied; its bytes. */
static uint64_t forget_unused(const ig_model *m) {
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < ig_model_count_tensors(m); i++) {
        const ig_tensor *t = ig_model_tensor_at(m, i);
        if (m->weights.is_used[i]) continue;
        ig_file_forget(t->data, t->n_bytes);
        n_bytes += t->n_bytes;
    }
    return n_bytes;
}

/* Its own name, or a directory's or file's. */
static char *name_adapter(const ig_adapter *a) {
    if (a->name) return strdup(a->name);
    size_t n = strlen(a->path);
    while (n > 1 && a->path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin > 0 && a->path[begin - 1] != '/') begin--;
    if (n - begin > 5 && strncmp(a->path + n - 5, ".gguf", 5) == 0) n -= 5;
    return strndup(a->path + begin, n - begin);
}

/* The caller's list of adapters is kept, too. */
static ig_status copy_adapters(ig_model *m, const ig_model_options *o, ig_error *err) {
    if (o->n_adapters < 0 || (o->n_adapters && !o->adapters))
        return ig_fail(err, IG_E_ARG, "ig_model_open: there is no list of %d adapters", o->n_adapters);
    if (o->n_adapters > IG_ADAPTERS_MAX)
        return ig_fail(err, IG_E_LIMIT, "ig_model_open: %d adapters, at most %d are supported", o->n_adapters,
                       IG_ADAPTERS_MAX);
    if (!o->n_adapters) return IG_OK;
    m->adapters = calloc((size_t)o->n_adapters, sizeof *m->adapters);
    if (!m->adapters) return ig_fail_memory(err, "list of adapters", (size_t)o->n_adapters * sizeof *m->adapters);
    while (m->n_adapters < o->n_adapters) {
        const ig_adapter *from = &o->adapters[m->n_adapters];
        if (!from->path) return ig_fail(err, IG_E_ARG, "ig_model_open: an adapter needs a path");
        char *path = strdup(from->path), *name = name_adapter(from);
        m->adapters[m->n_adapters++] = (ig_adapter){path, from->scale, name};
        if (!path || !name) return ig_fail_memory(err, "path", strlen(from->path));
    }
    return IG_OK;
}

static ig_status bind_weights(ig_model *m, ig_error *err) {
    ig_adapters adapters;
    ig_status s = ig_adapters_open(&adapters, m->adapters, m->n_adapters, &m->config, m->gguf != NULL, err);
    if (s) return s;
    s = ig_weights_bind(&m->weights, &m->config, m->gguf, m->st, &adapters, err);
    m->config.low_rank = m->weights.low_rank;
    m->config.n_adapters = m->n_adapters;
    memcpy(m->adapters_hash, adapters.hash, sizeof m->adapters_hash);
    memcpy(m->all_adapters_hash, adapters.hash_of_all, sizeof m->all_adapters_hash);
    ig_adapters_close(&adapters);
    return s;
}

/* Weights that are unpacked count as copied: there is no file that they could be read from again. */
static ig_status open_weights(ig_model *m, bool is_directory, const ig_model_options *o, ig_loading *loading,
                              ig_error *err) {
    ig_loading *copy = o->no_mmap ? loading : NULL;
    ig_status s;
    if (is_directory) {
        s = ig_config_from_hf(&m->config, m->path, err);
        if (!s) s = ig_safetensors_open(&m->st, m->path, "model", copy, err);
        if (!s) s = ig_weights_unpack(m->st, m->ctx->device, &m->config, loading, err);
    } else {
        s = ig_config_from_gguf(&m->config, m->gguf, err);
    }
    if (s) return s;
    const ig_config *c = &m->config;
    bool is_unpacked = m->st && ig_safetensors_is_replaced(m->st), is_copied = copy || is_unpacked;
    if (c->head_dim % 8)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: head dimension %d is not a multiple of 8", m->path, c->head_dim);
    int group = ig_max_int(c->n_heads / c->n_kv_heads, c->local_heads / ig_max_int(c->local_kv_heads, 1));
    if (group > MAX_GROUP)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: %d query heads share a KV head, at most %d are supported", m->path,
                       group, MAX_GROUP);
    if (c->n_recurrent && !m->ctx->device->ops->recur && !m->ctx->device->ops->is_plan)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: layers with a recurrence are not computed on %s", m->path,
                       m->ctx->device_name);
    if (c->score_cap > 0 && !m->ctx->device->ops->is_host)
        return ig_fail(err, IG_E_UNSUPPORTED, "%s: a cap on scores is not computed on %s", m->path,
                       m->ctx->device_name);
    s = copy_adapters(m, o, err);
    if (!s) s = bind_weights(m, err);
    if (s) return s;
    m->has_weights = true;
    set_frequencies(m);
    s = ig_key_frames_open(&m->key_frames, c, &m->weights, m->inv_freq, err);
    if (s) return s;
    m->identity = ig_model_identity_of(m);
    if (is_copied) {
        if (!m->ctx->device->ops->is_plan) ig_model_hash_weights(m->copied_hash, m);
        uint64_t unused = forget_unused(m);
        m->copied_bytes = is_unpacked ? m->weights.stored_bytes : copy->done - unused;
    }
    if (!m->ctx->device->ops->is_host) return open_lane(m, o, is_copied, err);
    if (o->weights_ram && is_unpacked)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: weights as AWQ, GPTQ and others pack them, and experts by columns, are rewritten in memory "
                       "when they are opened: they "
                       "cannot have a limit (weights_ram)",
                       m->path);
    if (o->weights_ram) return open_stream(m, o, err);
    if (!is_copied) warn_of_size(m);
    ig_load_options load = {.is_copied = is_copied,
                            .panels = !o->no_repack && has_room_for_panels(m),
                            .progress = is_copied ? NULL : o->progress,
                            .progress_user = o->progress_user};
    return ig_weights_load(&m->weights, c, m->ctx->device, &load, err);
}

static ig_status open_tokenizer(ig_model *m, bool is_directory, const ig_model_options *o, ig_error *err) {
    ig_error why = {0};
    ig_status s = is_directory
                      ? ig_tokenizer_from_hf(&m->tokenizer, m->path, m->has_weights ? m->config.n_vocab : 0, &why)
                      : ig_tokenizer_from_gguf(&m->tokenizer, m->gguf, &why);
    if (s == IG_E_NOT_FOUND && !o->tokenizer_only) {
        ig_log(m->ctx, IG_LOG_INFO, "%s: no tokenizer: token ids only", m->path);
        return IG_OK;
    }
    if (s) {
        if (err) *err = why;
        return s;
    }
    if (m->has_weights && ig_tokenizer_n_vocab(m->tokenizer) > m->config.n_vocab)
        return ig_fail(err, IG_E_FORMAT, "%s: the tokenizer has %d tokens, the model's embedding only %d", m->path,
                       ig_tokenizer_n_vocab(m->tokenizer), m->config.n_vocab);
    const char *text = o->chat_template;
    s = text ? ig_tokenizer_set_chat_template(m->tokenizer, text, strlen(text), err) : IG_OK;
    return s ? s : ig_chat_open(&m->chat, m->tokenizer, err);
}

/* As much as fits, fit to be printed. */
static void copy_text(char *out, size_t cap, ig_text text) {
    snprintf(out, cap, "%.*s", (int)(text.size < cap ? text.size : cap), text.data);
    ig_make_harmless(out);
}

/* What can be told of any file. */
static void describe_contents(ig_model *m) {
    ig_text text;
    ig_status ignored = IG_OK;
    ig_tensor_info t;
    if (m->gguf && ig_gguf_string(m->gguf, "general.architecture", &text, &ignored, NULL))
        copy_text(m->config.architecture, sizeof m->config.architecture, text);
    if (m->gguf && ig_gguf_string(m->gguf, "general.name", &text, &ignored, NULL))
        copy_text(m->config.name, sizeof m->config.name, text);
    for (size_t i = 0; ig_model_tensor(m, i, &t); i++) {
        m->weights.stored_bytes += t.bytes;
        m->weights.n_params += t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3];
    }
}

ig_status ig_model_open(ig_model **out, ig_context *ctx, const char *path, const ig_model_options *options,
                        ig_error *err) {
    if (out) *out = NULL;
    if (!out || !ctx || !path) return ig_fail(err, IG_E_ARG, "ig_model_open: context, path and result are needed");
    ig_model_options o = options ? *options : ig_model_defaults();
    if (o.weights_ram && (o.no_mmap || o.tokenizer_only || o.metadata_only))
        return ig_fail(err, IG_E_ARG,
                       "ig_model_open: weights_ram cannot be combined with what loads no weights or copies all");
    if (o.n_adapters && (o.tokenizer_only || o.metadata_only))
        return ig_fail(err, IG_E_ARG, "ig_model_open: adapters cannot be combined with what loads no weights");
    const ig_device_ops *device = ctx->device->ops;
    if (o.weights_ram && !device->is_host)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: a limit on the weights' RAM is for the CPU; for %s it is weights_vram", path, device->name);
    if (o.weights_vram && device->is_host)
        return ig_fail(err, IG_E_ARG, "%s: the device %s has no memory of its own that weights_vram could limit", path,
                       ctx->device_name);
    bool is_directory = ig_path_is_directory(path);
    ig_status s = IG_OK;
    ig_model *m = calloc(1, sizeof *m);
    if (m) m->path = malloc(strlen(path) + 1);
    if (!m || !m->path) {
        s = ig_fail_memory(err, "model", sizeof *m);
        goto fail;
    }
    strcpy(m->path, path);
    m->ctx = ctx;
    ig_batch_init(&m->batch);
    ig_sketches_init(&m->sketches);
    ig_words_init(&m->words);
    ig_loading loading = {.progress = o.progress, .user = o.progress_user};
    ig_loading *copy = o.no_mmap && !o.tokenizer_only && !o.metadata_only ? &loading : NULL;
    if (!is_directory) s = ig_gguf_open(&m->gguf, path, copy, err);
    if (!s && o.metadata_only) {
        if (is_directory) s = ig_safetensors_open(&m->st, path, "model", NULL, err);
        if (!s) describe_contents(m);
    } else {
        if (!s && !o.tokenizer_only) s = open_weights(m, is_directory, &o, &loading, err);
        if (!s) ig_sampling_advice_read(&m->sampling, m->gguf, path);
        if (!s) s = open_tokenizer(m, is_directory, &o, err);
    }
    if (s) goto fail;
    *out = m;
    return IG_OK;
fail:
    ig_model_close(m);
    return s;
}

void ig_model_close(ig_model *m) {
    if (!m) return;
    if (m->ctx) close_lane(m);
    ig_chat_close(&m->chat);
    ig_tokenizer_close(m->tokenizer);
    ig_expert_cache_close(m->experts);
    ig_weight_stream_close(m->stream);
    ig_key_frames_close(&m->key_frames);
    ig_weights_close(&m->weights);
    ig_safetensors_close(m->st);
    ig_gguf_close(m->gguf);
    if (m->ctx) ig_batch_close(&m->batch);
    if (m->ctx) ig_sketches_close(&m->sketches);
    if (m->ctx) ig_words_close(&m->words);
    for (int i = 0; i < m->n_adapters; i++) {
        free((char *)(uintptr_t)m->adapters[i].path);
        free((char *)(uintptr_t)m->adapters[i].name);
    }
    free(m->adapters);
    free(m->path);
    free(m);
}

ig_status ig_model_check(const ig_model *m, ig_error *err) {
    const char *path = m->changed;
    if (!path) path = m->gguf ? ig_gguf_changed(m->gguf) : m->st ? ig_safetensors_changed(m->st) : NULL;
    if (!path) return IG_OK;
    ((ig_model *)(uintptr_t)m)->changed = path;
    return ig_fail(err, IG_E_CHANGED, "%s: was changed while it was in use; open the model again", path);
}

ig_status ig_model_get_words(const ig_words **out, const ig_model *m, ig_error *err) {
    ig_words *words = &((ig_model *)(uintptr_t)m)->words;
    *out = words;
    return ig_words_make(words, m->tokenizer, m->config.n_vocab, err);
}

ig_status ig_model_check_ids(const ig_model *m, const int32_t *ids, int first, int n, ig_error *err) {
    int n_vocab = m->config.n_vocab;
    for (int i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return ig_fail(err, IG_E_ARG, "token %d at position %d is not in the vocabulary of %d", ids[i], first + i,
                           n_vocab);
    return IG_OK;
}

void ig_model_get_weight_stats(const ig_model *m, ig_weight_stats *stats) {
    if (!stats) return;
    *stats = (ig_weight_stats){0};
    if (m && m->stream) ig_weight_stream_get_stats(m->stream, stats);
    if (m) ig_expert_cache_add_stats(m->experts, stats);
    if (m && m->lane) ig_weight_lane_get_stats(m->lane, stats);
    if (m) ig_expert_lane_add_stats(m->expert_lane, stats);
}

/* Of the weights, what is not mapped. */
static uint64_t count_private(const ig_model *m) {
    ig_weight_stats st;
    ig_model_get_weight_stats(m, &st);
    if (st.ram_bytes || st.vram_bytes) return st.ram_bytes + st.vram_bytes;
    uint64_t copied = m->copied_bytes ? m->copied_bytes - m->weights.replaced_bytes : 0;
    return m->weights.owned.size + m->weights.panels.size + m->key_frames.arena.size + copied;
}

/* Of experts only those that are used are read. */
static uint64_t count_left_out(const ig_weights *w, const ig_config *c) {
    uint64_t experts = 0;
    if (!w->layers || !c->experts.n) return 0;
    for (int l = 0; l < c->n_layers; l++)
        for (int e = 0; w->layers[l].router.w && e < w->layers[l].n_experts; e++) {
            const ig_ffn *f = &w->layers[l].experts[e];
            experts += ig_matrix_bytes(&f->gate) + ig_matrix_bytes(&f->up) + ig_matrix_bytes(&f->down);
        }
    return experts / (uint64_t)c->experts.n * (uint64_t)(c->experts.n - c->experts.n_used);
}

/* Tables are not read whole, unless one is the output matrix too. */
static uint64_t count_decode_bytes(const ig_weights *w, const ig_config *c) {
    return w->stored_bytes - ig_matrix_bytes(&w->positions) - ig_matrix_bytes(&w->input_table) -
           (w->is_tied ? 0 : ig_matrix_bytes(&w->embed)) - count_left_out(w, c);
}

static int widest_window(const ig_config *c) {
    int widest = 0;
    for (int l = 0; l < c->n_layers; l++) widest = c->window[l] > widest ? c->window[l] : widest;
    return widest;
}

/* Of the tensors that are used. */
static const char *find_weight_type(const ig_model *m) {
    uint64_t bytes[IG_TYPE_COUNT] = {0};
    uint32_t most = 0;
    for (size_t i = 0; m->has_weights && i < ig_model_count_tensors(m); i++) {
        const ig_tensor *t = ig_model_tensor_at(m, i);
        if (!m->weights.is_used[i] || (uint32_t)t->type >= IG_TYPE_COUNT) continue;
        bytes[t->type] += t->n_bytes;
        if (bytes[t->type] > bytes[most]) most = (uint32_t)t->type;
    }
    return bytes[most] ? ig_type_get(most)->name : "";
}

void ig_model_get_info(const ig_model *m, ig_model_info *info) {
    if (!info) return;
    if (!m) {
        *info = (ig_model_info){.path = "", .architecture = "", .name = ""};
        return;
    }
    const ig_config *c = &m->config;
    *info = (ig_model_info){
        .path = m->path,
        .architecture = c->architecture,
        .name = c->name,
        .n_layers = c->n_layers,
        .n_attention_layers = ig_config_attention_layers(c),
        .n_sharing_layers = c->n_layers_sharing,
        .state_bytes = ig_config_state_bytes(c),
        .n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .d_model = c->d_model,
        .d_ff = c->d_ff,
        .n_experts = c->experts.n,
        .n_experts_used = c->experts.n_used,
        .n_expert_layers = ig_config_expert_layers(c),
        .d_ff_shared = c->experts.d_shared,
        .n_vocab = m->has_weights ? c->n_vocab
                   : m->tokenizer ? ig_tokenizer_n_vocab(m->tokenizer)
                                  : 0,
        .n_ctx_train = c->n_ctx_train,
        .sliding_window = m->has_weights ? widest_window(c) : 0,
        .local_kv_heads = c->local_kv_heads,
        .local_head_dim = c->local_head_dim,
        .n_params = m->weights.n_params,
        .weight_bytes = m->weights.stored_bytes,
        .weight_type = find_weight_type(m),
        .decode_bytes = count_decode_bytes(&m->weights, c),
        .private_bytes = count_private(m),
        .adapters = m->adapters,
        .n_adapters = m->n_adapters,
        .n_index_heads = c->index.n_heads,
        .index_dim = c->index.dim,
        .n_index_chosen = c->index.n_chosen,
        .index_block = c->index.block,
        .policy = ig_config_policy(c),
        .pooling = c->pooling,
        .ranks = m->weights.n_classes > 0,
        .has_tokenizer = m->tokenizer != NULL,
        .chat_template = m->tokenizer ? ig_tokenizer_chat_template(m->tokenizer) : NULL,
        .chat_error = m->chat.why.status ? m->chat.why.text : NULL,
    };
}

double ig_model_rank(const ig_model *m, const float *state) {
    double y[2] = {0, 0};
    if (!m || !state || !m->weights.n_classes) return NAN;
    for (int k = 0; k < m->weights.n_classes; k++)
        for (int i = 0; i < m->config.d_model; i++)
            y[k] += (double)m->weights.classes[(size_t)k * (size_t)m->config.d_model + (size_t)i] * (double)state[i];
    return 1 / (1 + exp(y[1] - y[0]));
}

bool ig_model_meta(const ig_model *m, size_t i, const char **key, char *value, size_t cap) {
    if (!m || !m->gguf || i >= ig_gguf_n_values(m->gguf) || ig_gguf_changed(m->gguf)) return false;
    const ig_gguf_value *v = ig_gguf_value_at(m->gguf, i);
    if (key) *key = v->key;
    if (value) ig_gguf_print(v, value, cap);
    return true;
}

bool ig_model_tensor(const ig_model *m, size_t i, ig_tensor_info *info) {
    if (!m || !info || i >= ig_model_count_tensors(m)) return false;
    const ig_tensor *t = ig_model_tensor_at(m, i);
    *info = (ig_tensor_info){.name = t->name,
                             .type = ig_type_get(t->type)->name,
                             .n_dims = t->n_dims,
                             .bytes = t->n_bytes,
                             .is_used = m->has_weights && m->weights.is_used[i]};
    memcpy(info->dims, t->dims, sizeof info->dims);
    return true;
}
