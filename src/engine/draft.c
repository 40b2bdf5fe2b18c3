/* SPDX-License-Identifier: Apache-2.0
 *
 * Guesses of the tokens that come next: see draft.h.
 */
#include "engine/draft.h"

#include "base/compiler.h"

enum { LONGEST = 1 << (IG_DRAFT_RUNS - 1) };

/* What is expected of a run before anything was seen: as if of `first_guesses` guesses so many had come true. */
static const float first_chance[IG_DRAFT_RUNS] = {0.1F, 0.3F, 0.5F, 0.7F, 0.8F, 0.9F};
static const float first_guesses = 4, decay = 0.95F;

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

/* Tokens before a and before b that are the same, up to LONGEST; b is the greater. */
static int run_before(const int32_t *tokens, int a, int b) {
    int n = 0;
    while (n < LONGEST && n < a && tokens[a - 1 - n] == tokens[b - 1 - n]) n++;
    return n;
}

/* The longest run that ends before the text's end and is its end too, and of these the last one. */
static void look_up(ig_drafter *d, const int32_t *tokens) {
    d->at = d->length = 0;
    for (int at = d->n - 1; at > 0 && d->length < LONGEST; at--) {
        int length = run_before(tokens, at, d->n);
        if (length > d->length) d->at = at, d->length = length;
    }
}

void ig_drafter_see(ig_drafter *d, const int32_t *tokens, int n) {
    bool follows = n == d->n + 1 && d->at, came_true = follows && tokens[d->at] == tokens[n - 1];
    if (follows) count(d, came_true);
    d->n = n;
    if (!came_true) {
        look_up(d, tokens);
        return;
    }
    d->at++; /* a longer run than this one elsewhere would have been longer before, too */
    d->length = ig_min_int(d->length + 1, LONGEST);
}

int ig_drafter_plan(const ig_drafter *d, const ig_row_costs *costs, int n_rows, int most, double *expected) {
    if (!d->at) return 0;
    double all_true = 1, sum = *expected, best = sum / ig_row_costs_guess(costs, n_rows);
    int n_best = 0;
    for (int n = 1; n <= most && n_rows + n <= IG_ROW_COSTS_MOST; n++) {
        all_true *= chance(d, d->length + n - 1);
        sum += all_true;
        double rate = sum / ig_row_costs_guess(costs, n_rows + n);
        if (rate > best) best = rate, n_best = n, *expected = sum;
    }
    return n_best;
}

void ig_drafter_write(const ig_drafter *d, int32_t *tokens, int n) {
    for (int i = 0; i < n; i++) tokens[d->n + i] = tokens[d->at + i];
}
