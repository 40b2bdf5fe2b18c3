/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of the measurements' own.
 */
#ifndef IG_EVAL_FAIL_H
#define IG_EVAL_FAIL_H

#include "infinigen.h"

/* What others have written: control characters become '?', so that it cannot drive a terminal. */
void ig_eval_make_harmless(char *text);
/* Fills *err with a harmless text, unless it is NULL, and returns `status`. */
ig_status ig_eval_fail(ig_error *err, ig_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
