/* SPDX-License-Identifier: Apache-2.0
 *
 * Speed of prompt and generation at a given depth of context and number of
 * sequences, on the public API alone. Tokens are pseudo-random or those of a
 * text, which generations then follow; sampling and tokenising are left out.
 * What stands in the context before a test is computed once and kept for all
 * tests at that depth. A generation at depth 0 starts after one token.
 */
#ifndef IG_EVAL_SPEED_H
#define IG_EVAL_SPEED_H

#include "infinigen.h"

typedef struct ig_eval_speed ig_eval_speed;

typedef struct ig_eval_speed_options {
    ig_session_options session; /* n_ctx is set here from what follows. What stands before a test comes from its
                                   store, if it has one; what is measured is computed, but by ig_eval_speed_stored() */
    int depth;                  /* tokens before each test */
    int n_prompt, n_gen;        /* most tokens of a prompt, and of a generation, which a test adds */
    int max_batch;              /* most sequences of a generation test */
    const int32_t *ids;         /* [n_ids] the text, borrowed; NULL: random tokens. Sequences begin at different places
                                   if it is long enough */
    int n_ids;                  /* ig_eval_speed_tokens() at least */
    int32_t bos;                /* in place of the first token of each sequence of a text; -1: none */
    bool (*stopped)(void);      /* asked between steps; true ends with IG_E_INTERRUPTED */
} ig_eval_speed_options;

/* Tokens of a text that a sequence may need. A generation has at least one before it. */
int ig_eval_speed_tokens(int depth, int n_prompt, int n_gen);

/* Sessions are opened and filled when a test first needs them. */
ig_status ig_eval_speed_open(ig_eval_speed **out, ig_model *model, const ig_eval_speed_options *options, ig_error *err);
void ig_eval_speed_close(ig_eval_speed *speed);

/* Goes on with another policy and its options. Sessions keep what stands before the tests where they can, as
 * ig_session_set_cache() says; else it is computed again. */
ig_status ig_eval_speed_set_cache(ig_eval_speed *speed, const ig_cache_options *cache, ig_error *err);

/* Seconds to compute a prompt of n tokens. */
ig_status ig_eval_speed_prompt(double *seconds, ig_eval_speed *speed, int n, ig_error *err);
/* Seconds until a session that was just opened, alone in a cache that was just opened, has the logits of a prompt of
 * depth + n tokens that is in the store; -1 if most of it is computed all the same: it is shorter than what is kept as
 * one, the policy takes nothing, or the store keeps no more. ig_eval_speed_store() computes it and has it kept. */
ig_status ig_eval_speed_store(ig_eval_speed *speed, int n, ig_error *err);
ig_status ig_eval_speed_stored(double *seconds, ig_eval_speed *speed, int n, ig_error *err);

typedef struct ig_eval_generation {
    double seconds;
    double selected_share;             /* of the first sequence */
    double read_bytes;                 /* from the disk tier, for all sequences */
    double vram_read_bytes;            /* from RAM to a GPU, likewise */
    double stall_seconds;              /* part of seconds: stood still for it */
    double weight_seconds;             /* part of seconds: stood still for weights that are not in RAM */
    ig_part_work parts[IG_STEP_PARTS]; /* of seconds */
    double used_entries, seen_entries; /* as in ig_session_stats, of all sequences */
} ig_eval_generation;

/* n steps of `batch` sequences. */
ig_status ig_eval_speed_generate(ig_eval_generation *out, ig_eval_speed *speed, int n, int batch, ig_error *err);

typedef struct ig_eval_summary {
    double mean, median, deviation; /* sample standard deviation; 0 for one sample */
} ig_eval_summary;
/* Sorts a copy; n is at most 1000. */
ig_eval_summary ig_eval_summarize(const double *samples, int n);

#endif
