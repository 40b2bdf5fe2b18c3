/* SPDX-License-Identifier: Apache-2.0
 *
 * From second moments of queries and keys to the maps of a sketch: linear algebra of small matrices, in double.
 */
#ifndef IG_PREPARE_FACTOR_H
#define IG_PREPARE_FACTOR_H

#include "infinigen.h"

/* Sums over the calibration text for one KV head. Matrices are symmetric, [d][d], upper triangle (column >= row)
 * filled. */
typedef struct ig_moments {
    double *q2; /* sum of q q^T over the queries of all heads of the group */
    double *k2; /* sum of k k^T over the keys */
    double *k1; /* [d] sum of the keys */
    int n_keys;
} ig_moments;

/* Writes the head's maps, laid out as in a sketch file. Destroys the moments. False if the moments are not finite or do
 * not factorise. `scratch`: ig_factor_scratch(d) doubles. */
bool ig_factor(float *maps, ig_moments *m, int d, int rank, double *scratch);
size_t ig_factor_scratch(int d);

#endif
