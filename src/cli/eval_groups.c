/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen eval` by task and length, where lines say these: a mean that
 * counts each task once at each length, whatever its questions, and the worst
 * of them. Where `full`, with which the others are compared, hardly answers
 * itself, nothing can be lost: such groups are shown and not counted.
 */
#include "cli/eval.h"

#include <stdlib.h>
#include <string.h>

/* Of `full`, from here on a group counts. */
#define LEAST_OF_FULL 0.2

/* A question that was asked. */
typedef struct entry {
    const ig_eval_question *q;
    size_t i;     /* of the question */
    size_t first; /* the first question of its task: tasks stay in the order of the file */
} entry;

/* Questions [begin, end) of one task and length. */
typedef struct bin {
    size_t begin, end;
    size_t n_scored; /* of them: something is expected */
    bool counts;
} bin;

struct ig_cli_eval_groups {
    const ig_cli_evaluation *e;
    int full;       /* the run that the others are compared with; -1: none, or there are no others */
    entry *entries; /* [n_entries], by task and length */
    size_t n_entries;
    bin *groups; /* [n] */
    size_t n;
};

/* ---- sorting ------------------------------------------------------------------- */

static int compare_sizes(size_t a, size_t b) { return (a > b) - (a < b); }

static int by_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int order = strcmp(x->q->task, y->q->task);
    return order ? order : compare_sizes(x->i, y->i);
}

static int by_task_and_length(const void *a, const void *b) {
    const entry *x = a, *y = b;
    int order = compare_sizes(x->first, y->first);
    if (!order) order = (x->q->length > y->q->length) - (x->q->length < y->q->length);
    return order ? order : compare_sizes(x->i, y->i);
}

static void collect(ig_cli_eval_groups *g) {
    const ig_cli_evaluation *e = g->e;
    for (size_t i = 0; i < e->task->n; i++) {
        const ig_eval_question *q = &e->task->questions[i];
        if (e->runs[0].outcomes[i].asked && q->task && q->length >= 0) g->entries[g->n_entries++] = (entry){q, i, i};
    }
    if (!g->n_entries) return;
    qsort(g->entries, g->n_entries, sizeof *g->entries, by_name);
    for (size_t i = 1; i < g->n_entries; i++)
        if (strcmp(g->entries[i].q->task, g->entries[i - 1].q->task) == 0)
            g->entries[i].first = g->entries[i - 1].first;
    qsort(g->entries, g->n_entries, sizeof *g->entries, by_task_and_length);
}

static bool begins_group(const ig_cli_eval_groups *g, size_t i) {
    const entry *a = &g->entries[i], *b = a - 1;
    return i == 0 || a->first != b->first || a->q->length != b->q->length;
}

/* ---- means ---------------------------------------------------------------------- */

static double score_of(const ig_cli_eval_groups *g, const bin *group, int run) {
    double sum = 0;
    for (size_t i = group->begin; i < group->end; i++) sum += g->e->runs[run].outcomes[g->entries[i].i].score;
    return ig_eval_mean(sum, group->n_scored);
}

ig_cli_eval_groups *ig_cli_eval_group(const ig_cli_evaluation *e) {
    ig_cli_eval_groups *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->e = e;
    g->full = e->pairs->n > 1 ? e->pairs->full : -1;
    g->entries = calloc(e->task->n, sizeof *g->entries);
    g->groups = calloc(e->task->n, sizeof *g->groups);
    if (g->entries && g->groups) collect(g);
    for (size_t i = 0; i < g->n_entries; i++) {
        if (begins_group(g, i)) g->groups[g->n++].begin = i;
        g->groups[g->n - 1].end = i + 1;
        g->groups[g->n - 1].n_scored += e->runs[0].outcomes[g->entries[i].i].is_scored;
    }
    for (size_t k = 0; k < g->n; k++)
        g->groups[k].counts =
            g->groups[k].n_scored && (g->full < 0 || score_of(g, &g->groups[k], g->full) >= LEAST_OF_FULL);
    if (g->n) return g;
    ig_cli_eval_groups_free(g);
    return NULL;
}

void ig_cli_eval_groups_free(ig_cli_eval_groups *g) {
    if (!g) return;
    free(g->entries);
    free(g->groups);
    free(g);
}

/* Over groups that count, of one length, or of all for -1. */
static double mean_of(size_t *n, const ig_cli_eval_groups *g, int length, int run) {
    double sum = 0;
    *n = 0;
    for (size_t k = 0; k < g->n; k++) {
        const bin *group = &g->groups[k];
        if (!group->counts || (length >= 0 && g->entries[group->begin].q->length != length)) continue;
        sum += score_of(g, group, run);
        ++*n;
    }
    return ig_eval_mean(sum, *n);
}

/* ---- JSON ------------------------------------------------------------------------- */

static json_t *json_of_group(const ig_cli_eval_groups *g, const bin *group, int run) {
    const ig_eval_question *q = g->entries[group->begin].q;
    const ig_cli_evaluation *e = g->e;
    size_t n = group->end - group->begin, n_same = 0;
    double same = 0;
    json_t *json = json_pack("{s:s, s:i, s:I, s:b}", "task", q->task, "length", q->length, "questions", (json_int_t)n,
                             "counts", (int)group->counts);
    if (group->n_scored) json_object_set_new(json, "accuracy", json_real(score_of(g, group, run)));
    if (g->full < 0) return json;
    for (size_t i = group->begin; i < group->end; i++) {
        const ig_cli_eval_outcome *outcome = &e->runs[run].outcomes[g->entries[i].i];
        n_same += outcome->is_same;
        same += outcome->same;
    }
    json_object_set_new(json, "same_answers", json_real(ig_eval_mean((double)n_same, n)));
    json_object_set_new(json, "same_tokens", json_real(ig_eval_mean(same, n)));
    return json;
}

/* The group that has the least of what `full` has there; NULL if none counts. */
static const bin *find_worst(double *share_of_full, const ig_cli_eval_groups *g, int run) {
    const bin *worst = NULL;
    for (size_t k = 0; k < g->n; k++) {
        const bin *group = &g->groups[k];
        if (!group->counts) continue;
        double share = score_of(g, group, run) / score_of(g, group, g->full);
        if (worst && share >= *share_of_full) continue;
        worst = group;
        *share_of_full = share;
    }
    return worst;
}

static json_t *json_of_worst(const ig_cli_eval_groups *g, int run) {
    double share = 0;
    const bin *worst = find_worst(&share, g, run);
    if (!worst) return json_null();
    const ig_eval_question *q = g->entries[worst->begin].q;
    return json_pack("{s:s, s:i, s:f}", "task", q->task, "length", q->length, "share_of_full", share);
}

void ig_cli_eval_groups_json(json_t *json, const ig_cli_eval_groups *g, int run) {
    json_t *list = json_array();
    size_t n;
    double mean = mean_of(&n, g, -1, run);
    for (size_t k = 0; k < g->n; k++) json_array_append_new(list, json_of_group(g, &g->groups[k], run));
    json_object_set_new(json, "tasks", list);
    json_t *summary = json_pack("{s:I}", "groups", (json_int_t)n);
    if (n) json_object_set_new(summary, "accuracy", json_real(mean));
    if (g->full >= 0) json_object_set_new(summary, "worst", json_of_worst(g, run));
    json_object_set_new(json, "summary", summary);
}

/* ---- table ------------------------------------------------------------------------- */

enum { COLUMNS_MAX = 24 };

/* Lengths in order; false if there are more than a table has room for. */
static bool list_lengths(int lengths[COLUMNS_MAX], int *n, const ig_cli_eval_groups *g) {
    *n = 0;
    for (size_t k = 0; k < g->n; k++) {
        int length = g->entries[g->groups[k].begin].q->length, at = 0;
        while (at < *n && lengths[at] < length) at++;
        if (at < *n && lengths[at] == length) continue;
        if (*n == COLUMNS_MAX) return false;
        memmove(lengths + at + 1, lengths + at, (size_t)(*n - at) * sizeof *lengths);
        lengths[at] = length;
        ++*n;
    }
    return true;
}

static void print_name(const ig_cli_eval_groups *g, const char *name, int run) {
    const ig_cli_pair *pair = &g->e->pairs->v[run];
    const ig_cli_options *o = g->e->app->o;
    char budget[32], settings[96];
    printf("%-22s %-16s ", name, pair->cache.policy);
    if (ig_cli_has_settings(o)) printf("%-20s ", ig_cli_pair_settings(settings, pair, g->e->n_ctx, o));
    if (g->e->pairs->n > 1) printf("%7s ", ig_cli_pair_budget(budget, pair));
}

/* The groups [begin, end) of one task: one row. What does not count stands in parentheses. */
static void print_task(const ig_cli_eval_groups *g, size_t begin, size_t end, int run, const int *lengths, int n) {
    print_name(g, run ? "" : g->entries[g->groups[begin].begin].q->task, run);
    for (int c = 0; c < n; c++) {
        size_t k = begin;
        char score[32] = "";
        while (k < end && g->entries[g->groups[k].begin].q->length != lengths[c]) k++;
        if (k < end && g->groups[k].n_scored)
            snprintf(score, sizeof score, g->groups[k].counts ? "%.1f" : "(%.1f)",
                     score_of(g, &g->groups[k], run) * 100);
        printf(" %8s", score);
    }
    putchar('\n');
}

static void print_mean(const ig_cli_eval_groups *g, int run, const int *lengths, int n) {
    print_name(g, run ? "" : "mean", run);
    for (int c = 0; c < n; c++) {
        size_t n_groups;
        char score[32] = "";
        double mean = mean_of(&n_groups, g, lengths[c], run);
        if (n_groups) snprintf(score, sizeof score, "%.1f", mean * 100);
        printf(" %8s", score);
    }
    putchar('\n');
}

static void print_worst(const ig_cli_eval_groups *g, int run) {
    double share = 0;
    const bin *worst = find_worst(&share, g, run);
    if (!worst) return;
    const ig_eval_question *q = g->entries[worst->begin].q;
    print_name(g, "worst", run);
    printf(" %s, %d: %.1f %% of full\n", q->task, q->length, share * 100);
}

void ig_cli_eval_groups_print(const ig_cli_eval_groups *g) {
    int lengths[COLUMNS_MAX], n;
    if (!list_lengths(lengths, &n, g)) {
        printf("\nmore than %d lengths: --json has them\n", COLUMNS_MAX);
        return;
    }
    printf("\n%-22s %-16s ", "task, by length", "policy");
    if (ig_cli_has_settings(g->e->app->o)) printf("%-20s ", "settings");
    if (g->e->pairs->n > 1) printf("%7s ", "budget");
    for (int c = 0; c < n; c++) printf(" %8d", lengths[c]);
    putchar('\n');
    for (size_t begin = 0, end; begin < g->n; begin = end) {
        for (end = begin;
             end < g->n && g->entries[g->groups[end].begin].first == g->entries[g->groups[begin].begin].first;)
            end++;
        for (int run = 0; run < g->e->pairs->n; run++) print_task(g, begin, end, run, lengths, n);
    }
    for (int run = 0; run < g->e->pairs->n; run++) print_mean(g, run, lengths, n);
    for (int run = 0; g->full >= 0 && run < g->e->pairs->n; run++)
        if (run != g->full) print_worst(g, run);
}
