/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of the Hugging Face hub: "OWNER/REPOSITORY", or with what of it is meant behind a colon, a kind of weights or
 * a file: "ggml-org/gemma-3-1b-it-GGUF:Q8_0". They lie in the cache's folder hub/OWNER/REPOSITORY.
 */
#ifndef IG_CLI_HUB_H
#define IG_CLI_HUB_H

#include "cli/sources.h"

/* Whether a text has the form of such a name. */
bool ig_cli_hub_is_name(const char *text);
/* The path of a GGUF file, of the first of several, or of a folder of safetensors. What was fetched before is used as
 * it is; with `anew` the hub is asked what there is now. The exit code. */
int ig_cli_hub_get(char *path, size_t cap, const char *name, bool anew, const ig_cli_options *o);
/* Where in "NAME-00001-of-00003.gguf", a file of a model in several, the number begins; 0: it is a whole model. */
size_t ig_cli_number_of_part(const char *path);
/* Adds those that lie in the cache, each by a name that says all. False: no memory. */
bool ig_cli_hub_add_cached(ig_cli_sources *out);

#endif
