/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts that pass through frames of a device: see expert_lane.h.
 */
#include "model/expert_lane.h"

#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "device/space.h"
#include "model/use_order.h"

enum {
    NONE = -1,
    N_AHEAD = 4, /* experts that are expected at a time */
    MARKS = 16,
};

typedef struct expert {
    ig_weight_place places[IG_FFN_MATRICES];
    int n_places;
    const uint8_t *home; /* page-locked: its matrices, one behind the other */
    int frame;           /* NONE: it has none */
} expert;

typedef struct frame {
    int expert;  /* NONE: it is empty */
    bool is_new; /* nothing has awaited the expert yet */
} frame;

struct ig_expert_lane {
    ig_device *d;
    expert *experts;                              /* [n_experts] of all layers */
    const ig_layer *layers;                       /* all */
    int n_experts, n_layers, per_layer, n_chosen; /* layers that have experts */
    size_t expert_bytes;                          /* of the largest: a frame, and a home */
    uint8_t *memory;                              /* [n_frames][expert_bytes] the device's */
    uint8_t *homes;                               /* [n_experts][expert_bytes] */
    frame *frames;                                /* [n_frames] */
    int n_frames;
    ig_use_order order; /* of frames */
    ig_lane *lane;      /* NULL: all have frames */
    _Atomic uint64_t sent_bytes;
};

static int number_of(const ig_expert_lane *x, int layer, int e) { return x->layers[layer].first_expert + e; }

static size_t bytes_of(const expert *e) {
    size_t sum = 0;
    for (int i = 0; i < e->n_places; i++) sum += e->places[i].span.room;
    return sum;
}

/* ---- frames ----------------------------------------------------------------------------------- */

static uint8_t *room_of(const ig_expert_lane *x, int f) { return x->memory + (size_t)f * x->expert_bytes; }

/* Where the device finds an expert; NULL: nowhere. */
static void point_to(const expert *e, const uint8_t *room) {
    for (int i = 0; i < e->n_places; i++) {
        e->places[i].matrix->panels = room;
        if (room) room += e->places[i].span.room;
    }
}

static void give_frame(ig_expert_lane *x, int f, int number) {
    int before = x->frames[f].expert;
    if (before != NONE) {
        point_to(&x->experts[before], NULL);
        x->experts[before].frame = NONE;
    }
    x->frames[f] = (frame){.expert = number, .is_new = true};
    x->experts[number].frame = f;
    point_to(&x->experts[number], room_of(x, f));
}

/* Sees to it that the first n have frames, or come. They are used last then, so that as many as there are frames find
 * room beside each other. */
static void want(ig_expert_lane *x, int layer, const int32_t *experts, int n) {
    bool follows = false;
    for (int i = 0; i < n; i++) {
        int f = x->experts[number_of(x, layer, experts[i])].frame;
        if (f != NONE) ig_use_order_move(&x->order, f, true);
    }
    for (int i = 0; i < n; i++) {
        int number = number_of(x, layer, experts[i]), f = ig_use_order_next(&x->order, x->n_frames);
        const expert *e = &x->experts[number];
        if (e->frame != NONE) continue;
        give_frame(x, f, number);
        ig_use_order_move(&x->order, f, true);
        if (!follows) x->d->ops->follow(x->d, x->lane);
        follows = true;
        x->d->ops->send(x->d, x->lane, f % MARKS, room_of(x, f), e->home, bytes_of(e));
        atomic_fetch_add(&x->sent_bytes, bytes_of(e));
    }
}

void ig_expert_lane_take(ig_expert_lane *x, int layer, const int32_t *experts, int n) {
    if (!x || !x->lane) return;
    want(x, layer, experts, n);
    for (int i = 0; i < n; i++) {
        int f = x->experts[number_of(x, layer, experts[i])].frame;
        if (x->frames[f].is_new) x->d->ops->await(x->d, x->lane, f % MARKS);
        x->frames[f].is_new = false;
    }
}

void ig_expert_lane_expect(ig_expert_lane *x, int layer, const int32_t *experts, int n) {
    if (!x || !x->lane) return;
    int most = x->n_frames - x->n_chosen < N_AHEAD ? x->n_frames - x->n_chosen : N_AHEAD;
    want(x, layer, experts, n < most ? n : most);
}

void ig_expert_lane_add_stats(ig_expert_lane *x, ig_weight_stats *st) {
    if (!x) return;
    uint64_t step = 0;
    for (int l = 0; l < x->n_layers; l++) step += (uint64_t)x->n_chosen * bytes_of(&x->experts[l * x->per_layer]);
    st->vram_bytes += (uint64_t)x->n_frames * x->expert_bytes;
    st->ram_bytes += ig_expert_lane_all(x);
    st->step_bytes += x->n_frames < x->n_experts ? step : 0;
    st->read_bytes += atomic_load(&x->sent_bytes);
    st->wait_seconds += x->lane ? x->d->ops->waited(x->d, x->lane) : 0;
    st->n_experts = x->n_experts;
    st->n_held_experts = x->n_frames;
}

/* ---- opening ------------------------------------------------------------------------------------ */

ig_status ig_expert_lane_open(ig_expert_lane **out, ig_device *d, ig_weights *weights, const ig_config *c,
                              ig_error *err) {
    ig_expert_lane *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x) return ig_fail_memory(err, "room for experts", sizeof *x);
    x->d = d;
    x->layers = weights->layers, x->n_layers = ig_config_expert_layers(c);
    x->per_layer = c->experts.n, x->n_chosen = c->experts.n_used;
    x->n_experts = x->n_layers * x->per_layer;
    x->experts = calloc((size_t)x->n_experts, sizeof *x->experts);
    ig_status s =
        x->experts ? IG_OK : ig_fail_memory(err, "list of experts", (size_t)x->n_experts * sizeof *x->experts);
    for (int l = 0, i = 0; l < c->n_layers; l++) {
        const ig_layer *w = &weights->layers[l];
        for (int e = 0; w->router.w && e < w->n_experts && !s; e++, i++) {
            x->experts[i].frame = NONE;
            s = ig_weight_place_find_ffn(x->experts[i].places, &x->experts[i].n_places, &x->expert_bytes,
                                         &w->experts[e], NULL, NULL, err);
        }
    }
    if (s)
        ig_expert_lane_close(x);
    else
        *out = x;
    return s;
}

uint64_t ig_expert_lane_all(const ig_expert_lane *x) { return (uint64_t)x->n_experts * x->expert_bytes; }

uint64_t ig_expert_lane_least(const ig_expert_lane *x) { return (uint64_t)(x->n_chosen + 1) * x->expert_bytes; }

static ig_status take_memory(ig_expert_lane *x, ig_error *err) {
    char need[64], have[64];
    uint64_t all = ig_expert_lane_all(x), available = ig_memory_available();
    if (all > available)
        return ig_fail(err, IG_E_LIMIT, "experts that are sent to the device take %s of RAM; available are %s",
                       ig_bytes_text(need, all), ig_bytes_text(have, available));
    x->frames = calloc((size_t)x->n_frames, sizeof *x->frames);
    if (!x->frames || !ig_use_order_open(&x->order, x->n_frames))
        return ig_fail_memory(err, "list of experts", (size_t)x->n_frames * sizeof *x->frames);
    x->memory = ig_device_alloc(x->d, IG_PLACE_DEVICE, (size_t)x->n_frames * x->expert_bytes);
    if (!x->memory)
        return ig_fail(err, IG_E_MEMORY,
                       "%s: out of memory: experts take %s; a lower limit (--weights-vram) leaves more of them in the "
                       "host's memory",
                       x->d->ops->name, ig_bytes_text(need, (uint64_t)x->n_frames * x->expert_bytes));
    x->homes = ig_device_alloc(x->d, IG_PLACE_HOST, all);
    return x->homes ? IG_OK : ig_fail_memory(err, "page-locked memory for experts", all);
}

/* To page-locked memory. */
static void bring_home(ig_expert_lane *x, int number, bool is_copied) {
    expert *e = &x->experts[number];
    uint8_t *at = x->homes + (size_t)number * x->expert_bytes;
    e->home = at;
    for (int i = 0; i < e->n_places; at += e->places[i++].span.room) {
        const ig_weight_place *p = &e->places[i];
        memcpy(at, p->mapped, p->span.bytes);
        p->matrix->w = at;
        if (!is_copied) ig_file_forget(p->mapped, p->span.bytes);
    }
}

/* Frames get as many experts of each layer. */
static ig_status fill_frames(ig_expert_lane *x, ig_error *err) {
    for (int f = 0; f < x->n_frames; f++) {
        int number = f % x->n_layers * x->per_layer + f / x->n_layers;
        x->frames[f].expert = NONE;
        give_frame(x, f, number);
        x->frames[f].is_new = false;
        x->d->ops->copy(x->d, room_of(x, f), x->experts[number].home, bytes_of(&x->experts[number]));
    }
    return x->d->ops->finish(x->d, err);
}

ig_status ig_expert_lane_fill(ig_expert_lane *x, uint64_t vram_bytes, bool is_copied, ig_progress_fn progress,
                              void *user, ig_error *err) {
    uint64_t n = vram_bytes / x->expert_bytes;
    x->n_frames = n < (uint64_t)x->n_experts ? (int)n : x->n_experts;
    if (x->d->ops->is_plan) return IG_OK;
    ig_loading loading = {.progress = progress, .user = user, .total = ig_expert_lane_all(x)};
    ig_status s = take_memory(x, err);
    for (int i = 0; i < x->n_experts && !s; i++) {
        bring_home(x, i, is_copied);
        s = ig_loading_add(&loading, x->expert_bytes, err);
    }
    if (!s) s = fill_frames(x, err);
    if (!s) s = x->d->ops->open_lane(x->d, &x->lane, MARKS, err);
    return s;
}

void ig_expert_lane_close(ig_expert_lane *x) {
    if (!x) return;
    if (x->lane) x->d->ops->close_lane(x->d, x->lane);
    ig_device_free(x->d, IG_PLACE_HOST, x->homes, ig_expert_lane_all(x));
    ig_device_free(x->d, IG_PLACE_DEVICE, x->memory, (size_t)x->n_frames * x->expert_bytes);
    ig_use_order_close(&x->order);
    free(x->frames);
    free(x->experts);
    free(x);
}
