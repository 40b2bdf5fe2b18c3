/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of a memory with a disk tier: whose is taken, and how blocks get to the disk, so that theirs can be.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "kv/memory_parts.h"

/* ---- frames ---------------------------------------------------------------------- */

void ig_kv_cache_block(ig_kv_memory *m, size_t id) {
    uint32_t f = ig_kv_frame_number(m, m->frames[id]);
    m->owner[f] = (uint32_t)id;
    m->foreseen[f] = 0;
    if (id >= m->n_pinned) ig_evict_add(&m->evict, f); /* the others stay */
}

void ig_kv_free_slot(ig_kv_memory *m, size_t id) {
    ig_slot slot = m->blocks[id].slot - 1;
    m->tier->ops->free_slots(m->tier, &slot, 1);
    m->blocks[id].slot = 0;
}

void ig_kv_finish_write(ig_kv_memory *m) {
    pending_write w = m->writes[m->first_write];
    ig_error failure = {0};
    m->first_write = (m->first_write + 1) % MAX_WRITES;
    m->n_writes--;
    ig_status s = m->tier->ops->wait(m->tier, w.ticket, &failure);
    for (int t = 0; t < ig_kv_tables_of(m, w.layer); t++)
        for (int b = w.first; b < w.end; b++) {
            size_t id = ig_kv_block_id(w.kv, w.layer, t, (size_t)b);
            if (!s)
                ig_kv_cache_block(m, id);
            else
                ig_kv_free_slot(m, id); /* the block stays in RAM, open */
        }
    if (!s) return;
    if (w.kv->unwritten[w.layer] > w.first) w.kv->unwritten[w.layer] = w.first;
    if (!w.kv->failure.status) w.kv->failure = failure;
}

ig_status ig_kv_take_failure(ig_kv *kv, ig_error *err) {
    ig_status s = kv->failure.status;
    if (s && err) *err = kv->failure;
    kv->failure.status = IG_OK;
    return s;
}

/* ---- whose frame is taken ------------------------------------------------------- */

enum { LOOKS = 16 }; /* at frames in search of an idle one */

/* What the latest load() wanted stays, and what a prefetch under way is for. */
static bool is_wanted(const ig_kv_memory *m, size_t id) {
    uint32_t e = m->blocks[id].epoch;
    return e == m->loaded || (m->ahead[0].active && e == m->ahead[0].epoch) ||
           (m->ahead[1].active && e == m->ahead[1].epoch);
}

/* Not wanted in the latest `age` whole steps, nor by this one so far. */
static bool is_idle(const ig_kv_memory *m, size_t id, int age) {
    return m->blocks[id].epoch < m->steps[age] && !is_wanted(m, id);
}

typedef struct search {
    const ig_kv_memory *m;
    int age;
    int looks; /* left */
} search;

static bool keep_busy(void *user, uint32_t frame) {
    search *s = user;
    return !is_idle(s->m, s->m->owner[frame], s->age) && --s->looks > 0;
}

static bool keep_wanted(void *user, uint32_t frame) {
    const ig_kv_memory *m = user;
    return is_wanted(m, m->owner[frame]);
}

/* An idle one in the order of eviction, or else anywhere. */
static uint32_t find_idle(ig_kv_memory *m, int age) {
    search s = {m, age, LOOKS};
    uint32_t f = ig_evict_victim(&m->evict, keep_busy, &s);
    if (f != UINT32_MAX && is_idle(m, m->owner[f], age)) return f;
    for (int i = 0; i < LOOKS; i++) {
        f = m->hand;
        m->hand = m->hand + 1 < m->evict.n_frames ? m->hand + 1 : 0;
        if (m->evict.listed[f] && is_idle(m, m->owner[f], age)) return f;
    }
    return UINT32_MAX;
}

static uint32_t find_arrived(ig_kv_memory *m) {
    arrivals *a = &m->arrived;
    size_t end = a->n > a->cap ? a->n - a->cap : 0;
    while (a->at > end) {
        uint32_t *id = &a->blocks[--a->at % a->cap];
        if (*id == UINT32_MAX) continue;
        uint8_t *frame = m->frames[*id];
        uint32_t f = frame ? ig_kv_frame_number(m, frame) : 0;
        bool is_here = frame && m->evict.listed[f] && m->owner[f] == *id;
        if (is_here && is_wanted(m, *id)) continue;
        *id = UINT32_MAX;
        if (is_here) return f;
    }
    return UINT32_MAX;
}

static uint32_t find_victim(ig_kv_memory *m) {
    uint32_t f = UINT32_MAX;
    for (int age = IG_COUNT(m->steps) - 1; age > 0 && f == UINT32_MAX; age--) f = find_idle(m, age);
    if (f == UINT32_MAX) f = find_arrived(m);
    return f != UINT32_MAX ? f : ig_evict_victim(&m->evict, keep_wanted, m);
}

uint8_t *ig_kv_find_frame(ig_kv_memory *m) {
    for (;;) {
        uint8_t *frame = ig_frame_pool_take(&m->pool);
        if (frame) return frame;
        while (m->n_writes && m->tier->ops->poll(m->tier, m->writes[m->first_write].ticket)) ig_kv_finish_write(m);
        uint32_t f = m->tier ? find_victim(m) : UINT32_MAX;
        if (f != UINT32_MAX) {
            m->frames[m->owner[f]] = NULL;
            ig_evict_remove(&m->evict, f);
            m->stats.demoted++;
            return m->pool.frames + (size_t)f * IG_FRAME_BYTES;
        }
        if (!m->n_writes) return NULL;
        double start = ig_clock_seconds();
        ig_kv_finish_write(m);
        m->stats.stall_seconds += ig_clock_seconds() - start;
    }
}

/* ---- write-behind ------------------------------------------------------------ */

/* Slots for the blocks of m->late, and their writing. Where the tier's cap or the disk itself leaves no room, what is
 * only kept makes some. */
static ig_status start_write(ig_kv_memory *m, ig_ticket *ticket, ig_error *err) {
    reading *r = &m->late;
    for (;;) {
        ig_status s = m->tier->ops->write(m->tier, ticket, r->slots, (const uint8_t *const *)r->frames, r->n, err);
        if ((s != IG_E_LIMIT && s != IG_E_IO) || !ig_kv_forget_oldest(m)) return s;
    }
}

/* Starts to write blocks [first, end) of all heads of a layer. */
static ig_status write_blocks(ig_kv *kv, int layer, int first, int end, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    reading *r = &m->late; /* its lists are free between loads */
    r->n = 0;
    for (int t = 0; t < ig_kv_tables_of(m, layer); t++)
        for (int b = first; b < end; b++) {
            r->blocks[r->n] = (uint32_t)ig_kv_block_id(kv, layer, t, (size_t)b);
            r->frames[r->n] = m->frames[r->blocks[r->n]];
            r->n++;
        }
    pending_write w = {.kv = kv, .layer = layer, .first = first, .end = end};
    ig_status s = start_write(m, &w.ticket, err);
    if (s) return s;
    for (size_t i = 0; i < r->n; i++) m->blocks[r->blocks[i]].slot = r->slots[i] + 1;
    kv->moved.written_bytes += (uint64_t)r->n * IG_FRAME_BYTES;
    m->writes[(m->first_write + m->n_writes++) % MAX_WRITES] = w;
    return IG_OK;
}

ig_status ig_kv_write_until(ig_kv *kv, int layer, int end, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    for (int b = kv->unwritten[layer]; b < end;) {
        /* The other heads' are written with these; some were written since others failed. */
        while (b < end && m->blocks[ig_kv_block_id(kv, layer, 0, (size_t)b)].slot) b++;
        int first = b;
        while (b < end && !m->blocks[ig_kv_block_id(kv, layer, 0, (size_t)b)].slot) b++;
        kv->unwritten[layer] = first;
        if (m->n_writes == MAX_WRITES) ig_kv_finish_write(m); /* may be of this layer, and have failed: see unwritten */
        ig_status s = b > first ? write_blocks(kv, layer, first, b, err) : IG_OK;
        if (s) return s;
        if (kv->unwritten[layer] == first) kv->unwritten[layer] = b;
        if (kv->sealed[layer] < b) kv->sealed[layer] = b;
    }
    return IG_OK;
}

ig_status ig_kv_write_again(ig_kv *kv, ig_error *err) {
    const ig_kv_memory *m = kv->memory;
    ig_status s = ig_kv_take_failure(kv, err);
    for (int l = 0; m->tier && !s && l < m->shape.n_layers; l++)
        if (kv->unwritten[l] < kv->sealed[l]) s = ig_kv_write_until(kv, l, kv->sealed[l], err);
    return s;
}
