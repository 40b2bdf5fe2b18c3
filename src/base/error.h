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

/* ig_fail(err, status, format, ...) fills err (may be NULL), makes control characters of the text harmless, returns
 * status. A macro, so that the compiler sees which status comes back and what is unset after a failure. */
#define ig_fail(err, status, ...) ig_fail_with((status), ig_fail_fill((err), (status), __VA_ARGS__))
ig_status ig_fail_fill(ig_error *err, ig_status status, const char *format, ...) IG_PRINTF(3, 4);
static inline ig_status ig_fail_with(ig_status status, ig_status filled) { return (void)filled, status; }

/* Texts of untrusted files, fit to be shown: control characters become '?', those of two bytes (U+0080 to U+009F) two.
 */
void ig_make_harmless(char *text);

/* "35840000 bytes (34.2M)": in words for errors, with the unit of powers of 1024 that users give sizes in, rounded up
 * so that it is enough when given back. */
const char *ig_bytes_text(char out[64], uint64_t n_bytes);

/* "out of memory: `what` needs n bytes" */
ig_status ig_fail_memory(ig_error *err, const char *what, size_t n_bytes);

#endif
