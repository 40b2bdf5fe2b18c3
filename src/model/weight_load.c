/* SPDX-License-Identifier: Apache-2.0
 *
 * Getting matrices ready for the device: in panels where its products want them so, else into memory. One walk over all
 * matrices runs twice: first it sums, then it loads. The output layer comes first: while its panels are made, the
 * largest, nothing else is in memory yet.
 */
#include "base/compiler.h"
#include "base/error.h"
#include "model/weights.h"

typedef struct loader {
    ig_weights *w;
    ig_device *d;
    ig_arena *arena; /* of panels; base == NULL: the walk that sums */
    ig_load_options o;
    ig_loading loading; /* bytes of the file */
    ig_status status;
    ig_error *err;
} loader;

/* A matrix that is used as it is stored: reads one byte of every page. */
static void load_stored(loader *l, const ig_matrix *m) {
    const size_t n_bytes = ig_matrix_bytes(m);
    volatile uint8_t sink = 0;
    if (!l->arena->base) l->loading.total += n_bytes;
    if (!l->arena->base || l->status || !m->w) return;
    for (size_t at = 0; at < n_bytes && !l->o.is_copied; at += 4096)
        sink = (uint8_t)(sink + ((const uint8_t *)m->w)[at]);
    l->status = ig_loading_add(&l->loading, n_bytes, l->err);
}

/* A matrix of products. has_rows: its rows are read one by one, too. */
static void load_matrix(loader *l, ig_matrix *m, bool has_rows) {
    bool wanted = l->o.panels && l->d->ops->is_host && m->w;
    size_t n_bytes = wanted ? l->d->ops->panel_bytes(l->d, m) : 0;
    void *panels = n_bytes ? ig_arena_take(l->arena, n_bytes) : NULL;
    if (!panels || l->status) {
        load_stored(l, m);
        return;
    }
    l->d->ops->put_panels(l->d, panels, m);
    m->panels = panels;
    if (!has_rows) {
        ig_file_forget(m->w, ig_matrix_bytes(m));
        l->w->replaced_bytes += ig_matrix_bytes(m);
    }
    l->status = ig_loading_add(&l->loading, ig_matrix_bytes(m), l->err);
}

static void load_ffn(loader *l, ig_ffn *f) {
    load_matrix(l, &f->gate, false);
    load_matrix(l, &f->up, false);
    load_matrix(l, &f->down, false);
}

static void load_all(loader *l, const ig_config *c) {
    ig_weights *w = l->w;
    load_matrix(l, &w->head, w->is_tied);
    if (!w->is_tied) load_stored(l, &w->embed);
    load_stored(l, &w->positions);
    load_matrix(l, &w->embed_in, false);
    load_matrix(l, &w->embed_out, false);
    load_matrix(l, &w->input_in, false);
    for (int i = 0; i < c->n_layers; i++) {
        ig_layer *layer = &w->layers[i];
        ig_matrix *of[IG_LAYER_MATRICES];
        ig_layer_matrices(of, layer);
        /* A policy may want rows of q: a map can read them again. */
        for (int k = 0; k < IG_LAYER_MATRICES; k++)
            if (of[k]) load_matrix(l, of[k], of[k] == &layer->q && l->o.is_copied);
        for (int e = 0; e < layer->n_experts; e++) load_ffn(l, &layer->experts[e]);
    }
}

uint64_t ig_weights_panel_bytes(ig_weights *w, const ig_config *c, ig_device *d) {
    ig_arena sum = {0};
    loader l = {.w = w, .d = d, .arena = &sum, .o = {.panels = true}};
    load_all(&l, c);
    return sum.used;
}

ig_status ig_weights_load(ig_weights *w, const ig_config *c, ig_device *d, const ig_load_options *o, ig_error *err) {
    loader l = {
        .w = w, .d = d, .arena = &w->panels, .o = *o, .loading = {o->progress, o->progress_user, 0, 0}, .err = err};
    load_all(&l, c);
    if (!ig_arena_open(&w->panels))
        return ig_fail_memory(err, "weights in the order that is fastest (not with --no-repack)", w->panels.size);
    ig_pages_want_large(w->panels.base, w->panels.size);
    load_all(&l, c);
    return l.status;
}
