/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a user's messages: with line editing and a history file on a
 * terminal, plainly from a pipe.
 */
#ifndef IG_CLI_LINE_H
#define IG_CLI_LINE_H

#include "cli/app.h"

typedef struct ig_cli_reader ig_cli_reader;

typedef enum ig_cli_read { IG_READ_MESSAGE, IG_READ_END, IG_READ_INTERRUPTED, IG_READ_NO_MEMORY } ig_cli_read;

/* From here to the end keys that are typed while no message is read do not show, and are the beginning of the next
 * message. NULL: out of memory. */
ig_cli_reader *ig_cli_reader_open(void);
void ig_cli_reader_close(ig_cli_reader *r);
/* The next message without the newlines at its end; lives until the next call. Lines that end with a
 * backslash go on, as does all between two lines of """; what was pasted as several lines is taken as it stands.
 * INTERRUPTED: Ctrl-C, or what ig_cli_interrupted() tells; the message is what had been typed, as far as that is known.
 * Catches interrupts anew. */
ig_cli_read ig_cli_reader_next(ig_cli_reader *r, const char **message);
/* Its bytes: more than a string's length where a zero byte is among them. */
size_t ig_cli_reader_length(const ig_cli_reader *r);
bool ig_cli_reader_is_terminal(const ig_cli_reader *r);

/* ---- a line with editing (editor.c) -------------------------------------- */

typedef struct ig_cli_editor ig_cli_editor;

/* NULL: the terminal cannot do it, or the program was built without libedit. */
ig_cli_editor *ig_cli_editor_open(void);
void ig_cli_editor_close(ig_cli_editor *e);
/* A line with its newline, and what was pasted with newlines inside; lives until the next call. Where the user takes it
 * back: INTERRUPTED. */
ig_cli_read ig_cli_editor_line(ig_cli_editor *e, const char *prompt, const char **line, size_t *n);
/* Adds a line to the history, as a part of the entry before it if it `goes_on`. */
void ig_cli_editor_keep(ig_cli_editor *e, const char *line, bool goes_on);
/* Puts what is new in the history into its file. Closing does that, too. */
void ig_cli_editor_save(ig_cli_editor *e);

#endif
