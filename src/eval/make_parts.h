/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the made tasks: what make.c, which fits a sample to its length,
 * shares with the files that build samples of n units of filler.
 */
#ifndef IG_EVAL_MAKE_PARTS_H
#define IG_EVAL_MAKE_PARTS_H

#include "eval/make.h"

typedef struct ig_eval_sample ig_eval_sample;

/* How a task's samples are made. */
typedef struct ig_eval_recipe {
    const char *name;
    void (*build)(ig_eval_sample *s);
    const char *match; /* how answers are judged; NULL: "all" */
    int least;         /* units of filler */
    bool sweeps;       /* its samples go through the depths */
    enum { IG_EVAL_NOISE, IG_EVAL_ESSAY, IG_EVAL_NEEDLES } haystack;
    bool uuid_keys, uuid_values;
    int n_keys, n_values, n_asked; /* keys in the context, values of each, keys asked for */
    bool harder;                   /* the second of two tasks that differ in one thing */
} ig_eval_recipe;

/* A sample being built. */
struct ig_eval_sample {
    const ig_eval_recipe *recipe;
    const ig_eval_make_options *o;
    ig_eval_random random; /* at its beginning when a build starts */
    int n;                 /* units of filler */
    FILE *context;         /* what is written becomes the context */
    json_t *turns;         /* objects: "question", "answer_prefix", "answers", "max_tokens" */
    bool no_memory;
    ig_status status;
    ig_error *err;
};

/* Adds a question with what its answer begins with, both copied. `answers` is taken over; NULL: no memory. */
void ig_eval_sample_ask(ig_eval_sample *s, const char *question, const char *prefix, json_t *answers, int max_tokens);
/* How far into the context what is asked stands, 0 to 1, by the number of the sample. */
double ig_eval_sample_depth(const ig_eval_sample *s);
/* n different names, of syllables where there are too many for pairs of words, or where `syllables` says so; free()
 * them. NULL: the sample says why not. */
uint32_t *ig_eval_sample_names(ig_eval_sample *s, size_t n, bool syllables);

/* make_needles.c */
void ig_eval_build_needles(ig_eval_sample *s);
void ig_eval_build_turns(ig_eval_sample *s);
void ig_eval_build_pass_key(ig_eval_sample *s);
void ig_eval_build_chain(ig_eval_sample *s);
/* make_lists.c */
void ig_eval_build_common(ig_eval_sample *s);
void ig_eval_build_frequent(ig_eval_sample *s);
void ig_eval_build_pairs(ig_eval_sample *s);
void ig_eval_build_find(ig_eval_sample *s);
void ig_eval_build_calls(ig_eval_sample *s);
/* make_people.c */
void ig_eval_build_records(ig_eval_sample *s);
void ig_eval_build_facts(ig_eval_sample *s);

#endif
