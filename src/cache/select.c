/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of a layer are chosen: which entries each head of each sequence reads. A list is a task; where there are
 * fewer of them than threads, parts of it are.
 */
#include <string.h>

#include "base/clock.h"
#include "cache/step_parts.h"

/* The selection that is being made: for this layer, or a guess for it while the one before computes. */
static ig_selection *selection(ig_sequence *seq, bool guess) { return guess ? &seq->guess : &seq->chosen; }

/* True if the sequence chooses now: this layer's entries, or those that are guessed from `kind`. */
static bool chooses(const ig_step *step, const ig_segment *seg, ig_speculation kind) {
    if (kind != IG_SPECULATE_NONE) return ig_step_guesses(step, seg, kind);
    return !seg->status && ig_step_selects(step, seg) && seg->seq->chosen.layer != step->layer;
}

static bool has_rest(const ig_policy *p) {
    bool has = false;
    for (const ig_policy_stage *stage = p->ops->stages; stage->run; stage++) has = has || stage->for_rest;
    return has;
}

/* What list number `list` of a segment is to be chosen from. */
static ig_choice describe(const ig_step *step, const ig_segment *seg, int list, bool guess) {
    ig_sequence *seq = seg->seq;
    const ig_head_shape *c = &step->heads;
    bool narrow = guess && seq->narrow;
    int per_list = c->n_heads / seq->n_lists, head = list * per_list / (c->n_heads / c->n_kv_heads);
    int per_head = narrow ? seq->narrow->n_out / c->n_heads : c->head_dim;
    ig_selection *out = selection(seq, guess);
    ig_choice x = {.policy = seq->policy,
                   .out = out,
                   .rest = ig_step_rest(step, seg, list * per_list),
                   .estimates = !guess && has_rest(seq->policy),
                   .list = {.layer = step->layer,
                            .list = list,
                            .q = ig_step_queries(step, seg) + (size_t)(list * per_list) * (size_t)per_head,
                            .e = ig_kv_entries(seq->kv, step->layer, head),
                            .index = out->slots + (size_t)list * (size_t)seq->n_ctx}};
    x.list.e.has_own = !guess;
    x.list.e.narrow = narrow;
    x.later = x.estimates && ig_kv_has_disk(seq->kv);
    return x;
}

enum { CHOICE = 1, REST = 2 }; /* stages that choose, and those for the rest */

/* Lists that are being chosen, [n] of step->x->choices. */
typedef struct choosing {
    const ig_step *step;
    ig_choice *v;
    int n;
    int stages;         /* which of them: CHOICE, REST or both */
    int stage, n_parts; /* of a stage: most tasks of any list */
    bool own;           /* each list has scratch of its own */
} choosing;

static void *scratch_of(const ig_step *step, int i) {
    return step->x->select_scratch + (size_t)i * step->x->select_bytes;
}

/* Task: a list, stage after stage. */
static void whole_task(void *arg, int task, int thread) {
    const choosing *c = arg;
    ig_choice *x = &c->v[task];
    double start = ig_clock_seconds(), *seconds = c->step->x->task_seconds + 2 * thread;
    if (!c->own) x->list.scratch = scratch_of(c->step, thread);
    if (c->stages & CHOICE) ig_policy_choose(x->policy, &x->list);
    double chosen = ig_clock_seconds(), end = chosen;
    if (c->stages & REST && x->estimates) {
        ig_policy_estimate(x->policy, &x->list);
        end = ig_clock_seconds();
    }
    seconds[0] += end - start;
    seconds[1] += end - chosen;
}

static bool runs(const choosing *c, const ig_policy_stage *stage) {
    return stage->run && c->stages & (stage->for_rest ? REST : CHOICE);
}

/* Task: a part of a list in one stage. */
static void stage_task(void *arg, int task, int thread) {
    const choosing *c = arg;
    ig_choice *x = &c->v[task / c->n_parts];
    const ig_policy_stage *stage = &x->policy->ops->stages[c->stage];
    int part = task % c->n_parts;
    if (!runs(c, stage) || part >= ig_policy_tasks(stage, &x->list)) return;
    if (!c->own) x->list.scratch = scratch_of(c->step, thread);
    stage->run(x->policy, &x->list, part);
}

/* All lists stage by stage. Returns the seconds of what is for the rest alone. */
static double choose_in_stages(choosing *c) {
    double rest = 0;
    if (!c->n) return 0;
    for (c->stage = 0; c->stage < IG_POLICY_STAGES; c->stage++) {
        bool any = false, for_rest = false;
        double start = ig_clock_seconds();
        c->n_parts = 1;
        for (int i = 0; i < c->n; i++) {
            const ig_policy_stage *stage = &c->v[i].policy->ops->stages[c->stage];
            if (!runs(c, stage)) continue;
            int n = ig_policy_tasks(stage, &c->v[i].list);
            if (n > c->n_parts) c->n_parts = n;
            any = true, for_rest = stage->for_rest;
        }
        if (!any) continue;
        int tasks = c->n * c->n_parts;
        if (tasks == 1)
            stage_task(c, 0, 0);
        else
            c->step->dev->ops->parallel(c->step->dev, tasks, stage_task, c);
        if (for_rest) rest += ig_clock_seconds() - start;
    }
    return rest;
}

/* Before a layer's selections: nothing is known of what they leave out. */
static void forget_rest(const ig_step *step) {
    memset(step->x->rest.share, 0, (size_t)step->n_rows * (size_t)step->heads.n_heads * sizeof(float));
}

/* The part of the time of a selection's tasks in which they estimated the rest. */
static double rest_share(const ig_step_scratch *x) {
    double all = 0, rest = 0;
    for (int t = 0; t < x->n_threads; t++) all += x->task_seconds[2 * t], rest += x->task_seconds[2 * t + 1];
    return all > 0 ? rest / all : 0;
}

static bool any_has_parts(const ig_choice *v, int n) {
    for (int i = 0; i < n; i++)
        if (v[i].list.e.n_slots > IG_POLICY_PART) return true;
    return false;
}

/* As many whole lists as keep all threads busy to the end; those that are left over are cut into parts. Results do not
 * depend on which. Returns the seconds of what is for the rest alone. */
static double choose_apart(const choosing *c) {
    const ig_step *step = c->step;
    int left = any_has_parts(c->v, c->n) ? c->n % step->x->n_threads : 0;
    double rest = 0, start = ig_clock_seconds();
    choosing whole = *c, cut = *c;
    whole.n -= left;
    cut.v += whole.n, cut.n = left, cut.own = true;
    if (whole.n) {
        memset(step->x->task_seconds, 0, 2 * (size_t)step->x->n_threads * sizeof *step->x->task_seconds);
        step->dev->ops->parallel(step->dev, whole.n, whole_task, &whole);
        rest = (ig_clock_seconds() - start) * rest_share(step->x);
    }
    for (int i = 0; i < left && !c->own; i++) cut.v[i].list.scratch = scratch_of(step, i);
    return rest + choose_in_stages(&cut);
}

/* Of lists that read what they choose from a disk, as many as there is scratch for are estimated later, while that is
 * under way. */
static double choose(const choosing *c) {
    ig_step_scratch *x = c->step->x;
    bool any = false;
    for (int i = 0; i < c->n; i++) any = any || c->v[i].later;
    choosing now = *c, later = *c;
    later.n = !any ? 0 : c->n < x->n_scratch ? c->n : x->n_scratch;
    now.n -= later.n;
    later.v += now.n, later.stages = CHOICE, later.own = true;
    double rest = choose_apart(&now);
    for (int i = 0; i < later.n; i++) later.v[i].list.scratch = scratch_of(c->step, i);
    x->later = later.v, x->n_later = later.n;
    return rest + choose_apart(&later);
}

void ig_step_estimate(ig_step *step) {
    ig_step_scratch *x = step->x;
    if (!x->n_later) return;
    choose_apart(&(choosing){.step = step, .v = x->later, .n = x->n_later, .stages = REST, .own = true});
    x->n_later = 0;
    ig_step_lap(x, IG_STEP_REST);
}

/* Adds the lists of all sequences that choose, of policies whose lists meet or of the others. */
static void gather(choosing *c, ig_speculation kind, bool meet) {
    const ig_step *step = c->step;
    c->n = 0;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        if (seg->seq->policy->ops->meet != meet || !chooses(step, seg, kind)) continue;
        for (int list = 0; list < seg->seq->n_lists; list++)
            c->v[c->n++] = describe(step, seg, list, kind != IG_SPECULATE_NONE);
    }
    for (int i = 0; i < c->n; i++)
        if (c->v[i].estimates) c->v[i].list.rest = &c->v[i].rest;
}

/* What was chosen becomes the selections. */
static void take(const choosing *c) {
    for (int i = 0; i < c->n; i++) {
        const ig_choosing *x = &c->v[i].list;
        c->v[i].out->n[x->list] = x->n;
        c->v[i].out->all[x->list] = x->n == x->e.n;
        c->v[i].out->layer = x->layer;
    }
}

/* Of a selection's work this share was for the rest. */
static void lap_selection(ig_step_scratch *x, double share) {
    ig_part_work *select = &x->clock.parts[IG_STEP_SELECT], *rest = &x->clock.parts[IG_STEP_REST], before = *select;
    ig_step_lap(x, IG_STEP_SELECT);
    ig_part_work moved = {.seconds = (select->seconds - before.seconds) * share,
                          .busy_seconds = (select->busy_seconds - before.busy_seconds) * share,
                          .n_tasks = (select->n_tasks - before.n_tasks) * share};
    ig_part_work_add(rest, &moved, 1);
    ig_part_work_add(select, &moved, -1);
}

void ig_step_select(ig_step *step, ig_speculation kind) {
    double start = ig_clock_seconds(), rest = 0;
    choosing c = {.step = step, .v = step->x->choices, .stages = kind == IG_SPECULATE_NONE ? CHOICE | REST : CHOICE};
    if (kind == IG_SPECULATE_NONE) forget_rest(step);
    gather(&c, kind, true);
    rest += choose_in_stages(&c);
    take(&c);
    bool any = c.n > 0;
    gather(&c, kind, false);
    rest += choose(&c);
    take(&c);
    if (!any && !c.n) return;
    double seconds = ig_clock_seconds() - start;
    step->x->decode_seconds += seconds;
    if (kind == IG_SPECULATE_NONE) lap_selection(step->x, seconds > 0 ? rest / seconds : 0);
}
