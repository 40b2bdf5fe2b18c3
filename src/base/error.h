/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling ig_error. A function that knows the cause says
 *     return ig_fail(err, IG_E_FORMAT, "%s: tensor '%s': ...", path, name);
 * its callers hand the status up untouched.
 */
#ifndef IG_BASE_ERROR_H
#define IG_BASE_ERROR_H

#include "base/compiler.h"
#include "infinigen.h"

/* Fills err (may be NULL), makes control characters of the text harmless, returns status. */
ig_status ig_fail(ig_error *err, ig_status status, const char *format, ...) IG_PRINTF(3, 4);

/* "out of memory: `what` needs n bytes" */
ig_status ig_fail_memory(ig_error *err, const char *what, size_t n_bytes);

#endif
