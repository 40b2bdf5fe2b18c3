/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of options: a text to what its row of the option table says it is.
 */
#ifndef IG_CLI_VALUES_H
#define IG_CLI_VALUES_H

#include "cli/cli.h"

enum { IG_CLI_WHY_BYTES = 512 }; /* of a text that says what is wrong with a value: the longest names all choices */

/* What an error is about: of a list its element. */
typedef struct ig_cli_culprit {
    const char *text;
    size_t n;
} ig_cli_culprit;

/* Puts the value of a row's option where it belongs; a text is kept, not copied. False: `why` says what *wrong, the
 * value or an item of its list, is not. */
bool ig_cli_set_value(ig_cli_options *o, const ig_cli_option *row, const char *text, ig_cli_culprit *wrong,
                      char why[IG_CLI_WHY_BYTES]);

/* Which of the choices, up to NULL, the text is; -1: none, and `why` names them. */
int ig_cli_find_choice(const char *text, const char *const *choices, char why[IG_CLI_WHY_BYTES]);

#endif
