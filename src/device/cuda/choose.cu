/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing by sketches on a GPU, from the host's side: units that the host has written since are brought to the GPU's
 * copies of them, lists are sent, and what is chosen is waited for. The kernels are in sketch.cu and pick.cu.
 */
#include "device/cuda/gpu.cuh"

#include <string.h>

/* ---- units ---------------------------------------------------------------------------- */

/* Of the entries that have sketches. */
static int units_of(const ig_scan_list *x) { return (x->n - (x->k ? 1 : 0) + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS; }

/* A row of units of lists: of each list its keys' fresh ones, then its values'. */
typedef struct cursor {
    const ig_scan_list *lists;
    int n, list, table, unit;
} cursor;

static const ig_units *table_of(const ig_scan_list *x, int table) { return table == 0 ? &x->keys : &x->values; }

/* The next one; false: there is none. */
static bool next_unit(cursor *c, const ig_units **units, size_t *number) {
    for (; c->list < c->n; c->list++, c->table = 0, c->unit = 0) {
        const ig_scan_list *x = &c->lists[c->list];
        for (; c->table < 2; c->table++, c->unit = 0) {
            *units = table_of(x, c->table);
            int i = (*units)->fresh + c->unit;
            if (!(*units)->dev || i >= units_of(x)) continue;
            *number = ig_cuda_unit_number(x, i);
            c->unit++;
            return true;
        }
    }
    return false;
}

/* Units in the mail, that go with what is put there next. */
typedef ig_cuda_row_of_units batch;

static void put(gpu *g, batch *units) {
    if (units->n) ig_cuda_put_units(g->work, *units);
    units->n = 0;
}

/* Puts fresh units of lists in the mail; if they do not all fit in it, only the last ones are left to be sent. */
static batch bring_units(gpu *g, const ig_scan_list *lists, int n) {
    size_t left = 0, stride = 0;
    cursor c = {lists, n, 0, 0, 0};
    for (int i = 0; i < n; i++)
        for (int t = 0; t < 2; t++) {
            const ig_units *units = table_of(&lists[i], t);
            if (!units->dev || units->fresh >= units_of(&lists[i])) continue;
            left += (size_t)(units_of(&lists[i]) - units->fresh);
            if (units->bytes > stride) stride = units->bytes;
        }
    batch b = {NULL, stride + sizeof(ig_cuda_unit), 0};
    while (left) {
        size_t room = ig_cuda_mail_room(&g->mail) / b.stride, now = left < room ? left : room;
        if (b.n) put(g, &b);
        if (!now) {
            ig_cuda_wait(g);
            continue;
        }
        ig_cuda_letter row = ig_cuda_mail_take(&g->mail, now * b.stride);
        for (size_t k = 0; k < now; k++) {
            const ig_units *units;
            size_t number;
            if (!next_unit(&c, &units, &number)) break;
            ig_cuda_unit *unit = (ig_cuda_unit *)(void *)((uint8_t *)row.host + k * b.stride);
            unit->to = units->dev + number * units->bytes;
            unit->n_bytes = units->bytes;
            memcpy(unit + 1, units->host + number * units->bytes, units->bytes);
        }
        b.dev = (const uint8_t *)row.dev;
        b.n = (int)now;
        left -= now;
    }
    return b;
}

/* ---- lists ---------------------------------------------------------------------------- */

/* Numbers of a list's pieces. */
static size_t pieces_of(const ig_scan_list *x) {
    int units = (x->n + IG_SKETCH_TOKENS - 1) / IG_SKETCH_TOKENS;
    return x->pieces ? (size_t)((units + (1 << x->shift) - 1) >> x->shift) : 0;
}

/* Whether list number i has the pieces of the one before: those of a sequence. */
static bool is_same_sequence(const ig_scan_list *lists, int i) {
    return i > 0 && lists[i].pieces == lists[i - 1].pieces && pieces_of(&lists[i]) == pieces_of(&lists[i - 1]);
}

static size_t used_bytes(const ig_scan_list *x) { return ((size_t)x->favour.n_known + 7) / 8; }

/* Bytes of what list number i brings. */
static size_t list_bytes(const ig_scan_list *lists, int i) {
    const ig_scan_list *x = &lists[i];
    return ig_cuda_mail_bytes(sizeof *x) + ig_cuda_mail_bytes(used_bytes(x)) +
           (is_same_sequence(lists, i) ? 0 : ig_cuda_mail_numbers_bytes(pieces_of(x)));
}

/* What launches are made for. */
static void grow(ig_scan_list *most, const ig_scan_list *x) {
    most->n = max_int(most->n, x->n);
    most->group = max_int(most->group, x->group);
    most->rank = max_int(most->rank, x->rank);
    most->head_dim = max_int(most->head_dim, x->head_dim);
    if (x->rest) most->rest = x->rest;
}

/* Lists from number `first` on that have to stay together, and what they bring. */
static int together(const ig_scan_list *lists, int first, size_t *bytes) {
    int n = lists[first].columns.n ? lists[first].columns.n_lists : 1;
    *bytes = 0;
    for (int i = first; i < first + n; i++) *bytes += list_bytes(lists, i);
    return n;
}

/* For as many of n lists as there is room for in the mail, 1 or more; returns how many. */
static int choose_some(gpu *g, const ig_scan_list *lists, int n, batch *units, bool is_awaited) {
    size_t bytes = 0, more;
    int now = 0;
    for (int k; now < n; now += k, bytes += more) {
        k = together(lists, now, &more);
        if (now && bytes + more > ig_cuda_mail_room(&g->mail)) break;
    }
    if (bytes > ig_cuda_mail_room(&g->mail)) {
        put(g, units);
        ig_cuda_wait(g);
    }
    ig_scan_list most = {};
    ig_cuda_letter part = ig_cuda_mail_take(&g->mail, (size_t)now * sizeof *lists);
    ig_scan_list *sent = (ig_scan_list *)part.host;
    for (int i = 0; i < now; i++) {
        const ig_scan_list *x = &lists[i];
        sent[i] = *x;
        sent[i].pieces =
            is_same_sequence(lists, i) ? sent[i - 1].pieces : ig_cuda_mail_numbers(&g->mail, x->pieces, pieces_of(x));
        sent[i].query_map = find(g, x->query_map), sent[i].key_map = find(g, x->key_map);
        sent[i].offset = find(g, x->offset), sent[i].sink_scores = find(g, x->sink_scores);
        sent[i].favour.used = ig_cuda_mail_put(&g->mail, x->favour.used, used_bytes(x));
        if (x->index) *x->n_index = 0; /* as it stays if the GPU fails */
        grow(&most, x);
    }
    ig_cuda_scan(g->work, (const ig_scan_list *)part.dev, now, &most, *units);
    units->n = 0;
    ig_cuda_pick(g->work, (const ig_scan_list *)part.dev, now, &most);
    if (is_awaited) ig_queue_mark(g->work, g->chosen);
    if (most.rest) ig_cuda_estimate(g->work, (const ig_scan_list *)part.dev, now, &most);
    return now;
}

void ig_cuda_choose_lists(ig_device *d, const ig_scan_list *lists, int n, bool is_awaited) {
    gpu *g = enter(d);
    batch units = bring_units(g, lists, n);
    for (int i = 0; i < n;) i += choose_some(g, lists + i, n - i, &units, is_awaited);
    if (is_awaited) {
        submit(g);
        note(g, cudaEventSynchronize(g->chosen));
    }
    leave(g);
}
