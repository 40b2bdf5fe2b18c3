/* SPDX-License-Identifier: Apache-2.0
 *
 * What `inspect --activations` measures over a text.
 */
#ifndef IG_CLI_ACTIVATIONS_H
#define IG_CLI_ACTIVATIONS_H

#include "cli/app.h"

/* Runs the model over the text of --activations or --tokens; *out is NULL if neither was given. The exit code.
 * "tokens", "ratios", "columns" (how many these are), then of the model "cosine" (null of one layer) and "energy",
 * means over layers, and the same of each of "layers", where "cosine" is null of the first; with --json also the sums
 * of columns there, in "heads". */
int ig_cli_measure_activations(json_t **out, ig_cli_app *app);
void ig_cli_print_activations(const json_t *measured);

#endif
