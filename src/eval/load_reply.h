/* SPDX-License-Identifier: Apache-2.0
 *
 * One reply of a server under load, as its bytes come: server-sent events, of which each line is looked at as soon as
 * it is whole, or the JSON of an error. The bytes are not trusted.
 */
#ifndef IG_EVAL_LOAD_REPLY_H
#define IG_EVAL_LOAD_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ig_eval_samples {
    double *v; /* [n] */
    size_t n, cap;
} ig_eval_samples;
/* False: no memory. */
bool ig_eval_samples_add(ig_eval_samples *s, double value);

typedef struct ig_eval_load_reply {
    char *line; /* [n_line] of a stream what came since its last line end, else all that came; free() it */
    size_t n_line, cap_line;
    bool is_stream;    /* set before bytes are given: the status was 200 */
    bool is_done;      /* its last event has come */
    double last;       /* when the last text came, < 0: none yet; seconds */
    double first;      /* when the first did */
    uint64_t n_chunks; /* with text */
    bool has_usage;    /* the server has said the next three */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    char error[256]; /* what the server says went wrong; "": nothing */
} ig_eval_load_reply;

/* Forgets all but its memory. */
void ig_eval_load_reply_reset(ig_eval_load_reply *r);
/* Bytes that came at `now`; adds the times between chunks of text to `between`. False: it cannot be the reply of such a
 * server, or no memory; why is in r->error. */
bool ig_eval_load_reply_take(ig_eval_load_reply *r, const char *data, size_t n, double now, ig_eval_samples *between);
/* After the last byte of what is no stream: the error it tells of. */
void ig_eval_load_reply_end(ig_eval_load_reply *r);

#endif
