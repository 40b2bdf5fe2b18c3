/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the reader of GGUF: gguf.c reads one file, gguf_parts.c opens a model, which may be several.
 */
#ifndef IG_FORMAT_GGUF_PARTS_H
#define IG_FORMAT_GGUF_PARTS_H

#include "format/gguf.h"
#include "format/names.h"

struct ig_gguf {
    ig_file file;
    char *path;
    uint8_t *head; /* copy of all before the data */
    size_t n_values, n_tensors;
    ig_gguf_value *values; /* [n_values] */
    ig_tensor *tensors;    /* [n_tensors] */
    ig_name *keys, *names; /* sorted; of values, of tensors */
    char *text;            /* keys and names, each with a NUL */
    uint64_t *offsets;     /* of the items of all string arrays */
    ig_gguf **others;      /* [n_others] of the model's first file: the rest, whose tensors are among its own */
    size_t n_others;
};

enum { IG_GGUF_TENSORS_MAX = 32768, IG_GGUF_PARTS_MAX = 512 }; /* of a model; each file keeps a descriptor open */

/* A reader without a file yet; NULL: no memory. */
ig_gguf *ig_gguf_new(const char *path);
/* Reads g->file, whose data are there. */
ig_status ig_gguf_parse(ig_gguf *g, ig_error *err);
/* Sorts g->names by g->tensors. */
ig_status ig_gguf_index_tensors(ig_gguf *g, ig_error *err);
/* IG_OK if the file says that it is number `number`, from 0, of n_parts of a model. A model of one part may leave it
 * unsaid. */
ig_status ig_gguf_check_part(const ig_gguf *g, int number, int n_parts, ig_error *err);

#endif
