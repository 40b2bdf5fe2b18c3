/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes in a cache's store. The store takes care of threads: a note waits for no step, and no step for a note.
 */
#include "engine/cache.h"

#include "base/error.h"

_Static_assert((int)IG_NOTE_MAX == (int)IG_PREFIX_NOTE_MAX, "one limit");

static ig_status check(const ig_cache *c, const char *name, ig_error *err) {
    if (!c || !name) return ig_fail(err, IG_E_ARG, "note: a cache and a name are needed");
    if (!c->keeper.store) return ig_fail(err, IG_E_ARG, "note '%.80s': the KV cache has no store", name);
    return IG_OK;
}

ig_status ig_cache_note_put(ig_cache *c, const char *name, const void *bytes, size_t n, ig_error *err) {
    ig_status s = check(c, name, err);
    if (!s && !bytes && n) s = ig_fail(err, IG_E_ARG, "note '%.80s': no bytes", name);
    return s ? s : ig_prefix_store_note_put(c->keeper.store, name, n ? bytes : "", n, err);
}

ig_status ig_cache_note_get(void **bytes, size_t *n, ig_cache *c, const char *name, ig_error *err) {
    if (bytes) *bytes = NULL;
    if (n) *n = 0;
    ig_status s = check(c, name, err);
    if (!s && !(bytes && n)) s = ig_fail(err, IG_E_ARG, "note '%.80s': no place for it", name);
    return s ? s : ig_prefix_store_note_get(c->keeper.store, name, bytes, n, err);
}

ig_status ig_cache_note_remove(ig_cache *c, const char *name, ig_error *err) {
    ig_status s = check(c, name, err);
    return s ? s : ig_prefix_store_note_remove(c->keeper.store, name, err);
}

typedef struct listener {
    ig_cache_note_fn each;
    void *user;
    bool stopped;
} listener;

static bool tell(void *user, const ig_prefix_note *note) {
    listener *l = user;
    const ig_cache_note told = {.name = note->name, .n_bytes = note->bytes, .written = note->written};
    return l->stopped = l->each(l->user, &told);
}

ig_status ig_cache_note_list(ig_cache *c, ig_cache_note_fn each, void *user, ig_error *err) {
    listener l = {.each = each, .user = user};
    if (!c || !each) return ig_fail(err, IG_E_ARG, "notes: a cache and somebody to tell are needed");
    if (!c->keeper.store) return ig_fail(err, IG_E_ARG, "notes: the KV cache has no store");
    ig_status s = ig_prefix_store_note_list(c->keeper.store, tell, &l, err);
    return !s && l.stopped ? ig_fail(err, IG_E_INTERRUPTED, "interrupted") : s;
}
