/* SPDX-License-Identifier: Apache-2.0
 *
 * From second moments of queries and keys to the maps of a sketch, and from those of queries to a skew: linear algebra
 * of small matrices, in double.
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

/* Writes the columns of a query head's skew, laid out as in a sketch file: the right singular vectors of its queries,
 * by falling singular value. q2 [d][d]: the sum of q q^T over them, upper triangle; destroyed. Scratch and
 * result as above. */
bool ig_factor_skew(float *columns, double *q2, int d, double *scratch);

#endif
