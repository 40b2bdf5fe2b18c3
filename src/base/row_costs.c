/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps over rows cost: see row_costs.h.
 */
#include "base/row_costs.h"

static const double row_guess = 0.05; /* of a step, for each row more than are known, at least */
static const double most_growth = 2;  /* of what is known, by one step: it may have stood still for something else */
static const double weight_of_more = 0.25, weight_of_less = 0.75; /* what took less time than is known is what can be */

static bool is_known(const ig_row_costs *c, int n_rows) {
    return c->of[n_rows].seconds > 0 && c->n_steps - c->of[n_rows].seen < IG_ROW_COSTS_KEPT;
}

void ig_row_costs_took(ig_row_costs *c, int n_rows, double seconds) {
    if (n_rows < 1 || n_rows > IG_ROW_COSTS_MOST || !(seconds > 0)) return;
    double known = is_known(c, n_rows) ? c->of[n_rows].seconds : seconds;
    if (seconds > most_growth * known) seconds = most_growth * known;
    c->n_steps++;
    c->of[n_rows].seconds = known + (seconds < known ? weight_of_less : weight_of_more) * (seconds - known);
    c->of[n_rows].seen = c->n_steps;
}

void ig_row_costs_went_back(ig_row_costs *c, double seconds) {
    c->going_back += weight_of_more * (seconds - c->going_back);
}

/* Of n rows, which are known, each but the first took so much. */
static double each_row(const ig_row_costs *c, int n) {
    double least = row_guess * c->of[n].seconds;
    double each = n > 1 && is_known(c, 1) ? (c->of[n].seconds - c->of[1].seconds) / (n - 1) : 0;
    return each > least ? each : least;
}

double ig_row_costs_guess(const ig_row_costs *c, int n_rows) {
    int n = n_rows < IG_ROW_COSTS_MOST ? n_rows : IG_ROW_COSTS_MOST;
    if (c->are_nothing) return 1;
    while (n > 0 && !is_known(c, n)) n--;
    if (n == 0) return 1 + row_guess * n_rows;
    return c->of[n].seconds + (n_rows - n) * each_row(c, n);
}
