/* SPDX-License-Identifier: Apache-2.0
 *
 * The KV store: sizes, opening, adding tokens, dropping them, statistics. Block tables over the frame pool.
 */
#include "kv/store_parts.h"

#include <stdlib.h>

#include "base/error.h"

/* What the disk tier's own tables take per block, at most. */
enum { TIER_BYTES = 32 };

static const ig_kv_options in_ram = {0};

/* ---- sizes ------------------------------------------------------------------- */

/* The most tokens, a power of two, whose K and V fit one frame. */
static int block_shift(size_t row_bytes) {
    int shift = 0;
    while (((size_t)2 << shift) * row_bytes * 2 <= IG_FRAME_BYTES) shift++;
    return shift;
}

int ig_kv_block_tokens(int head_dim, ig_kv_type type) { return 1 << block_shift(ig_kv_row_bytes(type, head_dim)); }

/* Fills in what follows from the shape; false if it cannot be counted. */
static bool count_sizes(ig_kv *kv, const ig_kv_shape *s, const ig_kv_options *o, size_t *n_blocks) {
    kv->shape = *s;
    kv->type = o->type;
    kv->row_bytes = ig_kv_row_bytes(kv->type, s->head_dim);
    kv->row_lines = ig_kv_row_lines(kv->type, s->head_dim);
    kv->shift = block_shift(kv->row_bytes);
    kv->table_len = ig_kv_blocks_for(kv, s->n_ctx);
    kv->unit_blocks = (size_t)IG_ATTEND_UNIT >> kv->shift;
    size_t bytes;
    return ig_mul_size(&kv->n_tables, (size_t)s->n_layers, (size_t)s->n_kv_heads) &&
           ig_mul_size(&kv->layer_blocks, (size_t)s->n_kv_heads, kv->table_len) &&
           ig_mul_size(n_blocks, kv->n_tables, kv->table_len) && *n_blocks < UINT32_MAX &&
           ig_mul_size(&bytes, *n_blocks, IG_FRAME_BYTES + ig_kv_block_line_bytes(kv) + 64);
}

static void lay_out_reading(ig_arena *a, reading *r, size_t n) {
    r->blocks = ig_arena_take(a, n * sizeof *r->blocks);
    r->slots = ig_arena_take(a, n * sizeof *r->slots);
    r->frames = ig_arena_take(a, n * sizeof *r->frames);
}

/* Tables of a tiered store. */
static void *lay_out(ig_kv *kv, size_t n_blocks, size_t n_frames) {
    size_t unit = (size_t)kv->shape.n_kv_heads * kv->unit_blocks;
    /* Staging first: frames must be aligned to their size. */
    for (int i = 0; i < N_STAGES; i++) kv->stages[i].frames = ig_arena_take(&kv->arena, unit * IG_FRAME_BYTES);
    for (int i = 0; i < N_STAGES; i++) kv->stages[i].table = ig_arena_take(&kv->arena, unit * sizeof(uint8_t *));
    kv->blocks = ig_arena_take(&kv->arena, n_blocks * sizeof *kv->blocks);
    kv->owner = ig_arena_take(&kv->arena, n_frames * sizeof *kv->owner);
    kv->foreseen = ig_arena_take(&kv->arena, n_frames);
    kv->arrived.cap = 2 * kv->layer_blocks;
    kv->arrived.blocks = ig_arena_take(&kv->arena, kv->arrived.cap * sizeof *kv->arrived.blocks);
    for (int i = 0; i < 2; i++) lay_out_reading(&kv->arena, &kv->ahead[i], kv->layer_blocks);
    lay_out_reading(&kv->arena, &kv->late, kv->layer_blocks);
    return ig_arena_take(&kv->arena, ig_evict_bytes(n_frames));
}

/* The frames that a tiered store cannot do without: last blocks of all tables, two batches being written, and two
 * layers' worth of chosen blocks (the layer at work and the next one's prefetch). */
static size_t least_frames(const ig_kv *kv) {
    size_t batch = ig_kv_blocks_for(kv, kv->shape.n_batch) + 2;
    return kv->n_tables + 2 * batch * (size_t)kv->shape.n_kv_heads + 2 * kv->layer_blocks;
}

int ig_kv_plan_slots(const ig_kv_shape *shape, const ig_kv_options *o) {
    return o->limit && o->limit < shape->n_ctx - shape->n_batch ? o->limit + shape->n_batch : shape->n_ctx;
}

/* The lists of slots of layers of which entries are dropped. */
static size_t list_bytes(const ig_kv *kv, const ig_kv_options *o) {
    return (size_t)o->n_dropping * (size_t)kv->shape.n_kv_heads * (size_t)ig_kv_plan_slots(&kv->shape, o) * 2 *
           sizeof(int32_t);
}

/* Buffers of the disk tier: a sixty-fourth of what it may hold. */
static unsigned count_staging(size_t n_blocks) {
    size_t n = n_blocks / (64 * IG_DISK_STAGED_MAX);
    return n < 2 ? 2 : n < IG_DISK_STAGING_MAX ? (unsigned)n : IG_DISK_STAGING_MAX;
}

/* The tables' share of a RAM budget for so many frames, with what the tier keeps per block of the disk. */
static size_t table_bytes(const ig_kv *kv, size_t n_blocks, size_t n_frames, const ig_kv_options *o) {
    ig_kv copy = *kv;
    copy.arena = (ig_arena){0};
    lay_out(&copy, n_blocks, n_frames);
    return copy.arena.used + n_blocks * (sizeof *kv->tables + ig_kv_block_line_bytes(kv) + TIER_BYTES) +
           (size_t)count_staging(n_blocks) * IG_DISK_STAGED_MAX * IG_FRAME_BYTES + n_frames * sizeof *kv->pool.spare +
           list_bytes(kv, o);
}

uint64_t ig_kv_entry_bytes(const ig_kv_shape *shape, const ig_kv_options *o) {
    size_t row_bytes = ig_kv_row_bytes(o->type, shape->head_dim);
    return (IG_FRAME_BYTES >> block_shift(row_bytes)) +
           2 * ig_kv_row_lines(o->type, shape->head_dim) * sizeof(ig_kv_line);
}

/* Blocks of a store that is as full as it can get. */
static size_t blocks_in_use(const ig_kv *kv, const ig_kv_options *o) {
    size_t few = ig_kv_blocks_for(kv, ig_kv_plan_slots(&kv->shape, o)), n_dropping = (size_t)o->n_dropping;
    return (((size_t)kv->shape.n_layers - n_dropping) * kv->table_len + n_dropping * few) *
           (size_t)kv->shape.n_kv_heads;
}

/* Blocks of the first n layers; 0 if there is no room for all of them. */
static size_t count_pinned(const ig_kv *kv, int n) {
    size_t n_blocks = (size_t)n * kv->layer_blocks;
    return n_blocks <= kv->most_pinned ? n_blocks : 0;
}

/* How many frames the budget leaves room for. */
static ig_status count_frames(size_t *n_frames, ig_kv *kv, size_t n_blocks, const ig_kv_options *o, ig_error *err) {
    *n_frames = blocks_in_use(kv, o);
    if (!o->disk_bytes || !o->ram_bytes) return IG_OK;
    size_t least = least_frames(kv), per_frame = IG_FRAME_BYTES + 32;
    if (least > n_blocks) least = n_blocks;
    uint64_t need = table_bytes(kv, n_blocks, least, o) + (uint64_t)least * IG_FRAME_BYTES;
    char text[64];
    if (o->ram_bytes < need)
        return ig_fail(err, IG_E_LIMIT,
                       "%llu bytes of RAM for the KV cache are too few: this context needs at least %s",
                       (unsigned long long)o->ram_bytes, ig_bytes_text(text, need));
    uint64_t fit = least + (o->ram_bytes - need) / per_frame;
    if (fit < *n_frames) *n_frames = (size_t)fit;
    kv->most_pinned = *n_frames - least;
    kv->n_pinned = count_pinned(kv, o->n_pinned_layers);
    return IG_OK;
}

/* All sizes of a store; what cannot be is refused. */
static ig_status measure(ig_kv *kv, size_t *n_blocks, size_t *n_frames, const ig_kv_shape *shape,
                         const ig_kv_options *o, ig_error *err) {
    if (shape->head_dim < 8 || shape->head_dim > IG_KV_DIMS || shape->head_dim % 8)
        return ig_fail(err, IG_E_UNSUPPORTED, "head dimension %d: need a multiple of 8, at most %d", shape->head_dim,
                       IG_KV_DIMS);
    if ((int)o->type < 0 || o->type >= IG_KV_TYPES) return ig_fail(err, IG_E_ARG, "KV type %d is unknown", o->type);
    if (!count_sizes(kv, shape, o, n_blocks))
        return ig_fail(err, IG_E_LIMIT, "KV cache for %d tokens: too large to be addressed", shape->n_ctx);
    return count_frames(n_frames, kv, *n_blocks, o, err);
}

ig_status ig_kv_plan(uint64_t *bytes, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err) {
    const ig_kv_options *o = options ? options : &in_ram;
    ig_kv kv = {0};
    size_t n_blocks, n_frames;
    ig_status s = measure(&kv, &n_blocks, &n_frames, shape, o, err);
    if (s) return s;
    *bytes = (uint64_t)n_frames * IG_FRAME_BYTES;
    if (o->disk_bytes)
        *bytes += table_bytes(&kv, n_blocks, n_frames, o);
    else
        *bytes += (uint64_t)n_frames * (sizeof *kv.tables + ig_kv_block_line_bytes(&kv)) + list_bytes(&kv, o);
    return IG_OK;
}

/* ---- opening --------------------------------------------------------------------- */

/* Lists of slots for all heads: memory that is not touched until entries are dropped. */
static ig_status open_slots(ig_kv *kv, ig_error *err) {
    size_t n_ctx = (size_t)kv->shape.n_ctx;
    kv->slot_bytes = kv->n_tables * n_ctx * 2 * sizeof *kv->slot_memory;
    kv->slots = calloc(kv->n_tables, sizeof *kv->slots);
    kv->slot_memory = ig_pages_reserve(kv->slot_bytes);
    if (!kv->slots || !kv->slot_memory) return ig_fail_memory(err, "KV slots", kv->slot_bytes);
    for (size_t t = 0; t < kv->n_tables; t++) {
        kv->slots[t].order = kv->slot_memory + t * 2 * n_ctx;
        kv->slots[t].spare = kv->slots[t].order + n_ctx;
    }
    return IG_OK;
}

static ig_status open_tier(ig_kv *kv, size_t n_blocks, size_t n_frames, const ig_kv_options *o, ig_error *err) {
    uint64_t all = (uint64_t)n_blocks * IG_FRAME_BYTES;
    ig_tier_disk_options d = {.directory = o->disk_path,
                              .cap_bytes = o->disk_bytes < all ? o->disk_bytes : all,
                              .n_staging = count_staging(n_blocks),
                              .no_uring = o->no_uring};
    lay_out(kv, n_blocks, n_frames);
    size_t bytes = kv->arena.used;
    if (!ig_arena_open(&kv->arena)) return ig_fail_memory(err, "KV tables", bytes);
    ig_evict_open(&kv->evict, o->evict, n_frames, lay_out(kv, n_blocks, n_frames));
    return ig_tier_disk_open(&kv->tier, &d, err);
}

ig_status ig_kv_open(ig_kv **out, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err) {
    const ig_kv_options *o = options ? options : &in_ram;
    *out = NULL;
    size_t n_blocks, n_frames;
    ig_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return ig_fail_memory(err, "KV store", sizeof *kv);
    ig_status s = measure(kv, &n_blocks, &n_frames, shape, o, err);
    if (s) goto fail;
    kv->held = calloc(3 * (size_t)shape->n_layers, sizeof *kv->held);
    kv->tables = ig_pages_reserve(n_blocks * sizeof *kv->tables);
    if (kv->row_lines) kv->lines = ig_pages_reserve(n_blocks * ig_kv_block_line_bytes(kv));
    if (!kv->held || !kv->tables || (kv->row_lines && !kv->lines)) {
        s = ig_fail_memory(err, "KV block tables", n_blocks * (sizeof *kv->tables + ig_kv_block_line_bytes(kv)));
        goto fail;
    }
    kv->sealed = kv->held + shape->n_layers;
    kv->unwritten = kv->sealed + shape->n_layers;
    kv->epoch = kv->loaded = 1;
    for (size_t i = 0; i < IG_COUNT(kv->steps); i++) kv->steps[i] = 1;
    s = open_slots(kv, err);
    if (!s) s = ig_kv_pool_open(&kv->pool, n_frames, err);
    if (!s && o->disk_bytes) s = open_tier(kv, n_blocks, n_frames, o, err);
    if (s) goto fail;
    *out = kv;
    return IG_OK;
fail:
    ig_kv_close(kv);
    return s;
}

void ig_kv_close(ig_kv *kv) {
    if (!kv) return;
    if (kv->tier) kv->tier->ops->close(kv->tier);
    ig_arena_close(&kv->arena);
    ig_pages_release(kv->tables, kv->n_tables * kv->table_len * sizeof *kv->tables);
    ig_pages_release(kv->lines, kv->n_tables * kv->table_len * ig_kv_block_line_bytes(kv));
    ig_pages_release(kv->slot_memory, kv->slot_bytes);
    ig_kv_pool_close(&kv->pool);
    free(kv->slots);
    free(kv->held);
    free(kv);
}

bool ig_kv_has_disk(const ig_kv *kv) { return kv->tier != NULL; }

/* Into RAM what is on disk of blocks [first, end): steps over all of a layer would only read it in passing. */
static ig_status recall_range(ig_kv *kv, size_t first, size_t end, ig_error *err) {
    size_t ids[64], n = 0;
    for (size_t id = first; id < end; id++) {
        if (!kv->tables[id] && kv->blocks[id].slot) ids[n++] = id;
        if (n < IG_COUNT(ids)) continue;
        ig_status s = ig_kv_recall(kv, ids, n, err);
        if (s) return s;
        n = 0;
    }
    return n ? ig_kv_recall(kv, ids, n, err) : IG_OK;
}

ig_status ig_kv_replan(ig_kv *kv, const ig_kv_options *o, ig_error *err) {
    if (!kv->tier) return IG_OK;
    ig_kv planned = *kv;
    size_t n;
    ig_status s = count_frames(&n, &planned, kv->n_tables * kv->table_len, o, err);
    if (s) return s;
    for (; kv->pool.n_frames - kv->n_lent > n; kv->n_lent++) {
        ig_pages_drop(ig_kv_pool_take(&kv->pool), IG_FRAME_BYTES);
        kv->most_pinned--;
    }
    if (kv->n_pinned > kv->most_pinned) kv->n_pinned = 0;
    return IG_OK;
}

ig_status ig_kv_pin(ig_kv *kv, int n_layers, ig_error *err) {
    size_t n = count_pinned(kv, n_layers), was = kv->n_pinned;
    if (!kv->tier || n == was) return IG_OK;
    ig_status s = ig_kv_settle(kv, err); /* frames of writes under way may not leave yet */
    if (s) return s;
    kv->n_pinned = n;
    for (size_t id = n < was ? n : was; id < n || id < was; id++) {
        if (!kv->tables[id] || !kv->blocks[id].slot) continue;
        uint32_t frame = ig_kv_frame_number(kv, kv->tables[id]);
        if (id < n)
            ig_evict_remove(&kv->evict, frame);
        else
            ig_evict_add(&kv->evict, frame);
    }
    return recall_range(kv, was, n, err);
}

bool ig_kv_has_dropped(const ig_kv *kv) {
    bool dropped = false;
    for (int l = 0; l < kv->shape.n_layers; l++) dropped = dropped || ig_kv_slots(kv, l, 0);
    return dropped;
}

/* Tokens that a layer has seen. */
static int tokens_of(const ig_kv *kv, int layer) {
    const ig_slots *s = ig_kv_slots(kv, layer, 0);
    return s ? s->n + s->n_dropped : kv->held[layer];
}

int ig_kv_length(const ig_kv *kv) {
    int least = tokens_of(kv, 0);
    for (int l = 1; l < kv->shape.n_layers; l++) {
        int n = tokens_of(kv, l);
        if (n < least) least = n;
    }
    return least;
}

ig_entries ig_kv_entries(const ig_kv *kv, int layer, int head) {
    const ig_slots *s = ig_kv_slots(kv, layer, head);
    if (s) return (ig_entries){.slot = s->order, .n = s->n, .n_slots = s->n_slots};
    return (ig_entries){.n = kv->held[layer], .n_slots = kv->held[layer]};
}

/* ---- adding tokens ------------------------------------------------------------------ */

ig_status ig_kv_extend(ig_kv *kv, int layer, int n, ig_error *err) {
    const ig_slots *list = ig_kv_slots(kv, layer, 0); /* the heads' lists are of one length */
    int n_new = n - tokens_of(kv, layer), n_slots = list ? ig_slots_after(list, n_new) : n;
    size_t now = ig_kv_blocks_for(kv, n_slots);
    ig_status again = ig_kv_write_again(kv, err);
    if (again) return again;
    for (int h = 0; h < kv->shape.n_kv_heads; h++)
        for (size_t b = ig_kv_blocks_for(kv, kv->held[layer]); b < now; b++) {
            uint8_t **frame = &kv->tables[ig_kv_table_at(kv, layer, h) + b];
            if (*frame) continue; /* taken by an extension that failed half-way */
            ig_status s = ig_kv_take_frame(kv, frame, err);
            if (s) return s;
        }
    for (int h = 0; list && h < kv->shape.n_kv_heads; h++) ig_slots_add(ig_kv_slots(kv, layer, h), n_new);
    kv->held[layer] = n_slots;
    return IG_OK;
}

int ig_kv_slot(const ig_kv *kv, int layer, int head, int token) {
    const ig_slots *s = ig_kv_slots(kv, layer, head);
    return s ? s->order[token - s->n_dropped] : token;
}

/* Of slot 0. */
static ig_kv_line *first_lines(const ig_kv *kv, int layer, int head) {
    return kv->lines ? kv->lines + ((ig_kv_table_at(kv, layer, head) << kv->shift) * 2 * kv->row_lines) : NULL;
}

ig_kv_row ig_kv_at(const ig_kv *kv, int layer, int head, int slot) {
    size_t in_block = (size_t)slot & (((size_t)1 << kv->shift) - 1);
    uint8_t *key = kv->tables[ig_kv_table_at(kv, layer, head) + ((size_t)slot >> kv->shift)] + in_block * kv->row_bytes;
    return (ig_kv_row){.key = key,
                       .value = key + (kv->row_bytes << kv->shift),
                       .lines = kv->lines ? first_lines(kv, layer, head) + (size_t)slot * 2 * kv->row_lines : NULL};
}

ig_kv_view ig_kv_fetch(const ig_kv *kv, int layer, int head, const int32_t *index, int first, int n) {
    return (ig_kv_view){
        .blocks = (const uint8_t *const *)(kv->tables + ig_kv_table_at(kv, layer, head)),
        .shift = kv->shift,
        .row_bytes = kv->row_bytes,
        .v_offset = kv->row_bytes << kv->shift,
        .index = index,
        .first = first,
        .n = n,
        .type = kv->type,
        .lines = first_lines(kv, layer, head),
    };
}

/* ---- dropping tokens ---------------------------------------------------------------------- */

void ig_kv_drop_block(ig_kv *kv, size_t id) {
    if (kv->tables[id]) {
        if (kv->tier) ig_evict_remove(&kv->evict, ig_kv_frame_number(kv, kv->tables[id]));
        ig_kv_pool_give(&kv->pool, kv->tables[id]);
        kv->tables[id] = NULL;
    }
    if (kv->tier && kv->blocks[id].slot) ig_kv_free_slot(kv, id);
}

/* Block b of all heads of a layer, which was full, is to be filled again: into RAM, and off the disk. */
static ig_status reopen(ig_kv *kv, int layer, size_t b, ig_error *err) {
    for (int h = 0; h < kv->shape.n_kv_heads; h++) {
        size_t id = ig_kv_table_at(kv, layer, h) + b;
        if (!kv->blocks[id].slot) continue; /* its write had failed: it never left */
        ig_status s = ig_kv_recall(kv, &id, 1, err);
        if (s) return s;
        ig_evict_remove(&kv->evict, ig_kv_frame_number(kv, kv->tables[id]));
        ig_kv_free_slot(kv, id);
    }
    return IG_OK;
}

/* Whether n tokens cannot be gone back to. */
static bool has_lost(const ig_kv *kv, int n) {
    bool lost = kv->torn;
    for (int l = 0; l < kv->shape.n_layers; l++) lost = lost || (ig_kv_slots(kv, l, 0) && tokens_of(kv, l) > n);
    return lost;
}

ig_status ig_kv_cut(ig_kv *kv, int n, ig_error *err) {
    ig_status s = kv->tier ? ig_kv_settle(kv, err) : IG_OK;
    if (has_lost(kv, n)) n = 0;
    for (int layer = 0; layer < kv->shape.n_layers; layer++) {
        for (int h = 0; h < kv->shape.n_kv_heads; h++)
            for (size_t b = ig_kv_blocks_for(kv, n); b < kv->table_len; b++) {
                size_t id = ig_kv_table_at(kv, layer, h) + b;
                if (!kv->tables[id] && b >= ig_kv_blocks_for(kv, kv->held[layer])) break;
                ig_kv_drop_block(kv, id);
            }
        if (kv->held[layer] > n) kv->held[layer] = n;
        if (kv->unwritten[layer] > n >> kv->shift) kv->unwritten[layer] = n >> kv->shift;
        if (kv->sealed[layer] > n >> kv->shift) {
            kv->sealed[layer] = n >> kv->shift;
            if (n & ((1 << kv->shift) - 1)) {
                size_t b = (size_t)n >> kv->shift;
                ig_status t = reopen(kv, layer, b, s ? NULL : err);
                if (!s) s = t;
                if (!t) continue;
                /* What cannot be had again is dropped as well: the layer ends at the block before. */
                for (int h = 0; h < kv->shape.n_kv_heads; h++) ig_kv_drop_block(kv, ig_kv_table_at(kv, layer, h) + b);
                kv->held[layer] = (int)(b << kv->shift);
            }
        }
    }
    for (size_t t = 0; n == 0 && t < kv->n_tables; t++) ig_slots_clear(&kv->slots[t]);
    if (n == 0) kv->torn = false;
    return s;
}

/* ---- statistics ------------------------------------------------------------------------------ */

void ig_kv_get_stats(const ig_kv *kv, ig_kv_stats *out) {
    size_t n_blocks = 0;
    for (int l = 0; l < kv->shape.n_layers; l++)
        n_blocks += ig_kv_blocks_for(kv, kv->held[l]) * (size_t)kv->shape.n_kv_heads;
    *out = kv->stats;
    for (int l = 0; l < kv->shape.n_layers; l++)
        out->entries += (uint64_t)ig_kv_entries(kv, l, 0).n * (uint64_t)kv->shape.n_kv_heads;
    out->ram_bytes = (ig_kv_pool_taken(&kv->pool) - kv->n_lent) * IG_FRAME_BYTES + kv->arena.size +
                     n_blocks * (sizeof *kv->tables + ig_kv_block_line_bytes(kv));
    for (size_t t = 0; t < kv->n_tables; t++) {
        const ig_slots *list = &kv->slots[t];
        out->dropped += list->lost;
        if (list->n_dropped) out->ram_bytes += 2 * (uint64_t)list->n_slots * sizeof *list->order;
    }
    if (!kv->tier) return;
    ig_tier_stats t;
    kv->tier->ops->stats(kv->tier, &t);
    out->ram_bytes += t.used_bytes / IG_FRAME_BYTES * TIER_BYTES +
                      (uint64_t)count_staging(kv->n_tables * kv->table_len) * IG_DISK_STAGED_MAX * IG_FRAME_BYTES;
    out->disk_bytes = t.used_bytes;
    out->read_bytes = t.bytes_read;
    out->written_bytes = t.bytes_written;
}
