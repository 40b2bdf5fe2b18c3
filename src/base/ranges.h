/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranges of all numbers in the options of the public headers, in one place. Each call that takes options checks
 * them here before anything else looks at them. What depends on a model (token ids, learned positions, the head
 * dimension) is checked where the model is known, names (of a policy, of a type) by those who know them.
 */
#ifndef IG_BASE_RANGES_H
#define IG_BASE_RANGES_H

#include "infinigen_tools.h"

/* IG_E_ARG with a line that names the first field that is out of its range, its value, and the range. */
ig_status ig_check_context_options(const ig_context_options *o, ig_error *err);
ig_status ig_check_session_options(const ig_session_options *o, ig_error *err); /* and of the cache in them */
ig_status ig_check_prepare_options(const ig_prepare_options *o, ig_error *err);
ig_status ig_check_sampler_options(const ig_sampler_options *o, ig_error *err);
ig_status ig_check_generate_options(const ig_generate_options *o, ig_error *err);

#endif
