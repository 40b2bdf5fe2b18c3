/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is short: the disk tier may hold less than the requests that run want together (--kv-disk, a full disk).
 * Then the first of them goes on, and a later one stands still before it takes what an earlier one needs to get to its
 * end; meanwhile its blocks leave RAM. So nobody fails for want of room, and nothing is computed twice.
 *
 * Who could get to the end is what the banker's algorithm asks (Dijkstra, EWD623), with age as the order: once all
 * before it have ended, what is in use is what it and the later ones hold, and the rest must be enough for it.
 */
#include "base/compiler.h"
#include "engine/cache.h"
#include "engine/scheduler.h"

/* Pieces of so many tokens. */
static long pieces_for(const ig_scheduler *c, int n_tokens) {
    int each = ig_kv_piece_tokens(c->cache->memory);
    return (n_tokens + each - 1) / each;
}

/* Tokens that it has when it ends, at most. */
static int most_tokens(const ig_request *r) {
    int n_ctx = r->session->options.n_ctx, n_predict = r->o.generate.n_predict;
    return n_predict < 0 || n_predict > n_ctx - r->o.n_ids ? n_ctx : r->o.n_ids + n_predict;
}

/* Pieces that it would add to those it has: for all of a prompt, which may be taken over at once, or another token. */
static long count_wanted(const ig_scheduler *c, const ig_request *r, long has) {
    return pieces_for(c, r->is_answering ? r->session->n_tokens + 1 : r->o.n_ids) - has;
}

void ig_scheduler_share_room(ig_scheduler *c) {
    int each = ig_kv_piece_tokens(c->cache->memory);
    long room = (long)ig_kv_room(c->cache->memory), left = room;
    for (int i = 0; i < c->n_running; i++) c->kvs[i] = c->running[i]->session->seq.kv;
    if (c->n_running) ig_kv_count_held(c->held, c->kvs, c->n_running);
    for (int i = 0; i < c->n_running; i++) {
        ig_request *r = c->running[i];
        long has = ig_kv_pieces(c->kvs[i]), more = count_wanted(c, r, has),
             spare = room - (long)c->held[i] - (pieces_for(c, most_tokens(r)) - has); /* once it has all it may want */
        if (more > left && i > 0) more = left;                                        /* the first one's turn is now */
        r->most = (int)(has + more) * each;
        r->session->most_tokens = ig_min_int(r->most, most_tokens(r));
        left -= more;
        if (left > spare) left = spare;
        if (left < 0) left = 0;
    }
}
