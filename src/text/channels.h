/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of models that write messages into channels, as gpt-oss does (its format is called Harmony):
 *
 *   <|channel|>analysis<|message|>THOUGHTS<|end|><|start|>assistant<|channel|>final<|message|>TEXT
 *   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS
 *
 * A message is a head, up to <|message|>, and a body. The head has the channel and, of a call, the function, which may
 * also come first. What is in the channel analysis is thoughts, what is in another one is text. Or heads have a
 * recipient alone, as Muse Glimmer's do: the model itself, the user, or a function:
 *
 *    to=self<|message|>THOUGHTS<|eom|><|start|>assistant to=user<|message|>TEXT
 */
#ifndef IG_TEXT_CHANNELS_H
#define IG_TEXT_CHANNELS_H

#include <stdbool.h>
#include <stddef.h>

/* How a model's messages are written. */
typedef struct ig_channel_form {
    const char *thinks, *answers; /* heads of thoughts, and of the text for the user */
    const char *start, *end;      /* what stands before a head, and behind a body that another message follows */
    const char *next;             /* both, between two messages */
    const char *ends[4];          /* a body ends at any of these; NULL: none */
    bool has_recipients;          /* and no channels; arguments of calls are no JSON, in which marks might be words */
} ig_channel_form;

extern const ig_channel_form ig_channels_harmony, ig_channels_recipients;

/* What the body of a message is. */
typedef enum ig_channel_kind { IG_CHANNEL_NONE, IG_CHANNEL_THOUGHTS, IG_CHANNEL_TEXT, IG_CHANNEL_CALL } ig_channel_kind;

/* How far an answer has been read. */
typedef struct ig_channel_reader {
    const ig_channel_form *form;
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

/* How a model with this chat template (NULL: none) writes; NULL: otherwise. */
const ig_channel_form *ig_channels_in(const char *chat_template);
/* What an answer goes on with, after a prompt. */
ig_channel_kind ig_channel_after(const ig_channel_form *form, const char *prompt, size_t n);
/* The next part of an answer of which n bytes are there; is_whole: and no more will come. What has no head is text. */
ig_channel_part ig_channel_next(ig_channel_reader *r, const char *text, size_t n, bool is_whole);

#endif
