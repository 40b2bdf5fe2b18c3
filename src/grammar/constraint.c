/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks of tokens, each made once for a state of the automaton by stepping through all words of the vocabulary.
 */
#include "grammar/constraint.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/automaton.h"

/* WORK_MAX: places in the rules that a mask may look at, some 0.1 s. */
enum { MASKS_MAX = 64, WORK_MAX = 1 << 21 };

struct ig_constraint {
    const ig_words *words;
    ig_automaton *automaton;
    uint16_t now;                          /* the state after the answer so far */
    uint16_t path[IG_TOKEN_BYTES_MAX + 1]; /* of a word: the states before each byte, and behind the last */
    uint16_t masked[MASKS_MAX];            /* [n_masks] states that have a mask */
    int n_masks;
    size_t n_mask;   /* 64-bit words of a mask */
    uint64_t *masks; /* [MASKS_MAX][n_mask] */
};

static void set(uint64_t *mask, int32_t id) { mask[id / 64] |= (uint64_t)1 << id % 64; }

/* False if the automaton has no room for it. */
static bool fill(ig_constraint *c, uint64_t *mask) {
    const ig_words *w = c->words;
    int alive = 0; /* bytes of the last word that the rules go on with */
    memset(mask, 0, c->n_mask * sizeof *mask);
    c->path[0] = c->now;
    for (int i = 0; i < w->n; i++) {
        const ig_word *word = &w->v[i];
        if (word->common > alive) continue;
        for (alive = word->common; alive < word->size; alive++) {
            uint16_t next = ig_automaton_step(c->automaton, c->path[alive], (uint8_t)word->text[alive]);
            if (next == IG_STATE_FULL) return false;
            if (next == IG_STATE_DEAD) break;
            c->path[alive + 1] = next;
        }
        if (alive == word->size) set(mask, word->id);
    }
    for (int i = 0; i < w->n_ends && ig_automaton_accepts(c->automaton, c->now); i++) set(mask, w->ends[i]);
    return true;
}

static void renew(ig_constraint *c) {
    c->now = ig_automaton_renew(c->automaton, c->now);
    c->n_masks = 0;
}

ig_status ig_constraint_mask(ig_constraint *c, const uint64_t **mask, ig_error *err) {
    int i = 0;
    while (i < c->n_masks && c->masked[i] != c->now) i++;
    if (i == MASKS_MAX) i = c->n_masks = 0;
    *mask = c->masks + (size_t)i * c->n_mask;
    if (i < c->n_masks) return IG_OK;
    ig_automaton_allow(c->automaton, WORK_MAX);
    if (!fill(c, c->masks + (size_t)i * c->n_mask)) {
        renew(c);
        ig_automaton_allow(c->automaton, WORK_MAX);
        *mask = c->masks;
        i = 0;
        if (!fill(c, c->masks))
            return ig_fail(err, IG_E_ARG, "the grammar has too many ways to go on, or takes too much work to follow");
    }
    c->masked[i] = c->now;
    c->n_masks = i + 1;
    return IG_OK;
}

/* The steps are those that were taken for the mask. */
void ig_constraint_take(ig_constraint *c, int32_t id) {
    const ig_word *word = c->words->of[id];
    for (int i = 0; word && i < word->size; i++)
        c->now = ig_automaton_step(c->automaton, c->now, (uint8_t)word->text[i]);
}

static bool start(ig_constraint *c) {
    ig_automaton_allow(c->automaton, WORK_MAX);
    uint16_t first = ig_automaton_start(c->automaton);
    if (first != IG_STATE_FULL) c->now = first;
    return first != IG_STATE_FULL;
}

void ig_constraint_restart(ig_constraint *c) {
    if (start(c)) return;
    renew(c);
    start(c);
}

bool ig_constraint_is_done(const ig_constraint *c) { return ig_automaton_is_end(c->automaton, c->now); }

static ig_status check_tokens(const ig_rules *r, const ig_words *w, ig_error *err) {
    for (uint32_t i = 1; i < r->n; i++) {
        int32_t id = ig_rules_token_at(r, i);
        if (id >= 0 && (id >= w->n_vocab || !w->of[id] || w->of[id]->text[0] != (char)IG_RULE_TOKEN_MARK))
            return ig_fail(err, IG_E_ARG,
                           "grammar: token %d is no special token, or it ends answers and stands in none", id);
    }
    return IG_OK;
}

ig_status ig_constraint_open(ig_constraint **out, const ig_words *words, const char *gbnf, ig_error *err) {
    ig_rules rules;
    *out = NULL;
    ig_status s = ig_rules_parse(&rules, gbnf, err);
    if (!s) s = check_tokens(&rules, words, err);
    if (s) {
        ig_rules_close(&rules);
        return s;
    }
    ig_constraint *c = calloc(1, sizeof *c);
    if (!c) {
        ig_rules_close(&rules);
        return ig_fail_memory(err, "grammar", sizeof *c);
    }
    c->words = words;
    c->n_mask = ((size_t)words->n_vocab + 63) / 64;
    s = ig_automaton_open(&c->automaton, &rules, err);
    c->masks = s ? NULL : calloc(MASKS_MAX * c->n_mask, sizeof *c->masks);
    if (!s && !c->masks) s = ig_fail_memory(err, "grammar", MASKS_MAX * c->n_mask * sizeof *c->masks);
    if (!s && !start(c)) s = ig_fail(err, IG_E_ARG, "the grammar can begin in too many ways");
    if (s)
        ig_constraint_close(c);
    else
        *out = c;
    return s;
}

void ig_constraint_close(ig_constraint *c) {
    if (!c) return;
    ig_automaton_close(c->automaton);
    free(c->masks);
    free(c);
}
