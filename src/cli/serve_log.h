/* SPDX-License-Identifier: Apache-2.0
 *
 * What `infinigen serve` writes on standard error: lines of text, or with --log-format json an object a line. Each line
 * is written in one call, from whichever thread.
 */
#ifndef IG_CLI_SERVE_LOG_H
#define IG_CLI_SERVE_LOG_H

#include "cli/cli.h"
#include "server/server.h"

/* `level` is "error", "warn", "info" or "debug". */
void ig_cli_serve_log(const ig_cli_options *o, const char *level, const char *text);
/* For ig_server_options: user is a const ig_cli_options. */
void ig_cli_serve_say(void *user, const char *line);
void ig_cli_serve_record(void *user, const ig_server_record *r);

#endif
