/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP server: OpenAI's, Anthropic's, Ollama's and llama-server's APIs, over one model or several. It sees
 * infinigen_requests.h and nothing below it.
 */
#ifndef IG_SERVER_SERVER_H
#define IG_SERVER_SERVER_H

#include <jansson.h>

#include "infinigen_requests.h"

/* In the environment of a process that a server of several models has started (children.c). */
#define IG_SERVER_HANDED_ON "INFINIGEN_HANDED_ON"

/* One of several models, which a process of its own serves. */
typedef struct ig_server_model {
    const char *name, *path;
    uint64_t bytes; /* 0: not known */
} ig_server_model;

/* Of what clients may take. */
typedef struct ig_server_limits {
    uint64_t body_bytes;
    int connections, connections_each; /* in all; of one address */
    double header_seconds;             /* for the head of a request */
    double body_seconds;               /* for its body, and a second more for each KiB that has come */
    double idle_seconds;               /* between two requests, and for a client that does not read */
    double request_seconds;            /* for an answer; 0: however long it takes */
} ig_server_limits;

/* A request that was answered, or was not: one for answers of the model, or one that was refused. Method, path
 * and body are the client's own texts; all last as long as the call. */
typedef struct ig_server_record {
    const char *id;     /* of the reply; NULL: none */
    const char *client; /* its address; "unix": at a socket in the file system */
    const char *method, *path;
    unsigned status;               /* 0: it went away before there was one */
    bool is_whole;                 /* the client has all of the reply */
    const char *refusal;           /* kind of the error, such as "invalid_request_error"; NULL: none */
    const char *failure;           /* what went wrong, if it is not the client's fault; NULL: nothing */
    bool is_exchange;              /* for answers; then: */
    int n_prompt, n_cached, n_new; /* tokens of all choices */
    double first_token_seconds;    /* of the choice that was first; < 0: none had one */
    double seconds;                /* from its headers to the last byte of its reply */
    const char *body;              /* [n_body]: what was asked */
    size_t n_body;
} ig_server_record;

typedef struct ig_server_options {
    /* where, and for whom */
    const char *host;      /* to listen at; loopback, unless there is a key */
    int port;              /* 0: any that is free */
    const char *unix_path; /* a socket there instead; NULL: none */
    int listener;          /* a socket that listens already, taken over, instead of all three; -1: none */
    const char *key;       /* that clients must give; NULL: none */
    const char *key_file;  /* with one a line, read again at SIGHUP; NULL: none */
    const char *origins;   /* of pages that may ask, beside its own, with commas between them; "*": any, for which a key
                              is needed; NULL: none */
    /* what */
    ig_sampler_options sampler;        /* of requests, but for what they say themselves */
    ig_sampler_options native_sampler; /* the same of requests in llama-server's and Ollama's own form */
    const char *alias;                 /* the model's name for clients */
    const double *adapter_scales;      /* [n_adapters] how much of each a request takes that names it; NULL: 1 */
    bool any_model;                    /* they may call it by any other */
    int n_predict;           /* most tokens of an answer whose request does not say; 0 or less: as its API has it */
    ig_pooling pooling;      /* of embeddings */
    bool shows_thoughts;     /* a reasoning model's are in its answers; else they are told apart */
    const json_t *variables; /* of chat templates, where a request does not say otherwise; NULL: none */
    ig_model *model;
    /* Instead several; of what follows then limits and the end are for this server, the rest is the processes'. */
    const ig_server_model *models; /* [n_models]; NULL: the one above */
    size_t n_models;
    int most_models;            /* so many are in memory at a time, */
    double sleep_seconds;       /* and one that answers nobody for so long is not; below 0: it stays */
    const char *const *command; /* of a process, without -m, --alias and others, which are added; ends with NULL */
    ig_scheduler_options scheduler;
    const char *const *sketches; /* [policies] of each policy, in the order of ig_cache_policy(); NULL: none */
    ig_server_limits limits;
    double drain_seconds; /* at the end, for what is being answered */
    bool is_handed_on;    /* requests come from a server of several models, which says whose they are */
    bool is_sandboxed;    /* gives up other calls than a server needs before it takes requests */
    /* Says what goes on, a line without its end, from any thread. */
    void (*say)(void *user, const char *line);
    void (*on_request)(void *user, const ig_server_record *r); /* the same; NULL: not wanted */
    void *user;
} ig_server_options;

typedef struct ig_server ig_server;

/* Checks what can be known without a model, and listens. Whoever asks is told that the model is being loaded (503), or
 * waits where the socket was handed over. The options outlive the server; what is about the model may be filled in
 * later. */
ig_status ig_server_open(ig_server **out, const ig_server_options *o, ig_error *err);
/* Harmless on NULL. */
void ig_server_close(ig_server *s);

/* Serves until SIGTERM or SIGINT, or SIGHUP without a key file: then it takes no more, answers what it has taken, and
 * returns. A second one ends at once. No other thread of the program may take these signals, nor SIGHUP. A model file
 * that has changed ends it as well, with IG_E_CHANGED. */
ig_status ig_server_run(ig_server *s, ig_error *err);

#endif
