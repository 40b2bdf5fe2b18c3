/* SPDX-License-Identifier: Apache-2.0
 *
 * Guesses of the tokens that come next: see draft.h.
 */
#include "engine/draft.h"

#include <limits.h>

#include "base/compiler.h"

enum { LONGEST = 1 << (IG_DRAFT_RUNS - 1), LENGTH_OF_EXPECTED = 8 /* nothing has been said yet */ };

/* What is expected of a run before anything was seen: as if of `first_guesses` guesses so many had come true. */
static const float first_chance[IG_DRAFT_RUNS] = {0.1F, 0.3F, 0.5F, 0.7F, 0.8F, 0.9F};
static const float first_guesses = 4, decay = 0.95F;

double ig_draft_step_rate(const ig_draft_step *step) {
    return step->expected / (step->spent + ig_row_costs_guess(step->costs, step->n_rows));
}

int ig_guesses_plan(const ig_guesses *g, ig_draft_step *step) {
    const ig_row_costs *costs = step->costs;
    const ig_draft_step before = *step;
    double all_true = 1, sum = before.expected, best = ig_draft_step_rate(step);
    for (int n = 1; n <= g->n && before.n_rows + n <= before.most_rows; n++) {
        all_true *= g->chance[n - 1];
        sum += all_true;
        double seconds =
            before.spent + ig_row_costs_guess(costs, before.n_rows + n) + (1 - all_true) * costs->going_back;
        double rate = sum / seconds;
        if (rate > best) best = rate, step->n_rows = before.n_rows + n, step->expected = sum;
    }
    return step->n_rows - before.n_rows;
}

static int kind_of(int length) {
    int k = 0;
    while (k < IG_DRAFT_RUNS - 1 && length >> (k + 1)) k++;
    return k;
}

/* Of a run's guess. */
static double chance(const ig_drafter *d, int length) {
    int k = kind_of(length);
    return (double)((d->came_true[k] + first_guesses * first_chance[k]) / (d->guessed[k] + first_guesses));
}

static void count(ig_drafter *d, bool came_true) {
    int k = kind_of(d->length);
    d->came_true[k] = decay * d->came_true[k] + (float)came_true;
    d->guessed[k] = decay * d->guessed[k] + 1;
}

/* Where the guess stands: in the text, or in what is expected. */
static const int32_t *source_of(const ig_drafter *d, const int32_t *tokens) {
    return d->is_expected ? d->expected : tokens;
}

/* Tokens that stand there before place `at`, and at the text's end too, up to LONGEST. */
static int run_before(const ig_drafter *d, const int32_t *source, int at, const int32_t *tokens) {
    int n = 0;
    while (n < LONGEST && n < at && n < d->n && source[at - 1 - n] == tokens[d->n - 1 - n]) n++;
    return n;
}

/* The longest run before place `end` or an earlier one, and of these the last. */
static void look_in(ig_drafter *d, bool expected, int end, const int32_t *tokens) {
    const int32_t *source = expected ? d->expected : tokens;
    for (int at = end; at > 0 && d->length < LONGEST; at--) {
        int length = run_before(d, source, at, tokens);
        if (length > d->length) d->at = at, d->length = length, d->is_expected = expected;
    }
}

static void look_up(ig_drafter *d, const int32_t *tokens) {
    d->length = 0;
    look_in(d, true, d->n_expected - 1, tokens);
    look_in(d, false, d->n - 1, tokens);
}

void ig_drafter_expect(ig_drafter *d, int n, const int32_t *expected, int n_expected) {
    d->n = n, d->at = 0, d->length = n_expected ? LENGTH_OF_EXPECTED : 0;
    d->expected = expected, d->n_expected = n_expected, d->is_expected = true;
}

/* How many tokens there are from the guessed one on. */
static int count_guesses(const ig_drafter *d) {
    return !d->length ? 0 : d->is_expected ? d->n_expected - d->at : INT_MAX;
}

void ig_drafter_see(ig_drafter *d, const int32_t *tokens, int n) {
    bool follows = n == d->n + 1 && d->length;
    bool came_true = follows && source_of(d, tokens)[d->at] == tokens[n - 1];
    if (follows) count(d, came_true);
    d->n = n;
    d->at++; /* a longer run than this one elsewhere would have been longer before, too */
    d->length = ig_min_int(d->length + 1, LONGEST);
    if (!came_true || !count_guesses(d)) look_up(d, tokens);
}

int ig_drafter_plan(const ig_drafter *d, ig_draft_step *step, int most) {
    ig_guesses g = {.n = ig_min_int(ig_min_int(most, IG_DRAFT_MAX), count_guesses(d))};
    for (int i = 0; i < g.n; i++) g.chance[i] = chance(d, d->length + i);
    return ig_guesses_plan(&g, step);
}

void ig_drafter_write(const ig_drafter *d, int32_t *tokens, int n) {
    for (int i = 0; i < n; i++) tokens[d->n + i] = source_of(d, tokens)[d->at + i];
}
