/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames for experts in the order of their last use, and the threads that read into them: see expert_cache.h.
 */
#include "model/expert_cache.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "model/use_order.h"

enum {
    NONE = -1,
    N_READERS = 4,       /* a disk wants several requests at a time */
    N_AHEAD = 8,         /* experts that are expected at a time */
    USES_FOR_PANELS = 16 /* panels pay after some more (docs/speed-log.md) */
};

/* An expert in the files. */
typedef struct expert {
    ig_weight_place places[IG_FFN_MATRICES];
    int n_places;
    int frame; /* NONE: it has none */
} expert;

typedef enum frame_state { FRAME_FREE, FRAME_COMES, FRAME_HERE, FRAME_FAILED } frame_state;

typedef struct frame {
    int expert;
    frame_state state;
    bool is_taken, is_new; /* is_new: only prompts have used it since it was read */
    bool has_panels;       /* its matrices are in panels, those that have some */
    int n_uses;
    ig_error err;
} frame;

struct ig_expert_cache {
    ig_weight_reader *reader;
    expert *experts;                              /* [n_experts] of all layers */
    const ig_layer *layers;                       /* all */
    int n_experts, n_layers, per_layer, n_chosen; /* layers that have experts */
    size_t frame_bytes;
    uint8_t *memory; /* [n_frames][frame_bytes] */
    ig_device *device;
    uint8_t *through; /* [frame_bytes] to put panels in frames */

    pthread_t threads[N_READERS];
    int n_threads;
    pthread_mutex_t lock; /* of all below, and of which experts have frames */
    pthread_cond_t work, arrived;
    frame *frames; /* [n_frames] */
    int n_frames;
    ig_use_order order; /* of frames */
    int *queue;         /* [n_frames] frames to be read into, a ring */
    int first, n_queued;
    bool stop;
    uint64_t read_bytes;
    double wait_seconds;
};

/* ---- frames ----------------------------------------------------------------------------------- */

static void leave(ig_expert_cache *x, int f) {
    if (x->frames[f].expert != NONE) x->experts[x->frames[f].expert].frame = NONE;
    x->frames[f].expert = NONE;
    x->frames[f].state = FRAME_FREE;
}

/* Of those that nobody needs the one that was used longest ago; NONE: there is none. */
static int find_room(const ig_expert_cache *x) {
    int f = ig_use_order_next(&x->order, x->n_frames);
    while (f < x->n_frames && (x->frames[f].is_taken || x->frames[f].state == FRAME_COMES))
        f = ig_use_order_next(&x->order, f);
    return f < x->n_frames ? f : NONE;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static ig_status read_expert(ig_expert_cache *x, int number, int f, ig_error *err) {
    const expert *e = &x->experts[number];
    uint8_t *room = x->memory + (size_t)f * x->frame_bytes;
    ig_status s = IG_OK;
    for (int i = 0; i < e->n_places && !s; room += e->places[i++].room) {
        const void *bytes;
        s = ig_weight_reader_read(&bytes, x->reader, &e->places[i].span, room, err);
    }
    return s;
}

static uint64_t bytes_of(const expert *e) {
    uint64_t sum = 0;
    for (int i = 0; i < e->n_places; i++) sum += e->places[i].span.bytes;
    return sum;
}

static void *read_queued(void *arg) {
    ig_expert_cache *x = arg;
    pthread_mutex_lock(&x->lock);
    while (!x->stop) {
        if (!x->n_queued) {
            pthread_cond_wait(&x->work, &x->lock);
            continue;
        }
        int f = x->queue[x->first], number = x->frames[f].expert;
        ig_error err = {0};
        x->first = (x->first + 1) % x->n_frames;
        x->n_queued--;
        pthread_mutex_unlock(&x->lock);
        read_expert(x, number, f, &err);
        pthread_mutex_lock(&x->lock);
        x->frames[f].err = err;
        x->frames[f].state = err.status ? FRAME_FAILED : FRAME_HERE;
        if (!err.status) x->read_bytes += bytes_of(&x->experts[number]);
        pthread_cond_signal(&x->arrived);
    }
    pthread_mutex_unlock(&x->lock);
    return NULL;
}

/* Sees to it that an expert has a frame, and comes if it is not there; it was used last then. NONE: there is no room.
 */
static int want(ig_expert_cache *x, int number) {
    expert *e = &x->experts[number];
    int f = e->frame;
    if (f != NONE && x->frames[f].state == FRAME_FAILED) leave(x, f), f = NONE;
    if (f == NONE) {
        f = find_room(x);
        if (f == NONE) return NONE;
        leave(x, f);
        e->frame = f;
        x->frames[f].expert = number;
        x->frames[f].state = FRAME_COMES;
        x->frames[f].is_new = true;
        x->frames[f].n_uses = 0;
        x->frames[f].has_panels = false;
        x->queue[(x->first + x->n_queued++) % x->n_frames] = f;
        pthread_cond_signal(&x->work);
    }
    ig_use_order_move(&x->order, f, true);
    return f;
}

/* ---- steps ------------------------------------------------------------------------------------------ */

static int number_of(const ig_expert_cache *x, int layer, int e) { return x->layers[layer].first_expert + e; }

void ig_expert_cache_expect(ig_expert_cache *x, int layer, const int32_t *experts, int n) {
    if (!x) return;
    int most = x->n_frames - 1 < N_AHEAD ? x->n_frames - 1 : N_AHEAD;
    pthread_mutex_lock(&x->lock);
    for (int i = 0; i < n && i < most && want(x, number_of(x, layer, experts[i])) != NONE;) i++;
    pthread_mutex_unlock(&x->lock);
}

static void point_to_frame(const ig_expert_cache *x, const expert *e) {
    const uint8_t *room = x->memory + (size_t)e->frame * x->frame_bytes;
    for (int i = 0; i < e->n_places; room += e->places[i++].room)
        if (x->frames[e->frame].has_panels && e->places[i].has_panels)
            ig_weight_place_point_to_panels(&e->places[i], room);
        else
            ig_weight_place_point(&e->places[i], room);
}

/* What is used often is worth the work. */
static void put_panels(ig_expert_cache *x, const expert *e) {
    uint8_t *room = x->memory + (size_t)e->frame * x->frame_bytes;
    for (int i = 0; i < e->n_places; room += e->places[i++].room)
        ig_weight_place_put_panels(&e->places[i], x->device, room, x->through);
    x->frames[e->frame].has_panels = true;
}

static void release(ig_expert_cache *x, int layer, const int32_t *experts, int n, bool of_prompt) {
    for (int i = 0; i < n; i++) {
        const expert *e = &x->experts[number_of(x, layer, experts[i])];
        frame *f = &x->frames[e->frame];
        for (int k = 0; k < e->n_places; k++) ig_weight_place_point(&e->places[k], NULL);
        f->is_taken = false;
        f->is_new = f->is_new && of_prompt;
        if (f->is_new) ig_use_order_move(&x->order, e->frame, false);
    }
}

/* The lock is held, and let go of while it waits. */
static void wait_for_arrival(ig_expert_cache *x) {
    double start = ig_clock_seconds();
    pthread_cond_wait(&x->arrived, &x->lock);
    x->wait_seconds += ig_clock_seconds() - start;
}

ig_status ig_expert_cache_take(ig_expert_cache *x, int layer, const int32_t *experts, int n, ig_error *err) {
    if (!x) return IG_OK;
    ig_error why = {0};
    int n_taken = 0;
    pthread_mutex_lock(&x->lock);
    for (int i = 0, f; i < n; i++) {
        while ((f = want(x, number_of(x, layer, experts[i]))) == NONE) wait_for_arrival(x);
        x->frames[f].is_taken = true;
    }
    for (; n_taken < n && !why.status; n_taken++) {
        frame *f = &x->frames[x->experts[number_of(x, layer, experts[n_taken])].frame];
        while (f->state == FRAME_COMES) wait_for_arrival(x);
        why = f->err;
    }
    if (why.status) release(x, layer, experts, n, true);
    pthread_mutex_unlock(&x->lock);
    if (why.status) return ig_fail(err, why.status, "%s (experts of layer %d)", why.text, layer);
    for (int i = 0; i < n; i++) {
        const expert *e = &x->experts[number_of(x, layer, experts[i])];
        if (++x->frames[e->frame].n_uses == USES_FOR_PANELS) put_panels(x, e);
        point_to_frame(x, e);
    }
    return IG_OK;
}

void ig_expert_cache_give(ig_expert_cache *x, int layer, const int32_t *experts, int n, bool of_prompt) {
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    release(x, layer, experts, n, of_prompt);
    pthread_mutex_unlock(&x->lock);
}

/* What a token reads of layers at most, if none of what it chooses is there. */
static uint64_t count_step(const ig_expert_cache *x) {
    uint64_t sum = 0;
    for (int l = 0; l < x->n_layers; l++) sum += (uint64_t)x->n_chosen * bytes_of(&x->experts[l * x->per_layer]);
    return x->n_frames < x->n_experts ? sum : 0;
}

void ig_expert_cache_add_stats(ig_expert_cache *x, ig_weight_stats *st) {
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    st->ram_bytes += (uint64_t)x->n_frames * x->frame_bytes;
    st->step_bytes += count_step(x);
    st->read_bytes += x->read_bytes;
    st->wait_seconds += x->wait_seconds;
    st->n_experts = x->n_experts;
    st->n_held_experts = x->n_frames;
    st->is_direct = st->is_direct && ig_weight_reader_is_direct(x->reader);
    pthread_mutex_unlock(&x->lock);
}

/* ---- opening -------------------------------------------------------------------------------------------- */

ig_status ig_expert_cache_open(ig_expert_cache **out, ig_weights *weights, const ig_config *c,
                               const ig_weight_file *files, size_t n_files, ig_device *panels, ig_error *err) {
    ig_expert_cache *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x) return ig_fail_memory(err, "room for experts", sizeof *x);
    x->device = panels;
    x->layers = weights->layers, x->n_layers = ig_config_expert_layers(c);
    x->per_layer = c->experts.n, x->n_chosen = c->experts.n_used;
    x->n_experts = x->n_layers * x->per_layer;
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->work, NULL);
    pthread_cond_init(&x->arrived, NULL);
    ig_status s = ig_weight_reader_open(&x->reader, files, n_files, err);
    if (!s && !(x->experts = calloc((size_t)x->n_experts, sizeof *x->experts)))
        s = ig_fail_memory(err, "list of experts", (size_t)x->n_experts * sizeof *x->experts);
    for (int l = 0, i = 0; l < c->n_layers; l++) {
        const ig_layer *w = &weights->layers[l];
        for (int e = 0; w->router.w && e < w->n_experts && !s; e++, i++) {
            x->experts[i].frame = NONE;
            s = ig_weight_place_find_ffn(x->experts[i].places, &x->experts[i].n_places, &x->frame_bytes, &w->experts[e],
                                         x->reader, x->device, err);
        }
    }
    if (s)
        ig_expert_cache_close(x);
    else
        *out = x;
    return s;
}

static int least_frames(const ig_expert_cache *x) {
    return x->n_chosen + 1 < x->n_experts ? x->n_chosen + 1 : x->n_experts;
}

uint64_t ig_expert_cache_least(const ig_expert_cache *x) { return (uint64_t)least_frames(x) * x->frame_bytes; }

/* Frames get as many experts of each layer, all of them in the queue. */
static void want_first(ig_expert_cache *x) {
    pthread_mutex_lock(&x->lock);
    for (int f = 0; f < x->n_frames; f++) {
        int number = f % x->n_layers * x->per_layer + f / x->n_layers;
        x->experts[number].frame = x->queue[f] = f;
        x->frames[f] = (frame){.expert = number, .state = FRAME_COMES, .n_uses = USES_FOR_PANELS};
    }
    x->n_queued = x->n_frames;
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
}

/* Puts them in panels as they come. */
static ig_status await_first(ig_expert_cache *x, ig_loading *loading, ig_error *err) {
    ig_status s = IG_OK;
    loading->total = (uint64_t)x->n_frames * x->frame_bytes;
    for (int f = 0; f < x->n_frames && !s; f++) {
        pthread_mutex_lock(&x->lock);
        while (x->frames[f].state == FRAME_COMES) pthread_cond_wait(&x->arrived, &x->lock);
        ig_error why = x->frames[f].err;
        x->read_bytes = 0; /* they are not read for a step */
        pthread_mutex_unlock(&x->lock);
        if (why.status) return ig_fail(err, why.status, "%s", why.text);
        put_panels(x, &x->experts[x->frames[f].expert]);
        s = ig_loading_add(loading, x->frame_bytes, err);
    }
    return s;
}

ig_status ig_expert_cache_fill(ig_expert_cache *x, uint64_t ram_bytes, ig_progress_fn progress, void *user,
                               ig_error *err) {
    uint64_t n = ram_bytes / x->frame_bytes;
    x->n_frames = n < (uint64_t)x->n_experts ? (int)n : x->n_experts;
    size_t n_bytes = (size_t)x->n_frames * x->frame_bytes;
    x->frames = calloc((size_t)x->n_frames, sizeof *x->frames);
    x->queue = calloc((size_t)x->n_frames, sizeof *x->queue);
    x->memory = ig_pages_reserve(n_bytes);
    x->through = ig_pages_reserve(x->frame_bytes);
    if (!x->frames || !x->queue || !x->memory || !x->through || !ig_use_order_open(&x->order, x->n_frames))
        return ig_fail_memory(err, "experts", n_bytes);
    ig_pages_want_large(x->memory, n_bytes);
    ig_loading loading = {.progress = progress, .user = user};
    ig_status s = IG_OK;
    for (int i = 0; i < N_READERS && !s; i++) {
        s = ig_thread_start(&x->threads[i], read_queued, x, "a thread that reads experts", err);
        x->n_threads += !s;
    }
    if (s) return s;
    want_first(x);
    return await_first(x, &loading, err);
}

void ig_expert_cache_close(ig_expert_cache *x) {
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    x->stop = true;
    pthread_cond_broadcast(&x->work);
    pthread_mutex_unlock(&x->lock);
    for (int i = 0; i < x->n_threads; i++) pthread_join(x->threads[i], NULL);
    pthread_cond_destroy(&x->arrived);
    pthread_cond_destroy(&x->work);
    pthread_mutex_destroy(&x->lock);
    if (x->memory) ig_pages_release(x->memory, (size_t)x->n_frames * x->frame_bytes);
    if (x->through) ig_pages_release(x->through, x->frame_bytes);
    ig_weight_reader_close(x->reader);
    ig_use_order_close(&x->order);
    free(x->experts);
    free(x->frames);
    free(x->queue);
    free(x);
}
