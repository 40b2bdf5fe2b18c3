/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that pass through two slots of a device: see weight_lane.h. They are sent in turn, for ever: the last layer's
 * place in its slot goes to the first ones of the next pass. A slot is filled behind the operations that have used it,
 * and operations run behind the mark of the part that they need, so that neither side asks how far the other is.
 */
#include "model/weight_lane.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "device/space.h"

enum { NONE = -1 };

typedef struct slot {
    uint8_t *room; /* the device's */
    int layer;     /* that is in it or on its way */
} slot;

struct ig_weight_lane {
    ig_device *d;
    ig_weight_plan plan;
    uint64_t fixed_bytes;
    uint8_t *memory; /* [plan.bytes] the device's: what stays, then the slots' rooms */
    uint8_t *homes;  /* [home_bytes] page-locked: the layers that pass, in order */
    size_t home_bytes;
    ig_lane *lane;
    slot slots[IG_WEIGHT_SLOTS];
    int next; /* the layer to be sent next; those in the slots are the ones before it */
    _Atomic uint64_t sent_bytes;
};

/* ---- copies when a model is opened ---------------------------------------------------- */

/* To the device; *at is then behind it. */
static ig_status copy_group(ig_weight_lane *l, const ig_weight_group *g, uint8_t **at, bool is_copied,
                            ig_loading *loading, ig_error *err) {
    ig_status status = IG_OK;
    for (int i = 0; i < g->n && !status; i++) {
        const ig_weight_place *p = &g->places[i];
        l->d->ops->copy(l->d, *at, p->mapped, p->span.bytes);
        status = l->d->ops->finish(l->d, err);
        if (!status) status = ig_loading_add(loading, p->span.room, err);
        if (!is_copied) ig_file_forget(p->mapped, p->span.bytes);
        p->matrix->panels = *at;
        *at += p->span.room;
    }
    return status;
}

/* To page-locked memory. */
static ig_status bring_home(const ig_weight_group *g, uint8_t **at, ig_loading *loading, ig_error *err) {
    ig_status status = IG_OK;
    for (int i = 0; i < g->n && !status; i++) {
        const ig_weight_place *p = &g->places[i];
        memcpy(*at, p->mapped, p->span.bytes);
        p->matrix->w = *at;
        ig_file_forget(p->mapped, p->span.bytes);
        *at += p->span.room;
        status = ig_loading_add(loading, p->span.room, err);
    }
    return status;
}

static ig_status copy_all(ig_weight_lane *l, ig_weights *w, const ig_weight_lane_options *o, ig_error *err) {
    ig_loading loading = {.progress = o->progress, .user = o->progress_user};
    uint8_t *at = l->memory, *home = l->homes;
    bool is_tied = w->head.w == w->embed.w;
    loading.total = l->plan.bytes - IG_WEIGHT_SLOTS * l->plan.slot_bytes + l->home_bytes;
    ig_status status = copy_group(l, &l->plan.others, &at, o->is_copied, &loading, err);
    for (int i = 0; i < l->plan.n_layers && !status; i++) {
        const ig_weight_group *g = &l->plan.layers[i];
        status = ig_weight_plan_streams(&l->plan, i) ? bring_home(g, &home, &loading, err)
                                                     : copy_group(l, g, &at, o->is_copied, &loading, err);
    }
    if (is_tied) w->head.panels = w->embed.panels;
    for (int i = 0; i < IG_WEIGHT_SLOTS; i++)
        l->slots[i] = (slot){.room = at + (size_t)i * l->plan.slot_bytes, .layer = NONE};
    return status;
}

static ig_status take_memory(ig_weight_lane *l, ig_error *err) {
    char need[64], have[64];
    uint64_t available = ig_memory_available();
    l->memory = ig_device_alloc(l->d, IG_PLACE_DEVICE, l->plan.bytes);
    if (!l->memory)
        return ig_fail(err, IG_E_MEMORY,
                       "%s: out of memory: the weights take %s; a lower limit (--weights-vram) leaves layers in the "
                       "host's memory, from where every step brings them",
                       l->d->ops->name, ig_bytes_text(need, l->fixed_bytes + l->plan.bytes));
    if (!l->home_bytes) return IG_OK;
    if (l->home_bytes > available)
        return ig_fail(err, IG_E_LIMIT, "weights that are streamed to the device take %s of RAM; available are %s",
                       ig_bytes_text(need, l->home_bytes), ig_bytes_text(have, available));
    l->homes = ig_device_alloc(l->d, IG_PLACE_HOST, l->home_bytes);
    return l->homes ? IG_OK : ig_fail_memory(err, "page-locked memory for weights", l->home_bytes);
}

/* ---- steps ----------------------------------------------------------------------------- */

static int mark_of(int slot_number, ig_weight_part part) { return slot_number * IG_WEIGHT_PARTS + (int)part; }

/* Sends the next layer to a slot, part by part. */
static void fill(ig_weight_lane *l, int number) {
    slot *to = &l->slots[number];
    const ig_weight_group *g = &l->plan.layers[l->next];
    const uint8_t *home = g->places[0].matrix->w;
    size_t begin = 0;
    l->d->ops->follow(l->d, l->lane);
    for (int part = 0, i = 0; part < IG_WEIGHT_PARTS; part++) {
        size_t end = begin;
        for (; i < ig_weight_plan_count(g, part); i++) end += g->places[i].span.room;
        l->d->ops->send(l->d, l->lane, mark_of(number, part), to->room + begin, home + begin, end - begin);
        begin = end;
    }
    to->layer = l->next;
    l->next = ig_weight_plan_next(&l->plan, l->next);
    atomic_fetch_add(&l->sent_bytes, begin);
}

static int find_slot(const ig_weight_lane *l, int layer) {
    int number = 0;
    while (number < IG_WEIGHT_SLOTS - 1 && l->slots[number].layer != layer) number++;
    assert(l->slots[number].layer == layer);
    return number;
}

static void let_go(const ig_weight_group *g) {
    for (int i = 0; i < g->n; i++) g->places[i].matrix->panels = NULL;
}

void ig_weight_lane_begin(ig_weight_lane *l) {
    if (!l || !l->plan.n_streamed) return;
    int first = ig_weight_plan_next(&l->plan, NONE), third = first;
    for (int i = 0; i < IG_WEIGHT_SLOTS; i++) third = ig_weight_plan_next(&l->plan, third);
    if (l->slots[0].layer != NONE && l->next == third) return;
    l->next = first; /* the last pass ended early, or this is the first one */
    for (int i = 0; i < IG_WEIGHT_SLOTS; i++) {
        if (l->slots[i].layer != NONE) let_go(&l->plan.layers[l->slots[i].layer]);
        fill(l, i);
    }
}

void ig_weight_lane_take(ig_weight_lane *l, int layer, ig_weight_part what) {
    if (!l || !ig_weight_plan_streams(&l->plan, layer)) return;
    const ig_weight_group *g = &l->plan.layers[layer];
    int number = find_slot(l, layer), n = ig_weight_plan_count(g, what);
    const uint8_t *room = l->slots[number].room;
    l->d->ops->await(l->d, l->lane, mark_of(number, what));
    for (int i = 0; i < n; room += g->places[i++].span.room) g->places[i].matrix->panels = room;
}

void ig_weight_lane_give(ig_weight_lane *l, int layer) {
    if (!l || !ig_weight_plan_streams(&l->plan, layer)) return;
    let_go(&l->plan.layers[layer]);
    fill(l, find_slot(l, layer));
}

void ig_weight_lane_get_stats(ig_weight_lane *l, ig_weight_stats *out) {
    *out = (ig_weight_stats){.ram_bytes = l->home_bytes,
                             .vram_bytes = l->fixed_bytes + l->plan.bytes,
                             .step_bytes = l->plan.step_bytes,
                             .read_bytes = atomic_load(&l->sent_bytes),
                             .wait_seconds = l->lane ? l->d->ops->waited(l->d, l->lane) : 0,
                             .n_streamed_layers = l->plan.n_streamed,
                             .slot_bytes = IG_WEIGHT_SLOTS * (uint64_t)l->plan.slot_bytes};
}

/* ---- opening --------------------------------------------------------------------------- */

ig_status ig_weight_lane_open(ig_weight_lane **out, ig_device *d, ig_weights *weights, int n_layers,
                              const ig_weight_lane_options *o, ig_error *err) {
    ig_weight_lane *l = calloc(1, sizeof *l);
    *out = NULL;
    if (!l) return ig_fail_memory(err, "weights on a device", sizeof *l);
    l->d = d;
    l->fixed_bytes = o->fixed_bytes;
    ig_status status = ig_weight_plan_open(&l->plan, weights, n_layers, !o->expert_bytes, NULL, NULL, err);
    if (!status && o->vram_bytes)
        status =
            ig_weight_plan_fit(&l->plan, o->vram_bytes, o->fixed_bytes + o->expert_bytes, "the device's memory", err);
    for (int i = 0; i < n_layers && !status; i++)
        if (ig_weight_plan_streams(&l->plan, i)) l->home_bytes += l->plan.layers[i].room;
    bool has_memory = !d->ops->is_plan;
    if (!status && has_memory) status = take_memory(l, err);
    if (!status && has_memory) status = copy_all(l, weights, o, err);
    if (!status && has_memory && l->home_bytes)
        status = d->ops->open_lane(d, &l->lane, IG_WEIGHT_SLOTS * IG_WEIGHT_PARTS, err);
    if (status)
        ig_weight_lane_close(l);
    else
        *out = l;
    return status;
}

void ig_weight_lane_close(ig_weight_lane *l) {
    if (!l) return;
    if (l->lane) l->d->ops->close_lane(l->d, l->lane);
    ig_device_free(l->d, IG_PLACE_HOST, l->homes, l->home_bytes);
    ig_device_free(l->d, IG_PLACE_DEVICE, l->memory, l->plan.bytes);
    ig_weight_plan_close(&l->plan);
    free(l);
}
