/* SPDX-License-Identifier: Apache-2.0
 *
 * Guesses of a smaller model ("speculative decoding": Leviathan et al. 2023, Chen et al. 2023). It has a session of its
 * own beside the one that it guesses for. That follows the text, its prompts too, some tokens at a time, so that nobody
 * waits long for it, and then says token by token what it thinks comes next. Draft sessions of several sequences step
 * together.
 *
 * Each guess costs a step of the smaller model, and another row of the step that looks whether it was right. So the
 * next one is made while that makes tokens come faster, by what steps and rows took (row_costs.h) and by how often
 * guesses of that probability came true.
 *
 * Nothing here fails a step. A draft session that fails is closed, with a warning, and its sequence goes on without.
 */
#ifndef IG_ENGINE_DRAFT_MODEL_H
#define IG_ENGINE_DRAFT_MODEL_H

#include "engine/draft.h"

typedef struct ig_session_plan ig_session_plan;

enum { IG_DRAFT_KINDS = 6 /* of probabilities */ };

/* Of one session. Zeroed, it has none. */
typedef struct ig_draft_model {
    ig_session *session; /* NULL: nothing is guessed */
    /* The latest guesses: of the text's token `first` and of those that follow. */
    int first, n, n_compared; /* n 0: there are none, or one of them was wrong */
    int32_t ids[IG_DRAFT_MAX];
    uint8_t kinds[IG_DRAFT_MAX];
    float came_true[IG_DRAFT_KINDS], guessed[IG_DRAFT_KINDS]; /* the latest count most */
    float all_true, all_guessed;                              /* of any kind */
} ig_draft_model;

/* A sequence of a step. */
typedef struct ig_draft_job {
    ig_session *session;
    int n_tokens; /* of its text, session->tokens: the last one is what the step decodes */
    int most;     /* guesses */
    ig_guesses guesses;
    double all_true; /* the chance that all of them come */
    int n;           /* out: so many stand behind its tokens */
} ig_draft_job;

/* Options of draft sessions, or of the cache of all of them, for sessions of this plan. */
ig_session_options ig_draft_model_options(const ig_session_plan *p);
/* IG_E_ARG, IG_E_UNSUPPORTED: it cannot guess for m. Of tokens that both have the text must be the same; where
 * one has no tokenizer, it is their number. */
ig_status ig_draft_model_check(const ig_model *draft, const ig_model *m, ig_error *err);
/* For a session of this plan: in its cache's cache of such sessions, or in memory of its own. */
void ig_draft_model_open(ig_session *s, const ig_session_plan *p);
void ig_draft_model_close(ig_draft_model *d);

/* The text has n tokens: what was guessed of them is compared. */
void ig_draft_model_see(ig_draft_model *d, const int32_t *tokens, int n);
/* Tokens per second that a step lets expect if it is asked for `most` guesses at most; 0: there is none. */
double ig_draft_model_rate(const ig_draft_model *d, const ig_draft_step *step, int most);

/* The session has got tokens of a prompt: its draft session gets at most so many of those that it lacks. */
void ig_draft_model_follow(ig_session *s, int most);
/* Guesses for n <= IG_ROW_COSTS_MOST sequences of a step, to which those that are worth it are added, and the seconds
 * that it took. */
void ig_draft_models_guess(ig_draft_job *jobs, int n, ig_draft_step *step);

#endif
