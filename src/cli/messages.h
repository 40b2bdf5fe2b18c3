/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of a conversation, and the JSON in which `chat` saves them:
 *
 *     {"version": 1, "messages": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."}]}
 *
 * A system message may come first; then users and assistants take turns, and each user has been answered. What is no
 * UTF-8 has its bytes as hexadecimal digits, in "hex" instead of "content".
 */
#ifndef IG_CLI_MESSAGES_H
#define IG_CLI_MESSAGES_H

#include "cli/cli.h"

/* Zero it to start. */
typedef struct ig_cli_messages {
    ig_chat_message *v; /* [n] contents are owned */
    size_t n, cap;
} ig_cli_messages;

/* Takes a copy of `content`; `role` is borrowed. False: out of memory. */
bool ig_cli_messages_add(ig_cli_messages *m, const char *role, const char *content);
/* Drops all but the first `keep`. */
void ig_cli_messages_cut(ig_cli_messages *m, size_t keep);
void ig_cli_messages_close(ig_cli_messages *m);
/* 1 if the first one is a system message, else 0. */
size_t ig_cli_messages_system(const ig_cli_messages *m);

/* The JSON, malloc'ed; NULL: out of memory. */
char *ig_cli_messages_write(const ig_cli_messages *m);
/* Adds those of n bytes of JSON, which may come from anywhere, to none. NULL, or what is wrong with it: then `m` is
 * empty. */
const char *ig_cli_messages_read(ig_cli_messages *m, const char *text, size_t n);

#endif
