/* SPDX-License-Identifier: Apache-2.0
 *
 * Drafts: guesses of the tokens that come next, which a decode step computes along with its own. A step mostly reads
 * weights, so that some rows more cost little; those that were guessed right save their steps, and the others are taken
 * back. What comes out is the same.
 *
 * A guess is that the text goes on as it did where it last said the same: what follows the longest run of tokens that
 * is also the end of the text ("prompt lookup": Saxena 2023; Yang et al., "Inference with Reference", 2023), in the
 * text itself or in what the caller expects to come. How often that comes true is counted for each length of a run,
 * whether anything is computed of it or not; with what steps cost that says how many tokens are worth guessing. Another
 * source of guesses is a smaller model: draft_model.h.
 */
#ifndef IG_ENGINE_DRAFT_H
#define IG_ENGINE_DRAFT_H

#include <stdint.h>

#include "base/row_costs.h"
#include "infinigen.h"

/* What a step has so far. */
typedef struct ig_draft_step {
    const ig_row_costs *costs;
    int n_rows, most_rows; /* that it has, and may have: IG_ROW_COSTS_MOST at most */
    double expected;       /* tokens */
    double spent;          /* seconds, of those who guessed */
} ig_draft_step;

/* Tokens per second that it lets expect. */
double ig_draft_step_rate(const ig_draft_step *step);

/* Guesses of the tokens that come next. */
typedef struct ig_guesses {
    int n;
    double chance[IG_DRAFT_MAX]; /* that this one comes, if those before it do */
} ig_guesses;

/* How many of them are worth their rows: these, and the tokens that they let expect, are added to the step's. */
int ig_guesses_plan(const ig_guesses *g, ig_draft_step *step);

enum { IG_DRAFT_RUNS = 6 /* kinds of lengths: 1, 2 to 3, 4 to 7 and so on */ };

/* Of one text. Zeroed, it has seen none. */
typedef struct ig_drafter {
    int n;      /* tokens of the text that it has seen */
    int length; /* of the run before the next one; 0: there is no guess */
    int at;     /* the next one is guessed to be the same as this one, of the text or of what is expected */
    bool is_expected;
    const int32_t *expected; /* [n_expected] what may come, borrowed */
    int n_expected;
    float came_true[IG_DRAFT_RUNS], guessed[IG_DRAFT_RUNS]; /* the latest count most */
} ig_drafter;

/* Of a text of n tokens this is expected to follow. n_expected 0: nothing is. */
void ig_drafter_expect(ig_drafter *d, int n, const int32_t *expected, int n_expected);
/* The text has n tokens. What comes behind its last one is guessed, and if that was guessed itself, it is counted. */
void ig_drafter_see(ig_drafter *d, const int32_t *tokens, int n);
/* How many of its guesses are worth their rows, at most `most`, as ig_guesses_plan() says. */
int ig_drafter_plan(const ig_drafter *d, ig_draft_step *step, int most);
/* Writes n guesses behind the text's tokens. */
void ig_drafter_write(const ig_drafter *d, int32_t *tokens, int n);

#endif
