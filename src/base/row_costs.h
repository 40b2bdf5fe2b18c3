/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a step over so many rows takes, found out while steps are made, and how long it takes to take some of them
 * back. Nothing is known of a number of rows that was not seen lately: then each row more is guessed to cost what those
 * of fewer rows did on the average, and is tried once that could be worth it.
 */
#ifndef IG_BASE_ROW_COSTS_H
#define IG_BASE_ROW_COSTS_H

#include <stdbool.h>
#include <stdint.h>

enum { IG_ROW_COSTS_MOST = 64, IG_ROW_COSTS_KEPT = 64 /* steps */ };

typedef struct ig_row_costs {
    bool are_nothing;  /* rows cost nothing, whatever was seen; for tests */
    double going_back; /* seconds */
    uint64_t n_steps;
    struct {
        double seconds; /* 0: never seen */
        uint64_t seen;  /* after so many steps */
    } of[IG_ROW_COSTS_MOST + 1];
} ig_row_costs;

/* A step over so many rows took so long. */
void ig_row_costs_took(ig_row_costs *c, int n_rows, double seconds);
/* So long it took to take rows back. */
void ig_row_costs_went_back(ig_row_costs *c, double seconds);
/* Seconds, of any scale while nothing is known, of a step over n_rows. */
double ig_row_costs_guess(const ig_row_costs *c, int n_rows);

#endif
