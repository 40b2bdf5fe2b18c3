/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen eval`: a row of the table for each task and run, or a JSON object
 * for each task. One run has what its session did in the usual report; several
 * have it in their own objects.
 */
#define _GNU_SOURCE
#include "cli/eval.h"

#include <stdlib.h>
#include <string.h>

/* ---- answers by length and depth --------------------------------------------- */

/* Questions of one length and depth. */
typedef struct cell {
    int words;
    double depth;
    size_t n;
    double score; /* sum */
} cell;

static int compare_cells(const void *a, const void *b) {
    const cell *x = a, *y = b;
    if (x->words != y->words) return x->words < y->words ? -1 : 1;
    return (x->depth > y->depth) - (x->depth < y->depth);
}

/* Sorted by length, then depth; [*n], free() them. NULL if nothing says where it is. */
static cell *count_cells(size_t *n, const ig_cli_evaluation *e, const ig_cli_eval_run *run) {
    cell *cells = calloc(e->task->n, sizeof *cells);
    size_t n_all = 0;
    *n = 0;
    for (size_t i = 0; cells && i < e->task->n; i++) {
        const ig_eval_question *q = &e->task->questions[i];
        if (!run->outcomes[i].is_scored || q->context_words < 0 || q->depth < 0) continue;
        cells[n_all++] = (cell){q->context_words, q->depth, 1, run->outcomes[i].score};
    }
    if (n_all) qsort(cells, n_all, sizeof *cells, compare_cells);
    for (size_t i = 0; i < n_all; i++) {
        if (*n && compare_cells(&cells[*n - 1], &cells[i]) == 0) {
            cells[*n - 1].n++;
            cells[*n - 1].score += cells[i].score;
        } else {
            cells[(*n)++] = cells[i];
        }
    }
    if (*n) return cells;
    free(cells);
    return NULL;
}

/* ---- JSON -------------------------------------------------------------------- */

static json_t *json_of_cells(const ig_cli_evaluation *e, const ig_cli_eval_run *run) {
    size_t n;
    cell *cells = count_cells(&n, e, run);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            list, json_pack("{s:i, s:f, s:I, s:f}", "context_words", cells[i].words, "depth", cells[i].depth,
                            "questions", (json_int_t)cells[i].n, "accuracy", ig_eval_mean(cells[i].score, cells[i].n)));
    free(cells);
    return list;
}

/* What several questions in turn were worth, each place by itself. */
static json_t *json_of_turns(const ig_cli_evaluation *e, const ig_cli_eval_run *run) {
    json_t *list = json_array();
    for (int i = 0; i < e->most_turns; i++)
        json_array_append_new(list, json_pack("{s:I, s:f}", "questions", (json_int_t)e->turns[i], "accuracy",
                                              ig_eval_mean(run->turns[i], e->turns[i])));
    return list;
}

static void add_scores(json_t *json, const ig_cli_evaluation *e, const ig_cli_eval_run *run) {
    json_object_set_new(json, "accuracy", json_real(ig_eval_mean(run->score, e->n_scored)));
    json_object_set_new(json, "accuracy_error", json_real(ig_eval_mean_error(run->score, run->score_2, e->n_scored)));
    if (e->task->form != IG_EVAL_CHOICES) return;
    double norm = (double)run->n_right_norm;
    json_object_set_new(json, "accuracy_norm", json_real(ig_eval_mean(norm, e->n)));
    json_object_set_new(json, "accuracy_norm_error", json_real(ig_eval_mean_error(norm, norm, e->n)));
}

static void add_answers(json_t *json, const ig_cli_evaluation *e, int i, const ig_cli_eval_groups *groups) {
    bool generates = ig_cli_eval_generates(e);
    const ig_cli_eval_run *run = &e->runs[i];
    if (e->n_scored) add_scores(json, e, run);
    json_object_set_new(json, generates ? "tokens_generated" : "tokens_scored",
                        json_integer((json_int_t)run->n_tokens));
    if (!generates) return;
    json_object_set_new(json, "cells", json_of_cells(e, run));
    if (e->most_turns > 1) json_object_set_new(json, "turns", json_of_turns(e, run));
    if (groups) ig_cli_eval_groups_json(json, groups, i);
}

/* How often a run's answers are those of `full`. */
static void add_same(json_t *json, const ig_cli_evaluation *e, const ig_cli_eval_run *run) {
    json_object_set_new(json, "same_answers", json_real(ig_eval_mean((double)run->n_same, e->n)));
    if (ig_cli_eval_generates(e)) json_object_set_new(json, "same_tokens", json_real(ig_eval_mean(run->same, e->n)));
}

static bool is_alone(const ig_cli_evaluation *e) { return e->pairs->n == 1; }

static void add_run(json_t *json, const ig_cli_evaluation *e, int i, const ig_cli_eval_groups *groups) {
    const ig_cli_eval_run *run = &e->runs[i];
    ig_cli_tally tally = run->tally;
    if (is_alone(e)) ig_cli_tally_session(&tally, e->readers->s);
    ig_cli_pair_fields(json, &e->pairs->v[i], e->n_ctx);
    add_answers(json, e, i, groups);
    json_object_set_new(json, "agreement", json_real(ig_eval_mean((double)run->n_agree, e->n)));
    if (e->pairs->full >= 0) add_same(json, e, run);
    ig_cli_tally_fields(json, &tally);
}

static json_t *json_of_runs(const ig_cli_evaluation *e, const ig_cli_eval_groups *groups) {
    json_t *list = json_array();
    for (int i = 0; i < e->pairs->n; i++) {
        json_t *json = json_object();
        add_run(json, e, i, groups);
        json_array_append_new(list, json);
    }
    return list;
}

/* Of several tasks there is a list. */
static void print_json(const ig_cli_evaluation *e, const ig_cli_eval_groups *groups) {
    bool alone = is_alone(e);
    json_t *json = ig_cli_report(e->app, alone ? e->readers->s : NULL);
    json_object_set_new(json, "task", ig_text_string(e->task->name));
    json_object_set_new(json, "shots", json_integer(e->app->o->shots));
    json_object_set_new(json, "context", json_integer(e->n_ctx));
    json_object_set_new(json, "questions", json_integer((json_int_t)e->n));
    json_object_set_new(json, "skipped", json_integer((json_int_t)e->n_skipped));
    json_object_set_new(json, "seconds", json_real(e->seconds));
    if (alone)
        add_run(json, e, 0, groups);
    else
        json_object_set_new(json, "runs", json_of_runs(e, groups));
    if (e->interrupted || e->failed) json_object_set_new(json, e->failed ? "failed" : "interrupted", json_true());
    if (e->all)
        json_array_append_new(e->all, json);
    else
        ig_cli_print_json(json);
}

/* ---- table ------------------------------------------------------------------- */

/* A line for each length: its share of right answers, then right/asked at each depth. */
static void print_cells(const ig_cli_evaluation *e, const ig_cli_eval_run *run) {
    size_t n, end;
    cell *cells = count_cells(&n, e, run);
    for (size_t i = 0; i < n; i = end) {
        size_t asked = 0;
        double score = 0;
        for (end = i; end < n && cells[end].words == cells[i].words; end++) {
            asked += cells[end].n;
            score += cells[end].score;
        }
        printf("  %6d words %8zu %8.4f  at depth", cells[i].words, asked, ig_eval_mean(score, asked));
        for (size_t k = i; k < end; k++) printf("  %g: %.3g/%zu", cells[k].depth, cells[k].score, cells[k].n);
        putchar('\n');
    }
    free(cells);
}

/* All pairs have the same tiers. */
static bool has_disk(const ig_cli_evaluation *e) { return e->pairs->v[0].cache.memory.disk_bytes > 0; }

/* Whether other runs are compared with it. */
static bool has_full(const ig_cli_evaluation *e) { return !is_alone(e) && e->pairs->full >= 0; }

static void print_head(const ig_cli_evaluation *e) {
    printf("%-22s %6s %8s %8s %9s  %-16s ", "task", "n", "acc", "+/-", "acc_norm", "policy");
    if (ig_cli_has_settings(e->app->o)) printf("%-20s ", "settings");
    if (!is_alone(e)) printf("%7s %8s ", "budget", "agree");
    if (has_full(e)) printf("%8s ", "same");
    printf("%8s %9s", "KV used", "tokens/s");
    puts(has_disk(e) ? " read/step stalled" : "");
}

static void print_row(const ig_cli_evaluation *e, int i) {
    const ig_cli_eval_run *run = &e->runs[i];
    const ig_cli_pair *pair = &e->pairs->v[i];
    ig_cli_tally tally = run->tally;
    char settings[96], norm[32] = "", budget[32], score[32] = "", error[32] = "", same[32] = "";
    double used = ig_cli_mean_share(tally.selected, tally.n_decoded), speed = ig_cli_tally_speed(&tally);
    if (e->n_scored) {
        snprintf(score, sizeof score, "%.4f", ig_eval_mean(run->score, e->n_scored));
        snprintf(error, sizeof error, "%.4f", ig_eval_mean_error(run->score, run->score_2, e->n_scored));
    }
    if (e->task->form == IG_EVAL_CHOICES)
        snprintf(norm, sizeof norm, "%.4f", ig_eval_mean((double)run->n_right_norm, e->n));
    if (ig_cli_eval_generates(e)) snprintf(same, sizeof same, "%.4f", ig_eval_mean(run->same, e->n));
    printf("%-22s %6zu %8s %8s %9s  %-16s ", e->title, e->n, score, error, norm, pair->cache.policy);
    if (ig_cli_has_settings(e->app->o)) printf("%-20s ", ig_cli_pair_settings(settings, pair, e->n_ctx, e->app->o));
    if (!is_alone(e)) {
        printf("%7s %8.4f ", ig_cli_pair_budget(budget, pair), ig_eval_mean((double)run->n_agree, e->n));
        if (has_full(e)) printf("%8s ", same);
    } else {
        ig_session_stats st;
        ig_session_get_stats(e->readers->s, &st);
        used = st.selected_share;
        speed = e->seconds > 0 ? (double)(st.n_prefilled + st.n_decoded) / e->seconds : 0;
        ig_cli_tally_session(&tally, e->readers->s);
    }
    printf("%6.1f %% %9.1f", used * 100, speed);
    if (has_disk(e))
        printf(" %6.2f MB %5.1f %%", ig_cli_mean(tally.read, tally.n_decoded) / 1e6, ig_cli_tally_stall(&tally) * 100);
    putchar('\n');
    ig_cli_print_audit(stdout, "  audit:", &tally);
    if (!ig_cli_eval_generates(e)) return;
    print_cells(e, run);
    if (e->most_turns == 1) return;
    printf("  in turn:");
    for (int k = 0; k < e->most_turns; k++)
        if (e->turns[k])
            printf(" %.4f", ig_eval_mean(run->turns[k], e->turns[k]));
        else
            printf(" -");
    putchar('\n');
}

static void print_table(const ig_cli_evaluation *e, const ig_cli_eval_groups *groups, bool with_head) {
    if (with_head) print_head(e);
    for (int i = 0; i < e->pairs->n; i++) print_row(e, i);
    if (e->n_skipped)
        printf("  %zu questions were skipped: longer than the context of %d tokens\n", e->n_skipped, e->limit);
    if (e->interrupted || e->failed)
        printf("  %s after %zu of %zu questions\n", e->failed ? "failed" : "interrupted", e->n + e->n_skipped,
               e->task->n);
    if (groups) ig_cli_eval_groups_print(groups);
    ig_cli_flush();
}

void ig_cli_eval_report(const ig_cli_evaluation *e, bool with_head) {
    ig_cli_eval_groups *groups = ig_cli_eval_group(e);
    if (e->app->o->json)
        print_json(e, groups);
    else
        print_table(e, groups, with_head);
    ig_cli_eval_groups_free(groups);
}
