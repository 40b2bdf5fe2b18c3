/* SPDX-License-Identifier: Apache-2.0
 *
 * What the model's chat template makes of messages, with the variables that options give it.
 */
#ifndef IG_CLI_CHAT_PROMPT_H
#define IG_CLI_CHAT_PROMPT_H

#include "cli/app.h"

/* The template that an option has in place of the model's, to be freed; NULL: none. The exit code. */
int ig_cli_read_template(char **out, const ig_cli_options *o);

/* The variables that options give a chat template: an object; NULL: none. The exit code, 2 if they are none. */
int ig_cli_template_variables(json_t **out, const ig_cli_options *o);

/* Whether there is a template to give them to; the exit code. */
int ig_cli_check_variables(const ig_cli_app *app);

/* The prompt of n messages; up to where an answer begins if that is wanted, and with the head of one that a grammar
 * gives a form. The exit code. */
int ig_cli_chat_prompt(ig_cli_text *out, const ig_cli_app *app, const ig_chat_message *messages, size_t n,
                       bool begins_answer);

#endif
