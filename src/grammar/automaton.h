/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules as an automaton over bytes. A state is all the places in the rules where a text so far can have got to; states
 * and the steps between them are made when they are first met, and kept, so that a step is mostly one look-up.
 */
#ifndef IG_GRAMMAR_AUTOMATON_H
#define IG_GRAMMAR_AUTOMATON_H

#include "grammar/rules.h"

typedef struct ig_automaton ig_automaton;

/* What a step can lead to beside a state. */
enum {
    IG_STATE_FULL, /* there is no room for another state, or it took too much work */
    IG_STATE_DEAD  /* no text goes on so */
};
enum { IG_STATES_MAX = 1 << 15 };

/* Takes the rules over, in any case. All memory is taken here. */
ig_status ig_automaton_open(ig_automaton **out, ig_rules *rules, ig_error *err);
void ig_automaton_close(ig_automaton *a);

/* From now on steps may look at so many places in the rules; then they lead to IG_STATE_FULL. */
void ig_automaton_allow(ig_automaton *a, uint64_t work);

/* Where texts begin. */
uint16_t ig_automaton_start(ig_automaton *a);
/* Where a byte leads from a state. Rules that are nested more than 512 deep lead nowhere. */
uint16_t ig_automaton_step(ig_automaton *a, uint16_t state, uint8_t byte);
/* Whether a text may end here; whether none goes on. */
bool ig_automaton_accepts(const ig_automaton *a, uint16_t state);
bool ig_automaton_is_end(const ig_automaton *a, uint16_t state);

/* Forgets all states but this one; its new number. */
uint16_t ig_automaton_renew(ig_automaton *a, uint16_t state);

#endif
