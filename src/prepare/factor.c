/* SPDX-License-Identifier: Apache-2.0
 *
 * The best maps of a given rank. With second moments C_q = L_q L_q^T of the queries and C_k = L_k L_k^T of the keys,
 * the singular values of the core M = L_q^T L_k = X S Y^T are those of all scores q k of the calibration text, and the
 * maps
 *
 *     A_q = L_k Y_r S_r^-1/2,  A_k = L_q X_r S_r^-1/2
 *
 * approximate these scores best among all maps of rank r; A_q A_k^T is the identity at full rank. L = V sqrt(D) comes
 * from the eigenvectors V and eigenvalues D of C. Nothing is divided by D, so that directions which never occur do no
 * harm.
 *
 * Softmax does not see what is the same for all keys, so that the keys' mean is taken out of C_k and, as the offset,
 * out of the mapped keys. How S is shared between the maps decides how well the mapped keys stand quantisation, since
 * all dimensions of a key share one step: in equal parts, as above, did best (docs/sketch.md). A common factor makes
 * the spread of the mapped keys' first dimension 1, so that 16-bit floats hold them.
 *
 * A skew needs less: the right singular vectors of a head's queries Q, which are the eigenvectors of Q^T Q.
 */
#include "prepare/factor.h"

#include <math.h>
#include <string.h>

#include <lapacke.h>

#include "model/config.h"

/* ---- LAPACK ---------------------------------------------------------------- */

/* The calls of LAPACKE that take memory by themselves print a line where there is none: these are given theirs. */
enum { INTEGERS = 8 * IG_KV_DIMS };

/* Numbers that a call wants to work with. */
static lapack_int eigen_work(int d) {
    double n = 0;
    lapack_int n_integers;
    LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'V', 'L', d, NULL, d, NULL, &n, -1, &n_integers, -1);
    return (lapack_int)n;
}

static lapack_int singular_work(int d) {
    double n = 0;
    LAPACKE_dgesdd_work(LAPACK_COL_MAJOR, 'A', d, d, NULL, d, NULL, NULL, d, NULL, d, &n, -1, NULL);
    return (lapack_int)n;
}

size_t ig_factor_scratch(int d) {
    size_t n = (size_t)d, eigen = (size_t)eigen_work(d), singular = (size_t)singular_work(d);
    return 3 * n * n + 2 * n + (eigen > singular ? eigen : singular);
}

static bool is_finite(const double *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* In place: row i becomes eigenvector i, by rising eigenvalue. */
static bool find_eigenvectors(double *c, double *eigenvalues, double *work, int d) {
    lapack_int integers[INTEGERS];
    /* The upper triangle of rows is LAPACK's lower triangle of columns; its eigenvectors then are our rows. */
    return LAPACKE_dsyevd_work(LAPACK_COL_MAJOR, 'V', 'L', d, c, d, eigenvalues, work, eigen_work(d), integers,
                               INTEGERS) == 0;
}

/* x: left singular vectors, by columns; y: right ones, transposed, by columns. Destroys the matrix. */
static bool find_singular_vectors(double *x, double *values, double *y, double *matrix, double *work, int d) {
    lapack_int integers[INTEGERS];
    return LAPACKE_dgesdd_work(LAPACK_COL_MAJOR, 'A', d, d, matrix, d, values, x, d, y, d, work, singular_work(d),
                               integers) == 0;
}

/* In place: row i becomes sqrt(eigenvalue i) times eigenvector i, so that c = rows^T rows: the columns of L. */
static bool take_root(double *c, double *eigenvalues, double *work, int d) {
    if (!find_eigenvectors(c, eigenvalues, work, d)) return false;
    for (int i = 0; i < d; i++) {
        double root = eigenvalues[i] > 0 ? sqrt(eigenvalues[i]) : 0;
        for (int j = 0; j < d; j++) c[(size_t)i * (size_t)d + (size_t)j] *= root;
    }
    return true;
}

/* m[i][j] = row i of a times row j of b, stored by columns: m[j * d + i]. */
static void multiply_rows(double *m, const double *a, const double *b, int d) {
    size_t n = (size_t)d;
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++) sum += a[i * n + k] * b[j * n + k];
            m[j * n + i] = sum;
        }
}

/* out = scale * sum over i of weights[i * stride] * row i of rows. */
static void combine_rows(float *out, double *sum, const double *rows, const double *weights, size_t stride,
                         double scale, int d) {
    size_t n = (size_t)d;
    memset(sum, 0, n * sizeof *sum);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) sum[j] += weights[i * stride] * rows[i * n + j];
    for (size_t j = 0; j < n; j++) out[j] = (float)(scale * sum[j]);
}

bool ig_factor(float *maps, ig_moments *m, int d, int rank, double *scratch) {
    size_t n = (size_t)d, r = (size_t)rank;
    double *core = scratch, *x = core + n * n, *y = x + n * n, *values = y + n * n, *row = values + n, *work = row + n;
    float *q_map = maps, *k_map = maps + r * n, *offset = k_map + r * n;

    memset(maps, 0, (2 * n + 1) * r * sizeof *maps);
    for (size_t i = 0; i < n; i++) m->k1[i] /= m->n_keys;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) m->k2[i * n + j] -= m->n_keys * m->k1[i] * m->k1[j];
    if (!is_finite(m->q2, n * n) || !is_finite(m->k2, n * n)) return false;
    if (!take_root(m->q2, values, work, d) || !take_root(m->k2, values, work, d)) return false;
    multiply_rows(core, m->q2, m->k2, d);
    if (!is_finite(core, n * n) || !find_singular_vectors(x, values, y, core, work, d)) return false;

    double spread = sqrt(m->n_keys / values[0]);
    for (size_t i = 0; i < r; i++) {
        if (!(values[i] > 1e-12 * values[0])) break; /* the rest never occurs: maps to 0 */
        double root = sqrt(values[i]);
        combine_rows(q_map + i * n, row, m->k2, y + i, n, 1 / (root * spread), d);
        combine_rows(k_map + i * n, row, m->q2, x + i * n, 1, spread / root, d);
        double mean = 0;
        for (size_t j = 0; j < n; j++) mean += (double)k_map[i * n + j] * m->k1[j];
        offset[i] = (float)mean;
    }
    return is_finite(m->k1, n);
}

bool ig_factor_skew(float *columns, double *q2, int d, double *scratch) {
    size_t n = (size_t)d;
    if (!is_finite(q2, n * n) || !find_eigenvectors(q2, scratch, scratch + n, d)) return false;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) columns[i * n + j] = (float)q2[(n - 1 - i) * n + j];
    return true;
}
