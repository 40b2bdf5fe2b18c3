/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the bytes of a matrix are: see weight_place.h.
 */
#include "model/weight_place.h"

#include <string.h>

#include "base/memory.h"

enum { UNIT = 256 /* bytes: where copies of matrices begin; in files their pages say */ };

ig_status ig_weight_place_find(ig_weight_place *out, ig_matrix *m, const ig_weight_reader *r, ig_device *panels,
                               ig_error *err) {
    size_t n_bytes = ig_matrix_bytes(m), n_panels = panels ? panels->ops->panel_bytes(panels, m) : 0;
    *out = (ig_weight_place){.matrix = m,
                             .mapped = m->w,
                             .span = {.bytes = n_bytes, .room = ig_round_up(n_bytes, UNIT)},
                             .has_panels = n_panels > 0};
    ig_status s = r ? ig_weight_reader_find(&out->span, r, m->w, n_bytes, err) : IG_OK;
    size_t unit = r ? IG_FILE_PAGE : UNIT;
    out->room = n_panels > out->span.room ? ig_round_up(n_panels, unit) : out->span.room;
    return s;
}

ig_status ig_weight_place_find_ffn(ig_weight_place out[IG_FFN_MATRICES], int *n, size_t *room, ig_ffn *w,
                                   const ig_weight_reader *r, ig_device *panels, ig_error *err) {
    ig_matrix *const of[IG_FFN_MATRICES] = {&w->gate, &w->up, &w->down};
    size_t sum = 0;
    ig_status s = IG_OK;
    *n = 0;
    for (int i = 0; i < IG_FFN_MATRICES && !s; i++) {
        if (!of[i]->w) continue;
        s = ig_weight_place_find(&out[*n], of[i], r, panels, err);
        sum += out[(*n)++].room;
    }
    if (sum > *room) *room = sum;
    return s;
}

void ig_weight_place_point(const ig_weight_place *p, const uint8_t *room) {
    p->matrix->w = room ? room + p->span.skip : p->mapped;
    p->matrix->panels = NULL;
}

void ig_weight_place_point_to_panels(const ig_weight_place *p, const uint8_t *panels) {
    p->matrix->w = p->mapped;
    p->matrix->panels = panels;
}

void ig_weight_place_put_panels(const ig_weight_place *p, ig_device *d, uint8_t *room, uint8_t *through) {
    ig_matrix stored = *p->matrix;
    if (!p->has_panels) return;
    memcpy(through, room + p->span.skip, p->span.bytes);
    stored.w = through;
    d->ops->put_panels(d, room, &stored);
}
