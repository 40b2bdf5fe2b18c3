/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ways to do the same: see trial.h.
 */
#include "base/trial.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double x[IG_TRIAL_SAMPLES]) {
    qsort(x, IG_TRIAL_SAMPLES, sizeof *x, by_size);
    return (x[(IG_TRIAL_SAMPLES - 1) / 2] + x[IG_TRIAL_SAMPLES / 2]) / 2;
}

/* The trial's step number n, of t->way. */
static void note(ig_trial *t, int n, double seconds) {
    int turn = n / IG_TRIAL_TURN, at = n % IG_TRIAL_TURN;
    if (at > 0) t->seconds[turn % 2][turn / 2 * (IG_TRIAL_TURN - 1) + at - 1] = seconds;
}

void ig_trial_took(ig_trial *t, int kind, double seconds) {
    const int n_steps = IG_TRIAL_TURN * IG_TRIAL_TURNS;
    if (t->n < n_steps && kind != t->kind) t->n = t->way = 0;
    t->kind = kind;
    if (t->n < n_steps) note(t, t->n, seconds);
    t->n++;
    if (t->n < n_steps)
        t->way = t->n / IG_TRIAL_TURN % 2;
    else if (t->n == n_steps)
        t->way = median(t->seconds[1]) < median(t->seconds[0]);
    else if (t->n == n_steps + IG_TRIAL_KEPT)
        t->n = t->way = 0;
}
