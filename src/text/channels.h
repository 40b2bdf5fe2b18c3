/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of models that write messages into channels, as gpt-oss does (its format is called Harmony):
 *
 *   <|channel|>analysis<|message|>THOUGHTS<|end|><|start|>assistant<|channel|>final<|message|>TEXT
 *   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS
 *
 * A message is a head, up to <|message|>, and a body. The head has the channel and, of a call, the function, which may
 * also come first. What is in the channel analysis is thoughts, what is in another one is text.
 */
#ifndef IG_TEXT_CHANNELS_H
#define IG_TEXT_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>

#define IG_CHANNEL_THINKS "<|channel|>analysis<|message|>"
#define IG_CHANNEL_ANSWERS "<|channel|>final<|message|>"
#define IG_CHANNEL_END "<|end|>"
#define IG_CHANNEL_START "<|start|>assistant"
#define IG_CHANNEL_NEXT IG_CHANNEL_END IG_CHANNEL_START /* between two messages */

/* What the body of a message is. */
typedef enum ig_channel_kind { IG_CHANNEL_NONE, IG_CHANNEL_THOUGHTS, IG_CHANNEL_TEXT, IG_CHANNEL_CALL } ig_channel_kind;

/* How far an answer has been read. */
typedef struct ig_channel_reader {
    ig_channel_kind kind; /* of the message whose body is being read; IG_CHANNEL_NONE: a head comes */
    bool is_new;          /* nothing of it was told of */
    bool keeps_thoughts;  /* they are told of as text, with what stands around them */
    char quote;           /* of arguments: '"' within a text, '\\' behind that character there; else 0 */
    size_t at;            /* what lies before has been told of */
} ig_channel_reader;

/* These bytes of the answer. */
typedef struct ig_channel_part {
    ig_channel_kind kind; /* IG_CHANNEL_NONE: what comes next is not known yet; or, at the end, there is nothing more */
    bool is_first;        /* of its message; that of a call comes as soon as its name is known */
    size_t at, n;
    size_t name, n_name; /* of a call's first part: these bytes are the function's name */
} ig_channel_part;

/* Whether a model with this chat template (NULL: none) writes so. */
bool ig_channels_are_in(const char *chat_template);
/* What an answer goes on with, after a prompt. */
ig_channel_kind ig_channel_after(const char *prompt, size_t n);
/* The next part of an answer of which n bytes are there; is_whole: and no more will come. What has no head is text. */
ig_channel_part ig_channel_next(ig_channel_reader *r, const char *text, size_t n, bool is_whole);

#endif
