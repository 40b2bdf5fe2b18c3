/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes of any root, for the tools that look after a store; see prefix_store.h for those of the store's own.
 */
#ifndef IG_KV_PREFIX_NOTE_H
#define IG_KV_PREFIX_NOTE_H

#include "kv/prefix_store_parts.h"
#include "kv/prefix_tool.h"

/* The note behind (*root row, item->note) in the order of these, which both become its own. With index_lock held. */
bool ig_prefix_note_next(ig_prefix_store *s, int64_t *root, ig_prefix_item *item);
/* malloc'ed, checked, with a NUL behind it. */
ig_status ig_prefix_note_read(ig_prefix_store *s, const ig_prefix_id *root, const char *name, char **bytes, size_t *n,
                              ig_error *err);
/* With index_lock held, and write_lock if notes may be put meanwhile. It has left for good when names are on the disk.
 */
ig_status ig_prefix_note_drop(ig_prefix_store *s, const ig_prefix_id *root, const char *name, ig_error *err);

#endif
