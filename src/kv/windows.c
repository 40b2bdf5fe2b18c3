/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers with a window let go of: see windows.h.
 */
#include "kv/windows.h"

#include "base/error.h"
#include "kernel/kernel.h"
#include "kv/memory_parts.h"

enum {
    ALIGN = IG_PROMPT_KEYS, /* what attention reads begins at a multiple of this, or later */
    MARKS_APART = 16,       /* marks are so many times as far apart as they are long */
    SPARE_SHARE = 8,        /* one of so many pieces is whole beside those that are seen; marks are half of these */
};

/* ---- sizes --------------------------------------------------------------------------- */

/* Tokens of whole pieces that hold all that the next token of a sequence sees, and that attention reads. */
static size_t span_of(const ig_kv_memory *m) {
    return ig_round_up((size_t)m->windows.widest + ALIGN, (size_t)1 << m->piece_shift);
}

/* Pieces that are whole at a time, at most. A step has added its tokens before it lets go of others. */
static size_t most_whole(const ig_kv_memory *m) {
    size_t seen = ig_kv_pieces_for(m, (int)span_of(m) + m->shape.n_batch) + 2;
    return m->n_sequences * seen + m->n_pieces / SPARE_SHARE;
}

static bool has_window(const ig_kv_memory *m, int layer) {
    int window = m->windows.window[layer];
    return window > 0 && window < m->shape.n_ctx;
}

void ig_kv_windows_plan(ig_kv_memory *m, const int *window) {
    ig_kv_windows *w = &m->windows;
    *w = (ig_kv_windows){.window = window};
    for (int l = 0; window && l < m->shape.n_layers; l++) {
        if (!has_window(m, l)) continue;
        w->n_heads += (size_t)ig_kv_heads(m, l);
        w->n_tables += (size_t)ig_kv_tables_of(m, l);
        if (window[l] > w->widest) w->widest = window[l];
    }
    if (most_whole(m) >= m->n_pieces) w->widest = 0;
}

size_t ig_kv_windows_saved(const ig_kv_memory *m) {
    if (!m->windows.widest) return 0;
    size_t blocks = (m->n_pieces - most_whole(m)) * m->piece_blocks;
    return blocks * m->windows.n_tables;
}

size_t ig_kv_windows_gone(const ig_kv_memory *m) {
    const ig_kv_windows *w = &m->windows;
    return w->n_thin * m->piece_blocks * w->n_tables;
}

static void lay_out(ig_kv_windows *w, size_t n_pieces) {
    w->n_seers = ig_arena_take(&w->arena, n_pieces * sizeof *w->n_seers);
    w->is_thin = ig_arena_take(&w->arena, n_pieces);
    w->is_place = ig_arena_take(&w->arena, n_pieces);
}

size_t ig_kv_windows_bytes(const ig_kv_memory *m) {
    ig_kv_windows w = {0};
    if (!m->windows.widest) return 0;
    lay_out(&w, m->n_pieces);
    return w.arena.used + ig_evict_bytes(m->n_pieces);
}

ig_status ig_kv_windows_open(ig_kv_memory *m, ig_error *err) {
    ig_kv_windows *w = &m->windows;
    if (!w->widest) return IG_OK;
    lay_out(w, m->n_pieces);
    void *order = ig_arena_take(&w->arena, ig_evict_bytes(m->n_pieces));
    if (!ig_arena_open(&w->arena)) return ig_fail_memory(err, "KV windows", ig_kv_windows_bytes(m));
    lay_out(w, m->n_pieces);
    order = ig_arena_take(&w->arena, ig_evict_bytes(m->n_pieces));
    ig_evict_open(&w->order, IG_EVICT_COUNTER, m->n_pieces, order);
    return IG_OK;
}

void ig_kv_windows_close(ig_kv_memory *m) { ig_arena_close(&m->windows.arena); }

/* ---- what is seen ------------------------------------------------------------------------ */

/* The first piece that a sequence of n tokens needs whole. */
static int first_seen(const ig_kv_memory *m, int n) {
    int first = n - m->windows.widest + 1;
    return first > 0 ? first / ALIGN * ALIGN >> m->piece_shift : 0;
}

/* Whether piece i of a sequence is one of those that stay whole, so that it can go on from where these end. */
static bool is_mark(const ig_kv_memory *m, int i) {
    size_t pieces = span_of(m) >> m->piece_shift;
    return (size_t)i % (MARKS_APART * pieces) >= (MARKS_APART - 1) * pieces;
}

int ig_kv_whole(const ig_kv_memory *m, const uint32_t *pieces, int n) {
    if (m->states.bytes) n = ig_kv_states_before(m, pieces, n);
    if (!m->windows.widest) return n;
    for (;;) {
        int first = first_seen(m, n), i = (int)ig_kv_pieces_for(m, n) - 1;
        while (i >= first && !m->windows.is_thin[pieces[i]]) i--;
        if (i < first) return n;
        n = i << m->piece_shift;
    }
}

bool ig_kv_is_whole(const ig_kv *kv, int i) {
    const ig_kv_windows *w = &kv->memory->windows;
    return !w->widest || !w->is_thin[kv->pieces[i]];
}

uint64_t ig_kv_count_thin(const ig_kv *kv) {
    const ig_kv_memory *m = kv->memory;
    uint64_t n = 0;
    for (int i = 0; i < kv->n_pieces; i++) n += !ig_kv_is_whole(kv, i);
    return (n << m->piece_shift) * (uint64_t)m->windows.n_heads;
}

/* Piece i of a sequence, which none sees, may become thin. */
static void list(ig_kv_memory *m, uint32_t piece, int i) {
    ig_kv_windows *w = &m->windows;
    if (w->n_seers[piece] || w->is_thin[piece] || is_mark(m, i)) return;
    ig_evict_add(&w->order, piece);
    if (w->is_place[piece]) ig_evict_use(&w->order, piece);
}

void ig_kv_see(ig_kv *kv, int i) {
    ig_kv_windows *w = &kv->memory->windows;
    if (!w->widest || i < kv->first_seen) return;
    w->n_seers[kv->pieces[i]]++;
    ig_evict_remove(&w->order, kv->pieces[i]);
}

void ig_kv_unsee(ig_kv *kv, int i) {
    ig_kv_windows *w = &kv->memory->windows;
    if (!w->widest || i < kv->first_seen) return;
    w->n_seers[kv->pieces[i]]--;
    list(kv->memory, kv->pieces[i], i);
}

void ig_kv_note_place(ig_kv *kv, int i) {
    const ig_kv_windows *w = &kv->memory->windows;
    for (i = i > kv->first_seen ? i : kv->first_seen; w->widest && i < kv->n_pieces; i++)
        w->is_place[kv->pieces[i]] = 1;
}

void ig_kv_see_from(ig_kv *kv, int n) {
    if (!kv->memory->windows.widest) return;
    int first = first_seen(kv->memory, n);
    for (; kv->first_seen < first; kv->first_seen++) ig_kv_unsee(kv, kv->first_seen);
    while (kv->first_seen > first) ig_kv_see(kv, --kv->first_seen);
}

/* ---- letting go ---------------------------------------------------------------------------- */

/* Calls fn for the blocks of layers with a window of both pieces, or of one twice. */
static void each_block(ig_kv_memory *m, uint32_t from, uint32_t to,
                       void (*fn)(ig_kv_memory *m, size_t from, size_t to)) {
    for (int l = 0; l < m->shape.n_layers; l++)
        for (int t = 0; has_window(m, l) && t < ig_kv_tables_of(m, l); t++)
            for (size_t b = 0; b < m->piece_blocks; b++) {
                size_t base = ig_kv_table_first(m, l, t) + b;
                fn(m, base + from * m->piece_blocks, base + to * m->piece_blocks);
            }
}

static void drop(ig_kv_memory *m, size_t id, size_t same) {
    (void)same;
    ig_kv_drop_block(m, id);
}

static bool keep_none(void *user, uint32_t piece) {
    (void)user, (void)piece;
    return false;
}

bool ig_kv_thin_oldest(ig_kv_memory *m) {
    ig_kv_windows *w = &m->windows;
    uint32_t piece = w->widest ? ig_evict_victim(&w->order, keep_none, NULL) : UINT32_MAX;
    if (piece == UINT32_MAX) return false;
    ig_evict_remove(&w->order, piece);
    each_block(m, piece, piece, drop);
    w->is_thin[piece] = 1;
    w->is_place[piece] = 0;
    w->n_thin++;
    return true;
}

void ig_kv_make_whole(ig_kv *kv, int i, uint32_t piece) {
    ig_kv_memory *m = kv->memory;
    ig_kv_windows *w = &m->windows;
    if (!w->widest || !w->is_thin[piece] || !ig_kv_is_whole(kv, i)) return;
    each_block(m, kv->pieces[i], piece, ig_kv_move_block);
    w->is_thin[piece] = 0;
    w->is_thin[kv->pieces[i]] = 1;
    ig_evict_remove(&w->order, kv->pieces[i]);
    list(m, piece, i);
}

void ig_kv_windows_forget(ig_kv_memory *m, uint32_t piece) {
    if (!m->windows.widest) return;
    ig_evict_remove(&m->windows.order, piece);
    m->windows.n_thin -= m->windows.is_thin[piece];
    m->windows.is_thin[piece] = m->windows.is_place[piece] = 0;
}
