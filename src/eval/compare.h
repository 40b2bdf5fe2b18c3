/* SPDX-License-Identifier: Apache-2.0
 *
 * Perplexity under several KV policies and budgets: of each chunk the dense
 * prefix is computed once, under the policy `full`, and what follows is scored
 * from there under each. Policies that must see the prompt being computed have
 * it computed again, and so has any that drops entries for good, and any whose
 * keys and values are kept in another way.
 */
#ifndef IG_EVAL_COMPARE_H
#define IG_EVAL_COMPARE_H

#include <string.h>

#include "eval/perplexity.h"

/* Most bytes of distributions that are kept of a chunk for the divergences. */
#define IG_EVAL_REFERENCE_BYTES ((size_t)1 << 30)

typedef struct ig_eval_rival {
    ig_cache_options cache;
    bool is_reference; /* the others' distributions are compared with this one's; at most one */
    bool from_start;   /* must see the prompt; false to start */
    bool is_done;      /* of the present chunk */
} ig_eval_rival;

/* Entries are dropped for good. */
static inline bool ig_eval_drops(const ig_memory_options *m) { return m->limit > 0 || m->limit_bytes; }
/* Of options that may be NULL. */
static inline bool ig_eval_same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }
/* Whether one session can go on from one policy's options to another's: where and how keys and values are kept is the
 * same, and nothing is dropped. */
bool ig_eval_same_store(const ig_memory_options *a, const ig_memory_options *b);

typedef struct ig_eval_comparison {
    ig_eval_rival *rivals; /* [n_rivals], borrowed */
    int n_rivals;
    ig_model *model;
    ig_session_options session; /* of those that are opened, with a rival's cache */
    /* A chunk was scored under rival i: the session's statistics are of this alone. The reference comes first. */
    void (*scored)(void *user, int i, const ig_eval_score *score, const ig_session *s);
    void *user;
    ig_session *s; /* of rival number i_open; NULL: none is open */
    int i_open;
    float *prefix_logits;         /* [n_vocab] */
    ig_eval_reference *reference; /* NULL without one among the rivals */
} ig_eval_comparison;

/* The fields up to `user` are the caller's. Close it in any case. */
ig_status ig_eval_comparison_open(ig_eval_comparison *c, int n_vocab, ig_error *err);
void ig_eval_comparison_close(ig_eval_comparison *c);

/* Scores one chunk under all rivals. As ig_eval_chunk(), with a dense prefix or without; options' reference is set
 * here.
 */
ig_status ig_eval_compare_chunk(ig_eval_comparison *c, int32_t *ids, int n, const ig_eval_chunk_options *options,
                                ig_error *err);

#endif
