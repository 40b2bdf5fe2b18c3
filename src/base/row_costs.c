/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps over rows cost: see row_costs.h.
 */
#include "base/row_costs.h"

static const double row_guess = 0.05; /* of a step, for each row more than one that is known */
static const double most_growth = 2;  /* of what is known, by one step: it may have stood still for something else */
static const double weight_of_new = 0.25;

static bool is_known(const ig_row_costs *c, int n_rows) {
    return c->of[n_rows].seconds > 0 && c->n_steps - c->of[n_rows].seen < IG_ROW_COSTS_KEPT;
}

void ig_row_costs_took(ig_row_costs *c, int n_rows, double seconds) {
    if (n_rows < 1 || n_rows > IG_ROW_COSTS_MOST || !(seconds > 0)) return;
    double known = is_known(c, n_rows) ? c->of[n_rows].seconds : seconds;
    if (seconds > most_growth * known) seconds = most_growth * known;
    c->n_steps++;
    c->of[n_rows].seconds = known + weight_of_new * (seconds - known);
    c->of[n_rows].seen = c->n_steps;
}

double ig_row_costs_guess(const ig_row_costs *c, int n_rows) {
    int n = n_rows;
    if (c->are_nothing) return 1;
    while (n > 0 && !is_known(c, n)) n--;
    return (n > 0 ? c->of[n].seconds : 1) * (1 + row_guess * (n_rows - n));
}
