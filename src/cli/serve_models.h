/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of a server of several: those that `infinigen fetch` has, and those of --models-dir.
 */
#ifndef IG_CLI_SERVE_MODELS_H
#define IG_CLI_SERVE_MODELS_H

#include "cli/cli.h"
#include "server/server.h"

typedef struct ig_cli_models {
    ig_server_model *list; /* [n] its texts are malloc'ed */
    size_t n, cap;
    const char **command; /* of a process that serves one */
} ig_cli_models;

/* The exit code; without a model it is a failure. */
int ig_cli_models_find(ig_cli_models *out, const ig_cli_options *o);
void ig_cli_models_free(ig_cli_models *m);

/* A file's name without what says of which kind it is: what clients call the model. */
const char *ig_cli_model_name(char name[256], const char *path);

#endif
