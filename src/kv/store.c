/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys and values of a sequence: opening, adding tokens, dropping them; pieces that it shares with others.
 */
#include "kv/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kv/memory_parts.h"

/* ---- opening --------------------------------------------------------------------- */

ig_status ig_kv_may_drop(ig_kv *kv, ig_error *err) {
    const ig_kv_memory *m = kv->memory;
    size_t n_ctx = (size_t)m->shape.n_ctx;
    if (kv->slot_memory) return IG_OK;
    kv->slot_bytes = m->n_tables * n_ctx * 2 * sizeof *kv->slot_memory;
    kv->slot_memory = ig_device_alloc(m->device, IG_PLACE_HOST, kv->slot_bytes);
    if (!kv->slot_memory) return ig_fail_memory(err, "KV slots", kv->slot_bytes);
    for (size_t t = 0; t < m->n_tables; t++) {
        kv->slots[t].order = kv->slot_memory + t * 2 * n_ctx;
        kv->slots[t].spare = kv->slots[t].order + n_ctx;
    }
    return IG_OK;
}

static size_t number_bytes(const ig_kv_memory *m) { return m->sequence_blocks * sizeof(uint32_t); }

ig_status ig_kv_open_in(ig_kv **out, ig_kv_memory *m, ig_error *err) {
    *out = NULL;
    if (m->n_open == m->n_sequences)
        return ig_fail(err, IG_E_LIMIT, "the KV cache is made for %zu sequences at a time, and holds as many",
                       m->n_sequences);
    size_t n_layers = (size_t)m->shape.n_layers;
    ig_kv *kv = calloc(1, sizeof *kv);
    if (!kv) return ig_fail_memory(err, "KV sequence", sizeof *kv);
    kv->memory = m;
    m->n_open++;
    ig_kv_states_take(kv);
    kv->held = calloc(3 * n_layers, sizeof *kv->held);
    kv->pieces = calloc(m->sequence_pieces, sizeof *kv->pieces);
    kv->slots = calloc(m->n_tables, sizeof *kv->slots);
    kv->number = ig_device_alloc(m->device, IG_PLACE_HOST, number_bytes(m));
    if (!kv->held || !kv->pieces || !kv->slots || !kv->number) {
        ig_kv_close(kv);
        return ig_fail_memory(err, "KV sequence", (m->sequence_pieces + m->sequence_blocks) * sizeof *kv->pieces);
    }
    kv->sealed = kv->held + n_layers;
    kv->unwritten = kv->sealed + n_layers;
    *out = kv;
    return IG_OK;
}

ig_status ig_kv_open(ig_kv **out, const ig_kv_shape *shape, const ig_kv_options *options, ig_error *err) {
    ig_kv_memory *m;
    *out = NULL;
    ig_status s = ig_kv_memory_open(&m, shape, options, err);
    if (s) return s;
    s = ig_kv_open_in(out, m, err);
    if (s)
        ig_kv_memory_close(m);
    else
        (*out)->owns_memory = true;
    return s;
}

/* Gives the pieces from number n on back, the last one first. Nothing of them is under way. */
static void give_pieces(ig_kv *kv, int n) {
    ig_kv_note_place(kv, n);
    while (kv->n_pieces > n) {
        ig_kv_unsee(kv, --kv->n_pieces);
        ig_kv_give_piece(kv->memory, kv->pieces[kv->n_pieces]);
    }
    if (kv->first_seen > n) kv->first_seen = n;
}

void ig_kv_close(ig_kv *kv) {
    if (!kv) return;
    ig_kv_memory *m = kv->memory;
    if (m->tier) ig_kv_settle(m);
    give_pieces(kv, 0);
    ig_kv_states_give(kv);
    ig_device_free(m->device, IG_PLACE_HOST, kv->slot_memory, kv->slot_bytes);
    ig_device_free(m->device, IG_PLACE_HOST, kv->number, number_bytes(m));
    free(kv->slots);
    free(kv->held);
    free(kv->pieces);
    m->n_open--;
    if (kv->owns_memory) ig_kv_memory_close(m);
    free(kv);
}

ig_kv_memory *ig_kv_memory_of(const ig_kv *kv) { return kv->memory; }

ig_kv_home ig_kv_home_of(const ig_kv *kv) {
    return (ig_kv_home){kv->memory, kv->pieces, &kv->n_replaced, kv->memory->piece_shift - IG_UNIT_SHIFT};
}

bool ig_kv_has_disk(const ig_kv *kv) { return kv->memory->tier != NULL; }

bool ig_kv_may_wait(const ig_kv *kv) {
    const ig_kv_memory *m = kv->memory;
    return m->tier || (m->copies && !ig_residency_holds_all(m->copies));
}

bool ig_kv_has_copies(const ig_kv *kv) { return kv->memory->copies != NULL; }

bool ig_kv_is_loading(const ig_kv *kv) {
    const ig_kv_memory *m = kv->memory;
    return m->late.active || (m->expected && m->expected->active);
}

bool ig_kv_has_dropped(const ig_kv *kv) {
    bool dropped = false;
    for (int l = 0; l < kv->memory->shape.n_layers; l++) dropped = dropped || ig_kv_slots(kv, l, 0);
    return dropped;
}

/* Tokens that a layer has seen. */
static int tokens_of(const ig_kv *kv, int layer) {
    const ig_slots *s = ig_kv_slots(kv, layer, 0);
    return s ? s->n + s->n_dropped : kv->held[layer];
}

int ig_kv_length(const ig_kv *kv) {
    int least = tokens_of(kv, 0);
    for (int l = 1; l < kv->memory->shape.n_layers; l++) {
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

/* The sequence's next piece is this one. */
static void put_piece(ig_kv *kv, int i, uint32_t piece) {
    size_t n = kv->memory->piece_blocks;
    kv->pieces[i] = piece;
    kv->n_replaced += i < kv->most_pieces;
    if (i >= kv->n_pieces) kv->most_pieces = i + 1;
    for (size_t b = 0; b < n; b++) kv->number[(size_t)i * n + b] = (uint32_t)(piece * n + b);
}

/* Pieces for n slots. */
static ig_status take_pieces(ig_kv *kv, int n, ig_error *err) {
    for (int end = (int)ig_kv_pieces_for(kv->memory, n); kv->n_pieces < end; kv->n_pieces++) {
        uint32_t piece = ig_kv_take_piece(kv->memory);
        if (piece == UINT32_MAX) return ig_fail(err, IG_E_LIMIT, "the KV cache is full");
        put_piece(kv, kv->n_pieces, piece);
        ig_kv_see(kv, kv->n_pieces);
    }
    return IG_OK;
}

/* A step is about to use the layer. What is moved meanwhile counts for the sequence. */
static void use_pages(ig_kv *kv, int layer) {
    ig_kv_memory *m = kv->memory;
    ig_kv_pager_stats before, after;
    ig_kv_pager_get_stats(m->pager, &before);
    ig_kv_pager_use(m->pager, layer, m->frames, m->layer_blocks);
    ig_kv_pager_get_stats(m->pager, &after);
    kv->moved.read_bytes += after.read_bytes - before.read_bytes;
    kv->moved.written_bytes += after.written_bytes - before.written_bytes;
    kv->moved.recalled += (after.read_bytes - before.read_bytes) / IG_FRAME_BYTES;
    kv->moved.stall_seconds += after.seconds - before.seconds;
}

ig_status ig_kv_extend(ig_kv *kv, int layer, int n, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    const ig_slots *list = ig_kv_slots(kv, layer, 0); /* the heads' lists are of one length */
    int n_new = n - tokens_of(kv, layer), n_slots = list ? ig_slots_after(list, n_new) : n;
    size_t now = ig_kv_blocks_for(m, n_slots);
    ig_status s = ig_kv_write_again(kv, err);
    if (!s) s = take_pieces(kv, n_slots, err);
    if (s) return s;
    for (int t = 0; t < ig_kv_tables_of(m, layer); t++)
        for (size_t b = ig_kv_blocks_for(m, kv->held[layer]); b < now; b++) {
            uint8_t **frame = &m->frames[ig_kv_block_id(kv, layer, t, b)];
            if (*frame) continue; /* taken by an extension that failed half-way */
            s = ig_kv_take_frame(kv, frame, err);
            if (s) return s;
        }
    for (int h = 0; list && h < m->shape.n_kv_heads; h++) ig_slots_add(ig_kv_slots(kv, layer, h), n_new);
    kv->held[layer] = n_slots;
    if (m->pager) use_pages(kv, layer);
    return IG_OK;
}

void ig_kv_read_again(ig_kv *kv, int layer) {
    if (kv->memory->pager) use_pages(kv, layer);
}

ig_status ig_kv_seal(ig_kv *kv, int layer, ig_error *err) {
    if (!kv->memory->tier || ig_kv_slots(kv, layer, 0)) return IG_OK;
    return ig_kv_write_until(kv, layer, kv->held[layer] >> kv->memory->shift, err);
}

int ig_kv_slot(const ig_kv *kv, int layer, int head, int token) {
    const ig_slots *s = ig_kv_slots(kv, layer, head);
    return s ? s->order[token - s->n_dropped] : token;
}

/* Where a KV head's part of a slot begins: of its key and of its value, in bytes, and of their lines. */
typedef struct part {
    size_t at, lines_at;
} part;

static part part_of(const ig_kv_memory *m, int layer, int head) {
    if (!ig_kv_is_local(m, layer)) return (part){0, 0};
    size_t i = (size_t)(head % m->heads_per_row);
    return (part){i * ig_kv_row_bytes(m->type, m->shape.local_head_dim),
                  i * 2 * ig_kv_row_lines(m->type, m->shape.local_head_dim)};
}

ig_kv_row ig_kv_at(const ig_kv *kv, int layer, int head, int slot) {
    const ig_kv_memory *m = kv->memory;
    part own = part_of(m, layer, head);
    size_t in_block = (size_t)slot & (((size_t)1 << m->shift) - 1),
           id = ig_kv_block_id(kv, layer, ig_kv_table_of(m, layer, head), (size_t)slot >> m->shift);
    uint8_t *key = ig_kv_open_block(m, id) + in_block * m->row_bytes + own.at;
    return (ig_kv_row){.key = key,
                       .value = key + m->v_offset,
                       .lines = m->lines ? ig_kv_block_lines(m, id) + in_block * m->slot_lines + own.lines_at : NULL};
}

ig_kv_view ig_kv_fetch(ig_kv *kv, int layer, int head, const int32_t *index, int first, int n) {
    const ig_kv_memory *m = kv->memory;
    size_t table = ig_kv_table_first(m, layer, ig_kv_table_of(m, layer, head));
    part own = part_of(m, layer, head);
    return (ig_kv_view){
        .blocks = (const uint8_t *const *)(m->frames + table),
        .number = kv->number,
        .is_ascending = !ig_kv_slots(kv, layer, head), /* lists are in the order of tokens */
        .shift = m->shift,
        .row_bytes = m->row_bytes,
        .v_offset = m->v_offset,
        .at = own.at,
        .index = index,
        .first = first,
        .n = n,
        .n_slots = kv->held[layer],
        .type = m->type,
        .lines = ig_kv_block_lines(m, table),
        .slot_lines = m->slot_lines,
        .lines_at = own.lines_at,
        .copies = m->copies,
        .where = m->copies ? m->copies->books.where + table : NULL,
        .table = table / m->table_len,
        .traffic = &kv->moved.bus,
    };
}

ig_status ig_kv_load(ig_kv *kv, int layer, const ig_kv_pick *picks, int n_picks, ig_error *err) {
    return ig_kv_load_all(kv->memory, layer, &(ig_kv_want){.kv = kv, .picks = picks, .n_picks = n_picks}, 1, err);
}

void ig_kv_go_on(ig_kv *kv, int n) {
    ig_kv_see_from(kv, n);
    ig_kv_states_go_on(kv);
}

/* ---- dropping tokens ---------------------------------------------------------------------- */

/* Block b of all heads of a layer, which was full, is to be filled again: into RAM, and off the disk. */
static ig_status reopen(ig_kv *kv, int layer, size_t b, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    for (int t = 0; t < ig_kv_tables_of(m, layer); t++) {
        size_t id = ig_kv_block_id(kv, layer, t, b);
        if (!m->blocks[id].slot) continue; /* its write had failed: it never left */
        ig_status s = ig_kv_recall(kv, &id, 1, err);
        if (s) return s;
        ig_evict_remove(&m->evict, ig_kv_frame_number(m, m->frames[id]));
        ig_kv_free_slot(m, id);
    }
    return IG_OK;
}

/* Whether n tokens cannot be gone back to. */
static bool has_lost(const ig_kv *kv, int n) {
    bool lost = kv->torn;
    for (int l = 0; l < kv->memory->shape.n_layers; l++) lost = lost || (ig_kv_slots(kv, l, 0) && tokens_of(kv, l) > n);
    return lost;
}

/* Whether others own piece i, or may find it. */
static bool is_shared(const ig_kv *kv, int i) {
    const ig_kv_memory *m = kv->memory;
    return m->shares && (m->n_owners[kv->pieces[i]] > 1 || ig_prefix_tree_has(&m->prefixes, kv->pieces[i]));
}

/* Of a layer with at most n tokens afterwards. What cannot be had again of the last block is dropped as well: the layer
 * ends at the block before. */
static ig_status cut_layer(ig_kv *kv, int layer, int n, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    size_t end = (size_t)kv->n_pieces * m->piece_blocks, last = (size_t)n >> m->shift;
    for (int t = 0; t < ig_kv_tables_of(m, layer); t++)
        for (size_t b = ig_kv_blocks_for(m, n); b < end; b++) {
            if (is_shared(kv, (int)(b / m->piece_blocks))) break; /* whole pieces, which are given back */
            ig_kv_drop_block(m, ig_kv_block_id(kv, layer, t, b));
        }
    if (kv->held[layer] > n) kv->held[layer] = n;
    if (kv->unwritten[layer] > (int)last) kv->unwritten[layer] = (int)last;
    if (kv->sealed[layer] <= (int)last) return IG_OK;
    kv->sealed[layer] = (int)last;
    if (!(n & ((1 << m->shift) - 1))) return IG_OK;
    ig_status s = reopen(kv, layer, last, err);
    if (!s) return IG_OK;
    for (int t = 0; t < ig_kv_tables_of(m, layer); t++) ig_kv_drop_block(m, ig_kv_block_id(kv, layer, t, last));
    kv->held[layer] = (int)(last << m->shift);
    return s;
}

/* Block `from` of a table, wherever it is, to block `to`, which gets a frame. */
static ig_status copy_block(ig_kv *kv, size_t from, size_t to, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    ig_status s = ig_kv_take_frame(kv, &m->frames[to], err); /* first: it may be that of any other block */
    if (!s && m->tier) s = ig_kv_recall(kv, &from, 1, err);
    if (s) return s;
    memcpy(ig_kv_open_block(m, to), m->frames[from], m->block_bytes);
    if (m->lines) memcpy(ig_kv_block_lines(m, to), ig_kv_block_lines(m, from), ig_kv_block_line_bytes(m));
    return IG_OK;
}

/* Piece i, which the sequence ends in with n tokens, is not its own alone: it gets a copy of what it keeps of it. */
static ig_status copy_piece(ig_kv *kv, int i, int n, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    uint32_t shared = kv->pieces[i], own = ig_kv_take_piece(m);
    if (own == UINT32_MAX) return ig_fail(err, IG_E_LIMIT, "the KV cache is full");
    size_t first = (size_t)i * m->piece_blocks, n_blocks = ig_kv_blocks_for(m, n) - first;
    ig_status s = IG_OK;
    for (int l = 0; l < m->shape.n_layers; l++)
        for (size_t k = 0; k < (size_t)ig_kv_tables_of(m, l) * n_blocks && !s; k++) {
            size_t base = ig_kv_table_first(m, l, (int)(k / n_blocks)) + k % n_blocks;
            s = copy_block(kv, base + shared * m->piece_blocks, base + own * m->piece_blocks, err);
        }
    if (s) {
        ig_kv_give_piece(m, own);
        return s;
    }
    ig_kv_tables_copy(m, shared, own);
    ig_kv_tables_forget(m, own); /* it is not full */
    ig_kv_unsee(kv, i);
    ig_kv_give_piece(m, shared);
    put_piece(kv, i, own);
    ig_kv_see(kv, i);
    for (int l = 0; l < m->shape.n_layers; l++) {
        if (kv->sealed[l] > (int)first) kv->sealed[l] = (int)first;
        if (kv->unwritten[l] > (int)first) kv->unwritten[l] = (int)first;
    }
    return IG_OK;
}

/* How many of n tokens the sequence can go on from. */
static int reach(const ig_kv *kv, int n) {
    const ig_kv_memory *m = kv->memory;
    if (has_lost(kv, n)) return 0;
    if (m->states.bytes) return ig_kv_states_reach(kv, n);
    return n < kv->n_pieces << m->piece_shift ? ig_kv_whole(m, kv->pieces, n) : n;
}

ig_status ig_kv_cut(ig_kv *kv, int n, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    if (m->tier) ig_kv_settle(m);
    ig_status s = ig_kv_take_failure(kv, err);
    n = reach(kv, n);
    int last = n >> m->piece_shift;
    bool is_within = n & ((1 << m->piece_shift) - 1) && last < kv->n_pieces;
    if (is_within && is_shared(kv, last)) {
        /* What lies behind the piece goes, and what n tokens need is seen, before the copy takes frames: else some of
         * that could be made thin for it. */
        for (int layer = 0; layer < m->shape.n_layers; layer++)
            cut_layer(kv, layer, (last + 1) << m->piece_shift, NULL);
        give_pieces(kv, last + 1);
        ig_kv_see_from(kv, n);
        ig_status t = copy_piece(kv, last, n, s ? NULL : err);
        if (t) n = reach(kv, last << m->piece_shift);
        if (!s) s = t;
    } else if (is_within) {
        ig_kv_tables_forget(m, kv->pieces[last]); /* it may have been full, and shared before it was withdrawn */
        ig_kv_states_forget(m, kv->pieces[last]);
    }
    int end = 0;
    for (int layer = 0; layer < m->shape.n_layers; layer++) {
        ig_status t = cut_layer(kv, layer, n, s ? NULL : err);
        if (!s) s = t;
        if (kv->held[layer] > end) end = kv->held[layer];
    }
    give_pieces(kv, (int)ig_kv_pieces_for(m, end));
    ig_kv_see_from(kv, end);
    for (size_t t = 0; n == 0 && t < m->n_tables; t++) ig_slots_clear(&kv->slots[t]);
    if (n == 0) kv->torn = false;
    if (m->states.bytes && end && reach(kv, end) < end) { /* less could be read back than was asked for */
        ig_kv_cut(kv, end, NULL);
        return s;
    }
    ig_kv_states_go_back(kv, end);
    return s;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

int ig_kv_pieces(const ig_kv *kv) { return kv->n_pieces; }

void ig_kv_count_held(size_t *held, ig_kv *const *kvs, int n) {
    ig_kv_memory *m = kvs[0]->memory;
    size_t sum = 0;
    m->n_counts++;
    for (int i = n - 1; i >= 0; held[i--] = sum)
        for (int k = 0; k < kvs[i]->n_pieces; k++) {
            uint64_t *counted = &m->counted[kvs[i]->pieces[k]];
            sum += *counted != m->n_counts;
            *counted = m->n_counts;
        }
}

uint32_t ig_kv_piece(const ig_kv *kv, int i) { return kv->pieces[i]; }

void ig_kv_adopt(ig_kv *kv, const uint32_t *pieces, int n) {
    const ig_kv_memory *m = kv->memory;
    if (m->tier) ig_kv_settle(kv->memory);
    give_pieces(kv, 0);
    for (int i = 0; i < n; i++) {
        ig_kv_own_piece(kv->memory, pieces[i]);
        put_piece(kv, i, pieces[i]);
    }
    kv->n_pieces = kv->first_seen = n;
    ig_kv_see_from(kv, n << m->piece_shift);
    for (int i = 0; i < m->states.n_own; i++) kv->states.at[i] = -1;
    ig_kv_states_go_back(kv, n << m->piece_shift);
    ig_kv_note_place(kv, 0);
    for (int l = 0; l < m->shape.n_layers; l++) {
        kv->held[l] = n << m->piece_shift;
        kv->sealed[l] = m->tier ? n * (int)m->piece_blocks : 0;
        kv->unwritten[l] = 0; /* writes of some may have failed, and who computed them may be gone */
    }
}

void ig_kv_replace_piece(ig_kv *kv, int i, uint32_t piece) {
    ig_kv_memory *m = kv->memory;
    if (m->tier) ig_kv_settle(m); /* its blocks may be on their way to the disk */
    ig_kv_tables_complete(m, kv->pieces[i], piece);
    ig_kv_make_whole(kv, i, piece);
    ig_kv_states_move(m, kv->pieces[i], piece);
    if (kv->states.passing == kv->pieces[i]) kv->states.passing = UINT32_MAX; /* it stays with the other piece */
    ig_kv_own_piece(m, piece);
    ig_kv_unsee(kv, i);
    ig_kv_give_piece(m, kv->pieces[i]);
    put_piece(kv, i, piece);
    ig_kv_see(kv, i);
    for (int l = 0; l < m->shape.n_layers; l++) /* as in adopt() */
        if (kv->unwritten[l] > i * (int)m->piece_blocks) kv->unwritten[l] = i * (int)m->piece_blocks;
}

/* Copies the frame and the lines of a block, which is in RAM; returns what follows in the buffer. */
static uint8_t *copy_out(const ig_kv_memory *m, size_t id, uint8_t *buffer) {
    size_t n_lines = ig_kv_block_line_bytes(m);
    memcpy(buffer, m->frames[id], m->block_bytes);
    if (n_lines) memcpy(buffer + m->block_bytes, ig_kv_block_lines(m, id), n_lines);
    return buffer + m->block_bytes + n_lines;
}

static const uint8_t *copy_in(const ig_kv_memory *m, size_t id, const uint8_t *buffer) {
    size_t n_lines = ig_kv_block_line_bytes(m);
    memcpy(ig_kv_open_block(m, id), buffer, m->block_bytes);
    if (n_lines) memcpy(ig_kv_block_lines(m, id), buffer + m->block_bytes, n_lines);
    return buffer + m->block_bytes + n_lines;
}

ig_status ig_kv_copy_piece(ig_kv *kv, int i, uint8_t *buffer, ig_error *err) {
    enum { PORTION = 32 }; /* blocks of a layer that are read back together */
    const ig_kv_memory *m = kv->memory;
    size_t first = (size_t)i * m->piece_blocks;
    for (int l = 0; l < m->shape.n_layers; l++) {
        size_t of_layer = (size_t)ig_kv_tables_of(m, l) * m->piece_blocks;
        for (size_t begin = 0; begin < of_layer; begin += PORTION) {
            size_t ids[PORTION], n = 0;
            bool is_here = true;
            for (size_t k = begin; k < of_layer && n < PORTION; k++, n++) {
                ids[n] = ig_kv_block_id(kv, l, (int)(k / m->piece_blocks), first + k % m->piece_blocks);
                is_here = is_here && m->frames[ids[n]];
            }
            ig_status s = is_here ? IG_OK : ig_kv_read_back(kv, ids, n, err);
            if (s) return s;
            for (size_t k = 0; k < n; k++) buffer = copy_out(m, ids[k], buffer);
        }
    }
    return IG_OK;
}

ig_status ig_kv_append_piece(ig_kv *kv, const uint8_t *buffer, ig_error *err) {
    const ig_kv_memory *m = kv->memory;
    int before = kv->n_pieces << m->piece_shift, n = before + (1 << m->piece_shift);
    ig_status s = IG_OK;
    for (int l = 0; l < m->shape.n_layers && !s; l++) {
        s = ig_kv_extend(kv, l, n, err);
        for (int t = 0; t < ig_kv_tables_of(m, l) && !s; t++)
            for (size_t b = ig_kv_blocks_for(m, before); b < ig_kv_blocks_for(m, n); b++)
                buffer = copy_in(m, ig_kv_block_id(kv, l, t, b), buffer);
        if (!s) s = ig_kv_seal(kv, l, err);
    }
    if (s)
        ig_kv_cut(kv, before, NULL);
    else
        ig_kv_go_on(kv, ig_kv_length(kv));
    return s;
}

const ig_kv_stats *ig_kv_moved(const ig_kv *kv) { return &kv->moved; }

/* What the blocks of a sequence take of a memory that others use too; those that it shares as well. */
static void count_blocks(const ig_kv *kv, ig_kv_stats *out) {
    const ig_kv_memory *m = kv->memory;
    size_t n = (size_t)kv->n_pieces * m->piece_blocks, n_ram = 0, n_disk = 0;
    for (size_t t = 0; t < m->n_tables; t++)
        for (size_t b = 0; b < n; b++) {
            size_t id = t * m->table_len + kv->number[b];
            n_ram += m->frames[id] != NULL;
            n_disk += m->tier && m->blocks[id].slot;
        }
    out->ram_bytes = n_ram * (m->frame_bytes + ig_kv_block_line_bytes(m));
    out->disk_bytes = n_disk * IG_FRAME_BYTES;
}

void ig_kv_get_stats(const ig_kv *kv, ig_kv_stats *out) {
    const ig_kv_memory *m = kv->memory;
    ig_kv_memory_get_stats(m, out);
    if (!kv->owns_memory) {
        uint64_t demoted = out->demoted;
        *out = kv->moved;
        out->demoted = demoted;
        count_blocks(kv, out);
        *(ig_kv_has_own_memory(m->device) ? &out->vram_bytes : &out->ram_bytes) +=
            (uint64_t)m->states.n_own * m->states.bytes;
    }
    for (int l = 0; l < m->shape.n_layers; l++)
        out->entries += (uint64_t)ig_kv_entries(kv, l, 0).n * (uint64_t)ig_kv_heads(m, l);
    out->entries -= ig_kv_count_thin(kv);
    for (size_t t = 0; t < m->n_tables; t++) {
        const ig_slots *list = &kv->slots[t];
        out->dropped += list->lost;
        if (list->n_dropped) out->ram_bytes += 2 * (uint64_t)list->n_slots * sizeof *list->order;
    }
}
