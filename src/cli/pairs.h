/* SPDX-License-Identifier: Apache-2.0
 *
 * The pairs of a KV policy and its settings (budget, type, alpha, partial,
 * limit, evict, sketch) that lists in the flags ask for, and what a session did
 * under each of them.
 */
#ifndef IG_CLI_PAIRS_H
#define IG_CLI_PAIRS_H

#include "cli/app.h"

enum { IG_CLI_PAIRS_MAX = 512 };

typedef struct ig_cli_pair {
    ig_cache_options cache; /* the budget of `full`, which has none, is 100 % */
    char *sketch;           /* owns cache.sketch */
    int sketch_ctx;         /* the longest context that it serves; 0: any */
} ig_cli_pair;

typedef struct ig_cli_pairs {
    ig_cli_pair *v; /* [n] */
    int n;
    int full; /* the pair with the policy `full` that others are compared with, the most exact one; -1: none */
} ig_cli_pairs;

/* Every combination of the lists, the rest is `base`'s; those that differ only in what their policy does not look at
 * (the budget of `full`) are one. The exit code; close them in any case. */
int ig_cli_open_pairs(ig_cli_pairs *out, ig_cli_app *app, const ig_cache_options *base);
/* Refuses what cannot be opened, a policy that takes no limit or too little memory, before anything is measured: each
 * pair in contexts of n_ctx tokens, for n_sessions sequences in a cache or, if that is 0, one without. The exit code.
 */
int ig_cli_check_pairs(ig_cli_app *app, const ig_cli_pairs *pairs, int n_ctx, int n_sessions);
void ig_cli_close_pairs(ig_cli_pairs *pairs);
/* "10%", "512", "own", or nothing for `full`. */
const char *ig_cli_pair_budget(char out[32], const ig_cli_pair *pair);
/* What tells the pair from others beside policy and budget, of what is given as a list: "q4 alpha 5 limit 80% lru". In
 * a context of n_ctx tokens: a sketch for less is not used. */
const char *ig_cli_pair_settings(char out[96], const ig_cli_pair *pair, int n_ctx, const ig_cli_options *o);
/* Adds "policy", "budget", and what else lists can change: "kv_type", "alpha", "partial", "limit", "evict", "sketch",
 * null where the policy does not look at it or, the same, it is not used. */
void ig_cli_pair_fields(json_t *json, const ig_cli_pair *pair, int n_ctx);

/* Sums over steps: means times their numbers. */
typedef struct ig_cli_tally {
    uint64_t n_decoded, n_audits;
    double seconds, stall, read, selected, fetched, blocks, mass, mass_p1; /* read: bytes */
    double vram_read;                                                      /* bytes */
    double cosine, output_cosine, needed;
    double used, seen; /* entries */
    ig_part_work parts[IG_STEP_PARTS];
    uint64_t kv_bytes, sketch_bytes; /* in RAM: the most, not a sum */
} ig_cli_tally;

extern const char *const ig_cli_part_names[]; /* [IG_STEP_PARTS] */

/* Adds what the session did since its policy was set. */
void ig_cli_tally_session(ig_cli_tally *sum, const ig_session *s);
void ig_cli_tally_add(ig_cli_tally *sum, const ig_cli_tally *more);
/* A sum over n things as their mean, and tokens per second; 0 if nothing was done. */
double ig_cli_mean(double sum, uint64_t n);
/* The same of shares that decode steps used: prompts use all. */
double ig_cli_mean_share(double sum, uint64_t n);
double ig_cli_tally_speed(const ig_cli_tally *t);
/* What the choice takes of RAM: keys, values and sketch. */
uint64_t ig_cli_tally_ram(const ig_cli_tally *t);
/* The share of the time that the computation stood still for the disk. */
double ig_cli_tally_stall(const ig_cli_tally *t);
/* What a step took and used, means: "seconds", "parts" of them, "busy" seconds of threads and "tasks" in each part,
 * "entries_used" and "entries_seen" over layers and KV heads, "read_bytes" from disk, "vram_read_bytes" to a GPU. */
json_t *ig_cli_tally_step(const ig_cli_tally *t);
/* What audits found: "n", "mass_mean", "mass_p1", "cosine_mean", "output_cosine_mean", "needed_mean". */
json_t *ig_cli_tally_audit(const ig_cli_tally *t);
/* A line that begins with `whose`, if there were audits. */
void ig_cli_print_audit(FILE *to, const char *whose, const ig_cli_tally *t);
/* Adds "step", "selected_share", "fetched_share", "block_share", "generation_tps", "read_bytes_per_token",
 * "stall_share", "memory", and "audit" if there was one. */
void ig_cli_tally_fields(json_t *json, const ig_cli_tally *t);

#endif
