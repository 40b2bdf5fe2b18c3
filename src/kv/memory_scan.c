/* SPDX-License-Identifier: Apache-2.0
 *
 * Scans: attention over all of a layer, which is read in passing where it is not in RAM.
 */
#include "base/compiler.h"
#include "kv/memory_parts.h"

bool ig_kv_in_ram(const ig_kv *kv, int layer, int first, int end) {
    const ig_kv_memory *m = kv->memory;
    int n = ig_min_int(end, ig_kv_entries(kv, layer, 0).n_slots);
    if (!m->tier) return true;
    for (int t = 0; t < ig_kv_tables_of(m, layer); t++)
        for (size_t b = (size_t)first >> m->shift; b < ig_kv_blocks_for(m, n); b++)
            if (!m->frames[ig_kv_block_id(kv, layer, t, b)]) return false;
    return true;
}

static ig_status end_stage(ig_kv_memory *m, stage *g, ig_error *err) {
    if (!g->reading) return IG_OK;
    g->reading = false;
    return ig_kv_wait_stalled(m, g->ticket, err);
}

/* Starts to read what is not in RAM of tokens [begin, begin + IG_ATTEND_UNIT). */
static ig_status start_stage(const ig_kv *kv, stage *g, int layer, int begin, int n, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    ig_status s = end_stage(m, g, g->kv == kv ? err : NULL); /* of a scan that was given up */
    if (s && g->kv == kv) return s;
    size_t first = (size_t)begin >> m->shift, end = ig_kv_blocks_for(m, n), n_read = 0;
    if (end > first + m->unit_blocks) end = first + m->unit_blocks;
    reading *r = &m->late;
    g->kv = kv, g->layer = layer, g->begin = begin, g->n = n;
    for (int t = 0; t < ig_kv_tables_of(m, layer); t++)
        for (size_t b = first; b < end; b++) {
            size_t id = ig_kv_block_id(kv, layer, t, b), at = (size_t)t * m->unit_blocks + b - first;
            g->table[at] = m->frames[id];
            if (g->table[at]) continue;
            r->slots[n_read] = m->blocks[id].slot - 1;
            g->table[at] = r->frames[n_read++] = g->frames + at * IG_FRAME_BYTES;
        }
    if (!n_read) return IG_OK;
    s = m->tier->ops->read(m->tier, &g->ticket, r->slots, r->frames, n_read, false, err);
    g->reading = !s;
    return s;
}

ig_status ig_kv_stream(ig_kv *kv, int layer, int begin, int n, ig_kv_view *views, ig_error *err) {
    ig_kv_memory *m = kv->memory;
    stage *g = &m->stages[begin / IG_ATTEND_UNIT % N_STAGES],
          *next = &m->stages[(begin / IG_ATTEND_UNIT + 1) % N_STAGES];
    ig_kv_stats before = ig_kv_count_moved(m);
    ig_status s = IG_OK;
    bool ready = g->n == n && g->kv == kv && g->layer == layer && g->begin == begin;
    if (!ready) s = start_stage(kv, g, layer, begin, n, err);
    if (!s && begin + IG_ATTEND_UNIT < n) s = start_stage(kv, next, layer, begin + IG_ATTEND_UNIT, n, err);
    if (!s) s = end_stage(m, g, err);
    ig_kv_charge_one(kv, &before);
    g->n = 0; /* used up: what it says of RAM will not be true for long */
    if (s) return s;
    for (int h = 0; h < ig_kv_heads(m, layer); h++) {
        views[h] = ig_kv_fetch(kv, layer, h, NULL, 0, n);
        views[h].blocks = g->table + (size_t)ig_kv_table_of(m, layer, h) * m->unit_blocks;
        views[h].is_staged = true;
        views[h].block_base = begin >> m->shift;
    }
    return IG_OK;
}

void ig_kv_end_scans(ig_kv_memory *m) {
    for (int i = 0; i < N_STAGES; i++) {
        end_stage(m, &m->stages[i], NULL);
        m->stages[i].n = 0;
    }
}
