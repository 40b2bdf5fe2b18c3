/* SPDX-License-Identifier: Apache-2.0
 *
 * The stream of weights: a plan of what stays in RAM, and two slots that the reader's thread fills in turn. The reader
 * goes round over the layers that are not in RAM: while a step computes the first layers, and while nothing computes,
 * it reads what the next pass will want.
 */
#include "model/weight_stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "model/weight_file.h"

enum { SLOTS = 2, MATRICES = 7, NONE = -1 };

/* A matrix of a streamed layer, or one that is copied. */
typedef struct place {
    ig_matrix *matrix;
    const void *mapped; /* where it is in the map of its file */
    ig_weight_span span;
} place;

typedef struct places {
    place parts[MATRICES]; /* in the order of ig_weight_part */
    int n_parts;
    size_t room; /* bytes of a slot that holds it */
} places;

typedef struct slot {
    uint8_t *room;
    int layer;    /* NONE: free */
    int n_here;   /* of its matrices */
    bool taken;   /* a pass uses some of them */
    ig_error err; /* why no more will come, if status is set */
} slot;

struct ig_weight_stream {
    ig_weight_reader *reader;
    places *layers; /* [n_layers] */
    int n_layers, n_resident;
    place others[5]; /* embedding, positions, projections, output layer */
    int n_others;
    uint8_t *memory; /* copies, then the slots' rooms */
    size_t memory_bytes;
    uint64_t fixed_bytes, step_bytes;

    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, arrived;
    slot slots[SLOTS];
    int next; /* the layer to be read next */
    bool stop, is_reading, cancel;
    uint64_t read_bytes;
    double wait_seconds;
};

/* ---- the plan ---------------------------------------------------------------------- */

static ig_status add_part(ig_weight_stream *s, place *parts, int *n, ig_matrix *m, ig_error *err) {
    if (!m->w) return IG_OK;
    place *p = &parts[*n];
    *p = (place){.matrix = m, .mapped = m->w};
    ig_status status = ig_weight_reader_find(&p->span, s->reader, m->w, (size_t)m->n_out * m->row_bytes, err);
    *n += !status;
    return status;
}

static ig_status list_parts(ig_weight_stream *s, ig_weights *w, ig_error *err) {
    ig_status status = IG_OK;
    for (int i = 0; i < s->n_layers && !status; i++) {
        ig_layer *from = &w->layers[i];
        places *l = &s->layers[i];
        ig_matrix *const order[MATRICES] = {&from->q,    &from->k,  &from->v,   &from->o,
                                            &from->gate, &from->up, &from->down};
        for (int k = 0; k < MATRICES && !status; k++) status = add_part(s, l->parts, &l->n_parts, order[k], err);
        for (int k = 0; k < l->n_parts; k++) l->room += l->parts[k].span.room;
    }
    ig_matrix *const others[] = {&w->embed, &w->positions, &w->embed_in, &w->embed_out, &w->head};
    int n = w->head.w == w->embed.w ? 4 : 5;
    for (int i = 0; i < n && !status; i++) status = add_part(s, s->others, &s->n_others, others[i], err);
    return status;
}

/* Bytes that the first n layers in RAM and room for two of the others take. */
static uint64_t count_bytes(const ig_weight_stream *s, int n, size_t *slot_bytes) {
    uint64_t sum = 0;
    *slot_bytes = 0;
    for (int i = 0; i < s->n_others; i++) sum += s->others[i].span.room;
    for (int i = 0; i < s->n_layers; i++)
        if (i < n)
            sum += s->layers[i].room;
        else if (s->layers[i].room > *slot_bytes)
            *slot_bytes = s->layers[i].room;
    return sum + SLOTS * *slot_bytes;
}

/* As many layers in RAM as fit. One or two streamed ones would be in RAM as well, in the slots. */
static ig_status plan(ig_weight_stream *s, size_t *slot_bytes, const ig_weight_stream_options *o, ig_error *err) {
    char text[64];
    uint64_t least = UINT64_MAX;
    for (int n = s->n_layers; n >= 0; n--) {
        if (n < s->n_layers && n > s->n_layers - 1 - SLOTS) continue;
        uint64_t bytes = count_bytes(s, n, slot_bytes), need = s->fixed_bytes + bytes;
        if (need < least) least = need;
        if (need > o->ram_bytes) continue;
        s->n_resident = n;
        s->memory_bytes = (size_t)bytes;
        for (int i = n; i < s->n_layers; i++)
            for (int k = 0; k < s->layers[i].n_parts; k++) s->step_bytes += s->layers[i].parts[k].span.bytes;
        return IG_OK;
    }
    return ig_fail(
        err, IG_E_LIMIT,
        "%llu bytes of RAM for the weights are too few: what every step uses and room for two layers take at "
        "least %s",
        (unsigned long long)o->ram_bytes, ig_bytes_text(text, least));
}

/* ---- copies ------------------------------------------------------------------------ */

static ig_status copy_parts(ig_weight_stream *s, place *parts, int n, uint8_t **at, ig_loading *loading,
                            ig_error *err) {
    for (int i = 0; i < n; i++) {
        const void *bytes;
        ig_status status = ig_weight_reader_read(&bytes, s->reader, &parts[i].span, *at, err);
        if (status) return status;
        parts[i].matrix->w = bytes;
        *at += parts[i].span.room;
        loading->done += parts[i].span.bytes;
        if (loading->progress && loading->progress(loading->user, loading->done, loading->total))
            return ig_fail(err, IG_E_INTERRUPTED, "loading was interrupted");
    }
    return IG_OK;
}

static ig_status copy_residents(ig_weight_stream *s, ig_weights *w, uint8_t **at, const ig_weight_stream_options *o,
                                ig_error *err) {
    bool is_tied = w->head.w == w->embed.w;
    ig_loading loading = {.progress = o->progress, .user = o->progress_user, .total = s->memory_bytes};
    ig_status status = copy_parts(s, s->others, s->n_others, at, &loading, err);
    for (int i = 0; i < s->n_resident && !status; i++)
        status = copy_parts(s, s->layers[i].parts, s->layers[i].n_parts, at, &loading, err);
    if (is_tied) w->head.w = w->embed.w;
    return status;
}

/* ---- the reader's thread --------------------------------------------------------------- */

static slot *find_slot(ig_weight_stream *s, int number) {
    for (int i = 0; i < SLOTS; i++)
        if (s->slots[i].layer == number) return &s->slots[i];
    return NULL;
}

static void fill(ig_weight_stream *s, slot *to) {
    const places *l = &s->layers[to->layer];
    uint8_t *room = to->room;
    for (int i = 0; i < l->n_parts && !s->cancel && !to->err.status; i++) {
        const void *bytes;
        ig_error err = {0};
        pthread_mutex_unlock(&s->lock);
        ig_weight_reader_read(&bytes, s->reader, &l->parts[i].span, room, &err);
        pthread_mutex_lock(&s->lock);
        room += l->parts[i].span.room;
        to->err = err;
        to->n_here += !err.status;
        if (!err.status) s->read_bytes += l->parts[i].span.bytes;
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
        s->next = s->next + 1 < s->n_layers ? s->next + 1 : s->n_resident;
        s->is_reading = true;
        fill(s, to);
        s->is_reading = false;
        pthread_cond_signal(&s->arrived);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- steps ----------------------------------------------------------------------------- */

static void point_to_maps(const places *l) {
    for (int i = 0; i < l->n_parts; i++) l->parts[i].matrix->w = l->parts[i].mapped;
}

/* Nothing is kept of what was read; the reader goes on with this layer. */
static void start_over(ig_weight_stream *s, int number) {
    s->cancel = true;
    while (s->is_reading) pthread_cond_wait(&s->arrived, &s->lock);
    for (int i = 0; i < SLOTS; i++) {
        if (s->slots[i].layer != NONE) point_to_maps(&s->layers[s->slots[i].layer]);
        s->slots[i].layer = NONE;
    }
    s->cancel = false;
    s->next = number;
    pthread_cond_signal(&s->work);
}

void ig_weight_stream_begin(ig_weight_stream *s) {
    if (!s || s->n_resident == s->n_layers) return;
    int first = s->n_resident;
    bool as_expected = true;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SLOTS; i++) {
        const slot *x = &s->slots[i];
        if (x->layer == NONE) continue;
        as_expected = as_expected && !x->taken && !x->err.status && (x->layer == first || x->layer == first + 1);
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
    static const int counts[] = {[IG_WEIGHTS_QUERY] = 1, [IG_WEIGHTS_ATTENTION] = 4, [IG_WEIGHTS_ALL] = MATRICES};
    if (!s || number < s->n_resident) return IG_OK;
    const places *l = &s->layers[number];
    int n = counts[what] < l->n_parts ? counts[what] : l->n_parts;
    ig_error why = {0};
    pthread_mutex_lock(&s->lock);
    slot *at = wait_for(s, number, n, &why);
    if (at) {
        at->taken = true;
        const uint8_t *room = at->room;
        for (int i = 0; i < n; room += l->parts[i++].span.room) l->parts[i].matrix->w = room + l->parts[i].span.skip;
    } else {
        start_over(s, s->n_resident);
    }
    pthread_mutex_unlock(&s->lock);
    if (at) return IG_OK;
    return ig_fail(err, why.status, "%s (weights of layer %d)", why.text, number);
}

void ig_weight_stream_give(ig_weight_stream *s, int number) {
    if (!s || number < s->n_resident) return;
    pthread_mutex_lock(&s->lock);
    slot *at = find_slot(s, number);
    if (at) {
        point_to_maps(&s->layers[number]);
        at->layer = NONE;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}

void ig_weight_stream_get_stats(ig_weight_stream *s, ig_weight_stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = (ig_weight_stats){.ram_bytes = s->fixed_bytes + s->memory_bytes,
                             .step_bytes = s->step_bytes,
                             .read_bytes = s->read_bytes,
                             .wait_seconds = s->wait_seconds,
                             .n_streamed_layers = s->n_layers - s->n_resident,
                             .is_direct = ig_weight_reader_is_direct(s->reader)};
    pthread_mutex_unlock(&s->lock);
}

/* ---- opening --------------------------------------------------------------------------- */

static ig_status start(ig_weight_stream *s, uint8_t *rooms, size_t slot_bytes, ig_error *err) {
    s->next = s->n_resident;
    for (int i = 0; i < SLOTS; i++) s->slots[i] = (slot){.room = rooms + (size_t)i * slot_bytes, .layer = NONE};
    if (s->n_resident == s->n_layers) return IG_OK;
    ig_status status = ig_thread_start(&s->thread, read_ahead, s, "the thread that reads weights", err);
    s->has_thread = !status;
    return status;
}

ig_status ig_weight_stream_open(ig_weight_stream **out, ig_weights *weights, int n_layers, const ig_weight_file *files,
                                size_t n_files, const ig_weight_stream_options *o, ig_error *err) {
    size_t slot_bytes = 0;
    ig_weight_stream *s = calloc(1, sizeof *s);
    *out = NULL;
    if (s) s->layers = calloc((size_t)n_layers, sizeof *s->layers);
    if (!s || !s->layers) {
        free(s);
        return ig_fail_memory(err, "list of weights", (size_t)n_layers * sizeof(places));
    }
    s->n_layers = n_layers;
    s->fixed_bytes = o->fixed_bytes;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->arrived, NULL);
    ig_status status = ig_weight_reader_open(&s->reader, files, n_files, err);
    if (!status) status = list_parts(s, weights, err);
    if (!status) status = plan(s, &slot_bytes, o, err);
    if (!status && !(s->memory = ig_pages_reserve(s->memory_bytes)))
        status = ig_fail_memory(err, "weights", s->memory_bytes);
    uint8_t *at = s->memory;
    if (!status) ig_weight_reader_forget(s->reader);
    if (!status) status = copy_residents(s, weights, &at, o, err);
    if (!status) status = start(s, at, slot_bytes, err);
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
    if (s->memory) ig_pages_release(s->memory, s->memory_bytes);
    ig_weight_reader_close(s->reader);
    free(s->layers);
    free(s);
}
