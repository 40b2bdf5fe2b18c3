/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer as it is shown. That of a model that writes messages into channels is shown as other models write theirs:
 * thoughts between <think> and </think>, then what it says.
 */
#ifndef IG_CLI_SHOWN_H
#define IG_CLI_SHOWN_H

#include "cli/app.h"
#include "text/channels.h"

typedef struct ig_cli_shown {
    void (*put)(void *user, const char *text, size_t n, bool is_said); /* not thoughts and the marks around them */
    void *user;
    FILE *to; /* all of the answer's text; NULL: it has no channels, and is shown as it is */
    char *text;
    size_t n;
    ig_channel_reader reader;
    bool is_thinking;
} ig_cli_shown;

/* With `put` and `user` set, and all else zero. `is_chat`: the prompt is the template's. *special is set where special
 * tokens must have a text. The exit code. */
int ig_cli_shown_open(ig_cli_shown *s, const ig_cli_app *app, bool is_chat, bool *special);
void ig_cli_show(ig_cli_shown *s, const char *text, size_t n);
/* Shows what was held back. To be called in any case. */
void ig_cli_shown_close(ig_cli_shown *s);

/* What a chat's prompt ends with, behind the template's: "", or the head of a message that is to have a grammar's form.
 */
const char *ig_cli_answer_head(const ig_cli_app *app);

#endif
