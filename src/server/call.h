/* SPDX-License-Identifier: Apache-2.0
 *
 * One request on its connection: its head and body, its fields, and its reply or refusal.
 */
#ifndef IG_SERVER_CALL_H
#define IG_SERVER_CALL_H

#include <stdatomic.h>

#include <jansson.h>

#include "server/routes.h"
#include "server/wire.h"
#include "text/json.h"

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
    bool is_answered;  /* a reply has begun */
    bool is_handed_on; /* which is another process' */
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

/* Whether the client may do this; else it is refused. */
bool ig_server_may_enter(ig_call *c, bool is_public);
/* A reply with this status is on its way. */
void ig_server_count_reply(ig_call *c, unsigned status);
/* Tells of a call that is over, if it is worth a line. Its answers end with it. (record.c) */
void ig_server_record_call(ig_call *c);

/* ---- replies (reply.c) ----------------------------------------------------------------------- */

/* `fields`: further lines of the head, each with its CRLF; may be "". */
void ig_reply(ig_call *c, unsigned status, const char *type, const char *fields, const char *body, size_t n);
/* A value as clients get it, to be freed; NULL: no memory for it, or for a part of what this thread has put together.
 */
char *ig_reply_text(const json_t *value);
/* 200, or 500 if value is NULL: no memory. Takes `value`. */
void ig_reply_json(ig_call *c, json_t *value);
void ig_reply_refusal(ig_call *c);
/* A reply whose length is not known: begun, sent part by part, ended. False: the client has gone. */
bool ig_reply_begin(ig_call *c, const char *type, const char *fields);
bool ig_reply_part(ig_call *c, const char *data, size_t n);
bool ig_reply_end(ig_call *c);
json_t *ig_refusal_json(const ig_refusal *r);
/* v; or, if not all parts of it are there, NULL, and v is dropped. */
json_t *ig_json_if(bool ok, json_t *v);
/* As RFC 3339 writes it. */
json_t *ig_json_time(time_t seconds);
/* A list of numbers. */
json_t *ig_reply_bytes(const char *bytes, size_t n);

/* ---- fields (field.c) ------------------------------------------------------------------------ */

enum {
    IG_SERVER_DEPTH_MAX = 64,     /* of JSON */
    IG_SERVER_NODES_MAX = 1 << 20 /* values in it, and of a reply that lists tokens */
};

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
/* "model" is the one that is served, an adapter of it, or not there. */
bool ig_field_model(ig_call *c, const json_t *object);
/* It is no such name; false. */
bool ig_refuse_model(ig_call *c, const char *name);
/* Refuses fields that are not in the list, which ends with NULL; `where` stands before their names. (absent.c) */
bool ig_field_only(ig_call *c, const json_t *object, const char *where, const char *const *known);
/* The same of those only that are known to ask for what is not there; the others are passed over. */
bool ig_field_others(ig_call *c, const json_t *object, const char *where, const char *const *known);
/* Logs, once for each name, that requests have a field which is passed over. */
void ig_field_note(ig_server *s, const char *name);
void ig_field_note_tool(ig_server *s, const char *type); /* tools of it are left out */
/* Values of a JSON text, about; SIZE_MAX: it goes too deep. */
size_t ig_json_values(const char *text, size_t n);
/* The body, an object or whatever `type` is, to be dropped by the caller; NULL: refused. */
json_t *ig_body_object(ig_call *c);
json_t *ig_body(ig_call *c, json_type type);
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

#endif
