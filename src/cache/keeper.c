/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces to and from the store: see keeper.h.
 */
#include "cache/keeper.h"

#include <stdlib.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/error.h"

static const double rest_seconds = 10; /* after a fault of the disk, where another writes or nothing may leave */

static void rest(ig_keeper *k) {
    k->next_put = ig_clock_seconds() + rest_seconds;
    k->has_missed = true;
}

ig_status ig_keeper_open(ig_keeper *k, const ig_context *ctx, const ig_kv_memory *m, const ig_keeper_options *o,
                         ig_error *err) {
    size_t bytes = ig_kv_piece_bytes(m);
    *k = (ig_keeper){.ctx = ctx, .buffer = malloc(bytes)};
    if (!k->buffer) return ig_fail_memory(err, "a piece of the KV store", bytes);
    ig_prefix_store_options store = {.directory = o->directory,
                                     .max_bytes = o->max_bytes,
                                     .root = o->root,
                                     .notes = o->notes,
                                     .model = o->model,
                                     .kind = o->kind,
                                     .piece_tokens = ig_kv_piece_tokens(m),
                                     .piece_bytes = bytes};
    ig_status s = ig_prefix_store_open(&k->store, &store, err);
    if (s) return s;
    const char *why = ig_prefix_store_why_read_only(k->store);
    if (!why) return IG_OK;
    ig_log(ctx, ig_prefix_store_is_taken(k->store) ? IG_LOG_WARN : IG_LOG_ERROR, "nothing new is kept: %s", why);
    k->is_failing = true;
    rest(k);
    return IG_OK;
}

void ig_keeper_close(ig_keeper *k) {
    ig_error err;
    if (k->store && ig_keeper_commit(k, &err))
        ig_log(k->ctx, IG_LOG_ERROR, "what prompts computed is not kept: %s", err.text);
    if (k->store) ig_prefix_store_close(k->store);
    free(k->buffer);
    *k = (ig_keeper){0};
}

/* The spill file, which a piece is copied from, is no fault of the store's. What goes on is told once. */
static void note_failure(ig_keeper *k, bool is_store, int n_tokens, const ig_error *err) {
    if (is_store) rest(k);
    if (is_store && k->is_failing) return;
    k->is_failing |= is_store;
    ig_log(k->ctx, IG_LOG_ERROR, "this prompt is kept up to token %d%s: %s", n_tokens,
           is_store ? ", and nothing after it until the store takes more" : "", err->text);
}

static bool rests(const ig_keeper *k) { return k->next_put > 0 && ig_clock_seconds() < k->next_put; }

bool ig_keeper_may_have_missed(const ig_keeper *k) { return k->has_missed && !rests(k); }

/* What was put. */
static ig_status keep(ig_keeper *k, ig_error *err) {
    uint64_t n_put = k->n_put;
    k->n_put = 0;
    ig_status s = ig_prefix_store_commit(k->store, err);
    if (!s) k->n_kept += n_put;
    if (s) rest(k);
    return s;
}

/* A spill file that lies on the same disk goes before: without room a step fails, and without a store nothing does. */
static ig_status check_room(const ig_keeper *k, const ig_kv_memory *m, ig_error *err) {
    dev_t device;
    uint64_t left = ig_kv_spill_left(m, &device);
    return left ? ig_prefix_store_check_room(k->store, device, left, err) : IG_OK;
}

/* What waits for a commit may not leave for what follows. Where that is all that the limit leaves room for it is
 * committed at once, and then may. */
static ig_status put_piece(ig_keeper *k, const ig_prefix_piece *piece, size_t bytes, ig_error *err) {
    struct iovec area = {k->buffer, bytes};
    ig_status s = ig_prefix_store_put(k->store, piece, &area, 1, err);
    if (s != IG_E_LIMIT || !k->n_put) return s;
    s = keep(k, err);
    return s ? s : ig_prefix_store_put(k->store, piece, &area, 1, err);
}

void ig_keeper_put(ig_keeper *k, ig_kv *kv, const ig_prefix_piece *piece) {
    ig_error err;
    if (rests(k) || !ig_prefix_store_leads_to(k->store, piece) || ig_prefix_store_has(k->store, piece)) return;
    ig_status copied = ig_kv_copy_piece(kv, piece->number, k->buffer, &err), s = copied;
    if (!s) s = check_room(k, ig_kv_memory_of(kv), &err);
    if (!s) s = put_piece(k, piece, ig_kv_piece_bytes(ig_kv_memory_of(kv)), &err);
    if (s) {
        note_failure(k, !copied && (s == IG_E_IO || s == IG_E_UNSUPPORTED || s == IG_E_LIMIT),
                     piece->number * ig_kv_piece_tokens(ig_kv_memory_of(kv)), &err);
        return;
    }
    k->next_put = 0;
    k->n_put++;
}

ig_status ig_keeper_commit(ig_keeper *k, ig_error *err) {
    if (!k->n_put) return IG_OK;
    ig_status s = keep(k, err);
    if (k->is_failing && k->next_put == 0) { /* a disk that takes a piece and not the next one is still full */
        ig_log(k->ctx, IG_LOG_WARN, "prompts are kept again");
        k->is_failing = false;
    }
    return s;
}

bool ig_keeper_get(ig_keeper *k, ig_kv *kv, const ig_prefix_piece *piece) {
    ig_error err;
    struct iovec area = {k->buffer, ig_kv_piece_bytes(ig_kv_memory_of(kv))};
    ig_status s = ig_prefix_store_read(k->store, piece, &area, 1, &err);
    if (!s) s = ig_kv_append_piece(kv, k->buffer, &err);
    if (s && s != IG_E_NOT_FOUND)
        ig_log(k->ctx, IG_LOG_WARN, "the prompt is computed from token %d on: %s",
               piece->number * ig_kv_piece_tokens(ig_kv_memory_of(kv)), err.text);
    k->n_taken += !s;
    return !s;
}
