/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of blocks from the disk tier back to RAM: prefetch, load and recall; and layers that stay there.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/error.h"
#include "kv/memory_parts.h"

/* ---- on whose behalf ------------------------------------------------------------- */

ig_kv_stats ig_kv_count_moved(const ig_kv_memory *m) {
    ig_kv_stats now = m->stats;
    ig_tier_stats t;
    m->tier->ops->stats(m->tier, &t);
    now.read_bytes = t.bytes_read;
    return now;
}

/* Part number i of n, which add up to x. */
static uint64_t part(uint64_t x, int i, int n) { return x / (uint64_t)n + ((uint64_t)i < x % (uint64_t)n); }

/* What was counted since `before` was done for these n sequences. */
static void charge(const ig_kv_memory *m, const ig_kv_stats *before, const ig_kv_want *wants, int n) {
    ig_kv_stats now = ig_kv_count_moved(m);
    for (int i = 0; i < n; i++) {
        ig_kv_stats *own = &wants[i].kv->moved;
        own->read_bytes += part(now.read_bytes - before->read_bytes, i, n);
        own->recalled += part(now.recalled - before->recalled, i, n);
        own->prefetch_hits += part(now.prefetch_hits - before->prefetch_hits, i, n);
        own->prefetch_misses += part(now.prefetch_misses - before->prefetch_misses, i, n);
        own->stall_seconds += (now.stall_seconds - before->stall_seconds) / n;
    }
}

void ig_kv_charge_one(ig_kv *kv, const ig_kv_stats *before) { charge(kv->memory, before, &(ig_kv_want){.kv = kv}, 1); }

static ig_status fail_room(const ig_kv_memory *m, ig_error *err) {
    return ig_fail(err, IG_E_LIMIT,
                   "the KV cache's share of RAM is too small for one layer: it needs more than %zu MiB",
                   m->pool.n_frames * IG_FRAME_BYTES >> 20);
}

/* ---- reading back --------------------------------------------------------------------- */

ig_status ig_kv_wait_stalled(ig_kv_memory *m, ig_ticket ticket, ig_error *err) {
    double start = ig_clock_seconds();
    ig_status s = m->tier->ops->wait(m->tier, ticket, err);
    m->stats.stall_seconds += ig_clock_seconds() - start;
    return s;
}

static void add_wanted(ig_kv_memory *m, reading *r, size_t id) {
    assert(r->n < m->layer_blocks);
    r->blocks[r->n] = (uint32_t)id;
    r->slots[r->n++] = m->blocks[id].slot - 1;
}

/* Forgets those at the end that have left. */
static void trim_arrived(arrivals *a) {
    while (a->n && a->blocks[(a->n - 1) % a->cap] == UINT32_MAX) a->n--;
    a->at = a->n;
}

static void push_arrived(arrivals *a, uint32_t id) { a->blocks[a->n++ % a->cap] = id; }

/* Calls fn for each block that holds an entry of what is wanted of a layer. */
typedef void (*block_fn)(ig_kv_memory *m, size_t id);

static void each_block(const ig_kv_want *want, int layer, block_fn fn) {
    const ig_kv *kv = want->kv;
    ig_kv_memory *m = kv->memory;
    for (int p = 0; p < want->n_picks; p++) {
        const ig_kv_pick *pick = &want->picks[p];
        size_t base = ig_kv_table_first(m, layer, p * ig_kv_tables_of(m, layer) / want->n_picks), last = SIZE_MAX;
        for (int i = 0; i < pick->n; i++) {
            size_t b = (size_t)(pick->index ? pick->index[i] : i) >> m->shift;
            if (b != last && b < (size_t)kv->n_pieces * m->piece_blocks) fn(m, base + kv->number[b]);
            last = b;
        }
    }
}

/* Frames for the blocks of r; if not for all, r is cut to those that have one. */
static void take_frames(ig_kv_memory *m, reading *r) {
    for (size_t i = 0; i < r->n; i++) {
        r->frames[i] = ig_kv_find_frame(m);
        if (!r->frames[i]) r->n = i;
    }
}

static void give_frames(ig_kv_memory *m, const reading *r) {
    for (size_t i = 0; i < r->n; i++) ig_frame_pool_give(&m->pool, r->frames[i]);
}

/* Waits for a list of blocks being read; they are cached then, or not there if the reading failed. */
static ig_status finish_reading(ig_kv_memory *m, reading *r, ig_error *err) {
    if (!r->active) return IG_OK;
    r->active = false;
    ig_status s = ig_kv_wait_stalled(m, r->ticket, err);
    if (s) {
        give_frames(m, r);
        return s;
    }
    for (size_t i = 0; i < r->n; i++) {
        m->frames[r->blocks[i]] = r->frames[i];
        ig_kv_cache_block(m, r->blocks[i]);
        m->foreseen[ig_kv_frame_number(m, r->frames[i])] = r != &m->late;
        push_arrived(&m->arrived, r->blocks[i]);
    }
    m->stats.recalled += r->n;
    return IG_OK;
}

/* Marks of blocks begin anew: those of the latest load() and of prefetches keep one each, all others were never
 * wanted. */
static void renumber_epochs(ig_kv_memory *m) {
    uint32_t *marks[] = {&m->loaded, &m->ahead[0].epoch, &m->ahead[1].epoch};
    for (size_t id = 0; id < m->n_tables * m->table_len; id++) {
        uint32_t before = m->blocks[id].epoch;
        m->blocks[id].epoch = 0;
        for (uint32_t k = 0; before && k < IG_COUNT(marks); k++)
            if (*marks[k] == before) m->blocks[id].epoch = k + 1;
    }
    for (uint32_t k = 0; k < IG_COUNT(marks); k++) *marks[k] = k + 1;
    for (size_t i = 0; i < IG_COUNT(m->steps); i++) m->steps[i] = 1;
    m->epoch = IG_COUNT(marks);
}

static void begin_epoch(ig_kv_memory *m) {
    if (m->epoch == UINT32_MAX) renumber_epochs(m); /* after some days */
    m->epoch++;
    trim_arrived(&m->arrived);
}

/* What was foreseen for others makes room for what is wanted now. */
static void end_prefetches(ig_kv_memory *m) {
    for (int i = 0; i < 2; i++) finish_reading(m, &m->ahead[i], NULL);
}

ig_status ig_kv_take_frame(ig_kv *kv, uint8_t **out, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    double before = m->stats.stall_seconds;
    *out = ig_kv_find_frame(m);
    if (!*out && m->tier) {
        end_prefetches(m);
        begin_epoch(m);
        m->loaded = m->epoch; /* a layer's attention is over when others grow: what it wanted may go */
        *out = ig_kv_find_frame(m);
    }
    /* Without a disk tier, or if that has failed. */
    while (!*out && (ig_kv_thin_oldest(m) || ig_kv_forget_oldest(m))) *out = ig_kv_find_frame(m);
    kv->moved.stall_seconds += m->stats.stall_seconds - before;
    ig_status s = ig_kv_take_failure(kv, err);
    if (s && *out) {
        ig_frame_pool_give(&m->pool, *out);
        *out = NULL;
    }
    if (s || *out) return s;
    return ig_kv_has_dropped(kv) ? ig_kv_fail_kept(err) : fail_room(m, err);
}

static ig_status start_reading(ig_kv_memory *m, reading *r, ig_error *err) {
    if (!r->n) return IG_OK;
    ig_status s = m->tier->ops->read(m->tier, &r->ticket, r->slots, r->frames, r->n, r != &m->late, err);
    if (s)
        give_frames(m, r);
    else
        r->active = true;
    return s;
}

/* Marked as wanted even if it is in RAM, lest the prefetch itself push it out. The block of the step's own token may
 * not exist yet. Picks of query heads that share a KV head may name a block again. */
static void want_ahead(ig_kv_memory *m, size_t id) {
    bool again = m->blocks[id].epoch == m->epoch;
    m->blocks[id].epoch = m->epoch;
    if (!again && !m->frames[id] && m->blocks[id].slot) add_wanted(m, m->expected, id);
}

/* What is known of failed writes of those that want something; of several it stays known. */
static ig_status any_failure(const ig_kv_want *wants, int n, ig_error *err) {
    for (int i = 0; i < n; i++) {
        ig_error failure = wants[i].kv->failure;
        if (!failure.status) continue;
        if (err) *err = failure;
        if (n == 1) wants[i].kv->failure.status = IG_OK;
        return failure.status;
    }
    return IG_OK;
}

ig_status ig_kv_prefetch_all(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err) {
    reading *r = &m->ahead[layer % 2];
    ig_kv_stats before = ig_kv_count_moved(m);
    ig_status s = finish_reading(m, r, err); /* nobody has asked for what it brings */
    if (s) return s;
    begin_epoch(m);
    r->n = 0;
    r->layer = layer;
    r->epoch = m->epoch;
    m->expected = r;
    for (int i = 0; i < n; i++) each_block(&wants[i], layer, want_ahead);
    size_t n_wanted = r->n;
    r->active = true;  /* what it is for stays */
    take_frames(m, r); /* as many as there is room for */
    r->active = false;
    for (size_t i = r->n; i < n_wanted; i++) m->blocks[r->blocks[i]].epoch = 0;
    charge(m, &before, wants, n);
    s = any_failure(wants, n, err);
    if (!s) return start_reading(m, r, err);
    give_frames(m, r);
    return s;
}

/* A block that is there: it counts as used, and as foreseen if a prefetch brought it. */
static void use(ig_kv_memory *m, size_t id) {
    uint32_t f = ig_kv_frame_number(m, m->frames[id]);
    ig_evict_use(&m->evict, f);
    m->stats.prefetch_hits += m->foreseen[f] && m->owner[f] == id;
    m->foreseen[f] = 0;
}

static void want_now(ig_kv_memory *m, size_t id) {
    uint32_t before = m->blocks[id].epoch;
    if (before == m->epoch) return;
    m->blocks[id].epoch = m->epoch;
    if (m->frames[id])
        use(m, id);
    else if (!m->expected || before != m->expected->epoch)
        add_wanted(m, &m->late, id);
}

/* All blocks of `late`, or none. */
static ig_status start_late(ig_kv_memory *m, ig_error *err) {
    size_t n_wanted = m->late.n;
    take_frames(m, &m->late);
    if (m->late.n == n_wanted) return start_reading(m, &m->late, err);
    give_frames(m, &m->late);
    return fail_room(m, err);
}

/* Waits for the prefetch that is expected, and for the blocks of `late`. */
static ig_status finish_late(ig_kv_memory *m, ig_error *err) {
    reading *expected = m->expected;
    ig_status s = IG_OK;
    m->expected = NULL;
    if (expected) {
        s = finish_reading(m, expected, err);
        for (size_t i = 0; !s && i < expected->n; i++)
            if (m->blocks[expected->blocks[i]].epoch == m->epoch) use(m, expected->blocks[i]);
    }
    ig_status t = finish_reading(m, &m->late, s ? NULL : err);
    return s ? s : t;
}

void ig_kv_begin_step(ig_kv_memory *m) { m->step_begins = true; }

static void count_steps(ig_kv_memory *m) {
    if (!m->step_begins) return;
    for (size_t i = IG_COUNT(m->steps) - 1; i > 0; i--) m->steps[i] = m->steps[i - 1];
    m->steps[0] = m->epoch;
    m->step_begins = false;
}

static ig_status begin_once(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err) {
    m->expected = NULL;
    for (int i = 0; i < 2; i++) {
        reading *ahead = &m->ahead[i];
        if (!ahead->active || ahead->layer == layer + 1) continue;
        if (ahead->layer == layer) {
            m->expected = ahead;
            continue;
        }
        ig_status s = finish_reading(m, ahead, err); /* its layer was never loaded */
        if (s) return s;
    }
    begin_epoch(m);
    count_steps(m);
    m->loaded = m->epoch;
    m->late.n = 0;
    for (int i = 0; i < n; i++) each_block(&wants[i], layer, want_now);
    m->stats.prefetch_misses += m->late.n;
    ig_status s = start_late(m, err), failed = any_failure(wants, n, s ? NULL : err);
    if (s || failed) finish_late(m, NULL);
    return s ? s : failed;
}

static ig_status recall(ig_kv_memory *m, const size_t *ids, size_t n, ig_error *err) {
    m->expected = NULL;
    m->late.n = 0;
    begin_epoch(m);
    m->loaded = m->epoch;
    for (size_t i = 0; i < n; i++) want_now(m, ids[i]);
    ig_status s = start_late(m, err);
    return s ? s : finish_late(m, err);
}

ig_status ig_kv_load_begin(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err) {
    if (!m->tier) return IG_OK;
    ig_kv_stats before = ig_kv_count_moved(m);
    ig_status s = begin_once(m, layer, wants, n, err);
    if (s == IG_E_LIMIT) {
        end_prefetches(m);
        s = begin_once(m, layer, wants, n, err);
    }
    while (s == IG_E_LIMIT && n == 1 && ig_kv_forget_oldest(m)) s = begin_once(m, layer, wants, n, err);
    charge(m, &before, wants, n);
    return s;
}

ig_status ig_kv_load_end(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err) {
    (void)layer;
    if (!m->tier) return IG_OK;
    ig_kv_stats before = ig_kv_count_moved(m);
    ig_status s = finish_late(m, err);
    charge(m, &before, wants, n);
    return s;
}

ig_status ig_kv_load_all(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err) {
    ig_status s = ig_kv_load_begin(m, layer, wants, n, err);
    return s ? s : ig_kv_load_end(m, layer, wants, n, err);
}

ig_status ig_kv_read_back(ig_kv *kv, const size_t *ids, size_t n, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    ig_kv_stats before = ig_kv_count_moved(m);
    ig_status s = recall(m, ids, n, err);
    if (s == IG_E_LIMIT) {
        end_prefetches(m);
        s = recall(m, ids, n, err);
    }
    while (s == IG_E_LIMIT && ig_kv_forget_oldest(m)) s = recall(m, ids, n, err);
    ig_kv_charge_one(kv, &before);
    return s;
}

ig_status ig_kv_recall(ig_kv *kv, const size_t *ids, size_t n, ig_error *err) {
    ig_status s = ig_kv_read_back(kv, ids, n, err), failed = ig_kv_take_failure(kv, s ? NULL : err);
    return s ? s : failed;
}

/* ---- layers that stay ------------------------------------------------------------------ */

/* Into RAM what is on disk of blocks [first, end), of any layers: steps over all of a layer would only read it in
 * passing. */
static ig_status recall_range(ig_kv_memory *m, size_t first, size_t end, ig_error *err) {
    size_t ids[64], n = 0, most = m->layer_blocks < IG_COUNT(ids) ? m->layer_blocks : IG_COUNT(ids);
    for (size_t id = first; id < end; id++) {
        if (!m->frames[id] && m->blocks[id].slot) ids[n++] = id;
        if (n < most) continue;
        ig_status s = recall(m, ids, n, err);
        if (s) return s;
        n = 0;
    }
    return n ? recall(m, ids, n, err) : IG_OK;
}

/* Blocks before number n may not leave RAM, those behind may. No write is under way. */
static void set_pinned(ig_kv_memory *m, size_t n) {
    size_t was = m->n_pinned;
    m->n_pinned = n;
    for (size_t id = n < was ? n : was; id < n || id < was; id++) {
        if (!m->frames[id] || !m->blocks[id].slot) continue;
        uint32_t frame = ig_kv_frame_number(m, m->frames[id]);
        if (id < n)
            ig_evict_remove(&m->evict, frame);
        else
            ig_evict_add(&m->evict, frame);
    }
}

ig_status ig_kv_pin(ig_kv_memory *m, int n_layers, ig_error *err) {
    size_t n = ig_kv_count_pinned(m, n_layers), was = m->n_pinned;
    if (m->tier && n != was) {
        ig_kv_settle(m); /* frames of writes under way may not leave yet */
        set_pinned(m, n);
        ig_status s = recall_range(m, was, n, err);
        if (s) set_pinned(m, was);
        if (s) return s;
    }
    if (m->copies && m->copies->shape.n_dense_layers != n_layers) ig_residency_share_out(m->copies, n_layers);
    return IG_OK;
}

void ig_kv_settle(ig_kv_memory *m) {
    end_prefetches(m);
    ig_kv_end_scans(m);
    while (m->n_writes) ig_kv_finish_write(m);
}
