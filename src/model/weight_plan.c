/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing matrices, and the fewest layers that must pass: see weight_plan.h.
 */
#include "model/weight_plan.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "base/error.h"

/* Where matrices are found. */
typedef struct listing {
    const ig_weight_reader *reader;
    ig_device *panels;
    bool with_experts;
} listing;

static ig_status add(ig_weight_group *g, ig_matrix *m, const listing *l, ig_device *panels, ig_error *err) {
    if (!m->w) return IG_OK;
    ig_weight_place *p = &g->places[g->n];
    ig_status s = ig_weight_place_find(p, m, l->reader, panels, err);
    g->n++;
    g->room += p->span.room;
    g->kept += p->room;
    return s;
}

static int count_parts(const ig_layer *w, bool with_experts) { return w->router.w && !with_experts ? 0 : w->n_experts; }

static ig_status add_layer(ig_weight_group *g, ig_layer *w, const listing *l, ig_error *err) {
    ig_matrix *first[IG_LAYER_MATRICES];
    ig_layer_matrices(first, w);
    ig_status s = IG_OK;
    for (int i = 0; i < IG_LAYER_MATRICES && !s; i++) {
        if (first[i]) s = add(g, first[i], l, l->panels, err);
        if (i == IG_LAYER_QUERY - 1) g->n_query = g->n;
        if (i == IG_LAYER_ATTENTION - 1) g->n_attention = g->n;
    }
    for (int i = 0; i < IG_FFN_MATRICES * count_parts(w, l->with_experts) && !s; i++) {
        ig_ffn *e = &w->experts[i / IG_FFN_MATRICES];
        s = add(g, (ig_matrix *[IG_FFN_MATRICES]){&e->gate, &e->up, &e->down}[i % IG_FFN_MATRICES], l, l->panels, err);
    }
    return s;
}

/* Bytes if n layers pass, and of a slot. */
static uint64_t count_bytes(size_t *slot_bytes, const ig_weight_plan *p, int n) {
    ig_weight_plan with = *p;
    uint64_t sum = p->others.kept;
    *slot_bytes = 0;
    with.n_streamed = n;
    for (int i = 0; i < p->n_layers; i++) {
        const ig_weight_group *g = &p->layers[i];
        if (!ig_weight_plan_streams(&with, i))
            sum += g->kept;
        else if (g->room > *slot_bytes)
            *slot_bytes = g->room;
    }
    return sum + IG_WEIGHT_SLOTS * (uint64_t)*slot_bytes;
}

static void choose(ig_weight_plan *p, int n) {
    p->n_streamed = n;
    p->bytes = count_bytes(&p->slot_bytes, p, n);
    p->step_bytes = 0;
    for (int i = 0; i < p->n_layers; i++)
        for (int k = 0; k < p->layers[i].n && ig_weight_plan_streams(p, i); k++)
            p->step_bytes += p->layers[i].places[k].span.bytes;
}

/* As many layers as there are slots or fewer would stay in the slots. */
ig_status ig_weight_plan_fit(ig_weight_plan *p, uint64_t most, uint64_t fixed, const char *memory, ig_error *err) {
    char text[64];
    uint64_t least = UINT64_MAX;
    for (int n = 0; n <= p->n_layers; n++) {
        size_t slot_bytes;
        if (n > 0 && n <= IG_WEIGHT_SLOTS) continue;
        uint64_t bytes = fixed + count_bytes(&slot_bytes, p, n);
        if (bytes < least) least = bytes;
        if (bytes > most) continue;
        choose(p, n);
        return IG_OK;
    }
    return ig_fail(err, IG_E_LIMIT,
                   "%llu bytes of %s for the weights are too few: what every step uses and room for two layers take at "
                   "least %s",
                   (unsigned long long)most, memory, ig_bytes_text(text, least));
}

ig_status ig_weight_plan_open(ig_weight_plan *out, ig_weights *w, int n_layers, bool with_experts,
                              const ig_weight_reader *r, ig_device *panels, ig_error *err) {
    const listing l = {r, panels, with_experts};
    /* A table as large as other models stays in its map, of which steps touch a page for each token. */
    ig_matrix *const others[] = {
        &w->embed, &w->positions, &w->embed_in, &w->embed_out, &w->input_in, r ? NULL : &w->input_table, &w->head};
    bool is_tied = w->head.w == w->embed.w;
    size_t n = is_tied ? IG_COUNT(others) - 1 : IG_COUNT(others), n_places = n;
    for (int i = 0; i < n_layers; i++)
        n_places += (size_t)(IG_LAYER_MATRICES + IG_FFN_MATRICES * count_parts(&w->layers[i], with_experts));
    *out = (ig_weight_plan){.n_layers = n_layers,
                            .layers = calloc((size_t)n_layers, sizeof *out->layers),
                            .places = calloc(n_places, sizeof *out->places)};
    ig_status s = IG_OK;
    if (!out->layers || !out->places) s = ig_fail_memory(err, "list of weights", n_places * sizeof *out->places);
    ig_weight_place *at = out->places;
    out->others.places = at;
    for (size_t i = 0; i < n && !s; i++) {
        bool is_table = others[i] == &w->positions || others[i] == &w->input_table ||
                        (others[i] == &w->embed && !is_tied); /* of which rows are read */
        if (others[i]) s = add(&out->others, others[i], &l, is_table ? NULL : panels, err);
    }
    for (int i = 0; i < n_layers && !s; i++) {
        at += i ? out->layers[i - 1].n : out->others.n;
        out->layers[i].places = at;
        s = add_layer(&out->layers[i], &w->layers[i], &l, err);
    }
    if (!s) choose(out, 0);
    if (s) ig_weight_plan_close(out);
    return s;
}

void ig_weight_plan_close(ig_weight_plan *p) {
    free(p->layers);
    free(p->places);
    *p = (ig_weight_plan){0};
}
