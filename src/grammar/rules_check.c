/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a rule begins with itself: a walk over all that each can reach without a byte.
 */
#include <stdlib.h>

#include "grammar/rules.h"

typedef struct walk_node {
    bool is_seen;
    bool is_open, is_done; /* a rule that begins here is being walked; it was */
    bool is_nullable;      /* that rule can take nothing at all */
} walk_node;

/* A rule that is being walked: what is left of it is work[base..n_work). */
typedef struct open_rule {
    uint32_t first, base;
} open_rule;

typedef struct walk {
    const ig_rules *rules;
    walk_node *of;   /* [rules->n] */
    uint32_t *work;  /* [2 * rules->n] */
    open_rule *open; /* [rules->n] */
    uint32_t n_work, n_open;
} walk;

static void begin(walk *w, uint32_t first) {
    w->open[w->n_open++] = (open_rule){first, w->n_work};
    w->of[first].is_open = true;
    w->work[w->n_work++] = first;
}

static void end(walk *w) {
    walk_node *rule = &w->of[w->open[--w->n_open].first];
    rule->is_open = false;
    rule->is_done = true;
}

/* The node on top of the work; true: it calls a rule that has begun already. */
static bool go(walk *w) {
    uint32_t at = w->work[w->n_work - 1];
    const ig_rule_node *n = &w->rules->nodes[at];
    walk_node *other = &w->of[n->other];
    if (n->kind == IG_RULE_CALL && !w->of[at].is_seen) {
        if (other->is_open) return true;
        if (!other->is_done) {
            begin(w, n->other);
            return false;
        }
    }
    w->n_work--;
    if (w->of[at].is_seen) return false;
    w->of[at].is_seen = true;
    if (n->kind == IG_RULE_END) w->of[w->open[w->n_open - 1].first].is_nullable = true;
    if (n->kind == IG_RULE_FORK) w->work[w->n_work++] = n->other;
    if (n->kind == IG_RULE_FORK || (n->kind == IG_RULE_CALL && other->is_nullable)) w->work[w->n_work++] = n->next;
    return false;
}

/* A rule and all that it begins with; the one of them that begins with itself, or 0. */
static uint32_t walk_rule(walk *w, uint32_t first) {
    begin(w, first);
    while (w->n_open) {
        if (w->n_work == w->open[w->n_open - 1].base)
            end(w);
        else if (go(w))
            return w->rules->nodes[w->work[w->n_work - 1]].other;
    }
    return 0;
}

ig_status ig_rules_check(const ig_rules *r, uint32_t *first) {
    walk w = {.rules = r,
              .of = calloc(r->n, sizeof *w.of),
              .work = malloc(2 * (size_t)r->n * sizeof *w.work),
              .open = malloc(r->n * sizeof *w.open)};
    bool has_memory = w.of && w.work && w.open;
    *first = 0;
    for (uint32_t i = 0; i < r->n && has_memory && !*first; i++) {
        uint32_t rule = i ? r->nodes[i].other : r->root;
        if (!i || (r->nodes[i].kind == IG_RULE_CALL && !w.of[rule].is_done)) *first = walk_rule(&w, rule);
    }
    free(w.of);
    free(w.work);
    free(w.open);
    return has_memory ? IG_OK : IG_E_MEMORY;
}
