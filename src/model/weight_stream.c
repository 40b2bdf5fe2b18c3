/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream of weights: two slots that the reader's thread fills in turn. The reader
 * goes round over the layers that are not in RAM: while a step computes those before, and while nothing computes, it
 * reads what is wanted next.
 */
#include "model/weight_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

enum { NONE = -1 };

typedef struct slot {
    uint8_t *room;
    int layer;    /* NONE: free */
    int n_here;   /* of its matrices */
    bool taken;   /* a pass uses some of them */
    ig_error err; /* why no more will come, if status is set */
} slot;

struct ig_weight_stream {
    ig_weight_reader *reader;
    ig_weight_plan plan;
    uint8_t *memory; /* [plan.bytes] copies, then the slots' rooms */
    uint64_t fixed_bytes;

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, arrived;
    slot slots[IG_WEIGHT_SLOTS];
    int next; /* the layer to be read next */
    bool stop, is_reading, cancel;
    uint64_t read_bytes;
    double wait_seconds;
};

/* ---- copies ------------------------------------------------------------------------ */

/* What is copied, and how far that is. */
typedef struct copying {
    ig_weight_stream *s;
    ig_device *panels;
    uint8_t *at, *through; /* through: room for the largest matrix; NULL: there are no panels */
    size_t n_through;      /* bytes of it */
    ig_loading loading;
} copying;

static ig_status copy_group(copying *c, const ig_weight_group *g, ig_error *err) {
    for (int i = 0; i < g->n; i++) {
        const ig_weight_place *p = &g->places[i];
        const void *bytes;
        ig_status status = ig_weight_reader_read(&bytes, c->s->reader, &p->span, c->at, err);
        if (status) return status;
        ig_weight_place_put_panels(p, c->panels, c->at, c->through);
        if (p->has_panels)
            ig_weight_place_point_to_panels(p, c->at);
        else
            ig_weight_place_point(p, c->at);
        c->at += p->room;
        status = ig_loading_add(&c->loading, p->room, err);
        if (status) return status;
    }
    return IG_OK;
}

static size_t largest_room(const ig_weight_plan *p) {
    size_t most = 0;
    for (int i = -1; i < p->n_layers; i++) {
        const ig_weight_group *g = i < 0 ? &p->others : &p->layers[i];
        for (int k = 0; k < g->n; k++) most = g->places[k].span.room > most ? g->places[k].span.room : most;
    }
    return most;
}

static ig_status copy_all(copying *c, ig_weights *w, ig_error *err) {
    const ig_weight_plan *p = &c->s->plan;
    bool is_tied = w->head.w == w->embed.w;
    ig_status status = copy_group(c, &p->others, err);
    if (c->through) ig_pages_drop(c->through, c->n_through); /* no matrix of a layer is as large */
    for (int i = 0; i < p->n_layers && !status; i++)
        if (!ig_weight_plan_streams(p, i)) status = copy_group(c, &p->layers[i], err);
    if (is_tied) w->head.w = w->embed.w, w->head.panels = w->embed.panels;
    return status;
}

/* What stays; *at is then behind it. */
static ig_status copy_residents(ig_weight_stream *s, ig_weights *w, uint8_t **at, const ig_weight_stream_options *o,
                                ig_error *err) {
    size_t room = largest_room(&s->plan);
    copying c = {.s = s,
                 .panels = o->panels,
                 .at = *at,
                 .n_through = room,
                 .loading = {.progress = o->progress,
                             .user = o->progress_user,
                             .total = s->plan.bytes - IG_WEIGHT_SLOTS * s->plan.slot_bytes}};
    if (o->panels && !(c.through = ig_pages_reserve(room))) return ig_fail_memory(err, "weights", room);
    ig_status status = copy_all(&c, w, err);
    if (c.through) ig_pages_release(c.through, room);
    *at = c.at;
    return status;
}

/* ---- the reader's thread --------------------------------------------------------------- */

static slot *find_slot(ig_weight_stream *s, int number) {
    for (int i = 0; i < IG_WEIGHT_SLOTS; i++)
        if (s->slots[i].layer == number) return &s->slots[i];
    return NULL;
}

static void fill(ig_weight_stream *s, slot *to) {
    const ig_weight_group *l = &s->plan.layers[to->layer];
    uint8_t *room = to->room;
    for (int i = 0; i < l->n && !s->cancel && !to->err.status; i++) {
        const void *bytes;
        ig_error err = {0};
        pthread_mutex_unlock(&s->lock);
        ig_weight_reader_read(&bytes, s->reader, &l->places[i].span, room, &err);
        pthread_mutex_lock(&s->lock);
        room += l->places[i].span.room;
        to->err = err;
        to->n_here += !err.status;
        if (!err.status) s->read_bytes += l->places[i].span.bytes;
        pthread_cond_signal(&s->arrived);
    }
}

static void *read_ahead(void *arg) {
    ig_weight_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        slot *to = s->cancel ? NULL : find_slot(s, NONE);
        if (!to) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        *to = (slot){.room = to->room, .layer = s->next};
        s->next = ig_weight_plan_next(&s->plan, s->next);
        s->is_reading = true;
        fill(s, to);
        s->is_reading = false;
        pthread_cond_signal(&s->arrived);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- steps ----------------------------------------------------------------------------- */

static void point_to_maps(const ig_weight_group *l) {
    for (int i = 0; i < l->n; i++) ig_weight_place_point(&l->places[i], NULL);
}

/* Nothing is kept of what was read; the reader goes on with this layer. */
static void start_over(ig_weight_stream *s, int number) {
    s->cancel = true;
    while (s->is_reading) pthread_cond_wait(&s->arrived, &s->lock);
    for (int i = 0; i < IG_WEIGHT_SLOTS; i++) {
        if (s->slots[i].layer != NONE) point_to_maps(&s->plan.layers[s->slots[i].layer]);
        s->slots[i].layer = NONE;
    }
    s->cancel = false;
    s->next = number;
    pthread_cond_signal(&s->work);
}

void ig_weight_stream_begin(ig_weight_stream *s) {
    if (!s || !s->plan.n_streamed) return;
    int first = ig_weight_plan_next(&s->plan, -1), second = ig_weight_plan_next(&s->plan, first);
    pthread_mutex_lock(&s->lock);
    bool as_expected = find_slot(s, first) || s->next == first; /* else both slots may go to others */
    for (int i = 0; i < IG_WEIGHT_SLOTS; i++) {
        const slot *x = &s->slots[i];
        if (x->layer == NONE) continue;
        as_expected = as_expected && !x->taken && !x->err.status && (x->layer == first || x->layer == second);
    }
    if (!as_expected) start_over(s, first);
    pthread_mutex_unlock(&s->lock);
}

/* Where the layer is, once so many of its matrices are; NULL if they will not come. */
static slot *wait_for(ig_weight_stream *s, int number, int n_parts, ig_error *err) {
    slot *at = find_slot(s, number);
    double start = 0;
    if (!at && s->next != number) start_over(s, number);
    while (!at || (at->n_here < n_parts && !at->err.status)) {
        if (start == 0) start = ig_clock_seconds();
        pthread_cond_wait(&s->arrived, &s->lock);
        at = find_slot(s, number);
    }
    if (start > 0) s->wait_seconds += ig_clock_seconds() - start;
    if (at->n_here >= n_parts) return at;
    if (err) *err = at->err;
    return NULL;
}

ig_status ig_weight_stream_take(ig_weight_stream *s, int number, ig_weight_part what, ig_error *err) {
    if (!s || !ig_weight_plan_streams(&s->plan, number)) return IG_OK;
    const ig_weight_group *l = &s->plan.layers[number];
    int n = ig_weight_plan_count(l, what);
    ig_error why = {0};
    pthread_mutex_lock(&s->lock);
    slot *at = wait_for(s, number, n, &why);
    if (at) {
        at->taken = true;
        const uint8_t *room = at->room;
        for (int i = 0; i < n; room += l->places[i++].span.room) ig_weight_place_point(&l->places[i], room);
    } else {
        start_over(s, ig_weight_plan_next(&s->plan, -1));
    }
    pthread_mutex_unlock(&s->lock);
    if (at) return IG_OK;
    return ig_fail(err, why.status, "%s (weights of layer %d)", why.text, number);
}

void ig_weight_stream_give(ig_weight_stream *s, int number) {
    if (!s || !ig_weight_plan_streams(&s->plan, number)) return;
    pthread_mutex_lock(&s->lock);
    slot *at = find_slot(s, number);
    if (at) {
        point_to_maps(&s->plan.layers[number]);
        at->layer = NONE;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}

void ig_weight_stream_get_stats(ig_weight_stream *s, ig_weight_stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = (ig_weight_stats){.ram_bytes = s->fixed_bytes + s->plan.bytes,
                             .step_bytes = s->plan.step_bytes,
                             .read_bytes = s->read_bytes,
                             .wait_seconds = s->wait_seconds,
                             .n_streamed_layers = s->plan.n_streamed,
                             .slot_bytes = IG_WEIGHT_SLOTS * (uint64_t)s->plan.slot_bytes,
                             .is_direct = ig_weight_reader_is_direct(s->reader)};
    pthread_mutex_unlock(&s->lock);
}

/* ---- opening --------------------------------------------------------------------------- */

static ig_status start(ig_weight_stream *s, uint8_t *rooms, ig_error *err) {
    for (int i = 0; i < IG_WEIGHT_SLOTS; i++)
        s->slots[i] = (slot){.room = rooms + (size_t)i * s->plan.slot_bytes, .layer = NONE};
    if (!s->plan.n_streamed) return IG_OK;
    s->next = ig_weight_plan_next(&s->plan, -1);
    ig_status status = ig_thread_start(&s->thread, read_ahead, s, "the thread that reads weights", err);
    s->has_thread = !status;
    return status;
}

ig_status ig_weight_stream_open(ig_weight_stream **out, ig_weights *weights, int n_layers, const ig_weight_file *files,
                                size_t n_files, const ig_weight_stream_options *o, ig_error *err) {
    ig_weight_stream *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return ig_fail_memory(err, "stream of weights", sizeof *s);
    s->fixed_bytes = o->fixed_bytes;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->arrived, NULL);
    ig_status status = ig_weight_reader_open(&s->reader, files, n_files, err);
    if (!status) status = ig_weight_plan_open(&s->plan, weights, n_layers, false, s->reader, o->panels, err);
    if (!status) status = ig_weight_plan_fit(&s->plan, o->ram_bytes, o->fixed_bytes + o->expert_bytes, "RAM", err);
    if (!status && !(s->memory = ig_pages_reserve(s->plan.bytes)))
        status = ig_fail_memory(err, "weights", s->plan.bytes);
    uint8_t *at = s->memory;
    if (!status) ig_pages_want_large(s->memory, s->plan.bytes);
    if (!status) ig_weight_reader_forget(s->reader);
    if (!status) status = copy_residents(s, weights, &at, o, err);
    if (!status) status = start(s, at, err);
    if (status)
        ig_weight_stream_close(s);
    else
        *out = s;
    return status;
}

void ig_weight_stream_close(ig_weight_stream *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->stop = s->cancel = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread) pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->arrived);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    if (s->memory) ig_pages_release(s->memory, s->plan.bytes);
    ig_weight_reader_close(s->reader);
    ig_weight_plan_close(&s->plan);
    free(s);
}
