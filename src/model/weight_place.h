/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix of weights that is read from its file into memory, and may be put in panels there.
 */
#ifndef IG_MODEL_WEIGHT_PLACE_H
#define IG_MODEL_WEIGHT_PLACE_H

#include "device/device.h"
#include "model/weight_file.h"
#include "model/weights.h"

typedef struct ig_weight_place {
    ig_matrix *matrix;
    const void *mapped;  /* where it is in the map of its file */
    ig_weight_span span; /* of the file; without a reader only bytes and room */
    size_t room;         /* that it takes where it is kept: as it is stored, or in panels */
    bool has_panels;     /* it may be put in some */
} ig_weight_place;

/* Of a matrix that is bound to a map, by its span in the reader's files (NULL: none); panels: of which device, or NULL.
 */
ig_status ig_weight_place_find(ig_weight_place *out, ig_matrix *m, const ig_weight_reader *r, ig_device *panels,
                               ig_error *err);

/* The same of an expert's gate, up and down, *n of which are there; *room is raised to what they take where they are
 * kept. */
enum { IG_FFN_MATRICES = 3 };
ig_status ig_weight_place_find_ffn(ig_weight_place out[IG_FFN_MATRICES], int *n, size_t *room, ig_ffn *w,
                                   const ig_weight_reader *r, ig_device *panels, ig_error *err);

/* Points the matrix to its bytes in `room`, as its span was read there; NULL: to the map. */
void ig_weight_place_point(const ig_weight_place *p, const uint8_t *room);
/* The same to panels; rows that are read one by one are in the map. */
void ig_weight_place_point_to_panels(const ig_weight_place *p, const uint8_t *panels);
/* Puts what was read into `room` in panels there, if it has some, through room for another span. */
void ig_weight_place_put_panels(const ig_weight_place *p, ig_device *d, uint8_t *room, uint8_t *through);

#endif
