/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of a grammar. A place is a BYTE of the rules and a frame: where to go on once its rule ends, and below
 * that the frame of the rule that called it. Frames and states that are alike are there once.
 */
#include "grammar/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum {
    FRAMES_MAX = 1 << 16,
    DEPTH_MAX = 512,
    PLACES_MAX = 1 << 19, /* of all states */
    SET_MAX = 1 << 14,    /* of one */
    WALK_MAX = 4 * SET_MAX,
    FIRST_STATE = 2 /* after FULL and DEAD */
};

typedef struct call {
    uint32_t node, below; /* frame 0 is that of the root rule */
    uint32_t depth;
} call;

typedef struct place {
    uint32_t node, frame;
} place;

typedef struct state_info {
    uint32_t first, n; /* of places, in order */
    bool accepts;
    uint16_t next[256]; /* 0: not known yet */
} state_info;

/* The slots of hash tables are twice as many as what is in them. */
struct ig_automaton {
    ig_rules rules;
    call *frames;          /* [FRAMES_MAX] */
    uint32_t *frame_slots; /* [2 * FRAMES_MAX] */
    place *places;         /* [PLACES_MAX] */
    state_info *states;    /* [IG_STATES_MAX] */
    uint16_t *state_slots; /* [2 * IG_STATES_MAX] */
    uint32_t n_frames, n_places, n_states;
    uint64_t work;     /* places that steps may still reach */
    uint32_t *renamed; /* [FRAMES_MAX] of ig_automaton_renew() */

    /* of a step */
    place *walk;          /* [WALK_MAX] all that were reached, in the order in which they were */
    uint32_t *walk_slot;  /* [WALK_MAX] in which slot each is */
    uint32_t *walk_slots; /* [2 * WALK_MAX] number + 1 of what is in walk */
    uint32_t n_walk;
    bool accepts, is_full;
};

static uint32_t hash_pair(uint32_t a, uint32_t b) {
    uint64_t x = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32);
}

/* ---- frames ------------------------------------------------------------------------- */

/* The slot of a frame, or the empty one where it belongs. */
static uint32_t *frame_slot(ig_automaton *a, uint32_t node, uint32_t below) {
    uint32_t i = hash_pair(node, below);
    for (;; i++) {
        uint32_t *slot = &a->frame_slots[i % (2 * FRAMES_MAX)];
        const call *f = &a->frames[*slot];
        if (!*slot || (f->node == node && f->below == below)) return slot;
    }
}

/* 0: there is no room, or it is too deep. */
static uint32_t push_frame(ig_automaton *a, uint32_t node, uint32_t below) {
    uint32_t *slot = frame_slot(a, node, below);
    if (*slot) return *slot;
    a->is_full |= a->n_frames == FRAMES_MAX;
    if (a->is_full || a->frames[below].depth == DEPTH_MAX) return 0;
    a->frames[a->n_frames] = (call){node, below, a->frames[below].depth + 1};
    return *slot = a->n_frames++;
}

/* ---- the places of a state ------------------------------------------------------------ */

static void reach(ig_automaton *a, uint32_t node, uint32_t frame) {
    uint32_t i = hash_pair(node, frame) % (2 * WALK_MAX), at;
    for (; (at = a->walk_slots[i]); i = (i + 1) % (2 * WALK_MAX))
        if (a->walk[at - 1].node == node && a->walk[at - 1].frame == frame) return;
    a->is_full |= a->n_walk == WALK_MAX || a->work == 0;
    if (a->is_full) return;
    a->work--;
    a->walk_slot[a->n_walk] = i;
    a->walk[a->n_walk++] = (place){node, frame};
    a->walk_slots[i] = a->n_walk;
}

/* What is reached without a byte. A rule that is called last needs no frame. */
static void follow(ig_automaton *a, place p) {
    const ig_rule_node *n = &a->rules.nodes[p.node];
    uint32_t frame = p.frame;
    switch (n->kind) {
        case IG_RULE_FORK:
            reach(a, n->next, frame);
            reach(a, n->other, frame);
            break;
        case IG_RULE_CALL:
            if (a->rules.nodes[n->next].kind != IG_RULE_END) frame = push_frame(a, n->next, frame);
            if (frame || a->rules.nodes[n->next].kind == IG_RULE_END) reach(a, n->other, frame);
            break;
        case IG_RULE_END:
            if (frame) reach(a, a->frames[frame].node, a->frames[frame].below);
            a->accepts |= !frame;
            break;
        default:
            break;
    }
}

static int compare_places(const void *a, const void *b) {
    const place *x = a, *y = b;
    return x->node != y->node ? (x->node > y->node) - (x->node < y->node)
                              : (x->frame > y->frame) - (x->frame < y->frame);
}

static uint16_t *state_slot(ig_automaton *a, const place *set, uint32_t n, bool accepts) {
    uint32_t hash = accepts;
    for (uint32_t i = 0; i < n; i++) hash = hash_pair(hash ^ set[i].node, set[i].frame);
    for (uint32_t i = hash;; i++) {
        uint16_t *slot = &a->state_slots[i % (2 * IG_STATES_MAX)];
        const state_info *s = &a->states[*slot];
        if (!*slot) return slot;
        if (s->n == n && s->accepts == accepts && memcmp(a->places + s->first, set, n * sizeof *set) == 0) return slot;
    }
}

/* The state of places that lie behind all others. */
static uint16_t find_state(ig_automaton *a, uint32_t n, bool accepts) {
    uint16_t *slot = state_slot(a, a->places + a->n_places, n, accepts);
    if (*slot) return *slot;
    if (a->n_states == IG_STATES_MAX) return IG_STATE_FULL;
    state_info *s = &a->states[a->n_states];
    s->first = a->n_places;
    s->n = n;
    s->accepts = accepts;
    memset(s->next, 0, sizeof s->next);
    a->n_places += n;
    return *slot = (uint16_t)a->n_states++;
}

/* The state of all that was reached. */
static uint16_t end_step(ig_automaton *a) {
    uint32_t n = 0;
    place *set = a->places + a->n_places;
    for (uint32_t i = 0; i < a->n_walk && !a->is_full; i++) follow(a, a->walk[i]);
    for (uint32_t i = 0; i < a->n_walk && !a->is_full; i++) {
        if (a->rules.nodes[a->walk[i].node].kind != IG_RULE_BYTE) continue;
        a->is_full |= n == SET_MAX || a->n_places + n == PLACES_MAX;
        if (!a->is_full) set[n++] = a->walk[i];
    }
    if (a->is_full) return IG_STATE_FULL;
    if (!n && !a->accepts) return IG_STATE_DEAD;
    qsort(set, n, sizeof *set, compare_places);
    return find_state(a, n, a->accepts);
}

static void begin_step(ig_automaton *a) {
    for (uint32_t i = 0; i < a->n_walk; i++) a->walk_slots[a->walk_slot[i]] = 0;
    a->n_walk = 0;
    a->accepts = a->is_full = false;
}

/* ---- from outside --------------------------------------------------------------------- */

void ig_automaton_allow(ig_automaton *a, uint64_t work) { a->work = work; }

uint16_t ig_automaton_start(ig_automaton *a) {
    begin_step(a);
    reach(a, a->rules.root, 0);
    return end_step(a);
}

uint16_t ig_automaton_step(ig_automaton *a, uint16_t from, uint8_t byte) {
    const state_info *s = &a->states[from];
    if (s->next[byte]) return s->next[byte];
    begin_step(a);
    for (uint32_t i = 0; i < s->n; i++) {
        const place *p = &a->places[s->first + i];
        const ig_rule_node *n = &a->rules.nodes[p->node];
        if (n->low <= byte && byte <= n->high) reach(a, n->next, p->frame);
    }
    return a->states[from].next[byte] = end_step(a);
}

bool ig_automaton_accepts(const ig_automaton *a, uint16_t state) { return a->states[state].accepts; }
bool ig_automaton_is_end(const ig_automaton *a, uint16_t state) {
    return a->states[state].accepts && !a->states[state].n;
}

/* Frames that the places of a state need move to the front, in their order; where[i] is where frame i is then. */
static void keep_frames(ig_automaton *a, const state_info *s, uint32_t *where) {
    uint32_t n = 1;
    memset(where, 0, a->n_frames * sizeof *where);
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t f = a->places[s->first + i].frame; f && !where[f]; f = a->frames[f].below) where[f] = 1;
    for (uint32_t f = 1; f < a->n_frames; f++) {
        if (!where[f]) continue;
        a->frames[n] = (call){a->frames[f].node, where[a->frames[f].below], a->frames[f].depth};
        where[f] = n++;
    }
    a->n_frames = n;
    memset(a->frame_slots, 0, 2 * FRAMES_MAX * sizeof *a->frame_slots);
    for (uint32_t f = 1; f < n; f++) *frame_slot(a, a->frames[f].node, a->frames[f].below) = f;
}

uint16_t ig_automaton_renew(ig_automaton *a, uint16_t kept) {
    state_info s = a->states[kept];
    keep_frames(a, &s, a->renamed);
    memmove(a->places, a->places + s.first, s.n * sizeof *a->places);
    for (uint32_t i = 0; i < s.n; i++) a->places[i].frame = a->renamed[a->places[i].frame];
    memset(a->state_slots, 0, 2 * IG_STATES_MAX * sizeof *a->state_slots);
    a->n_places = 0;
    a->n_states = FIRST_STATE;
    return find_state(a, s.n, s.accepts);
}

ig_status ig_automaton_open(ig_automaton **out, ig_rules *rules, ig_error *err) {
    ig_automaton *a = *out = calloc(1, sizeof *a);
    if (!a) {
        ig_rules_close(rules);
        return ig_fail_memory(err, "grammar", sizeof *a);
    }
    a->rules = *rules;
    *rules = (ig_rules){0};
    a->frames = calloc(FRAMES_MAX, sizeof *a->frames);
    a->frame_slots = calloc(2 * FRAMES_MAX, sizeof *a->frame_slots);
    a->renamed = calloc(FRAMES_MAX, sizeof *a->renamed);
    a->places = calloc(PLACES_MAX, sizeof *a->places);
    a->states = calloc(IG_STATES_MAX, sizeof *a->states);
    a->state_slots = calloc(2 * IG_STATES_MAX, sizeof *a->state_slots);
    a->walk = calloc(WALK_MAX, sizeof *a->walk);
    a->walk_slot = calloc(WALK_MAX, sizeof *a->walk_slot);
    a->walk_slots = calloc(2 * WALK_MAX, sizeof *a->walk_slots);
    if (!a->frames || !a->frame_slots || !a->renamed || !a->places || !a->states || !a->state_slots || !a->walk ||
        !a->walk_slot || !a->walk_slots) {
        ig_automaton_close(a);
        *out = NULL;
        return ig_fail_memory(err, "grammar", PLACES_MAX * sizeof *a->places);
    }
    a->n_frames = 1;
    a->n_states = FIRST_STATE;
    return IG_OK;
}

void ig_automaton_close(ig_automaton *a) {
    if (!a) return;
    ig_rules_close(&a->rules);
    free(a->frames);
    free(a->frame_slots);
    free(a->renamed);
    free(a->places);
    free(a->states);
    free(a->state_slots);
    free(a->walk);
    free(a->walk_slot);
    free(a->walk_slots);
    free(a);
}
