/* SPDX-License-Identifier: Apache-2.0
 *
 * What is typed or piped in, byte by byte, and the modes of the terminal on which that happens: keys that are typed
 * while nobody reads are neither shown nor lost, and whichever way the program ends, the terminal is as it was.
 */
#ifndef IG_CLI_KEYBOARD_H
#define IG_CLI_KEYBOARD_H

#include <stdbool.h>

/* From here on the terminal on standard input does not show keys. They wait until they are read; with `editing` as
 * they were typed, and pastes are marked as such (see IG_PASTE_BEGIN), else as lines of the terminal's own editing.
 * Does nothing where standard input is no terminal. */
void ig_cli_hold_keys(bool editing);
/* The terminal as it was before that. May be called from a signal handler. */
void ig_cli_release_keys(void);

/* How a terminal marks what was pasted. */
#define IG_PASTE_BEGIN "\033[200~"
#define IG_PASTE_END "\033[201~"

enum {
    IG_KEY_END = -1,         /* of the input */
    IG_KEY_INTERRUPTED = -2, /* by what ig_cli_interrupted() tells; keys that were not read are dropped */
    IG_KEY_RESUMED = -3,     /* the program was stopped and goes on: what it had on the screen may be gone */
    IG_KEY_NONE = -4,        /* nothing came in time */
};

/* The next byte of standard input, or one of the above. Waits for at most so long; -1: for ever. */
int ig_cli_key(int wait_ms);
/* Why the input has ended: an errno; 0: it was its end. */
int ig_cli_key_error(void);

#endif
