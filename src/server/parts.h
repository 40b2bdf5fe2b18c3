/* SPDX-License-Identifier: Apache-2.0
 *
 * What the server's files share. A connection has a thread, which reads a request, hands what is to be computed to the
 * scheduler and sends what comes back: a call. The scheduler's thread only fills buffers of calls. One more thread
 * takes connections, and one watches them: who is too slow, and who has gone away (watch.c).
 */
#ifndef IG_SERVER_PARTS_H
#define IG_SERVER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <jansson.h>
#include <netinet/in.h>
#include <sys/uio.h>

#include "server/head.h"
#include "server/server.h"
#include "text/channels.h"
#include "text/text.h"

/* ---- limits ------------------------------------------------------------------------- */

enum {
    IG_SERVER_DEPTH_MAX = 64,      /* of JSON */
    IG_SERVER_NODES_MAX = 1 << 20, /* values in it, and of a reply that lists tokens */
    IG_SERVER_PING_SECONDS = 15,   /* a stream is never silent for longer */
    IG_SERVER_UNSENT_MAX = 1 << 20,
    IG_SERVER_CHOICES_MAX = 128, /* n times prompts */
    IG_SERVER_KEYS_MAX = 256,
    IG_SERVER_KEY_BYTES = 256,
    IG_SERVER_FIELDS_NOTED = 64, /* names of fields that are not known, which are logged once each */
    IG_SERVER_FIELD_BYTES = 64
};

typedef struct ig_call ig_call;
typedef struct ig_api ig_api;                 /* api.h */
typedef struct ig_tool_format ig_tool_format; /* answers.h */
typedef struct ig_thought_marks ig_thought_marks;

/* ---- keys, hosts (guard.c) -------------------------------------------------------------- */

typedef struct ig_server_keys {
    pthread_mutex_t lock;
    size_t n;
    char (*keys)[IG_SERVER_KEY_BYTES]; /* filled up with zeros */
} ig_server_keys;

/* Reads those of the options, for the first time or again; after a failure the old ones stay. */
ig_status ig_server_read_keys(ig_server *s, ig_error *err);
void ig_server_free_keys(ig_server_keys *k);
/* Whether clients need one: this does not change. */
bool ig_server_has_keys(const ig_server *s);
/* What a client may not do: NULL if it may, else the answer's error has been set. */
bool ig_server_may_enter(ig_call *c, bool is_public);

/* ---- connections (watch.c) --------------------------------------------------------------- */

/* What a connection does: all but one wait for the client. */
typedef enum ig_server_stage {
    IG_STAGE_HEADERS,
    IG_STAGE_BODY,
    IG_STAGE_REPLY,
    IG_STAGE_SEND, /* the client does not read */
    IG_STAGE_IDLE,
    IG_STAGE_END /* its last reply has been sent */
} ig_server_stage;

typedef struct ig_connection {
    struct ig_connection *next, **link;
    int fd;
    struct in6_addr address; /* all zero: a socket in the file system */
    ig_server_stage stage;
    double since;    /* seconds, when the stage began */
    size_t received; /* bytes of the body */
    double latest;   /* seconds, when some of them came last, or the stage began */
    bool is_dropped; /* it is told to end */
    /* Its thread waits for bytes, or has not begun to. It takes them only once this is false again: what has come and
     * was not seen is in the socket for as long as this is true. */
    atomic_bool is_waiting;
    ig_call *call; /* that ends if the client goes away; NULL: none */
} ig_connection;

typedef struct ig_watch {
    const ig_server_limits *limits;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* one has ended */
    pthread_t thread;
    bool has_thread;
    atomic_bool is_ending;
    int wake[2]; /* pipe */
    struct pollfd *polled;
    size_t cap_polled; /* all connections and one */
    ig_connection *first;
    size_t n;
} ig_watch;

ig_status ig_watch_open(ig_watch *w, const ig_server_limits *limits, ig_error *err);
void ig_watch_close(ig_watch *w);
/* Where there are too many, of this address or in all, the one that has waited longest for its client makes room, but
 * none that has sent what nobody has read yet. NULL: none could, or there is no memory. */
ig_connection *ig_watch_add(ig_watch *w, int fd, const struct in6_addr *address);
/* Where nothing is left to take one more: the one that has waited longest is told to end, if any waits. */
void ig_watch_make_room(ig_watch *w);
void ig_watch_remove(ig_watch *w, ig_connection *k);
void ig_watch_stage(ig_watch *w, ig_connection *k, ig_server_stage stage);
/* The first byte of a request has come. */
void ig_watch_begin(ig_watch *w, ig_connection *k);
void ig_watch_received(ig_watch *w, ig_connection *k, size_t n);
/* From here on, until it is NULL again, the call ends with its client. */
void ig_watch_call(ig_watch *w, ig_connection *k, ig_call *c);
/* Since the server ends. */
void ig_watch_end_calls(ig_watch *w);
/* Ends all connections, and waits until they have ended. */
void ig_watch_end_all(ig_watch *w);

/* ---- numbers (metrics.c) -------------------------------------------------------------------- */

enum { IG_SERVER_BUCKETS = 16 };

typedef struct ig_histogram {
    uint64_t counts[IG_SERVER_BUCKETS + 1], n;
    double sum;
} ig_histogram;

typedef struct ig_server_numbers {
    pthread_mutex_t lock;
    uint64_t replies[6]; /* by hundreds of the status */
    uint64_t gone;       /* clients that left before their answer */
    ig_histogram first_token, between_tokens, wait, prompt, whole;
} ig_server_numbers;

/* A reply with this status is on its way. */
void ig_server_count_reply(ig_call *c, unsigned status);
void ig_server_note_time(ig_server *s, ig_histogram *h, double seconds);
void ig_server_note_end(ig_server *s, const ig_request_result *r);

/* ---- what was logged once (absent.c) ------------------------------------------------------------- */

typedef struct ig_server_fields {
    pthread_mutex_t lock;
    size_t n;
    char names[IG_SERVER_FIELDS_NOTED][IG_SERVER_FIELD_BYTES];
} ig_server_fields;

/* ---- records of requests (record.c) ------------------------------------------------------------ */

/* Tells of a call that is over, if it is worth a line. Its answers end with it. */
void ig_server_record_call(ig_call *c);

/* ---- the server (server.c) -------------------------------------------------------------------- */

/* Tokens of a model around the parts of a prompt for a text between two others; -1: it has none. */
typedef struct ig_infill_marks {
    int32_t prefix, suffix, middle, file, repository;
} ig_infill_marks;

struct ig_server {
    const ig_server_options *o;
    ig_scheduler *scheduler;
    ig_model_info info;
    int listener;
    pthread_t accepting; /* takes connections */
    bool is_accepting;
    atomic_bool is_ready; /* answers; before, who asks is told to come back */
    bool is_handed_over;  /* the socket, which goes on listening after the server, for the next one started with it */
    bool is_unix;         /* listens at a socket in the file system */
    dev_t socket_device;  /* the socket that it made there; 0: none */
    ino_t socket_inode;
    bool has_no_threads; /* which has been told */
    ig_server_keys keys;
    ig_watch watch;
    ig_server_numbers numbers;
    ig_server_fields fields;
    int64_t created; /* seconds since 1970 */
    char fingerprint[32];
    ig_tool_format *tool_format;
    const ig_thought_marks *thoughts; /* of the model; NULL: it has none */
    ig_infill_marks infill;
    atomic_bool is_draining; /* takes no more */
    pthread_t thread;        /* that ig_server_run() was called on, and takes signals */
    ig_error failure;        /* why it ends by itself; status 0: it does not. Read once all has ended */
    pthread_mutex_t lock;
    int n_calls; /* being answered */
};

double ig_server_seconds(void); /* monotonic */
/* A line for whoever runs the server. */
void ig_server_say(const ig_server *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Listens (listen.c), says where, and no more: nobody new gets in. */
ig_status ig_server_listen(ig_server *s, ig_error *err);
void ig_server_say_where(const ig_server *s);
void ig_server_stop_listening(ig_server *s);

/* If after this error no request can be answered any more, the server ends as after SIGTERM, and with it. */
void ig_server_see_failure(ig_server *s, const ig_error *why);

/* Takes connections from now on, and no more. (connection.c) */
ig_status ig_server_accept(ig_server *s, ig_error *err);
void ig_server_accept_no_more(ig_server *s);

/* ---- bytes (wire.c) ----------------------------------------------------------------------------- */

typedef struct ig_wire {
    ig_server *server;
    ig_connection *connection;
    int fd;
    bool is_broken; /* nothing can be sent any more */
    size_t at, n;   /* what has come and was not read is buffer[at..n) */
    char buffer[IG_HEAD_BYTES_MAX + (8 << 10)];
} ig_wire;

enum { IG_WIRE_GONE = 1 };
/* The next head, malloc'ed with room for one byte more. 0, the status of a refusal, or IG_WIRE_GONE. */
unsigned ig_wire_head(ig_wire *w, char **head, size_t *n);
/* At most so many of the next bytes, at least one; until the next call. False: no more come. */
bool ig_wire_some(ig_wire *w, size_t most, const char **data, size_t *n);
/* The next line, without its line feed; NULL: longer than IG_CHUNK_LINE_MAX. False: no more come. */
bool ig_wire_line(ig_wire *w, const char **line, size_t *n);
/* Changes parts. False: the client has gone, or does not read. */
bool ig_wire_send(ig_wire *w, struct iovec *parts, size_t n);
/* The last of it has been sent: for a while what still comes is dropped, since a reply may be lost where a connection
 * is closed before all of the request was read. */
void ig_wire_end(ig_wire *w);

/* ---- one request (http.c) ------------------------------------------------------------------------ */

typedef struct ig_route {
    const char *path;    /* one that ends with a slash, and is more: what is below it */
    const char *methods; /* "GET, HEAD" or "POST" */
    bool is_public;
    void (*handle)(ig_call *c); /* answers by ig_reply...(), a stream, or a refusal */
    const ig_api *api;          /* whose form its errors have; NULL: OpenAI's */
} ig_route;
extern const ig_route ig_server_routes[]; /* ends with a NULL path */

/* What is wrong with a request. Status 0: nothing. */
typedef struct ig_refusal {
    unsigned status;
    const char *type, *code; /* code may be NULL */
    char field[128];         /* "": none */
    char text[512];
    bool may_retry; /* soon */
} ig_refusal;

/* Why a call ends before it is answered. All but those of clients that have gone are answered, with an error. */
typedef enum ig_call_end {
    IG_CALL_GOES_ON,
    IG_CALL_GONE, /* its client */
    IG_CALL_LATE, /* it takes too long */
    IG_CALL_SHUT  /* the server ends */
} ig_call_end;

struct ig_call {
    ig_server *server;
    ig_wire *wire;
    const ig_head *head;
    const ig_route *route;
    bool is_post, is_head;
    bool closes;        /* the connection, after the reply */
    const char *key;    /* that was given and is right; NULL: none is needed */
    const char *origin; /* of a page elsewhere that may ask; NULL: it is none */
    unsigned status;    /* of its reply; 0: none yet */
    ig_refusal refusal;
    char *body;
    size_t n_body, cap_body, n_seen;
    bool is_answered; /* a reply has begun */
    double began;
    atomic_int ended;             /* an ig_call_end */
    struct ig_exchange *exchange; /* what it asked the scheduler for; NULL: nothing */
};

enum { IG_ORIGIN_BYTES = 256 }; /* of an Origin that may ask, at most */

/* Answers one request after the other, until the connection is to end. (http.c) */
void ig_http_serve(ig_wire *w);

/* Sets the refusal, unless there is one already; false. `field` may be NULL. */
bool ig_refuse(ig_call *c, unsigned status, const char *field, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* For what the library says of a request. */
bool ig_refuse_error(ig_call *c, const char *field, const ig_error *err);

/* ---- replies (reply.c) ------------------------------------------------------------------------------- */

/* `fields`: further lines of the head, each with its CRLF; may be "". */
void ig_reply(ig_call *c, unsigned status, const char *type, const char *fields, const char *body, size_t n);
/* 200, or 500 if value is NULL: no memory. Takes `value`. */
void ig_reply_json(ig_call *c, json_t *value);
void ig_reply_refusal(ig_call *c);
/* A reply whose length is not known: begun, sent part by part, ended. False: the client has gone. */
bool ig_reply_begin(ig_call *c, const char *type, const char *fields);
bool ig_reply_part(ig_call *c, const char *data, size_t n);
bool ig_reply_end(ig_call *c);
json_t *ig_refusal_json(const ig_refusal *r);
/* A list of numbers. */
json_t *ig_reply_bytes(const char *bytes, size_t n);

/* ---- fields of requests (field.c) -------------------------------------------------------------------- */

/* A whole number: 4.0 is one as well, as JSON and its schemas have it. False: it is none. */
bool ig_json_whole(const json_t *v, int64_t *out);
/* The same of one from 0 to before n_vocab. */
bool ig_json_token(const json_t *v, int n_vocab, int32_t *out);
/* All return false, and refuse the call, if the field is there and wrong. null is as if it were not there. */
json_t *ig_field(const json_t *object, const char *name); /* NULL: not there */
bool ig_field_bool(ig_call *c, const json_t *object, const char *name, bool *out);
bool ig_field_int(ig_call *c, const json_t *object, const char *name, int64_t min, int64_t max, int64_t *out);
bool ig_field_number(ig_call *c, const json_t *object, const char *name, double min, double max, double *out);
bool ig_field_text(ig_call *c, const json_t *object, const char *name, const char **out);
/* "model" is the one that is served, or not there. */
bool ig_field_model(ig_call *c, const json_t *object);
/* Refuses fields that are not in the list, which ends with NULL; `where` stands before their names. (absent.c) */
bool ig_field_only(ig_call *c, const json_t *object, const char *where, const char *const *known);
/* The same of those only that are known to ask for what is not there; the others are passed over. */
bool ig_field_others(ig_call *c, const json_t *object, const char *where, const char *const *known);
/* Values of a JSON text, about; SIZE_MAX: it goes too deep. */
size_t ig_json_values(const char *text, size_t n);
/* Once, before any thread reads JSON. */
void ig_json_begin(void);
/* The body as an object, to be dropped by the caller; NULL: refused. */
json_t *ig_body_object(ig_call *c);
/* Refuses a prompt of n tokens (0: not known), which the context does not hold; false. */
bool ig_refuse_long(ig_call *c, const char *field, size_t n);
typedef struct ig_token_list {
    int32_t *v; /* [n] malloc'ed */
    size_t n;
} ig_token_list;

/* Tokens of a text. *are_more: it has more than `most`, and the list is empty. */
bool ig_tokens_up_to(ig_call *c, const char *field, const char *text, size_t n, int flags, size_t most,
                     ig_token_list *out, bool *are_more);
/* The same; more than the context holds are refused. */
bool ig_tokens_of_prompt(ig_call *c, const char *field, const char *text, size_t n, int flags, ig_token_list *out);
/* Tokens of a text's end or beginning, at most `most`: of a long text no more is looked at than these can stand for.
 * Marks in it are text like any other. */
bool ig_tokens_of_part(ig_call *c, const char *field, const char *text, size_t n, size_t most, bool is_end,
                       ig_token_list *out);
/* JSON from a text, as json_loadb() has it; *failed: there was no memory for it. */
json_t *ig_json_of_text(const char *text, size_t n, size_t flags, json_error_t *error, bool *failed);

/* ---- prompts of conversations (conversation.c) ----------------------------------------------------------- */

/* What a request says of tools. */
typedef struct ig_tools {
    const json_t *list;   /* of the body, each a checked "function"; NULL: there are none, or none may be called */
    const json_t *wanted; /* the one that must be called; NULL: it is not said which */
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
#define IG_CONVERSATION_FIELDS                                                                                 \
    "messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs", "reasoning_effort", \
        "tools", "tool_choice", "parallel_tool_calls"

/* The text of "content": a string, or parts of text (or, of an answer, refusals), which are joined; NULL: refused. */
json_t *ig_content_text(ig_call *c, json_t *content, bool is_answer, const char *where);
/* The prompt of the conversation and the tools in a body, malloc'ed; *stage (NULL: not wanted): whether an answer
 * begins within thoughts, or may begin with some, if the model has any. */
bool ig_conversation_prompt(ig_call *c, const json_t *body, char **text, size_t *n, ig_thought_stage *stage);
/* What the model's template makes of variables, malloc'ed, with a NUL. Errors are those of ig_chat_prompt_json(). */
ig_status ig_prompt_render(char **text, size_t *n, const ig_model *model, const json_t *variables, ig_error *err);

/* ---- what is asked of the scheduler (ask.c) --------------------------------------------------------------- */

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
    size_t n_tokens, cap_tokens, n_tokens_sent;
    size_t n_characters; /* of the tokens sent, for text_offset */
    bool has_begun;      /* its first chunk was sent */
    bool has_ended, is_told;
    bool has_failed; /* no memory for what came */
    bool is_late;    /* it ends by most_seconds */
    int n_seen;      /* tokens, for usage on the way */
    double first_token, last_token;
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

/* How far a reply of /v1/responses is. */
typedef struct ig_response_items {
    json_t *done;     /* those that are whole */
    json_t *open;     /* the last one, which goes on; NULL: it has ended */
    json_t *logprobs; /* of its tokens */
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
    int n_top;           /* -1: no logprobs */
    int n;               /* choices of a prompt */
    double most_seconds; /* from the first token on, for an answer that has come to its second line; 0: no limit */
    char id[48];
    int64_t created;
    ig_request_options ask; /* of all */
    ig_cache_options cache;
    ig_logit_bias *bias;
    const char **stops;
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

void ig_exchange_cancel(ig_exchange *x);
/* A string, a list of tokens, or a list of several of these in "prompt"; false: refused. */
bool ig_exchange_read_prompts(ig_exchange *x);
/* Cancels what is not finished. */
void ig_exchange_close(ig_exchange *x);
/* Reads what is common to both kinds; false: refused. */
bool ig_exchange_read(ig_exchange *x);
/* Of this, the form of the answers (form.c). */
bool ig_exchange_read_form(ig_exchange *x);
/* A text of n bytes as GBNF, with a blank before it. */
void ig_form_literal(FILE *to, const char *text, size_t n);

/* ---- text between two others (infill.c) ----------------------------------------------------------- */

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

/* ---- its reply (choice_json.c, stream.c) -------------------------------------------------------------------- */

/* What a token stands for within a text, special ones too; its length. */
size_t ig_token_bytes(const ig_server *s, int32_t id, char bytes[IG_TOKEN_BYTES_MAX]);
json_t *ig_exchange_head(const ig_exchange *x, const char *object);
json_t *ig_exchange_usage(const ig_exchange *x);
json_t *ig_choice_timings(const ig_choice *k);
json_t *ig_choice_cost(const ig_choice *k);
const char *ig_choice_finish(const ig_choice *k);
/* n tokens from n_tokens_sent on as logprobs of this kind of reply; null if they are not wanted. */
json_t *ig_choice_logprobs(ig_choice *k, size_t n);
/* All of it, after the end. */
json_t *ig_exchange_json(ig_exchange *x);
void ig_exchange_stream(ig_exchange *x);
/* Adds an event, whose value it takes; name NULL: it has none. False: no memory. */
bool ig_stream_event(ig_exchange *x, const char *name, json_t *value);
/* For the first one that failed: an error and true. */
bool ig_exchange_failed(const ig_exchange *x, ig_refusal *out);

/* ---- routes ---------------------------------------------------------------------------------------------------- */

void ig_route_answers(ig_call *c); /* by the route's API */
void ig_route_count_tokens(ig_call *c);
void ig_route_input_tokens(ig_call *c);
void ig_route_embeddings(ig_call *c);
void ig_route_models(ig_call *c);
void ig_route_health(ig_call *c);
void ig_route_version(ig_call *c);
void ig_route_metrics(ig_call *c);
void ig_route_tokenize(ig_call *c);
void ig_route_detokenize(ig_call *c);
void ig_route_tokenizer_info(ig_call *c);
void ig_route_apply_template(ig_call *c);
void ig_route_props(ig_call *c);
void ig_route_slots(ig_call *c);
void ig_route_openapi(ig_call *c);
void ig_route_page(ig_call *c);

#endif
