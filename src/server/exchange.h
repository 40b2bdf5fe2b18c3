/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers that a request asks for: its prompts, what is asked of the scheduler, and what comes back.
 */
#ifndef IG_SERVER_EXCHANGE_H
#define IG_SERVER_EXCHANGE_H

#include <pthread.h>
#include <stdio.h>

#include "server/call.h"
#include "text/channels.h"

enum {
    IG_SERVER_PING_SECONDS = 15, /* a stream is never silent for longer */
    IG_SERVER_UNSENT_MAX = 1 << 20,
    IG_SERVER_CHOICES_MAX = 128 /* n times prompts */
};

/* ---- prompts of conversations (conversation.c) ----------------------------------------------- */

/* What a request says of tools. */
typedef struct ig_tools {
    const json_t *told; /* what the model is told of, each a checked "function" of the body; NULL: nothing */
    json_t *list;       /* those of them that may be called, or must; NULL: none. ig_tools_close() */
    bool must_call;
    bool is_single; /* at most one call in an answer */
} ig_tools;

typedef enum ig_thought_stage {
    IG_THOUGHTS_OVER,
    IG_THOUGHTS_POSSIBLE, /* an answer may begin with some */
    IG_THOUGHTS_BEGUN,
    IG_THOUGHTS_ENDED /* blanks follow, which are no part of the answer */
} ig_thought_stage;

/* Fields of a body that make a prompt of a conversation. */
#define IG_CONVERSATION_FIELDS                                                                                \
    "messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "enable_thinking", \
        "reasoning_effort", "tools", "tool_choice", "parallel_tool_calls"

/* The text of "content": a string, or parts of text (or, of an answer, refusals), which are joined; NULL: refused. */
json_t *ig_content_text(ig_call *c, json_t *content, bool is_answer, const char *where);
/* The prompt of the conversation and the tools in a body, malloc'ed; *stage (NULL: not wanted): whether an answer
 * begins within thoughts, or may begin with some, if the model has any. */
bool ig_conversation_prompt(ig_call *c, const json_t *body, char **text, size_t *n, ig_thought_stage *stage);
/* What the model's template makes of variables, malloc'ed, with a NUL. Errors are those of ig_chat_prompt_json(). */
ig_status ig_prompt_render(char **text, size_t *n, const ig_model *model, const json_t *variables, ig_error *err);

/* ---- what is asked of the scheduler (ask.c) -------------------------------------------------- */

typedef struct ig_token_record {
    ig_token_score token;
    bool is_end;
    int n_top;
    ig_token_score top[IG_REQUEST_TOP_MAX];
} ig_token_record;

/* Where in a JSON object a reader is. */
typedef struct ig_json_place {
    int depth;
    bool in_string, is_escaped;
} ig_json_place;

typedef enum ig_tool_stage {
    IG_TOOL_TEXT,
    IG_TOOL_ARGUMENTS, /* of a call that has been told of */
    IG_TOOL_BEHIND_ARGUMENTS,
    IG_TOOL_AFTER_CALL
} ig_tool_stage;

/* How far an answer has been read for calls of tools. */
typedef struct ig_tool_reader {
    size_t at; /* what lies before has been told of */
    int n_calls;
    ig_tool_stage stage;
    ig_json_place arguments;
    bool is_single; /* calls after the first are dropped */
    bool must_call; /* the answer has no text before the first */
} ig_tool_reader;

typedef struct ig_part_reader {
    ig_thought_stage stage;
    bool has_thoughts; /* some have been told of */
    size_t at;         /* what lies before belongs to thoughts, and has been told of */
    ig_tool_reader calls;
    ig_channel_reader channels; /* instead, of answers that have some: then only n_calls above is used, and stage */
} ig_part_reader;

/* One answer, filled by the scheduler's thread. */
typedef struct ig_choice {
    struct ig_exchange *exchange;
    int prompt; /* number of it */
    ig_request *request;
    char *text;                      /* behind the prompt's own, for echo */
    size_t n_text, cap_text, n_sent; /* bytes; sent by a stream */
    size_t n_read;                   /* that a stream has looked at for parts */
    ig_part_reader reader;
    size_t n_echo; /* the prompt's */
    ig_token_record *tokens;
    size_t n_tokens, cap_tokens, n_tokens_sent, n_prompt_scores;
    size_t n_bytes_listed; /* of the text, by the tokens sent */
    int32_t *ids;          /* of the answer's tokens, the last one too that ends it, if they are to be returned */
    size_t n_ids, cap_ids, n_ids_sent;
    size_t n_characters; /* of the tokens sent, for text_offset */
    bool has_begun;      /* its first chunk was sent */
    bool has_ended, is_told;
    bool has_failed; /* no memory for what came */
    bool is_late;    /* it ends by most_seconds */
    bool is_unread;  /* the client does not take what comes */
    int n_seen;      /* tokens, for usage on the way */
    double first_token, last_token;
    ig_request_progress progress; /* with its prompt */
    bool is_progress_new;         /* it has not been told */
    double answered;              /* when all of the prompt was there */
    float *vector;                /* [d_model] what the prompt's states come to, where these are wanted */
    ig_request_result result;
} ig_choice;

typedef struct ig_prompt {
    int32_t *ids;
    int n_ids;
    char *text; /* for echo; NULL: not wanted */
    size_t n_text;
} ig_prompt;

/* How far a stream of /v1/messages is. */
typedef struct ig_message_blocks {
    int n;
    const char *open; /* type of the last one; NULL: it has ended */
} ig_message_blocks;

/* How far a reply of /v1/responses is; or the call that is open of one of Ollama's: its name, and its arguments as the
 * text. */
typedef struct ig_response_items {
    json_t *done;     /* those that are whole */
    json_t *open;     /* the last one, which goes on; NULL: it has ended */
    json_t *logprobs; /* of its tokens */
    json_t *earlier;  /* of those that came within thoughts: a text's may be among the last of them */
    FILE *to;         /* its text */
    char *text;
    size_t n_text, n_thoughts; /* bytes of it; tokens of all thoughts */
    int n_events;
} ig_response_items;

/* A request for answers, from its fields to its reply. */
typedef struct ig_exchange {
    ig_call *call;
    json_t *body;
    const ig_api *api;
    json_t *given;   /* the body as it came; `body` is what it asks of a chat, if it is translated */
    bool only_reads; /* no answer is wanted: the token that is made nevertheless is not told */
    bool is_stream, has_usage, has_running_usage, is_echo, names_tokens;
    bool has_progress, has_running_timings; /* of a stream */
    bool returns_ids, shows_special;
    int n_top;           /* -1: no logprobs */
    int n;               /* choices of a prompt */
    double most_seconds; /* an answer of more than one line ends so long after its first token (t_max_predict_ms of
                            llama-server); 0: no limit */
    char id[48];
    int64_t created;
    ig_request_options ask; /* of all */
    ig_cache_options cache;
    const char *model_name; /* as the reply has it: the model's, or of the adapter that was asked for */
    float *adapter_scales;
    ig_logit_bias *bias;
    const char **stops, **dry_breakers;
    int32_t *stop_ids, *expected;
    char *grammar; /* NULL: answers are any texts */
    ig_tools tools;
    const ig_thought_marks *thoughts; /* NULL: they are not looked for */
    bool has_channels;                /* answers are messages in channels */
    ig_thought_stage stage;           /* after the prompt */
    uint64_t seed;
    ig_prompt *prompts;
    size_t n_prompts;

    pthread_mutex_t lock; /* of the choices */
    pthread_cond_t changed;
    ig_choice *choices; /* [n_choices], those of a prompt together */
    size_t n_choices, n_ended;
    ig_request **requests; /* [n_choices] */
    bool is_submitted;
    /* A stream. */
    char *out; /* what is to be sent next */
    size_t n_out;
    bool is_finished; /* its last event is in `out` */
    ig_message_blocks blocks;
    ig_response_items items;
} ig_exchange;

/* Ends what is not finished. */
void ig_exchange_cancel(ig_exchange *x);
/* Whose it is, of those that share out the places; a server of several models tells the model's process in this field.
 */
#define IG_OWNER_FIELD "X-Infinigen-Client"
uint64_t ig_call_owner(const ig_call *c);
/* Its address, for the log, which it tells likewise. */
#define IG_ADDRESS_FIELD "X-Infinigen-Address"
const char *ig_call_client(const ig_call *c, char text[INET6_ADDRSTRLEN]);
/* A string, a list of tokens, or a list of several of these in "prompt"; false: refused. */
bool ig_exchange_read_prompts(ig_exchange *x);
/* Cancels it, and frees all that it has. */
void ig_exchange_close(ig_exchange *x);
/* Reads what is common to both kinds; false: refused. */
bool ig_exchange_read(ig_exchange *x);
/* Of this, the form of the answers (form.c). */
bool ig_exchange_read_form(ig_exchange *x);
/* What it takes of adapters, and model_name (adapters.c). */
bool ig_exchange_read_adapters(ig_exchange *x);
/* A text of n bytes as GBNF, with a blank before it. */
void ig_form_literal(FILE *to, const char *text, size_t n);

/* ---- a text between two others (infill.c) ---------------------------------------------------- */

enum { IG_INFILL_EXTRAS_MAX = 1024 };

typedef struct ig_infill {
    const char *before, *after, *before_field, *after_field;
    size_t n_before, n_after;
    const json_t *extras; /* other texts, at most IG_INFILL_EXTRAS_MAX; NULL: none */
} ig_infill;

/* -1 for those that a model does not have. */
void ig_infill_find(ig_infill_marks *out, const ig_model *model);
/* The prompt for it; false: refused. */
bool ig_infill_prompt(ig_exchange *x, const ig_infill *in);

/* ---- its reply (choice_json.c, stream.c) ----------------------------------------------------- */

/* What a token stands for within a text, special ones too; its length. */
size_t ig_token_bytes(const ig_server *s, int32_t id, char bytes[IG_TOKEN_BYTES_MAX]);
/* Bytes of the text that come of a token. */
size_t ig_choice_bytes(const ig_choice *k, int32_t id);
json_t *ig_exchange_head(const ig_exchange *x, const char *object);
json_t *ig_exchange_usage(const ig_exchange *x);
/* How far it is with its prompt, as llama-server has it; and how fast it was, so far or in all. */
json_t *ig_choice_progress(const ig_choice *k);
json_t *ig_choice_timings(const ig_choice *k);
json_t *ig_choice_cost(const ig_choice *k);
const char *ig_choice_finish(const ig_choice *k);
/* n tokens from n_tokens_sent on as logprobs of this kind of reply; null if they are not wanted. */
json_t *ig_choice_logprobs(ig_choice *k, size_t n);
/* Ids of the tokens that have come since the last call; and of its prompt's. */
json_t *ig_choice_new_ids(ig_choice *k);
json_t *ig_choice_prompt_ids(const ig_choice *k);
/* All of it, after the end. */
json_t *ig_exchange_json(ig_exchange *x);
void ig_exchange_stream(ig_exchange *x);
/* Adds to an event of this choice's how far it is, if that is new, and how fast, if that is wanted. */
void ig_stream_add_course(ig_exchange *x, json_t *event, const json_t *choice);
/* Adds an event, whose value it takes; name NULL: it has none. False: no memory. */
bool ig_stream_event(ig_exchange *x, const char *name, json_t *value);
/* For the first one that failed: an error and true. */
bool ig_exchange_failed(const ig_exchange *x, ig_refusal *out);

#endif
