/* SPDX-License-Identifier: Apache-2.0
 *
 * The interfaces that clients ask for answers by. What is common to them is written once, for OpenAI's chats and
 * completions. Those of others are translations: their requests become those of a chat (messages_ask.c), and what
 * answers a chat becomes their replies (messages.c). llama-server's own are completions with another reply (native.c);
 * Ollama's are both (ollama_ask.c, ollama.c).
 */
#ifndef IG_SERVER_API_H
#define IG_SERVER_API_H

#include "server/answers.h"

/* Where a function is NULL, it is as OpenAI's chats and completions have it. */
struct ig_api {
    const char *prefix;        /* of the ids of replies */
    const char *object;        /* what a reply is called */
    const char *chunk;         /* and a part of one in a stream */
    const char *texts;         /* the client's field that prompts are in */
    const char *const *fields; /* of bodies, beside those of all; ends with NULL */
    bool is_chat;
    bool are_lines;      /* a stream is a JSON text in each line, not events */
    bool samples_as_run; /* unless it is said otherwise: as the command line, llama.cpp and Ollama do, not OpenAI */
    bool wants_states;   /* of prompts (embeddings.c), not answers */
    bool is_native; /* as llama-server has its own: one answer, to the end of the context unless it is said otherwise */
    /* A chat's body that asks for the same, the caller's; NULL: refused. */
    json_t *(*translate)(ig_call *c, const json_t *body);
    /* The prompts; NULL: a chat's. False: refused. */
    bool (*read)(ig_exchange *x);
    /* All of it, after the end; NULL: no memory. */
    json_t *(*reply)(ig_exchange *x);
    /* Adds the events for a chunk, whose choice this is, which it takes; and those after the last one. False: no
     * memory. */
    bool (*tell)(ig_exchange *x, json_t *choice);
    bool (*end)(ig_exchange *x);
    /* An error as a reply, and as the last event of a stream. */
    json_t *(*refusal)(const ig_refusal *r);
    bool (*fail)(ig_exchange *x, const ig_refusal *r);
    void (*close)(ig_exchange *x);
};

/* OpenAI's chats and completions (exchange.c). */
extern const char *const ig_chat_fields[];
extern const ig_api ig_api_chat, ig_api_completions;
#define IG_API_OF_CHAT                                                                                            \
    .texts = "messages", .object = "chat.completion", .chunk = "chat.completion.chunk", .fields = ig_chat_fields, \
    .is_chat = true

/* llama-server's completions and texts between two others (native.c). */
extern const ig_api ig_api_native, ig_api_infill;

/* Anthropic's messages (messages_ask.c, messages.c). */
extern const ig_api ig_api_messages;
json_t *ig_messages_body(ig_call *c, const json_t *body);
#define IG_MESSAGES_THREAD "thread" /* its field that goes on with a conversation the server has kept */

/* OpenAI's responses (responses_ask.c, responses.c). */
extern const ig_api ig_api_responses;
json_t *ig_responses_body(ig_call *c, const json_t *body);

/* Ollama's chats and prompts, and prompts without a template or with a suffix (ollama_ask.c, ollama.c). */
extern const ig_api ig_api_ollama_chat, ig_api_ollama_prompt, ig_api_ollama_raw;
json_t *ig_ollama_chat_body(ig_call *c, const json_t *body);
/* One of a list of models, from seconds since 1970 and bytes; takes `details`. */
json_t *ig_ollama_model(const char *name, int64_t created, uint64_t bytes, json_t *details);
/* What /api/show says of a model. */
json_t *ig_ollama_shown(const ig_model_info *m, const char *name, bool has_infill);
/* Whether a request of /api/chat or /api/generate asks for no answer, but for its model to leave memory. */
bool ig_ollama_sends_away(const ig_call *c, const json_t *body);
/* Answers one that asks for none. */
void ig_ollama_say_done(ig_call *c, const char *model, const char *reason);
json_t *ig_ollama_prompt_body(ig_call *c, const json_t *body);
json_t *ig_ollama_raw_body(ig_call *c, const json_t *body);
/* The own name that it is, of the model or an adapter; Ollama's clients may have ":latest" behind it. NULL: none. */
const char *ig_ollama_own_name(const ig_server *s, const char *name);
json_t *ig_ollama_refusal(const ig_refusal *r);

/* Embeddings, OpenAI's and Ollama's, of one text too (embeddings.c). */
extern const ig_api ig_api_embeddings, ig_api_ollama_embed, ig_api_ollama_embeddings;
/* An ig_logits_fn of an ig_choice: adds states to its vector. */
bool ig_choice_pool(void *user, int first, int n_rows, const float *states);

/* Documents by how well they answer a query, as Jina, Cohere and llama-server have it, and as Text Embeddings Inference
 * does (rerank.c). */
extern const ig_api ig_api_rerank;

/* ---- answers ------------------------------------------------------------------------------------- */

/* Answers a call as this API does (exchange.c). */
void ig_answer(ig_call *c, const ig_api *api);
/* What a call of a tool has as its arguments, as an object; where they are none, it has them as its one value
 * (messages.c). NULL: no memory. */
json_t *ig_call_input(const char *arguments, size_t n);
/* An api's `close`, of one that uses `items` (responses.c). */
void ig_exchange_close_items(ig_exchange *x);

/* ---- translations of requests (translation.c) --------------------------------------------------- */

typedef struct ig_translation {
    ig_call *call;
    const json_t *body; /* the client's */
    json_t *out;        /* the chat's, at first a copy: what is not translated stays as it is */
    json_t *messages;   /* of it */
    bool ok;            /* there was memory for all of it so far */
} ig_translation;

/* By `translate`, which returns false where it refuses. */
json_t *ig_translate(ig_call *c, const json_t *body, bool (*translate)(ig_translation *t));
/* Both take `value`. */
void ig_translation_set(ig_translation *t, json_t *object, const char *name, json_t *value);
/* The template is told whether to think. */
void ig_translation_think(ig_translation *t, bool thinks);
void ig_translation_append(ig_translation *t, json_t *list, json_t *value);
/* Takes these fields, up to a NULL, out of the chat's body. */
void ig_translation_drop(ig_translation *t, const char *const *names);
/* Refuses the call if the body has one of these fields, for which there is no place. */
bool ig_translation_refuses(const ig_translation *t, const char *const *names);
/* Whether an object has this "type". */
bool ig_is_type(const json_t *object, const char *type);

/* Adds the body's "tools", which are of this type, whose name may be left out unless `is_said`, and have the schema of
 * their parameters in a field of this name. False: refused. */
bool ig_translation_tools(ig_translation *t, const char *type, bool is_said, const char *schema);

/* What an assistant has said, of which a chat makes one message. */
typedef struct ig_said {
    json_t *texts, *calls;
    FILE *to; /* its thoughts, one behind the other */
    char *thoughts;
    size_t n_thoughts;
} ig_said;

void ig_said_begin(ig_translation *t, ig_said *a);
void ig_said_think(ig_translation *t, ig_said *a, const char *text);
/* Adds it to the messages. */
void ig_said_end(ig_translation *t, ig_said *a);

/* What Ollama's "options" ask for; NULL: nothing. False: refused (ollama_ask.c). */
bool ig_ollama_options(ig_translation *t, json_t *options);

/* Replies with the tokens of a conversation. */
void ig_translation_count(ig_call *c, const ig_api *api, const char *object);

#endif
