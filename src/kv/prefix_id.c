/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids of prefixes: see prefix_id.h.
 */
#include "kv/prefix_id.h"

#include <string.h>
#include <xxhash.h>

ig_prefix_id ig_prefix_root(const void *bytes, size_t n) {
    XXH128_hash_t h = XXH3_128bits(bytes, n);
    return (ig_prefix_id){h.low64, h.high64};
}

ig_prefix_id ig_prefix_next(ig_prefix_id parent, const int32_t *tokens, int n) {
    enum { PIECE = 512 };
    struct {
        ig_prefix_id parent;
        int32_t tokens[PIECE];
    } x;
    do { /* a piece has at most PIECE tokens; more are chained */
        int now = n < PIECE ? n : PIECE;
        x.parent = parent;
        memcpy(x.tokens, tokens, (size_t)now * sizeof *tokens);
        parent = ig_prefix_root(&x, sizeof x.parent + (size_t)now * sizeof *tokens);
        tokens += now;
        n -= now;
    } while (n > 0);
    return parent;
}
