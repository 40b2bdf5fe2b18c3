/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways that never come to an end, as through a rule that can only go on with itself, are taken out: backwards from the
 * ends to all that leads there.
 */
#include <stdlib.h>

#include "grammar/rules.h"

typedef struct walk {
    const ig_rules *rules;
    bool *ends;      /* [rules->n] a way leads from this node to the end of its rule */
    uint32_t *first; /* [rules->n] of the edges that lead to a node, number + 1 */
    uint32_t *after; /* [2 * rules->n] the next one of these; node i's edges are 2 * i (next) and 2 * i + 1 (other) */
    uint32_t *work;  /* [rules->n] */
    uint32_t n_work;
} walk;

static void add_edge(walk *w, uint32_t edge, uint32_t to) {
    w->after[edge] = w->first[to];
    w->first[to] = edge + 1;
}

static void look(walk *w, uint32_t node) {
    const ig_rule_node *n = &w->rules->nodes[node];
    bool next = w->ends[n->next], other = w->ends[n->other];
    if (w->ends[node]) return;
    w->ends[node] = n->kind == IG_RULE_END    ? true
                    : n->kind == IG_RULE_FORK ? next || other
                    : n->kind == IG_RULE_CALL ? next && other
                                              : next;
    if (w->ends[node]) w->work[w->n_work++] = node;
}

static void walk_back(walk *w) {
    const ig_rules *r = w->rules;
    for (uint32_t i = 1; i < r->n; i++) {
        uint8_t kind = r->nodes[i].kind;
        if (kind != IG_RULE_END) add_edge(w, 2 * i, r->nodes[i].next);
        if (kind == IG_RULE_FORK || kind == IG_RULE_CALL) add_edge(w, 2 * i + 1, r->nodes[i].other);
    }
    for (uint32_t i = 1; i < r->n; i++)
        if (r->nodes[i].kind == IG_RULE_END) look(w, i);
    while (w->n_work)
        for (uint32_t edge = w->first[w->work[--w->n_work]]; edge; edge = w->after[edge - 1]) look(w, (edge - 1) / 2);
}

/* What is behind a fork that ends has only forks to leave it by. */
static void trim(const walk *w, ig_rules *r) {
    for (uint32_t i = 1; i < r->n; i++) {
        ig_rule_node *n = &r->nodes[i];
        if (n->kind != IG_RULE_FORK || !w->ends[i]) continue;
        if (!w->ends[n->next]) n->next = n->other;
        if (!w->ends[n->other]) n->other = n->next;
    }
}

ig_status ig_rules_trim(ig_rules *r) {
    walk w = {.rules = r,
              .ends = calloc(r->n, sizeof *w.ends),
              .first = calloc(r->n, sizeof *w.first),
              .after = malloc(2 * (size_t)r->n * sizeof *w.after),
              .work = malloc(r->n * sizeof *w.work)};
    bool has_memory = w.ends && w.first && w.after && w.work;
    if (has_memory) {
        walk_back(&w);
        r->is_endless = !w.ends[r->root];
        if (!r->is_endless) trim(&w, r);
    }
    free(w.ends);
    free(w.first);
    free(w.after);
    free(w.work);
    return has_memory ? IG_OK : IG_E_MEMORY;
}
