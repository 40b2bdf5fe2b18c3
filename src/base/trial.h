/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of two ways to do the same is the faster one, found out while it is done: both take turns for a few steps, and
 * the one with the smaller median stays for some hundred, until the next trial. Zeroed, it begins with way 0.
 */
#ifndef IG_BASE_TRIAL_H
#define IG_BASE_TRIAL_H

enum {
    IG_TRIAL_TURN = 4,   /* steps, the first of which is not counted: it may still pay for the other way */
    IG_TRIAL_TURNS = 4,  /* of a trial, two of each way */
    IG_TRIAL_KEPT = 496, /* steps from one trial to the next */
    IG_TRIAL_SAMPLES = IG_TRIAL_TURNS / 2 * (IG_TRIAL_TURN - 1),
};

typedef struct ig_trial {
    int way;  /* 0 or 1: of the next step */
    int kind; /* of the steps that are compared */
    int n;    /* steps since the trial began */
    double seconds[2][IG_TRIAL_SAMPLES];
} ig_trial;

/* A step of t->way took so long. Only steps of the same kind can be compared: a trial with another one begins anew. */
void ig_trial_took(ig_trial *t, int kind, double seconds);

#endif
