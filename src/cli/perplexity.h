/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to `infinigen perplexity`: what its files share. verb_perplexity.c
 * reads the text and measures one pair of policy and settings in one context,
 * perplexity_table.c several, and perplexity_parts.c reports by position.
 */
#ifndef IG_CLI_PERPLEXITY_H
#define IG_CLI_PERPLEXITY_H

#include "cli/pairs.h"
#include "eval/perplexity.h"

/* Adds "perplexity", "perplexity_error", "nll" and "tokens_scored". */
void ig_cli_perplexity_fields(json_t *json, const ig_eval_score *total);
/* Appends one chunk's own figures; the object, which belongs to the list. */
json_t *ig_cli_perplexity_chunk(json_t *chunks, const ig_eval_score *score, double seconds);
/* How the model's chunks begin and end up in a session; the caller adds progress, and room for parts with --by. */
ig_eval_chunk_options ig_cli_perplexity_options(const ig_cli_app *app);
/* Chunks of n tokens that the flags want. */
int ig_cli_perplexity_chunks(const ig_cli_options *o, size_t n);

/* ---- by position (--by) ------------------------------------------------------- */

/* Sums of each part of the flags' chunks, zero; free() them. NULL without --by too. */
ig_eval_score *ig_cli_perplexity_new_parts(const ig_cli_options *o);
void ig_cli_perplexity_add_parts(ig_eval_score *total, const ig_eval_score *parts, const ig_cli_options *o);
/* Adds "positions" of what was scored, if there are parts. */
void ig_cli_perplexity_parts_json(json_t *json, const ig_eval_score *parts, const ig_cli_options *o);
/* A line for each part that was scored. */
void ig_cli_perplexity_print_parts(const ig_eval_score *parts, const ig_cli_options *o);
/* "1792-2047" of part number i. */
const char *ig_cli_perplexity_positions(char out[32], int i, const ig_cli_options *o);

/* ---- several pairs or contexts (perplexity_table.c) ------------------------------ */

/* The flags with one context, number i of their list, and the dense prefix that they say for it. */
ig_cli_options ig_cli_perplexity_at(const ig_cli_options *o, int i);
/* Scores chunks of ids [n] under all pairs in each context, and reports; the exit code. */
int ig_cli_perplexity_table(ig_cli_app *app, const ig_cli_pairs *pairs, int32_t *ids, size_t n);

#endif
