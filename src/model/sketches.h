/* SPDX-License-Identifier: Apache-2.0
 *
 * Sketch files that the sessions of a model use: each is in memory once, and read and checked once, as long as the file
 * stays what it is.
 */
#ifndef IG_MODEL_SKETCHES_H
#define IG_MODEL_SKETCHES_H

#include <pthread.h>

#include "format/sketch.h"

typedef struct ig_shared_sketch ig_shared_sketch;

typedef struct ig_sketches {
    pthread_mutex_t lock;
    ig_shared_sketch *first; /* a list, the one that was taken last in front; few stay when nobody uses them */
} ig_sketches;

void ig_sketches_init(ig_sketches *all);
/* Nobody uses any. */
void ig_sketches_close(ig_sketches *all);
/* As ig_sketch_file_open(). Any thread. */
ig_status ig_sketches_take(const ig_sketch_file **out, ig_sketches *all, const char *path, ig_error *err);
/* What was taken is not used any more. NULL is fine. */
void ig_sketches_give(ig_sketches *all, const ig_sketch_file *f);

#endif
