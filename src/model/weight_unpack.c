/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are packed: see weight_unpack.h. All of them are found and checked first, then one block of memory is
 * taken, and then they are written to it.
 */
#include "model/weight_unpack.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/memory.h"
#include "model/unpacking.h"

/* ---- what is found -------------------------------------------------------------------------------- */

void ig_unpack_fail(ig_unpacker *u, const ig_tensor *t, const char *why) {
    if (!u->status)
        u->status = ig_fail(u->err, IG_E_FORMAT, "%s: tensor '%.120s' %s", ig_safetensors_path(u->s), t->name, why);
}

/* The tensor's name (malloc) with another end instead of one of n bytes. NULL: no memory, which is a failure. */
static char *name_with(ig_unpacker *u, const ig_tensor *t, size_t n, const char *end) {
    ig_buffer name = {0};
    ig_buffer_format(&name, "%.*s%s", (int)(strlen(t->name) - n), t->name, end);
    if (!name.failed) return name.data;
    ig_buffer_close(&name);
    if (!u->status) u->status = ig_fail_memory(u->err, "tensor name", strlen(t->name));
    return NULL;
}

const ig_tensor *ig_unpack_take(ig_unpacker *u, const ig_tensor *t, size_t n, const char *end, bool is_needed) {
    char *name = name_with(u, t, n, end);
    const ig_tensor *found = name ? ig_safetensors_tensor(u->s, name) : NULL;
    if (found) u->is_gone[found - ig_safetensors_tensor_at(u->s, 0)] = true;
    if (!found && is_needed && !u->status)
        u->status = ig_fail(u->err, IG_E_FORMAT, "%s: tensor '%.120s' is missing, beside '%.120s'",
                            ig_safetensors_path(u->s), name, t->name);
    free(name);
    return found;
}

void ig_unpack_put(ig_unpacker *u, ig_unpacked p, size_t n, const char *end, int n_matrices) {
    if (!u->status) p.made.name = name_with(u, p.codes, n, end);
    if (u->status) return;
    bool is_vector = p.made.n_dims == 1;
    if (!is_vector) p.made.n_dims = n_matrices ? 3 : 2;
    p.made.dims[0] = (uint64_t)(is_vector ? p.n_out : p.n_in);
    p.made.dims[1] = is_vector ? 1 : (uint64_t)(p.n_out / ig_max_int(n_matrices, 1));
    p.made.dims[2] = (uint64_t)ig_max_int(n_matrices, 1);
    p.made.dims[3] = 1;
    p.made.n_bytes = (size_t)p.n_out * ig_type_row_bytes(ig_type_get((uint32_t)p.made.type), (size_t)p.n_in);
    u->n_bytes += ig_round_up(p.made.n_bytes, IG_ALIGN);
    u->is_gone[p.codes - ig_safetensors_tensor_at(u->s, 0)] = true;
    u->all[u->n++] = p;
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static void write_rows(void *arg, int task, int thread) {
    const ig_unpacked *p = arg;
    const size_t row_bytes = ig_type_row_bytes(ig_type_get((uint32_t)p->made.type), (size_t)p->n_in);
    int row = task * IG_UNPACK_ROWS;
    (void)thread;
    p->write((uint8_t *)(uintptr_t)p->made.data + (size_t)row * row_bytes, p, row,
             ig_min_int(p->n_out - row, IG_UNPACK_ROWS), row_bytes);
}

static void unpack_all(ig_unpacker *u, uint8_t *to, ig_loading *loading) {
    loading->total += u->n_bytes;
    for (size_t i = 0; i < u->n && !u->status; i++) {
        ig_unpacked *p = &u->all[i];
        p->made.data = to;
        to += ig_round_up(p->made.n_bytes, IG_ALIGN);
        int n_tasks = (p->n_out + IG_UNPACK_ROWS - 1) / IG_UNPACK_ROWS;
        if (!u->d->ops->is_plan) u->d->ops->parallel(u->d, n_tasks, write_rows, p);
        ig_file_forget(p->codes->data, p->codes->n_bytes);
        u->status = ig_loading_add(loading, p->made.n_bytes, u->err);
    }
}

static ig_status replace(ig_unpacker *u, ig_loading *loading) {
    ig_tensor *made = calloc(u->n, sizeof *made);
    /* Not ig_pages_reserve(), which promises more than there is. */
    void *memory = made ? calloc(1, u->n_bytes) : NULL;
    if (!memory) {
        free(made);
        return ig_fail_memory(u->err, "weights that are unpacked", u->n_bytes);
    }
    unpack_all(u, memory, loading);
    for (size_t i = 0; i < u->n; i++) made[i] = u->all[i].made;
    if (!u->status) {
        u->status = ig_safetensors_replace(u->s, u->is_gone, made, u->n, memory, u->err);
        u->n = 0; /* the names are the reader's now */
    } else {
        free(memory);
    }
    free(made);
    return u->status;
}

ig_status ig_weights_unpack(ig_safetensors *s, ig_device *d, const ig_config *c, ig_loading *loading, ig_error *err) {
    size_t n = ig_safetensors_n_tensors(s);
    ig_unpacker u = {.s = s, .d = d, .c = c, .err = err};
    u.is_gone = calloc(n + 1, sizeof *u.is_gone);
    u.all = calloc(n + 1, sizeof *u.all);
    if (u.is_gone && u.all)
        ig_unpack_packed(&u);
    else
        u.status = ig_fail_memory(err, "tensor list", n * sizeof *u.all);
    if (!u.status && c->file.expert_order) ig_unpack_turned(&u);
    if (!u.status && c->file.are_heads_mixed) ig_unpack_heads(&u);
    if (!u.status && u.n) u.status = replace(&u, loading);
    for (size_t i = 0; i < u.n; i++) free((char *)(uintptr_t)u.all[i].made.name);
    free(u.all);
    free(u.is_gone);
    return u.status;
}
