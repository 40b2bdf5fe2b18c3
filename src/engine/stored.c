/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored prefixes for tools: checked arguments, and texts for ids.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "kv/prefix_tool.h"

struct ig_stored {
    ig_prefix_store *store;
};

ig_status ig_stored_open(ig_stored **out, const char *directory, bool write, ig_error *err) {
    if (out) *out = NULL;
    if (!out || !directory || !directory[0]) return ig_fail(err, IG_E_ARG, "stored KV: no directory");
    ig_stored *stored = calloc(1, sizeof *stored);
    if (!stored) return ig_fail_memory(err, "stored KV", sizeof *stored);
    const ig_prefix_store_options o = {.directory = directory, .read_only = !write, .must_exist = true};
    ig_status status = ig_prefix_store_open(&stored->store, &o, err);
    const char *why = status || !write ? NULL : ig_prefix_store_why_read_only(stored->store);
    if (why) status = ig_fail(err, IG_E_UNSUPPORTED, "%s", why);
    if (status) {
        ig_stored_close(stored);
        return status;
    }
    *out = stored;
    return IG_OK;
}

void ig_stored_close(ig_stored *stored) {
    if (!stored) return;
    ig_prefix_store_close(stored->store);
    free(stored);
}

void ig_stored_get_info(ig_stored *stored, ig_stored_info *out) {
    ig_prefix_store_stats stats = {0};
    if (!out) return;
    if (stored) ig_prefix_store_get_stats(stored->store, &stats);
    *out = (ig_stored_info){.n_pieces = stats.n_pieces,
                            .bytes = stats.bytes,
                            .n_unread = stored ? ig_prefix_count_unread(stored->store) : 0};
}

/* ---- items --------------------------------------------------------------- */

typedef struct teller {
    ig_stored_fn each;
    ig_progress_fn progress;
    void *user;
    bool stopped;
} teller;

static bool tell(void *user, const ig_prefix_item *item) {
    teller *t = user;
    char id[33] = "", root[33];
    const ig_prefix_id *i = &item->id, *r = &item->root;
    snprintf(root, sizeof root, "%016llx%016llx", (unsigned long long)r->high, (unsigned long long)r->low);
    if (item->n_pieces)
        snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)i->high, (unsigned long long)i->low);
    const ig_stored_item told = {.model = item->model,
                                 .kind = item->kind,
                                 .root = root,
                                 .id = id,
                                 .note = item->note,
                                 .n_tokens = item->n_tokens,
                                 .bytes = item->bytes,
                                 .used = item->used,
                                 .is_whole = item->is_whole,
                                 .file = item->file,
                                 .damage = item->damage ? item->damage : ""};
    return t->stopped = t->each && t->each(t->user, &told);
}

static bool tell_progress(void *user, uint64_t done, uint64_t total) {
    teller *t = user;
    return t->stopped = t->progress && t->progress(t->user, done, total);
}

ig_status ig_stored_list(ig_stored *stored, ig_stored_fn each, void *user, ig_error *err) {
    teller t = {.each = each, .user = user};
    if (!stored || !each) return ig_fail(err, IG_E_ARG, "stored KV: nothing to list, or nobody to tell");
    ig_status status = ig_prefix_list(stored->store, tell, &t, err);
    return !status && t.stopped ? ig_fail(err, IG_E_INTERRUPTED, "interrupted") : status;
}

ig_status ig_stored_verify(ig_stored_health *out, ig_stored *stored, ig_stored_fn damaged, ig_progress_fn progress,
                           void *user, ig_error *err) {
    teller t = {.each = damaged, .progress = progress, .user = user};
    if (out) *out = (ig_stored_health){0};
    if (!out || !stored) return ig_fail(err, IG_E_ARG, "stored KV: nothing to verify, or no place for the result");
    return ig_prefix_verify(out, stored->store, tell, tell_progress, &t, err);
}

/* ---- changes ------------------------------------------------------------- */

ig_status ig_stored_gc(ig_stored_freed *out, ig_stored *stored, uint64_t max_bytes, ig_error *err) {
    ig_stored_freed own;
    if (!out) out = &own;
    *out = (ig_stored_freed){0};
    if (!stored) return ig_fail(err, IG_E_ARG, "stored KV: none is open");
    return ig_prefix_collect(out, stored->store, max_bytes, err);
}

ig_status ig_stored_remove(ig_stored_freed *out, ig_stored *stored, ig_stored_what what, const char *name,
                           ig_error *err) {
    ig_stored_freed own;
    if (!out) out = &own;
    *out = (ig_stored_freed){0};
    if (!stored) return ig_fail(err, IG_E_ARG, "stored KV: none is open");
    if (!name && what != IG_STORED_ALL) return ig_fail(err, IG_E_ARG, "stored KV: nothing is named");
    switch (what) {
        case IG_STORED_ID:
            return ig_prefix_remove_id(out, stored->store, name, err);
        case IG_STORED_NOTE:
            return ig_prefix_remove_notes(out, stored->store, name, err);
        case IG_STORED_MODEL:
            return ig_prefix_remove_model(out, stored->store, name, err);
        case IG_STORED_ALL:
            return ig_prefix_remove_model(out, stored->store, NULL, err);
    }
    return ig_fail(err, IG_E_ARG, "stored KV: %d names nothing that can be removed", (int)what);
}
