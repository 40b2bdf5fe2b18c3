/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of blocks between RAM and the disk tier: frames, write-behind, prefetch and recall, scans.
 */
#include "kv/store_parts.h"

#include "base/clock.h"
#include "base/error.h"

/* ---- frames ---------------------------------------------------------------------- */

/* The block's frame may be taken from now on, unless its layer is to stay. */
static void cache(ig_kv *kv, size_t id) {
    uint32_t f = ig_kv_frame_number(kv, kv->tables[id]);
    kv->owner[f] = (uint32_t)id;
    kv->foreseen[f] = 0;
    if (id >= kv->n_pinned) ig_evict_add(&kv->evict, f);
}

void ig_kv_free_slot(ig_kv *kv, size_t id) {
    ig_slot slot = kv->blocks[id].slot - 1;
    kv->tier->ops->free_slots(kv->tier, &slot, 1);
    kv->blocks[id].slot = 0;
}

/* Waits for the oldest write; its blocks are cached then. */
static ig_status finish_write(ig_kv *kv, ig_error *err) {
    pending_write w = kv->writes[kv->first_write];
    kv->first_write = (kv->first_write + 1) % MAX_WRITES;
    kv->n_writes--;
    ig_status s = kv->tier->ops->wait(kv->tier, w.ticket, err);
    for (int h = 0; h < kv->shape.n_kv_heads; h++)
        for (int b = w.first; b < w.end; b++) {
            size_t id = ig_kv_table_at(kv, w.layer, h) + (size_t)b;
            if (!s) {
                cache(kv, id);
                continue;
            }
            ig_kv_free_slot(kv, id); /* the block stays in RAM, open */
        }
    if (s && kv->unwritten[w.layer] > w.first) kv->unwritten[w.layer] = w.first;
    return s;
}

/* ---- whose frame is taken ------------------------------------------------------- */

enum { LOOKS = 16 }; /* at frames in search of an idle one */

/* What the latest load() wanted stays, and what a prefetch under way is for. */
static bool is_wanted(const ig_kv *kv, size_t id) {
    uint32_t e = kv->blocks[id].epoch;
    return e == kv->loaded || (kv->ahead[0].active && e == kv->ahead[0].epoch) ||
           (kv->ahead[1].active && e == kv->ahead[1].epoch);
}

/* Not wanted in the latest `age` whole steps, nor by this one so far. */
static bool is_idle(const ig_kv *kv, size_t id, int age) {
    return kv->blocks[id].epoch < kv->steps[age] && !is_wanted(kv, id);
}

typedef struct search {
    const ig_kv *kv;
    int age;
    int looks; /* left */
} search;

static bool keep_busy(void *user, uint32_t frame) {
    search *s = user;
    return !is_idle(s->kv, s->kv->owner[frame], s->age) && --s->looks > 0;
}

static bool keep_wanted(void *user, uint32_t frame) {
    const ig_kv *kv = user;
    return is_wanted(kv, kv->owner[frame]);
}

/* An idle one in the order of eviction, or else anywhere. */
static uint32_t find_idle(ig_kv *kv, int age) {
    search s = {kv, age, LOOKS};
    uint32_t f = ig_evict_victim(&kv->evict, keep_busy, &s);
    if (f != UINT32_MAX && is_idle(kv, kv->owner[f], age)) return f;
    for (int i = 0; i < LOOKS; i++) {
        f = kv->hand;
        kv->hand = kv->hand + 1 < kv->evict.n_frames ? kv->hand + 1 : 0;
        if (kv->evict.listed[f] && is_idle(kv, kv->owner[f], age)) return f;
    }
    return UINT32_MAX;
}

/* Forgets those at the end that have left. */
static void trim_arrived(arrivals *a) {
    while (a->n && a->blocks[(a->n - 1) % a->cap] == UINT32_MAX) a->n--;
    a->at = a->n;
}

static void push_arrived(arrivals *a, uint32_t id) { a->blocks[a->n++ % a->cap] = id; }

static uint32_t find_arrived(ig_kv *kv) {
    arrivals *a = &kv->arrived;
    size_t end = a->n > a->cap ? a->n - a->cap : 0;
    while (a->at > end) {
        uint32_t *id = &a->blocks[--a->at % a->cap];
        if (*id == UINT32_MAX) continue;
        uint8_t *frame = kv->tables[*id];
        uint32_t f = frame ? ig_kv_frame_number(kv, frame) : 0;
        bool is_here = frame && kv->evict.listed[f] && kv->owner[f] == *id;
        if (is_here && is_wanted(kv, *id)) continue;
        *id = UINT32_MAX;
        if (is_here) return f;
    }
    return UINT32_MAX;
}

static uint32_t find_victim(ig_kv *kv) {
    uint32_t f = UINT32_MAX;
    for (int age = IG_COUNT(kv->steps) - 1; age > 0 && f == UINT32_MAX; age--) f = find_idle(kv, age);
    if (f == UINT32_MAX) f = find_arrived(kv);
    return f != UINT32_MAX ? f : ig_evict_victim(&kv->evict, keep_wanted, kv);
}

/* *out: NULL if there is no room. */
static ig_status find_frame(ig_kv *kv, uint8_t **out, ig_error *err) {
    for (;;) {
        *out = ig_kv_pool_take(&kv->pool);
        if (*out) return IG_OK;
        while (kv->n_writes && kv->tier->ops->poll(kv->tier, kv->writes[kv->first_write].ticket)) {
            ig_status s = finish_write(kv, err);
            if (s) return s;
        }
        uint32_t f = find_victim(kv);
        if (f != UINT32_MAX) {
            kv->tables[kv->owner[f]] = NULL;
            ig_evict_remove(&kv->evict, f);
            kv->stats.demoted++;
            *out = kv->pool.frames + (size_t)f * IG_FRAME_BYTES;
            return IG_OK;
        }
        if (!kv->n_writes) return IG_OK;
        double start = ig_clock_seconds();
        ig_status s = finish_write(kv, err);
        kv->stats.stall_seconds += ig_clock_seconds() - start;
        if (s) return s;
    }
}

ig_status ig_kv_take_frame(ig_kv *kv, uint8_t **out, ig_error *err) {
    ig_status s = find_frame(kv, out, err);
    if (s || *out) return s;
    return ig_fail(err, IG_E_LIMIT,
                   "the KV cache's share of RAM is too small for one layer: it needs more than %zu MiB",
                   (size_t)kv->evict.n_frames * IG_FRAME_BYTES >> 20);
}

/* ---- write-behind ------------------------------------------------------------ */

/* Starts to write blocks [first, end) of all heads of a layer. */
static ig_status write_blocks(ig_kv *kv, int layer, int first, int end, ig_error *err) {
    reading *r = &kv->late; /* its lists are free between loads */
    r->n = 0;
    for (int h = 0; h < kv->shape.n_kv_heads; h++)
        for (int b = first; b < end; b++) {
            r->blocks[r->n] = (uint32_t)(ig_kv_table_at(kv, layer, h) + (size_t)b);
            r->frames[r->n] = kv->tables[r->blocks[r->n]];
            r->n++;
        }
    ig_status s = kv->n_writes == MAX_WRITES ? finish_write(kv, err) : IG_OK;
    pending_write w = {.layer = layer, .first = first, .end = end};
    if (!s) s = kv->tier->ops->write(kv->tier, &w.ticket, r->slots, (const uint8_t *const *)r->frames, r->n, err);
    if (s) return s;
    for (size_t i = 0; i < r->n; i++) kv->blocks[r->blocks[i]].slot = r->slots[i] + 1;
    kv->writes[(kv->first_write + kv->n_writes++) % MAX_WRITES] = w;
    return IG_OK;
}

/* Those before `end` that are not written and not about to be. */
static ig_status write_until(ig_kv *kv, int layer, int end, ig_error *err) {
    const block *blocks = kv->blocks + ig_kv_table_at(kv, layer, 0); /* the other heads' are written with these */
    for (int b = kv->unwritten[layer]; b < end; kv->unwritten[layer] = b) {
        while (b < end && blocks[b].slot) b++; /* written since others failed */
        int first = b;
        while (b < end && !blocks[b].slot) b++;
        ig_status s = b > first ? write_blocks(kv, layer, first, b, err) : IG_OK;
        if (s) return s;
        if (kv->sealed[layer] < b) kv->sealed[layer] = b;
    }
    return IG_OK;
}

ig_status ig_kv_seal(ig_kv *kv, int layer, ig_error *err) {
    if (!kv->tier || ig_kv_slots(kv, layer, 0)) return IG_OK;
    return write_until(kv, layer, kv->held[layer] >> kv->shift, err);
}

ig_status ig_kv_write_again(ig_kv *kv, ig_error *err) {
    ig_status s = IG_OK;
    for (int l = 0; kv->tier && !s && l < kv->shape.n_layers; l++)
        if (kv->unwritten[l] < kv->sealed[l]) s = write_until(kv, l, kv->sealed[l], err);
    return s;
}

/* ---- reading back --------------------------------------------------------------------- */

static ig_status wait_stalled(ig_kv *kv, ig_ticket ticket, ig_error *err) {
    double start = ig_clock_seconds();
    ig_status s = kv->tier->ops->wait(kv->tier, ticket, err);
    kv->stats.stall_seconds += ig_clock_seconds() - start;
    return s;
}

static void add_wanted(ig_kv *kv, reading *r, size_t id) {
    r->blocks[r->n] = (uint32_t)id;
    r->slots[r->n++] = kv->blocks[id].slot - 1;
}

/* Calls fn for each block that holds an entry of the pick. */
typedef void (*block_fn)(ig_kv *kv, size_t id);

static void each_block(ig_kv *kv, int layer, int head, const ig_kv_pick *pick, block_fn fn) {
    size_t base = ig_kv_table_at(kv, layer, head), last = SIZE_MAX;
    for (int i = 0; i < pick->n; i++) {
        size_t b = (size_t)(pick->index ? pick->index[i] : i) >> kv->shift;
        if (b != last) fn(kv, base + b);
        last = b;
    }
}

/* Frames for the blocks of r by `take`; if not for all, r is cut to those that have one. */
static ig_status take_frames(ig_kv *kv, reading *r, ig_status (*take)(ig_kv *, uint8_t **, ig_error *), ig_error *err) {
    for (size_t i = 0; i < r->n; i++) {
        ig_status s = take(kv, &r->frames[i], err);
        if (!s && r->frames[i]) continue;
        r->n = i;
        return s;
    }
    return IG_OK;
}

static void give_frames(ig_kv *kv, const reading *r) {
    for (size_t i = 0; i < r->n; i++) ig_kv_pool_give(&kv->pool, r->frames[i]);
}

/* Waits for a list of blocks being read; they are cached then, or not there if the reading failed. */
static ig_status finish_reading(ig_kv *kv, reading *r, ig_error *err) {
    if (!r->active) return IG_OK;
    r->active = false;
    ig_status s = wait_stalled(kv, r->ticket, err);
    if (s) {
        give_frames(kv, r);
        return s;
    }
    for (size_t i = 0; i < r->n; i++) {
        kv->tables[r->blocks[i]] = r->frames[i];
        cache(kv, r->blocks[i]);
        kv->foreseen[ig_kv_frame_number(kv, r->frames[i])] = r != &kv->late;
        push_arrived(&kv->arrived, r->blocks[i]);
    }
    kv->stats.recalled += r->n;
    return IG_OK;
}

static ig_status start_reading(ig_kv *kv, reading *r, ig_error *err) {
    if (!r->n) return IG_OK;
    ig_status s = kv->tier->ops->read(kv->tier, &r->ticket, r->slots, r->frames, r->n, r != &kv->late, err);
    if (s)
        give_frames(kv, r);
    else
        r->active = true;
    return s;
}

/* Marked as wanted even if it is in RAM, lest the prefetch itself push it out. The block of the step's own token may
 * not exist yet. Picks of query heads that share a KV head may name a block again. */
static void want_ahead(ig_kv *kv, size_t id) {
    bool again = kv->blocks[id].epoch == kv->epoch;
    kv->blocks[id].epoch = kv->epoch;
    if (!again && !kv->tables[id] && kv->blocks[id].slot) add_wanted(kv, kv->expected, id);
}

static void begin_epoch(ig_kv *kv) {
    kv->epoch++;
    trim_arrived(&kv->arrived);
}

ig_status ig_kv_prefetch(ig_kv *kv, int layer, const ig_kv_pick *picks, int n_picks, ig_error *err) {
    reading *r = &kv->ahead[layer % 2];
    ig_status s = finish_reading(kv, r, err);
    if (s) return s;
    begin_epoch(kv);
    r->n = 0;
    r->layer = layer;
    r->epoch = kv->epoch;
    kv->expected = r;
    for (int i = 0; i < n_picks; i++) each_block(kv, layer, i * kv->shape.n_kv_heads / n_picks, &picks[i], want_ahead);
    size_t n = r->n;
    r->active = true;                        /* what it is for stays */
    s = take_frames(kv, r, find_frame, err); /* as many as there is room for */
    r->active = false;
    for (size_t i = r->n; i < n; i++) kv->blocks[r->blocks[i]].epoch = 0;
    if (!s) return start_reading(kv, r, err);
    give_frames(kv, r);
    return s;
}

/* A block that is there: it counts as used, and as foreseen if a prefetch brought it. */
static void use(ig_kv *kv, size_t id) {
    uint32_t f = ig_kv_frame_number(kv, kv->tables[id]);
    ig_evict_use(&kv->evict, f);
    kv->stats.prefetch_hits += kv->foreseen[f] && kv->owner[f] == id;
    kv->foreseen[f] = 0;
}

static void want_now(ig_kv *kv, size_t id) {
    uint32_t before = kv->blocks[id].epoch;
    if (before == kv->epoch) return;
    kv->blocks[id].epoch = kv->epoch;
    if (kv->tables[id])
        use(kv, id);
    else if (!kv->expected || before != kv->expected->epoch)
        add_wanted(kv, &kv->late, id);
}

/* Brings the blocks of `late` in, and those on their way by the prefetch that is expected. */
static ig_status read_late(ig_kv *kv, ig_error *err) {
    ig_status s = take_frames(kv, &kv->late, ig_kv_take_frame, err);
    if (s)
        give_frames(kv, &kv->late);
    else
        s = start_reading(kv, &kv->late, err);
    if (kv->expected) {
        ig_status t = finish_reading(kv, kv->expected, s ? NULL : err);
        if (!s) s = t;
        for (size_t i = 0; !t && i < kv->expected->n; i++)
            if (kv->blocks[kv->expected->blocks[i]].epoch == kv->epoch) use(kv, kv->expected->blocks[i]);
    }
    ig_status t = finish_reading(kv, &kv->late, s ? NULL : err);
    return s ? s : t;
}

/* A new step has begun if the layer is not behind the last one. */
static void count_steps(ig_kv *kv, int layer) {
    if (layer <= kv->last_layer) {
        for (size_t i = IG_COUNT(kv->steps) - 1; i > 0; i--) kv->steps[i] = kv->steps[i - 1];
        kv->steps[0] = kv->epoch;
    }
    kv->last_layer = layer;
}

ig_status ig_kv_load(ig_kv *kv, int layer, const ig_kv_pick *picks, int n_picks, ig_error *err) {
    if (!kv->tier) return IG_OK;
    kv->expected = NULL;
    for (int i = 0; i < 2; i++) {
        reading *ahead = &kv->ahead[i];
        if (!ahead->active || ahead->layer == layer + 1) continue;
        if (ahead->layer == layer) {
            kv->expected = ahead;
            continue;
        }
        ig_status s = finish_reading(kv, ahead, err); /* its layer was never loaded */
        if (s) return s;
    }
    begin_epoch(kv);
    count_steps(kv, layer);
    kv->loaded = kv->epoch;
    kv->late.n = 0;
    for (int i = 0; i < n_picks; i++) each_block(kv, layer, i * kv->shape.n_kv_heads / n_picks, &picks[i], want_now);
    kv->stats.prefetch_misses += kv->late.n;
    return read_late(kv, err);
}

ig_status ig_kv_recall(ig_kv *kv, const size_t *ids, size_t n, ig_error *err) {
    kv->expected = NULL;
    kv->late.n = 0;
    begin_epoch(kv);
    kv->loaded = kv->epoch;
    for (size_t i = 0; i < n; i++) want_now(kv, ids[i]);
    return read_late(kv, err);
}

/* ---- scans ------------------------------------------------------------------------------ */

bool ig_kv_in_ram(const ig_kv *kv, int layer, int first, int n) {
    if (!kv->tier) return true;
    for (int h = 0; h < kv->shape.n_kv_heads; h++) {
        uint8_t *const *table = kv->tables + ig_kv_table_at(kv, layer, h);
        for (size_t b = (size_t)first >> kv->shift; b < ig_kv_blocks_for(kv, n); b++)
            if (!table[b]) return false;
    }
    return true;
}

static ig_status end_stage(ig_kv *kv, stage *g, ig_error *err) {
    if (!g->reading) return IG_OK;
    g->reading = false;
    return wait_stalled(kv, g->ticket, err);
}

/* Starts to read what is not in RAM of tokens [begin, begin + IG_ATTEND_UNIT). */
static ig_status start_stage(ig_kv *kv, stage *g, int layer, int begin, int n, ig_error *err) {
    ig_status s = end_stage(kv, g, err); /* of a scan that was given up */
    if (s) return s;
    size_t first = (size_t)begin >> kv->shift, end = ig_kv_blocks_for(kv, n), n_read = 0;
    if (end > first + kv->unit_blocks) end = first + kv->unit_blocks;
    reading *r = &kv->late;
    g->layer = layer, g->begin = begin, g->n = n;
    for (int h = 0; h < kv->shape.n_kv_heads; h++)
        for (size_t b = first; b < end; b++) {
            size_t id = ig_kv_table_at(kv, layer, h) + b, at = (size_t)h * kv->unit_blocks + b - first;
            g->table[at] = kv->tables[id];
            if (g->table[at]) continue;
            r->slots[n_read] = kv->blocks[id].slot - 1;
            g->table[at] = r->frames[n_read++] = g->frames + at * IG_FRAME_BYTES;
        }
    if (!n_read) return IG_OK;
    s = kv->tier->ops->read(kv->tier, &g->ticket, r->slots, r->frames, n_read, false, err);
    g->reading = !s;
    return s;
}

ig_status ig_kv_stream(ig_kv *kv, int layer, int begin, int n, ig_kv_view *views, ig_error *err) {
    stage *g = &kv->stages[begin / IG_ATTEND_UNIT % N_STAGES],
          *next = &kv->stages[(begin / IG_ATTEND_UNIT + 1) % N_STAGES];
    ig_status s = IG_OK;
    bool ready = g->n == n && g->layer == layer && g->begin == begin;
    if (!ready) s = start_stage(kv, g, layer, begin, n, err);
    if (!s && begin + IG_ATTEND_UNIT < n) s = start_stage(kv, next, layer, begin + IG_ATTEND_UNIT, n, err);
    if (!s) s = end_stage(kv, g, err);
    g->n = 0; /* used up: what it says of RAM will not be true for long */
    if (s) return s;
    for (int h = 0; h < kv->shape.n_kv_heads; h++) {
        views[h] = ig_kv_fetch(kv, layer, h, NULL, 0, n);
        views[h].blocks = g->table + (size_t)h * kv->unit_blocks;
        views[h].block_base = begin >> kv->shift;
    }
    return IG_OK;
}

ig_status ig_kv_settle(ig_kv *kv, ig_error *err) {
    ig_status s = IG_OK;
    for (int i = 0; i < 2; i++) {
        ig_status t = finish_reading(kv, &kv->ahead[i], s ? NULL : err);
        if (!s) s = t;
    }
    for (int i = 0; i < N_STAGES; i++) {
        ig_status t = end_stage(kv, &kv->stages[i], s ? NULL : err);
        kv->stages[i].n = 0;
        if (!s) s = t;
    }
    while (kv->n_writes) {
        ig_status t = finish_write(kv, s ? NULL : err);
        if (!s) s = t;
    }
    return s;
}
