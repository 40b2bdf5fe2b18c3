/* SPDX-License-Identifier: Apache-2.0
 *
 * infinigen, for programs that answer many requests at a time, such as servers. A program that writes one text, or
 * steps its sessions itself, needs infinigen.h alone, whose rules hold here too.
 */
#ifndef INFINIGEN_REQUESTS_H
#define INFINIGEN_REQUESTS_H

#include "infinigen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A scheduler answers requests, several at a time, on a thread of its own and over one ig_cache: they join and leave at
 * every step. Those that wait are begun in order of arrival, but first those of owners that have fewer running. Prompts
 * are computed in pieces, those of an owner in order and owners in turns, so that running answers never wait for more
 * than one piece, and nobody for all prompts of somebody else. What a request gets is, bitwise, what ig_session_sync()
 * and ig_generate() give it alone in a new session. */
typedef struct ig_scheduler ig_scheduler;
typedef struct ig_request ig_request;

typedef struct ig_scheduler_options {
    ig_session_options session; /* of the ig_cache that the scheduler opens, and of requests that ask for nothing else.
                                   cache.memory.n_sessions are answered at the same time, 0 (default): 4; `shared` and
                                   `progress` must be NULL. Names, paths, scales last as long as the scheduler */
    int n_queue;                /* most requests that wait, 1..65536, of one owner other than 0 seven eighths of them.
                                   Default 512 */
    double piece_seconds;       /* how long a piece of a prompt may keep running answers waiting, about, if that is more
                                   than a token of each of them takes: 0.001..60. Default 0.025 */
} ig_scheduler_options;

/* A token and the natural logarithm of its probability, before bias, penalties and temperature; in an answer what the
 * model's files suppress has none. */
typedef struct ig_token_score {
    int32_t id;
    double logprob; /* NAN: there is none */
} ig_token_score;

/* A token of the answer, or of the prompt, before its text comes. */
typedef struct ig_request_token {
    ig_token_score token;      /* without a logprob: not asked for, or the first of a prompt */
    bool is_prompt, is_end;    /* is_end: the answer ends with it, and it has no text */
    const ig_token_score *top; /* [n_top] the likeliest, in order; until the callback returns */
    int n_top;
} ig_request_token;

typedef struct ig_request_result {
    ig_error error; /* its status is IG_OK unless the request failed */
    ig_finish finish;
    int stop;                         /* with IG_FINISH_STOP: number of the stop string */
    int n_prompt, n_cached, n_tokens; /* tokens of the prompt; of these taken from others or the store; made */
    double wait_seconds, prompt_seconds, seconds; /* until it was begun; from there to its first token; all in all */
    ig_session_stats stats;                       /* of its session as it ended; empty if it was not begun */
} ig_request_result;

enum { IG_REQUEST_TOP_MAX = 20 };

/* How far a request is with its prompt. */
typedef struct ig_request_progress {
    int n_prompt, n_cached, n_held; /* tokens; taken from what was computed before; that are done, these too */
    double seconds;                 /* since the request was begun */
} ig_request_progress;

/* Callbacks come from the scheduler's thread, one at a time: while one runs, nothing else goes on. They must not call
 * ig_request_close(), and may cancel. */
typedef struct ig_request_options {
    const int32_t *ids; /* [n_ids] the prompt, copied */
    int n_ids;
    const ig_cache_options *cache; /* policy, budget and the like, salt; NULL (default): the scheduler's. Copied, with
                                      what is said of where keys and values are kept as the scheduler has it */
    const float *adapter_scales;   /* as ig_session_options has them; NULL (default): the scheduler's. Copied */
    ig_sampler_options sampler;    /* copied */
    ig_generate_options generate;  /* stop strings are copied. on_text: a true return ends the request */
    bool has_scores;               /* tokens come with their logprobs */
    int n_top;                     /* and with so many of the likeliest, up to IG_REQUEST_TOP_MAX */
    bool score_prompt; /* tokens of the prompt come too. Then all of it is computed, and nothing taken from others */
    ig_logits_fn on_states; /* the prompt's, as ig_session_sync_states() hands them out, instead of an answer; NULL
                               (default): an answer. Then all of the prompt is computed, too */
    bool whole_characters;  /* of what is cut off within a character nothing is shown; else U+FFFD */
    uint64_t owner;         /* among whom places and turns are shared out; 0 (default): nobody in particular */
    void (*on_progress)(void *user, const ig_request_progress *progress); /* after each piece of the prompt; may be
                                                                             NULL, as the next two */
    void (*on_token)(void *user, const ig_request_token *token);
    void (*on_end)(void *user, const ig_request_result *result); /* exactly once, the last callback */
    void *user;                                                  /* of these three */
} ig_request_options;

IG_API ig_scheduler_options ig_scheduler_defaults(void);
IG_API ig_status ig_scheduler_open(ig_scheduler **out, ig_model *model, const ig_scheduler_options *options,
                                   ig_error *err);
/* All its requests are closed. Not in a callback of a step: it would wait for the end of that. */
IG_API void ig_scheduler_close(ig_scheduler *scheduler);
/* Tokens that the context of each request holds. */
IG_API int ig_scheduler_ctx(const ig_scheduler *scheduler);

IG_API ig_request_options ig_request_defaults(void);
/* Hands over n requests, all or none, from any thread. IG_E_ARG and IG_E_LIMIT: one of them cannot be answered, and
 * *refused (may be NULL) is its number; *refused is n if the queue is full, which is IG_E_LIMIT as well. */
IG_API ig_status ig_scheduler_submit(ig_request **out, size_t *refused, ig_scheduler *scheduler,
                                     const ig_request_options *requests, size_t n, ig_error *err);
/* From any thread: the request ends, within one step, with IG_FINISH_INTERRUPTED if it has not ended yet. */
IG_API void ig_request_cancel(ig_request *request);
/* Cancels it, waits until it has ended, and frees it. Before its scheduler is closed, and not in a callback within a
 * step of the same model (ig_logits_fn, ig_cache_trace_fn): it would wait for the end of that step. */
IG_API void ig_request_close(ig_request *request);

typedef struct ig_scheduler_stats {
    int n_places, n_running, n_waiting;
    int piece_tokens;                                    /* that a piece of a prompt has at present, beside answers */
    uint64_t n_requests, n_ended, n_cancelled, n_failed; /* so far; the last two are parts of n_ended */
    uint64_t prompt_tokens, cached_tokens, answer_tokens;
    uint64_t n_steps;
    double step_seconds;
    uint64_t drafted_tokens, draft_hits;     /* of requests that have ended, as ig_session_stats has them; */
    uint64_t prefetch_hits, prefetch_misses; /* of these, too */
    ig_cache_stats cache;                    /* as of the last step */
} ig_scheduler_stats;
IG_API void ig_scheduler_get_stats(ig_scheduler *scheduler, ig_scheduler_stats *out);

/* One of the n_places. */
typedef struct ig_scheduler_place {
    bool is_busy;
    uint64_t request;               /* number of the request, from 1 */
    int n_prompt, n_held, n_tokens; /* tokens of the prompt; that its session holds; made */
    uint64_t kv_bytes, disk_bytes;  /* what it holds in RAM and on disk */
    char policy[32];
} ig_scheduler_place;
/* False past the end. */
IG_API bool ig_scheduler_get_place(ig_scheduler *scheduler, int i, ig_scheduler_place *out);

#ifdef __cplusplus
}
#endif
#endif
