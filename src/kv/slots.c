/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of entries: see slots.h. Free slots are handed out lowest position first, which after a large drop fills the
 * room of the oldest entries before that of later ones.
 */
#include "kv/slots.h"

#include <string.h>

/* Before the first drop nothing is written down: entry i lies in slot i. */
static void begin(ig_slots *s, int n) {
    if (s->n_dropped) return;
    for (int i = 0; i < n; i++) s->order[i] = i;
    s->n_slots = n;
    s->n_spare = 0;
}

static void count_dropped(ig_slots *s, int n, int n_kept) {
    s->n = n_kept;
    s->n_dropped += n - n_kept;
    s->lost += (uint64_t)(n - n_kept);
}

void ig_slots_keep(ig_slots *s, int n, const int32_t *index, int n_kept) {
    begin(s, n);
    for (int i = n - 1, k = n_kept - 1; i >= 0; i--) {
        if (k >= 0 && index[k] == i)
            k--;
        else
            s->spare[s->n_spare++] = s->order[i];
    }
    for (int k = 0; k < n_kept; k++) s->order[k] = s->order[index[k]];
    count_dropped(s, n, n_kept);
}

void ig_slots_drop(ig_slots *s, int n, int i) {
    begin(s, n);
    s->spare[s->n_spare++] = s->order[i];
    memmove(s->order + i, s->order + i + 1, (size_t)(n - 1 - i) * sizeof *s->order);
    count_dropped(s, n, n - 1);
}

int ig_slots_after(const ig_slots *s, int n_new) { return s->n_slots + (n_new > s->n_spare ? n_new - s->n_spare : 0); }

void ig_slots_add(ig_slots *s, int n_new) {
    for (int i = 0; i < n_new; i++) s->order[s->n++] = s->n_spare ? s->spare[--s->n_spare] : s->n_slots++;
}

void ig_slots_pack(ig_slots *s, ig_slots_move_fn move, void *user) {
    int n_low = 0; /* free slots below n: as many as entries lie above */
    for (int i = 0; i < s->n_spare; i++)
        if (s->spare[i] < s->n) s->spare[n_low++] = s->spare[i];
    for (int i = 0; i < s->n; i++)
        if (s->order[i] >= s->n) {
            int32_t to = s->spare[--n_low];
            move(user, s->order[i], to);
            s->order[i] = to;
        }
    s->n_spare = 0;
    s->n_slots = s->n;
}

void ig_slots_clear(ig_slots *s) { s->n = s->n_spare = s->n_slots = s->n_dropped = 0; }
