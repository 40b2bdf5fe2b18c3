/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries that are dropped for ever. Dropping alone frees slots, which new tokens take; compacting moves the entries
 * that are left into the lowest slots and gives the blocks behind them back.
 *
 * A layer that lies in a disk tier is compacted in order of position: a block is written over once all that is kept of
 * it has moved to blocks before it, so that little more than what is kept need be in RAM at once. The layer stays in
 * RAM from then on: rows that come and go would make of every block one that changes again.
 */
#include "kv/memory_parts.h"

#include <string.h>

#include "base/error.h"

enum { PORTION = 64 }; /* blocks that are read back together */

void ig_kv_keep(ig_kv *kv, int layer, int head, const int32_t *index, int n) {
    ig_slots_keep(ig_kv_any_slots(kv, layer, head), ig_kv_entries(kv, layer, head).n, index, n);
}

void ig_kv_drop(ig_kv *kv, int layer, int head, int i) {
    ig_slots_drop(ig_kv_any_slots(kv, layer, head), ig_kv_entries(kv, layer, head).n, i);
}

/* One KV head of a layer that is being compacted. */
typedef struct packing {
    ig_kv *kv;
    int layer, head;
    ig_kv_moved_fn moved;
    void *user;
} packing;

static void move_entry(void *user, int from, int to) {
    const packing *p = user;
    const ig_kv_memory *m = p->kv->memory;
    if (from == to) return;
    ig_kv_row source = ig_kv_at(p->kv, p->layer, p->head, from), target = ig_kv_at(p->kv, p->layer, p->head, to);
    memcpy(target.key, source.key, m->row_bytes);
    memcpy(target.value, source.value, m->row_bytes);
    if (m->lines) memcpy(target.lines, source.lines, m->slot_lines * sizeof(ig_kv_line));
    p->moved(p->user, p->layer, p->head, from, to);
}

/* ---- layers that lie on disk -------------------------------------------------------- */

/* Reads the blocks back that entries from number `first` on lie in, up to PORTION of them. */
static ig_status recall_portion(const packing *p, const ig_slots *s, int first, ig_error *err) {
    size_t ids[PORTION], n = 0;
    for (int i = first; i < s->n; i++) {
        size_t id = ig_kv_block_id(p->kv, p->layer, p->head, (size_t)s->order[i] >> p->kv->memory->shift);
        if (n && ids[n - 1] == id) continue;
        if (n == PORTION) break;
        ids[n++] = id;
    }
    return ig_kv_recall(p->kv, ids, n, err);
}

/* A block that nothing is left in gets a frame to be written to. */
static ig_status renew_block(const packing *p, size_t id, ig_error *err) {
    ig_kv_memory *m = p->kv->memory;
    ig_kv_drop_block(m, id);
    return ig_kv_take_frame(p->kv, &m->frames[id], err);
}

/* A block in RAM that entries stay in is to be written to. */
static void keep_block(const packing *p, size_t id) {
    ig_kv_memory *m = p->kv->memory;
    if (!m->blocks[id].slot) return;
    ig_evict_remove(&m->evict, ig_kv_frame_number(m, m->frames[id]));
    ig_kv_free_slot(m, id);
}

static ig_status gather(packing *p, ig_slots *s, ig_error *err) {
    const ig_kv_memory *m = p->kv->memory;
    for (int to = 0; to < s->n; to++) {
        int from = s->order[to];
        size_t source = ig_kv_block_id(p->kv, p->layer, p->head, (size_t)from >> m->shift);
        size_t target = ig_kv_block_id(p->kv, p->layer, p->head, (size_t)to >> m->shift);
        bool is_first = (to & ((1 << m->shift) - 1)) == 0; /* in its block */
        ig_status status = IG_OK;
        /* The frame comes first: it may be that of a block that was read back. */
        if (is_first && source != target) status = renew_block(p, target, err);
        if (!status && !m->frames[source]) status = recall_portion(p, s, to, err);
        if (status) return status;
        if (is_first && source == target) keep_block(p, target);
        move_entry(p, from, to);
        s->order[to] = to;
    }
    s->n_spare = 0;
    s->n_slots = s->n;
    return IG_OK;
}

/* ---- compacting ------------------------------------------------------------------------ */

/* Of memory between frames that are used, whole pages go back to the system. */
static void drop_pages(const ig_kv_memory *m, uint8_t *begin, const uint8_t *end) {
    uintptr_t first = ig_round_up((uintptr_t)begin, IG_FRAME_BYTES),
              last = (uintptr_t)end / IG_FRAME_BYTES * IG_FRAME_BYTES;
    if (first < last) ig_device_drop(m->device, begin + (first - (uintptr_t)begin), last - first);
}

/* The head's blocks from b on are not needed any more. Without a disk tier their memory goes back to the system. */
static void free_blocks(ig_kv *kv, int layer, int head, size_t b) {
    ig_kv_memory *m = kv->memory;
    uint8_t *begin = NULL, *end = NULL;
    for (; b < ig_kv_blocks_for(m, kv->held[layer]); b++) {
        size_t id = ig_kv_block_id(kv, layer, head, b);
        uint8_t *frame = m->frames[id];
        ig_kv_drop_block(m, id);
        if (m->tier) continue;
        if (frame != end) {
            drop_pages(m, begin, end);
            begin = frame;
        }
        end = frame + m->frame_bytes;
    }
    drop_pages(m, begin, end);
}

ig_status ig_kv_fail_kept(ig_error *err) {
    return ig_fail(err, IG_E_LIMIT,
                   "the KV cache's share of RAM is too small for the entries that stay in it: those that are kept of "
                   "prompts, and all of answers");
}

ig_status ig_kv_compact(ig_kv *kv, int layer, ig_kv_moved_fn moved, void *user, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    bool on_disk = kv->sealed[layer] > 0;
    if (on_disk) ig_kv_settle(m);
    ig_status status = on_disk ? ig_kv_take_failure(kv, err) : IG_OK;
    kv->torn = true;
    for (int h = 0; !status && h < m->shape.n_kv_heads; h++) {
        packing p = {kv, layer, h, moved, user};
        ig_slots *s = ig_kv_slots(kv, layer, h);
        if (on_disk)
            status = gather(&p, s, err);
        else
            ig_slots_pack(s, move_entry, &p);
        if (!status) free_blocks(kv, layer, h, ig_kv_blocks_for(m, s->n));
    }
    if (status == IG_E_LIMIT) return ig_kv_fail_kept(err);
    if (status) return status;
    kv->held[layer] = ig_kv_slots(kv, layer, 0)->n_slots;
    kv->sealed[layer] = 0;
    kv->torn = false;
    return IG_OK;
}
