/* SPDX-License-Identifier: Apache-2.0
 *
 * States of layers that do not attend: see states.h.
 */
#include "kv/states.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/space.h"
#include "kv/memory_parts.h"

enum { OF_PIECES = 3 }; /* states for pieces, beside one for each sequence */

/* ---- memory ------------------------------------------------------------------------- */

void ig_kv_states_plan(ig_kv_memory *m, size_t bytes, int n_ahead) {
    int n_own = bytes ? 2 + n_ahead : 0;
    m->states = (ig_kv_states){
        .bytes = bytes, .n_own = n_own, .n = bytes ? ((size_t)n_own + 1) * m->n_sequences + OF_PIECES : 0};
}

uint64_t ig_kv_states_bytes(const ig_kv_memory *m) { return (uint64_t)m->states.n * m->states.bytes; }

ig_status ig_kv_states_open(ig_kv_memory *m, ig_error *err) {
    ig_kv_states *s = &m->states;
    size_t bytes;
    if (!s->bytes) return IG_OK;
    if (s->n >= UINT16_MAX || !ig_mul_size(&bytes, s->n, s->bytes))
        return ig_fail(err, IG_E_LIMIT, "KV cache for %zu sequences: their states are too many", m->n_sequences);
    s->memory = ig_device_alloc(m->device, IG_PLACE_DEVICE, bytes);
    s->list = calloc(s->n, sizeof *s->list);
    s->of_piece = calloc(m->n_pieces, sizeof *s->of_piece);
    if (!s->memory || !s->list || !s->of_piece) return ig_fail_memory(err, "states of sequences", bytes);
    for (size_t i = 0; i < s->n; i++) s->list[i].piece = UINT32_MAX;
    return IG_OK;
}

void ig_kv_states_close(ig_kv_memory *m) {
    ig_kv_states *s = &m->states;
    ig_device_free(m->device, IG_PLACE_DEVICE, s->memory, s->n * s->bytes);
    free(s->list);
    free(s->of_piece);
}

static uint8_t *state_of(const ig_kv_memory *m, int number) {
    return m->states.memory + (size_t)number * m->states.bytes;
}

static void copy(const ig_kv_memory *m, int to, int from) {
    if (m->device)
        m->device->ops->copy(m->device, state_of(m, to), state_of(m, from), m->states.bytes);
    else
        memcpy(state_of(m, to), state_of(m, from), m->states.bytes);
}

/* One that is free, or of those of pieces the one used longest ago; -1: there is none. */
static int take(ig_kv_memory *m) {
    ig_kv_states *s = &m->states;
    int oldest = -1;
    for (size_t i = 0; i < s->n; i++) {
        const ig_kv_state *state = &s->list[i];
        if (!state->is_taken) {
            oldest = (int)i;
            break;
        }
        if (state->piece != UINT32_MAX && (oldest < 0 || state->used < s->list[oldest].used)) oldest = (int)i;
    }
    if (oldest < 0) return -1;
    if (s->list[oldest].piece != UINT32_MAX) ig_kv_states_forget(m, s->list[oldest].piece);
    s->list[oldest].is_taken = true;
    return oldest;
}

static void give(ig_kv_memory *m, int number) {
    if (number >= 0) m->states.list[number] = (ig_kv_state){.piece = UINT32_MAX};
}

/* ---- of pieces ------------------------------------------------------------------------ */

void ig_kv_states_forget(ig_kv_memory *m, uint32_t piece) {
    if (!m->states.bytes || !m->states.of_piece[piece]) return;
    give(m, m->states.of_piece[piece] - 1);
    m->states.of_piece[piece] = 0;
}

/* It becomes the piece's, unless that has one. */
static void attach(ig_kv_memory *m, uint32_t piece, int number) {
    ig_kv_states *s = &m->states;
    if (s->of_piece[piece]) {
        give(m, number);
        number = s->of_piece[piece] - 1;
    }
    s->of_piece[piece] = (uint16_t)(number + 1);
    s->list[number].piece = piece;
    s->list[number].used = ++s->clock;
}

void ig_kv_states_move(ig_kv_memory *m, uint32_t from, uint32_t to) {
    if (!m->states.bytes || !m->states.of_piece[from]) return;
    int number = m->states.of_piece[from] - 1;
    m->states.of_piece[from] = 0;
    attach(m, to, number);
}

int ig_kv_states_before(const ig_kv_memory *m, const uint32_t *pieces, int n) {
    int i = n >> m->piece_shift;
    while (i > 0 && !m->states.of_piece[pieces[i - 1]]) i--;
    return i << m->piece_shift;
}

/* ---- of a sequence ---------------------------------------------------------------------- */

void ig_kv_states_take(ig_kv *kv) {
    ig_kv_own_states *own = &kv->states;
    *own = (ig_kv_own_states){.passing = UINT32_MAX};
    for (int i = 0; i < IG_KV_OWN_STATES; i++) own->number[i] = own->at[i] = own->writing[i] = -1;
    /* There are as many as sequences want at most. */
    for (int i = 0; i < kv->memory->states.n_own; i++) own->number[i] = take(kv->memory);
}

static void drop_kept(ig_kv *kv) {
    for (int i = 0; i < kv->states.n_kept; i++) give(kv->memory, kv->states.kept[i]);
    kv->states.n_kept = 0;
    for (int i = 0; i < IG_KV_OWN_STATES; i++) kv->states.writing[i] = -1;
}

void ig_kv_states_give(ig_kv *kv) {
    drop_kept(kv);
    for (int i = 0; i < kv->memory->states.n_own; i++) give(kv->memory, kv->states.number[i]);
}

int ig_kv_states_reach(const ig_kv *kv, int n) {
    int held = kv->n_pieces << kv->memory->piece_shift,
        most = ig_kv_states_before(kv->memory, kv->pieces, n < held ? n : held);
    for (int i = 0; i < kv->memory->states.n_own; i++)
        if (kv->states.at[i] <= n && kv->states.at[i] > most) most = kv->states.at[i];
    return most;
}

/* Which of its own is of n tokens; -1: none. */
static int find_own(const ig_kv *kv, int n) {
    for (int i = 0; i < kv->memory->states.n_own; i++)
        if (kv->states.at[i] == n) return i;
    return -1;
}

/* One that is of no use, or of the fewest tokens, but not number `from`. */
static int find_spare(const ig_kv *kv, int from) {
    const ig_kv_own_states *own = &kv->states;
    int spare = -1;
    for (int i = 0; i < kv->memory->states.n_own; i++)
        if (i != from && own->writing[i] < 0 && (spare < 0 || own->at[i] < own->at[spare])) spare = i;
    return spare;
}

void ig_kv_states_go_back(ig_kv *kv, int n) {
    ig_kv_memory *m = kv->memory;
    ig_kv_own_states *own = &kv->states;
    if (!m->states.bytes) return;
    drop_kept(kv);
    own->passing = UINT32_MAX;
    for (int i = 0; i < m->states.n_own; i++)
        if (own->at[i] > n) own->at[i] = -1;
    if (n == 0 || find_own(kv, n) >= 0) return;
    int i = find_spare(kv, -1), number = m->states.of_piece[kv->pieces[(n >> m->piece_shift) - 1]] - 1;
    copy(m, own->number[i], number);
    own->at[i] = n;
    m->states.list[number].used = ++m->states.clock;
}

/* One for the piece that ends at token n, which the step writes too. */
static void keep(ig_kv_carry *out, ig_kv *kv, int first, int n) {
    ig_kv_own_states *own = &kv->states;
    int number = own->n_kept < 2 ? take(kv->memory) : -1;
    if (number < 0) return;
    own->kept[own->n_kept] = number;
    own->kept_at[own->n_kept++] = n;
    out->kept[out->n_kept].after = n - first;
    out->kept[out->n_kept++].state = state_of(kv->memory, number);
}

void ig_kv_begin_carry(ig_kv_carry *out, ig_kv *kv, int first, int n, bool is_prompt, bool goes_on) {
    ig_kv_own_states *own = &kv->states;
    int shift = kv->memory->piece_shift, end = first + n, last = (end - 1) >> shift << shift,
        from = find_own(kv, first);
    bool has_pieces = is_prompt && !ig_kv_has_dropped(kv); /* else they are not of the tokens that a state is of */
    drop_kept(kv);
    *out = (ig_kv_carry){.from = from < 0 ? NULL : state_of(kv->memory, own->number[from])};
    if (has_pieces && own->wished > first && own->wished < last) keep(out, kv, first, own->wished);
    if (has_pieces && last > first) keep(out, kv, first, last);
    own->goes_on = goes_on;
    for (int after = is_prompt ? n : 1; after <= n; after++) {
        int i = find_spare(kv, from);
        own->writing[i] = first + after;
        own->at[i] = -1;
        out->kept[out->n_kept].after = after;
        out->kept[out->n_kept++].state = state_of(kv->memory, own->number[i]);
    }
}

void ig_kv_states_go_on(ig_kv *kv) {
    ig_kv_memory *m = kv->memory;
    ig_kv_own_states *own = &kv->states;
    for (int i = 0; i < m->states.n_own; i++)
        if (own->writing[i] >= 0) own->at[i] = own->writing[i], own->writing[i] = -1;
    if (ig_kv_has_dropped(kv)) drop_kept(kv);
    for (int i = 0; i < own->n_kept; i++) {
        uint32_t piece = kv->pieces[(own->kept_at[i] >> m->piece_shift) - 1];
        if (own->kept_at[i] != own->wished && own->passing != UINT32_MAX) ig_kv_states_forget(m, own->passing);
        attach(m, piece, own->kept[i]);
        if (own->kept_at[i] != own->wished) own->passing = own->goes_on ? piece : UINT32_MAX;
    }
    own->n_kept = 0;
}

void ig_kv_wish_state(ig_kv *kv, int n) { kv->states.wished = n; }
