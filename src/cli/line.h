/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a user's messages: with line editing and a history file on a
 * terminal, plainly from a pipe.
 */
#ifndef IG_CLI_LINE_H
#define IG_CLI_LINE_H

#include "cli/app.h"

typedef struct ig_cli_reader ig_cli_reader;

typedef enum ig_cli_read { IG_READ_MESSAGE, IG_READ_END, IG_READ_INTERRUPTED } ig_cli_read;

ig_cli_reader *ig_cli_reader_open(void); /* NULL: out of memory */
void ig_cli_reader_close(ig_cli_reader *r);
/* The next message without its last newline; lives until the next call. Lines that end with a
 * backslash go on, as does all between two lines of """. INTERRUPTED: Ctrl-C at the prompt. */
ig_cli_read ig_cli_reader_next(ig_cli_reader *r, const char **message);
bool ig_cli_reader_is_terminal(const ig_cli_reader *r);

#endif
