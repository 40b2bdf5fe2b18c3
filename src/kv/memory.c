/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of keys and values: sizes, opening, pieces and their owners, statistics.
 */
#include "kv/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/context.h"
#include "kv/memory_parts.h"

/* What the disk tier's own tables take per block, and a tiered memory's per frame, at most. */
enum { TIER_BYTES = 32, FRAME_TABLE_BYTES = 32 };
/* What is behind rows keeps them where they would lie without. */
enum { ROW_ALIGN = 16 };

static const ig_kv_options in_ram = {0};

/* ---- sizes ------------------------------------------------------------------- */

/* Rows of a slot. */
static size_t count_rows(const ig_kv_shape *s) { return s->are_values_keys ? 1 : 2; }

/* Bytes of a row, and lines of a slot. */
static size_t count_row_bytes(const ig_kv_shape *s, ig_kv_type type) {
    return ig_kv_row_bytes(type, s->head_dim) + ig_round_up(ig_kv_row_bytes(type, s->n_index), ROW_ALIGN);
}

static size_t count_slot_lines(const ig_kv_shape *s, ig_kv_type type) {
    return 2 * ig_kv_row_lines(type, s->head_dim) + count_rows(s) * ig_kv_row_lines(type, s->n_index);
}

/* The most tokens, a power of two, whose rows fit a frame of a disk; no more than attention takes at a time. */
static int block_shift(const ig_kv_shape *s, ig_kv_type type) {
    size_t slot_bytes = count_rows(s) * count_row_bytes(s, type);
    int shift = 0;
    while (((size_t)2 << shift) * slot_bytes <= IG_FRAME_BYTES && 2 << shift <= IG_ATTEND_UNIT) shift++;
    return shift;
}

int ig_kv_block_tokens(const ig_kv_shape *shape, ig_kv_type type) { return 1 << block_shift(shape, type); }

/* Bytes of a block, and of the frame that it lies in: a disk and the system's pager move whole pages. */
static size_t count_block_bytes(const ig_kv_shape *s, ig_kv_type type) {
    return (count_rows(s) * count_row_bytes(s, type)) << block_shift(s, type);
}

static size_t count_frame_bytes(const ig_kv_shape *s, const ig_kv_options *o) {
    bool is_moved = o->disk_bytes || o->is_mapped || o->is_paged;
    return is_moved ? IG_FRAME_BYTES : ig_round_up(count_block_bytes(s, o->type), IG_FRAME_ALIGNMENT);
}

/* Heads of layers that have others than most in a row. */
static int count_side_by_side(const ig_kv_memory *m, const ig_kv_shape *s) {
    if (!s->local_kv_heads) return 1;
    size_t n_bytes = ig_kv_row_bytes(m->type, s->local_head_dim), n_lines = ig_kv_row_lines(m->type, s->local_head_dim);
    size_t n = m->row_bytes / n_bytes, by_lines = n_lines ? m->slot_lines / (2 * n_lines) : n;
    if (by_lines < n) n = by_lines;
    while ((size_t)s->local_kv_heads % n) n--; /* so that as many views belong to each table */
    return (int)n;
}

/* Tables that layers use. */
static size_t tables_in_use(const ig_kv_memory *m) {
    size_t n = 0;
    for (int l = 0; l < m->shape.n_layers; l++) n += (size_t)ig_kv_tables_of(m, l);
    return n;
}

/* Fills in what follows from the shape; false if it cannot be counted. */
static bool count_sizes(ig_kv_memory *m, const ig_kv_shape *s, const ig_kv_options *o, size_t *n_blocks) {
    m->shape = *s;
    m->type = o->type;
    m->device = m->space.dev = o->device;
    m->n_sequences = o->n_sequences ? (size_t)o->n_sequences : 1;
    m->shares = o->share;
    m->row_bytes = count_row_bytes(s, m->type);
    m->slot_lines = count_slot_lines(s, m->type);
    m->heads_per_row = count_side_by_side(m, s);
    m->layer_tables = (size_t)s->n_kv_heads;
    for (int l = 0; l < s->n_layers; l++)
        if ((size_t)ig_kv_tables_of(m, l) > m->layer_tables) m->layer_tables = (size_t)ig_kv_tables_of(m, l);
    m->shift = block_shift(s, m->type);
    m->v_offset = s->are_values_keys ? 0 : m->row_bytes << m->shift;
    m->block_bytes = count_block_bytes(s, m->type);
    m->frame_bytes = count_frame_bytes(s, o);
    m->piece_shift = m->shift > IG_UNIT_SHIFT ? m->shift : IG_UNIT_SHIFT;
    m->piece_blocks = (size_t)1 << (m->piece_shift - m->shift);
    m->sequence_pieces = ig_kv_pieces_for(m, s->n_ctx);
    m->sequence_blocks = m->sequence_pieces * m->piece_blocks;
    m->unit_blocks = (size_t)IG_ATTEND_UNIT >> m->shift;
    size_t bytes, each = m->sequence_pieces + m->shares; /* one more to copy a shared one to */
    return ig_mul_size(&m->n_pieces, each, m->n_sequences) &&
           ig_mul_size(&m->table_len, m->n_pieces, m->piece_blocks) &&
           ig_mul_size(&m->n_tables, (size_t)s->n_layers, m->layer_tables) &&
           ig_mul_size(&m->layer_blocks, m->layer_tables, m->table_len) &&
           ig_mul_size(n_blocks, m->n_tables, m->table_len) && *n_blocks < UINT32_MAX &&
           ig_mul_size(&bytes, *n_blocks, m->frame_bytes + ig_kv_block_line_bytes(m) + 64);
}

static void lay_out_reading(ig_space *a, reading *r, size_t n) {
    r->blocks = ig_space_host(a, n * sizeof *r->blocks);
    r->slots = ig_space_host(a, n * sizeof *r->slots);
    r->frames = ig_space_host(a, n * sizeof *r->frames);
}

/* Tables of a tiered memory. */
static void *lay_out(ig_kv_memory *m, size_t n_blocks, size_t n_frames) {
    size_t unit = m->layer_tables * m->unit_blocks;
    /* Staging first: frames must be aligned to their size. */
    for (int i = 0; i < N_STAGES; i++) m->stages[i].frames = ig_space_host(&m->space, unit * IG_FRAME_BYTES);
    for (int i = 0; i < N_STAGES; i++) m->stages[i].table = ig_space_host(&m->space, unit * sizeof(uint8_t *));
    m->blocks = ig_space_host(&m->space, n_blocks * sizeof *m->blocks);
    m->owner = ig_space_host(&m->space, n_frames * sizeof *m->owner);
    m->foreseen = ig_space_host(&m->space, n_frames);
    m->arrived.cap = 2 * m->layer_blocks;
    m->arrived.blocks = ig_space_host(&m->space, m->arrived.cap * sizeof *m->arrived.blocks);
    for (int i = 0; i < 2; i++) lay_out_reading(&m->space, &m->ahead[i], m->layer_blocks);
    lay_out_reading(&m->space, &m->late, m->layer_blocks);
    return ig_space_host(&m->space, ig_evict_bytes(n_frames));
}

/* The frames that a tiered memory cannot do without: last blocks of all tables of all sequences, two batches being
 * written, two layers' worth of chosen blocks of one sequence (the layer at work and the next one's prefetch), and what
 * is kept where entries are dropped. */
static size_t least_frames(const ig_kv_memory *m, const ig_kv_options *o) {
    size_t tables = m->layer_tables, batch = ig_kv_blocks_for(m, m->shape.n_batch) + 2 * m->n_sequences;
    size_t open = m->shares ? m->n_tables * m->piece_blocks : m->n_tables; /* a piece may come as a whole */
    size_t kept = o->n_kept ? (size_t)o->n_dropping * (size_t)m->shape.n_kv_heads * ig_kv_blocks_for(m, o->n_kept) : 0;
    return m->n_sequences * (open + kept) + 2 * batch * tables + 2 * tables * m->sequence_blocks;
}

int ig_kv_plan_slots(const ig_kv_shape *shape, const ig_kv_options *o) {
    return o->limit && o->limit < shape->n_ctx - shape->n_batch ? o->limit + shape->n_batch : shape->n_ctx;
}

/* The lists of slots of layers of which entries are dropped. */
static size_t list_bytes(const ig_kv_memory *m, const ig_kv_options *o) {
    return m->n_sequences * (size_t)o->n_dropping * (size_t)m->shape.n_kv_heads *
           (size_t)ig_kv_plan_slots(&m->shape, o) * 2 * sizeof(int32_t);
}

/* Buffers of the disk tier: a sixty-fourth of what it may hold. */
static unsigned count_staging(size_t n_blocks) {
    size_t n = n_blocks / (64 * IG_DISK_STAGED_MAX);
    return n < 2 ? 2 : n < IG_DISK_STAGING_MAX ? (unsigned)n : IG_DISK_STAGING_MAX;
}

/* What a piece takes beside its blocks, and each of these. */
static size_t piece_bytes(const ig_kv_memory *m) {
    size_t tree = m->shares ? ig_prefix_tree_bytes(m->n_pieces, 1 << m->piece_shift) / m->n_pieces : 0;
    return tree + ig_kv_windows_bytes(m) / m->n_pieces;
}
static size_t block_bytes(const ig_kv_memory *m) {
    return sizeof *m->frames + ig_kv_block_line_bytes(m) +
           (ig_kv_has_own_memory(m->device) ? IG_RESIDENCY_BLOCK_BYTES : 0);
}

/* The tables' share of a RAM budget for so many frames, with what the tier keeps per block of the disk. */
static size_t table_bytes(const ig_kv_memory *m, size_t n_blocks, size_t n_frames, const ig_kv_options *o) {
    ig_kv_memory copy = *m;
    copy.space = (ig_space){.dev = m->device};
    lay_out(&copy, n_blocks, n_frames);
    return ig_space_bytes(&copy.space) + n_blocks * (block_bytes(m) + TIER_BYTES) + m->n_pieces * piece_bytes(m) +
           (size_t)count_staging(n_blocks) * IG_DISK_STAGED_MAX * IG_FRAME_BYTES + n_frames * sizeof *m->pool.spare +
           list_bytes(m, o);
}

uint64_t ig_kv_entry_bytes(const ig_kv_shape *shape, const ig_kv_options *o) {
    return (count_frame_bytes(shape, o) >> block_shift(shape, o->type)) +
           count_slot_lines(shape, o->type) * sizeof(ig_kv_line);
}

uint64_t ig_kv_token_bytes(const ig_kv_shape *shape, const ig_kv_options *o) {
    ig_kv_memory m = {0};
    size_t n_blocks;
    return count_sizes(&m, shape, o, &n_blocks) ? tables_in_use(&m) * ig_kv_entry_bytes(shape, o) : 0;
}

/* Blocks of a memory that is as full as it can get. */
static size_t blocks_in_use(const ig_kv_memory *m, const ig_kv_options *o) {
    size_t few = ig_kv_blocks_for(m, ig_kv_plan_slots(&m->shape, o)), n_dropping = (size_t)o->n_dropping,
           all = ig_kv_blocks_for(m, m->shape.n_ctx) + m->shares * m->piece_blocks;
    size_t n_few = n_dropping * (size_t)m->shape.n_kv_heads;
    return m->n_sequences * ((tables_in_use(m) - n_few) * all + n_few * few);
}

size_t ig_kv_count_pinned(const ig_kv_memory *m, int n) {
    size_t n_blocks = (size_t)n * m->layer_blocks;
    return n_blocks <= m->most_pinned ? n_blocks : 0;
}

/* Bytes of a memory without a tier beside its frames. What layers with a window let go of has its place in the tables
 * still, so that with pieces that are kept all places can be in use. */
static uint64_t plain_bytes(const ig_kv_memory *m, const ig_kv_options *o) {
    size_t n_blocks = m->windows.widest && m->shares ? m->n_tables * m->table_len : blocks_in_use(m, o);
    return (uint64_t)n_blocks * block_bytes(m) + m->n_pieces * piece_bytes(m) + list_bytes(m, o);
}

static ig_status fail_ram(const ig_kv_options *o, uint64_t need, ig_error *err) {
    char text[64];
    return ig_fail(err, IG_E_LIMIT, "%llu bytes of RAM for the KV cache are too few: this context needs at least %s",
                   (unsigned long long)o->ram_bytes, ig_bytes_text(text, need));
}

/* Of mapped frames those of the layer in use must have room. */
static uint64_t least_mapped(const ig_kv_memory *m, size_t n_frames, const ig_kv_options *o) {
    size_t few = n_frames < m->layer_blocks ? n_frames : m->layer_blocks;
    return plain_bytes(m, o) + (uint64_t)few * IG_FRAME_BYTES;
}

/* How many frames the budget leaves room for. */
static ig_status count_frames(size_t *n_frames, ig_kv_memory *m, size_t n_blocks, const ig_kv_options *o,
                              ig_error *err) {
    *n_frames = blocks_in_use(m, o) - ig_kv_windows_saved(m);
    uint64_t mapped = o->is_mapped ? least_mapped(m, *n_frames, o) : 0;
    if (o->ram_bytes < mapped) return fail_ram(o, mapped, err);
    if (!o->disk_bytes || !o->ram_bytes) return IG_OK;
    size_t least = least_frames(m, o), per_frame = IG_FRAME_BYTES + FRAME_TABLE_BYTES;
    if (least > n_blocks) least = n_blocks;
    uint64_t need = table_bytes(m, n_blocks, least, o) + (uint64_t)least * IG_FRAME_BYTES;
    if (o->ram_bytes < need) return fail_ram(o, need, err);
    uint64_t fit = least + (o->ram_bytes - need) / per_frame;
    if (fit < *n_frames) *n_frames = (size_t)fit;
    m->most_pinned = *n_frames - least;
    m->n_pinned = ig_kv_count_pinned(m, o->n_pinned_layers);
    return IG_OK;
}

/* All sizes of a memory; what cannot be is refused. */
static ig_status measure(ig_kv_memory *m, size_t *n_blocks, size_t *n_frames, const ig_kv_shape *shape,
                         const ig_kv_options *o, ig_error *err) {
    if (shape->head_dim < 8 || shape->head_dim > IG_KV_DIMS || shape->head_dim % 8)
        return ig_fail(err, IG_E_UNSUPPORTED, "head dimension %d: need a multiple of 8, at most %d", shape->head_dim,
                       IG_KV_DIMS);
    if (shape->local_kv_heads &&
        (shape->local_head_dim < 8 || shape->local_head_dim > shape->head_dim || shape->local_head_dim % 8))
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "head dimension %d of layers with a window: need a multiple of 8, at "
                       "most the others' %d",
                       shape->local_head_dim, shape->head_dim);
    if ((int)o->type < 0 || o->type >= IG_KV_TYPES) return ig_fail(err, IG_E_ARG, "KV type %d is unknown", o->type);
    if (o->disk_bytes && o->disk_bytes < IG_FRAME_BYTES)
        return ig_fail(err, IG_E_LIMIT, "KV disk tier of %llu bytes: a block takes %d",
                       (unsigned long long)o->disk_bytes, IG_FRAME_BYTES);
    if (!count_sizes(m, shape, o, n_blocks))
        return ig_fail(err, IG_E_LIMIT, "KV cache for %zu times %d tokens: too large to be addressed", m->n_sequences,
                       shape->n_ctx);
    if (!o->disk_bytes && !o->is_mapped) ig_kv_windows_plan(m, o->window);
    ig_kv_states_plan(m, o->state_bytes, o->n_ahead);
    return count_frames(n_frames, m, *n_blocks, o, err);
}

/* Copies of its blocks in the device's own memory. */
static ig_residency_shape copies_of(const ig_kv_memory *m, const ig_kv_options *o) {
    return (ig_residency_shape){.n_layers = m->shape.n_layers,
                                .n_heads = (int)m->layer_tables,
                                .table_len = m->table_len,
                                .block_bytes = m->block_bytes,
                                .line_bytes = ig_kv_block_line_bytes(m),
                                .lines = m->lines,
                                .n_dense_layers = o->n_pinned_layers,
                                .max_bytes = o->vram_bytes};
}

uint64_t ig_kv_plan_vram(const ig_kv_shape *shape, const ig_kv_options *options) {
    ig_kv_memory m = {0};
    size_t n_blocks;
    if (!ig_kv_has_own_memory(options->device) || !count_sizes(&m, shape, options, &n_blocks)) return 0;
    ig_kv_states_plan(&m, options->state_bytes, options->n_ahead);
    ig_residency_shape copies = copies_of(&m, options);
    return ig_kv_states_bytes(&m) + (options->is_paged ? 0 : ig_residency_bytes(&copies));
}

uint64_t ig_kv_plan_let_go(const ig_kv_shape *shape, const ig_kv_options *options) {
    ig_kv_memory m = {0};
    size_t n_blocks, n_frames;
    ig_status s = measure(&m, &n_blocks, &n_frames, shape, options, NULL);
    return s ? 0 : (uint64_t)ig_kv_windows_saved(&m) * m.frame_bytes;
}

ig_status ig_kv_plan(uint64_t *bytes, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err) {
    const ig_kv_options *o = options ? options : &in_ram;
    ig_kv_memory m = {0};
    size_t n_blocks, n_frames;
    ig_status s = measure(&m, &n_blocks, &n_frames, shape, o, err);
    if (s) return s;
    *bytes = (uint64_t)n_frames * m.frame_bytes;
    if (o->disk_bytes)
        *bytes += table_bytes(&m, n_blocks, n_frames, o);
    else
        *bytes += plain_bytes(&m, o);
    if (o->is_mapped && *bytes > o->ram_bytes) *bytes = o->ram_bytes;
    if (!ig_kv_has_own_memory(o->device)) *bytes += ig_kv_states_bytes(&m);
    return IG_OK;
}

/* ---- opening --------------------------------------------------------------------- */

static void tell_tier(const ig_kv_options *o, const ig_tier_info *info) {
    if (!o->ctx) return;
    if (info->is_memory)
        ig_log(o->ctx, IG_LOG_WARN, "%s lies in RAM: keys and values that leave RAM for it save none", o->disk_path);
    else if (!info->is_direct || (!info->has_ring && !o->no_uring))
        ig_log(o->ctx, IG_LOG_INFO, "KV spill file in %s: moved by %s, %s the system's page cache", o->disk_path,
               info->has_ring ? "io_uring" : "threads", info->is_direct ? "past" : "through");
}

static ig_status open_tier(ig_kv_memory *m, size_t n_blocks, size_t n_frames, const ig_kv_options *o, ig_error *err) {
    uint64_t all = (uint64_t)n_blocks * IG_FRAME_BYTES;
    ig_tier_disk_options d = {.directory = o->disk_path,
                              .cap_bytes = o->disk_bytes < all ? o->disk_bytes : all,
                              .n_staging = count_staging(n_blocks),
                              .no_uring = o->no_uring};
    lay_out(m, n_blocks, n_frames);
    size_t bytes = ig_space_bytes(&m->space);
    if (!ig_space_open(&m->space)) return ig_fail_memory(err, "KV tables", bytes);
    ig_evict_open(&m->evict, o->evict, n_frames, lay_out(m, n_blocks, n_frames));
    ig_status s = ig_tier_disk_open(&m->tier, &d, err);
    if (s) return s;
    ig_tier_info info;
    m->tier->ops->info(m->tier, &info);
    tell_tier(o, &info);
    uint64_t fit = info.room_bytes / (tables_in_use(m) * m->piece_blocks * IG_FRAME_BYTES);
    if (fit < m->n_room) m->n_room = (size_t)fit;
    return IG_OK;
}

static ig_status open_tables(ig_kv_memory *m, size_t n_blocks, ig_error *err) {
    m->frames = ig_device_alloc(m->device, IG_PLACE_HOST, n_blocks * sizeof *m->frames);
    m->n_owners = ig_pages_reserve(m->n_pieces * sizeof *m->n_owners);
    m->spare = ig_pages_reserve(m->n_pieces * sizeof *m->spare);
    m->counted = ig_pages_reserve(m->n_pieces * sizeof *m->counted);
    m->n_room = m->n_pieces;
    if (m->slot_lines) m->lines = ig_device_alloc(m->device, IG_PLACE_HOST, n_blocks * ig_kv_block_line_bytes(m));
    if (!m->frames || !m->n_owners || !m->spare || !m->counted || (m->slot_lines && !m->lines))
        return ig_fail_memory(err, "KV block tables", n_blocks * block_bytes(m));
    return m->shares ? ig_prefix_tree_open(&m->prefixes, m->n_pieces, 1 << m->piece_shift, err) : IG_OK;
}

ig_status ig_kv_memory_open(ig_kv_memory **out, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err) {
    const ig_kv_options *o = options ? options : &in_ram;
    *out = NULL;
    size_t n_blocks, n_frames;
    ig_kv_memory *m = calloc(1, sizeof *m);
    if (!m) return ig_fail_memory(err, "KV memory", sizeof *m);
    ig_status s = measure(m, &n_blocks, &n_frames, shape, o, err);
    m->epoch = m->loaded = 1;
    for (size_t i = 0; i < IG_COUNT(m->steps); i++) m->steps[i] = 1;
    if (!s) s = open_tables(m, n_blocks, err);
    if (!s) s = ig_kv_tables_open(m, err);
    if (!s) s = ig_kv_windows_open(m, err);
    if (!s) s = ig_kv_states_open(m, err);
    if (!s && o->is_mapped)
        s = ig_kv_pager_open(&m->pager, o->disk_path, n_frames, shape->n_layers, o->ram_bytes - plain_bytes(m, o), err);
    if (!s)
        s = ig_frame_pool_open(&m->pool, m->device, o->is_paged ? IG_PLACE_PAGED : IG_PLACE_HOST, n_frames,
                               m->frame_bytes, m->pager ? ig_kv_pager_frames(m->pager) : NULL, err);
    if (!s && o->disk_bytes) s = open_tier(m, n_blocks, n_frames, o, err);
    if (!s && ig_kv_has_own_memory(o->device) && !o->is_paged) {
        ig_residency_shape copies = copies_of(m, o);
        s = o->device->ops->open_copies(o->device, &m->copies, &copies, err);
    }
    if (s)
        ig_kv_memory_close(m);
    else
        *out = m;
    return s;
}

void ig_kv_memory_close(ig_kv_memory *m) {
    if (!m) return;
    size_t n_blocks = m->n_tables * m->table_len;
    if (m->copies) m->device->ops->close_copies(m->device, m->copies);
    if (m->tier) m->tier->ops->close(m->tier);
    ig_space_close(&m->space);
    ig_device_free(m->device, IG_PLACE_HOST, m->frames, n_blocks * sizeof *m->frames);
    ig_device_free(m->device, IG_PLACE_HOST, m->lines, n_blocks * ig_kv_block_line_bytes(m));
    ig_pages_release(m->n_owners, m->n_pieces * sizeof *m->n_owners);
    ig_pages_release(m->spare, m->n_pieces * sizeof *m->spare);
    ig_pages_release(m->counted, m->n_pieces * sizeof *m->counted);
    ig_kv_tables_close(m);
    ig_kv_windows_close(m);
    ig_kv_states_close(m);
    if (m->prefixes.nodes) ig_prefix_tree_close(&m->prefixes);
    ig_frame_pool_close(&m->pool);
    ig_kv_pager_close(m->pager);
    free(m);
}

int ig_kv_piece_tokens(const ig_kv_memory *m) { return 1 << m->piece_shift; }

size_t ig_kv_piece_bytes(const ig_kv_memory *m) {
    return tables_in_use(m) * m->piece_blocks * (m->block_bytes + ig_kv_block_line_bytes(m));
}

uint64_t ig_kv_spill_left(const ig_kv_memory *m, dev_t *device) {
    ig_tier_info info = {0};
    if (m->tier) m->tier->ops->info(m->tier, &info);
    *device = info.device;
    return info.left_bytes;
}

size_t ig_kv_room(const ig_kv_memory *m) { return m->n_room; }

ig_prefix_tree *ig_kv_prefixes(ig_kv_memory *m) { return m->shares ? &m->prefixes : NULL; }

ig_status ig_kv_replan(ig_kv_memory *m, const ig_kv_options *o, ig_error *err) {
    if (!m->tier) return IG_OK;
    ig_kv_memory planned = *m;
    size_t n;
    ig_status s = count_frames(&n, &planned, m->n_tables * m->table_len, o, err);
    if (s) return s;
    for (; m->pool.n_frames - m->n_lent > n; m->n_lent++) {
        uint8_t *frame = ig_frame_pool_take(&m->pool);
        while (!frame && ig_kv_forget_oldest(m))
            frame = ig_frame_pool_take(&m->pool); /* it held pieces that are kept */
        ig_device_drop(m->device, frame, IG_FRAME_BYTES);
        m->most_pinned--;
    }
    if (m->n_pinned > m->most_pinned) m->n_pinned = 0;
    return IG_OK;
}

/* ---- pieces ------------------------------------------------------------------------ */

/* Nobody owns or finds the piece: its blocks are free, and it is. */
static void free_piece(ig_kv_memory *m, uint32_t piece) {
    for (size_t t = 0; t < m->n_tables; t++)
        for (size_t b = 0; b < m->piece_blocks; b++)
            ig_kv_drop_block(m, t * m->table_len + (size_t)piece * m->piece_blocks + b);
    ig_kv_tables_forget(m, piece);
    ig_kv_windows_forget(m, piece);
    ig_kv_states_forget(m, piece);
    m->spare[m->n_spare++] = piece;
}

bool ig_kv_forget_oldest(ig_kv_memory *m) {
    uint32_t piece = m->shares ? ig_prefix_tree_oldest(&m->prefixes) : UINT32_MAX;
    if (piece == UINT32_MAX) return false;
    ig_prefix_tree_remove(&m->prefixes, piece);
    free_piece(m, piece);
    return true;
}

uint32_t ig_kv_take_piece(ig_kv_memory *m) {
    if (!m->n_spare && m->n_fresh == m->n_pieces && !ig_kv_forget_oldest(m)) return UINT32_MAX;
    uint32_t piece = m->n_spare ? m->spare[--m->n_spare] : (uint32_t)m->n_fresh++;
    ig_kv_tables_enlarge(m);
    m->n_owners[piece] = 1;
    return piece;
}

void ig_kv_own_piece(ig_kv_memory *m, uint32_t piece) {
    if (m->n_owners[piece]++ == 0) ig_prefix_tree_unkeep(&m->prefixes, piece);
}

void ig_kv_give_piece(ig_kv_memory *m, uint32_t piece) {
    if (--m->n_owners[piece]) return;
    if (m->shares && ig_prefix_tree_has(&m->prefixes, piece))
        ig_prefix_tree_keep(&m->prefixes, piece);
    else
        free_piece(m, piece);
}

void ig_kv_drop_block(ig_kv_memory *m, size_t id) {
    if (m->frames[id]) {
        if (m->tier) ig_evict_remove(&m->evict, ig_kv_frame_number(m, m->frames[id]));
        ig_frame_pool_give(&m->pool, m->frames[id]);
        m->frames[id] = NULL;
    }
    if (m->tier && m->blocks[id].slot) ig_kv_free_slot(m, id);
}

void ig_kv_move_block(ig_kv_memory *m, size_t from, size_t to) {
    m->frames[to] = m->frames[from];
    m->frames[from] = NULL;
    if (m->lines) memcpy(ig_kv_block_lines(m, to), ig_kv_block_lines(m, from), ig_kv_block_line_bytes(m));
    ig_kv_open_block(m, to);
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Of mapped frames RAM holds a part. */
static void count_pages(const ig_kv_memory *m, ig_kv_stats *out, size_t n_frames) {
    ig_kv_pager_stats st;
    ig_kv_pager_get_stats(m->pager, &st);
    out->ram_bytes += st.resident_bytes - n_frames * IG_FRAME_BYTES;
    out->disk_bytes = n_frames * IG_FRAME_BYTES;
    out->read_bytes = st.read_bytes;
    out->written_bytes = st.written_bytes;
    out->demoted = st.n_left;
    out->recalled = st.read_bytes / IG_FRAME_BYTES;
    out->stall_seconds = st.seconds;
}

void ig_kv_memory_get_stats(const ig_kv_memory *m, ig_kv_stats *out) {
    size_t n_pieces = m->n_fresh - m->n_spare, n_frames = ig_frame_pool_taken(&m->pool) - m->n_lent,
           n_blocks = m->tier ? n_pieces * m->piece_blocks * tables_in_use(m) : n_frames + ig_kv_windows_gone(m);
    *out = m->stats;
    out->n_sequences = m->n_open;
    out->table_bytes = n_pieces * ig_kv_tables_piece_bytes(m);
    out->n_kept_pieces = m->prefixes.n_kept;
    out->n_pieces = n_pieces - m->prefixes.n_kept;
    out->ram_bytes =
        n_frames * m->frame_bytes + ig_space_bytes(&m->space) + n_blocks * block_bytes(m) + n_pieces * piece_bytes(m);
    *(ig_kv_has_own_memory(m->device) ? &out->vram_bytes : &out->ram_bytes) += ig_kv_states_bytes(m);
    if (m->pager) count_pages(m, out, n_frames);
    if (m->copies) out->bus = m->copies->total, out->vram_bytes += ig_residency_bytes(&m->copies->shape);
    if (!m->tier) return;
    ig_tier_stats t;
    m->tier->ops->stats(m->tier, &t);
    out->ram_bytes += t.used_bytes / IG_FRAME_BYTES * TIER_BYTES +
                      (uint64_t)count_staging(m->n_tables * m->table_len) * IG_DISK_STAGED_MAX * IG_FRAME_BYTES;
    out->disk_bytes = t.used_bytes;
    out->read_bytes = t.bytes_read;
    out->written_bytes = t.bytes_written;
}
