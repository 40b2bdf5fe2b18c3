/* SPDX-License-Identifier: Apache-2.0
 *
 * Building the network, as Thompson did: each part has one way in and one way out.
 */
#include "grammar/rules.h"

#include <stdlib.h>
#include <utf8proc.h>

void ig_rules_close(ig_rules *r) {
    free(r->nodes);
    *r = (ig_rules){0};
}

uint32_t ig_rules_add(ig_rules *r, ig_rule_kind kind, uint32_t next, uint32_t other) {
    if (r->status) return 0;
    if (r->n == r->cap) {
        uint32_t cap = r->cap ? 2 * r->cap : 256;
        ig_rule_node *nodes = cap <= IG_RULE_NODES_MAX ? realloc(r->nodes, cap * sizeof *nodes) : NULL;
        if (!nodes) {
            r->status = cap > IG_RULE_NODES_MAX ? IG_E_LIMIT : IG_E_MEMORY;
            return 0;
        }
        r->nodes = nodes;
        r->cap = cap;
        if (r->n == 0) r->nodes[r->n++] = (ig_rule_node){.kind = IG_RULE_END};
    }
    r->nodes[r->n] = (ig_rule_node){.kind = (uint8_t)kind, .next = next, .other = other};
    return r->n++;
}

static void lead(ig_rules *r, uint32_t from, uint32_t to) {
    if (!r->status) r->nodes[from].next = to;
}

ig_fragment ig_rules_empty(ig_rules *r) {
    uint32_t skip = ig_rules_add(r, IG_RULE_SKIP, 0, 0);
    return (ig_fragment){skip, skip};
}

/* A node that goes on at a SKIP of its own. */
static ig_fragment single(ig_rules *r, ig_rule_node node) {
    uint32_t last = ig_rules_add(r, IG_RULE_SKIP, 0, 0),
             first = ig_rules_add(r, (ig_rule_kind)node.kind, last, node.other);
    if (!r->status) r->nodes[first].low = node.low, r->nodes[first].high = node.high;
    return (ig_fragment){first, last};
}

ig_fragment ig_rules_call(ig_rules *r, uint32_t other) {
    return single(r, (ig_rule_node){.kind = IG_RULE_CALL, .other = other});
}

void ig_rule_spell_token(uint8_t bytes[IG_RULE_TOKEN_BYTES], int32_t id) {
    bytes[0] = IG_RULE_TOKEN_MARK;
    for (int i = IG_RULE_TOKEN_BYTES - 1; i > 0; i--, id /= IG_RULE_TOKEN_MARK)
        bytes[i] = (uint8_t)(id % IG_RULE_TOKEN_MARK); /* which are no marks */
}

ig_fragment ig_rules_token(ig_rules *r, int32_t id) {
    uint8_t bytes[IG_RULE_TOKEN_BYTES];
    ig_fragment all = ig_rules_empty(r);
    ig_rule_spell_token(bytes, id);
    for (int i = 0; i < IG_RULE_TOKEN_BYTES; i++)
        ig_rules_append(r, &all, single(r, (ig_rule_node){.kind = IG_RULE_BYTE, .low = bytes[i], .high = bytes[i]}));
    return all;
}

int32_t ig_rules_token_at(const ig_rules *r, uint32_t node) {
    int32_t id = 0;
    if (r->nodes[node].kind != IG_RULE_BYTE || r->nodes[node].low != IG_RULE_TOKEN_MARK) return -1;
    for (int i = 1; i < IG_RULE_TOKEN_BYTES; i++) {
        node = r->nodes[node].next;
        id = id * IG_RULE_TOKEN_MARK + r->nodes[node].low;
    }
    return id;
}

void ig_rules_append(ig_rules *r, ig_fragment *f, ig_fragment g) {
    lead(r, f->last, g.first);
    f->last = g.last;
}

void ig_rules_either(ig_rules *r, uint32_t *all, ig_fragment one, uint32_t end) {
    lead(r, one.last, end);
    *all = *all ? ig_rules_add(r, IG_RULE_FORK, *all, one.first) : one.first;
}

/* ---- repetition ------------------------------------------------------------------ */

/* Where a node of those from `begin` to `end` lies in their copy. */
static uint32_t moved(uint32_t node, uint32_t begin, uint32_t end, uint32_t by) {
    return node >= begin && node < end ? node + by : node;
}

static ig_fragment copy(ig_rules *r, uint32_t begin, uint32_t end, ig_fragment f) {
    uint32_t by = r->n - begin;
    for (uint32_t i = begin; i < end && !r->status; i++) {
        ig_rule_node node = r->nodes[i];
        uint32_t at = ig_rules_add(r, (ig_rule_kind)node.kind, moved(node.next, begin, end, by), node.other);
        if (r->status) break;
        r->nodes[at].low = node.low;
        r->nodes[at].high = node.high;
        if (node.kind == IG_RULE_FORK) r->nodes[at].other = moved(node.other, begin, end, by);
    }
    return (ig_fragment){f.first + by, f.last + by};
}

/* Once more or not at all: the way past it leads to `end`. */
static ig_fragment optional(ig_rules *r, ig_fragment f, uint32_t end) {
    return (ig_fragment){ig_rules_add(r, IG_RULE_FORK, f.first, end), f.last};
}

ig_fragment ig_rules_repeat(ig_rules *r, uint32_t begin, ig_fragment f, uint32_t least, uint32_t most) {
    bool is_endless = most == UINT32_MAX;
    uint32_t nodes_end = r->n, n = is_endless ? (least ? least : 1) : most, past = ig_rules_add(r, IG_RULE_SKIP, 0, 0);
    ig_fragment all = ig_rules_empty(r), one = f;
    for (uint32_t i = 0; i < n && !r->status; i++) {
        if (i) one = copy(r, begin, nodes_end, f);
        uint32_t again = one.first;
        ig_rules_append(r, &all, i < least ? one : optional(r, one, past));
        if (is_endless && i + 1 == n) lead(r, all.last, ig_rules_add(r, IG_RULE_FORK, again, past));
    }
    if (!is_endless) lead(r, all.last, past);
    return (ig_fragment){all.first, past};
}

/* ---- characters ------------------------------------------------------------------- */

static int compare_ranges(const void *a, const void *b) {
    uint32_t x = ((const ig_range *)a)->low, y = ((const ig_range *)b)->low;
    return (x > y) - (x < y);
}

/* The last code point up to `high` for which all from `low` on are the bytes from those of `low` to its own, each
 * independently of the others. */
static uint32_t last_of_block(uint32_t low, uint32_t high) {
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xffff, 0x10ffff}; /* of lengths, and before surrogates */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (low <= ends[i] && high > ends[i]) high = ends[i];
    for (uint32_t mask = 0x3f; low > 0x7f && mask < 0x40000; mask = mask << 6 | 0x3f) {
        if ((low & ~mask) == (high & ~mask)) break;
        if (low & mask) return (low | mask) < high ? low | mask : high;
        if ((high & mask) != mask) high = (high & ~mask) - 1;
    }
    return high;
}

/* An alternative for each block of code points from low to high. */
static void add_blocks(ig_rules *r, uint32_t *all, uint32_t low, uint32_t high, uint32_t end) {
    for (uint32_t last; low <= high && !r->status; low = last + 1) {
        if (low >= 0xd800 && low <= 0xdfff) {
            last = 0xdfff;
            continue;
        }
        uint8_t from[4], to[4];
        last = last_of_block(low, high);
        size_t n = (size_t)utf8proc_encode_char((utf8proc_int32_t)low, from);
        utf8proc_encode_char((utf8proc_int32_t)last, to);
        ig_fragment bytes = ig_rules_empty(r);
        for (size_t i = 0; i < n; i++)
            ig_rules_append(r, &bytes, single(r, (ig_rule_node){.kind = IG_RULE_BYTE, .low = from[i], .high = to[i]}));
        ig_rules_either(r, all, bytes, end);
    }
}

ig_fragment ig_rules_characters(ig_rules *r, ig_range *ranges, size_t n, bool others, bool *is_empty) {
    uint32_t all = 0, end = ig_rules_add(r, IG_RULE_SKIP, 0, 0), next = 0; /* next: after those that are done */
    if (n) qsort(ranges, n, sizeof *ranges, compare_ranges);
    for (size_t i = 0; i < n; i++) {
        uint32_t low = ranges[i].low > next ? ranges[i].low : next, high = ranges[i].high;
        if (high < low) continue;
        if (!others)
            add_blocks(r, &all, low, high, end);
        else if (low > next)
            add_blocks(r, &all, next, low - 1, end);
        next = high + 1;
    }
    if (others && next <= 0x10ffff) add_blocks(r, &all, next, 0x10ffff, end);
    *is_empty = !all;
    return (ig_fragment){all, end};
}
