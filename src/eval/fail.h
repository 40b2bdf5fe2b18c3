/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the measurements' own.
 */
#ifndef IG_EVAL_FAIL_H
#define IG_EVAL_FAIL_H

#include "infinigen.h"

/* Fills *err, unless it is NULL, and returns `status`. */
ig_status ig_eval_fail(ig_error *err, ig_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
