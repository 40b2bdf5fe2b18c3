/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of a layer are chosen: which entries each head of each sequence reads. A list is a task; where there are
 * fewer of them than threads, parts of it are.
 */
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cache/step_parts.h"

/* The selection that is being made: for this layer, or a guess for it while the one before computes. */
static ig_selection *selection(const ig_segment *seg, bool guess) {
    return guess ? &seg->seq->guess : ig_step_chosen(seg);
}

/* True if the sequence chooses now: this layer's entries, or those that are guessed from `kind`. */
static bool chooses(const ig_step *step, const ig_segment *seg, ig_speculation kind) {
    if (kind != IG_SPECULATE_NONE) return ig_step_guesses(step, seg, kind);
    return !seg->status && ig_step_selects(step, seg) && ig_step_chosen(seg)->layer != step->layer;
}

/* The model's own queries to choose by. A layer without any goes by those of another, of which nothing is guessed. */
static void set_index(const ig_step *step, const ig_segment *seg, bool guess, ig_choosing *x) {
    const ig_index_shape *s = &step->layers->index;
    if (!s->dim) return;
    const ig_index_rows *rows = &step->x->index[guess && ig_has_index(step->layers, x->layer)];
    x->index_q = rows->q.host + (size_t)seg->row * (size_t)(s->n_heads * s->dim);
    x->index_weights = rows->weights.host ? rows->weights.host + (size_t)seg->row * (size_t)s->n_heads : NULL;
}

/* What list number `list` of a segment is to be chosen from. */
static ig_choice describe(const ig_step *step, const ig_segment *seg, int list, ig_speculation kind) {
    ig_sequence *seq = seg->seq;
    const ig_head_shape *c = &step->heads;
    bool guess = kind != IG_SPECULATE_NONE;
    bool narrow = guess && seq->narrow;
    int per_list = c->n_heads / seq->n_lists, head = list * per_list / (c->n_heads / c->n_kv_heads);
    int per_head = narrow ? seq->narrow->n_out / c->n_heads : c->head_dim;
    ig_selection *out = selection(seg, guess);
    ig_choice x = {.policy = seq->policy,
                   .out = out,
                   .rest = ig_step_rest(step, seg, list * per_list),
                   .guess = guess,
                   .estimates = !guess && ig_policy_has_rest(seq->policy),
                   .list = {.layer = step->layer,
                            .list = list,
                            .q = ig_step_queries(step, seg) + (size_t)(list * per_list) * (size_t)per_head,
                            .e = ig_step_entries(step, seg, head),
                            .index = out->slots + (size_t)list * (size_t)seq->n_ctx}};
    if (guess && x.list.e.n > seg->first) x.list.e.n--, x.list.e.n_slots--; /* the layer is read again: it is there */
    x.list.e.has_own = !guess;
    x.list.dev_q = step->x->q.dev + (x.list.q - step->x->q.host);
    x.list.dev_k = step->x->k.dev + ((size_t)seg->row * (size_t)c->n_kv_heads + (size_t)head) * (size_t)c->head_dim;
    set_index(step, seg, guess, &x.list);
    if (step->is_shared) x.list.dev_k = NULL; /* another layer's; sketches have it already */
    x.late = ig_step_is_hidden(step, seg) ? &seq->late : NULL;
    if (x.late && kind == IG_SPECULATE_PAPER) x.list.e.has_own = true, x.list.e.n++; /* it will be there */
    x.list.e.narrow = narrow;
    x.later = x.estimates && ig_kv_has_disk(seq->kv);
    return x;
}

enum { CHOICE = 1, REST = 2 }; /* stages that choose, and those for the rest */

/* Lists that are being chosen, [n] of step->x->choices. The first n_whole of them are a task each; those behind are cut
 * into the parts of their stages. One fork takes all tasks. */
typedef struct choosing {
    const ig_step *step;
    ig_choice *v;
    int n, n_whole;
    int stages;                    /* which of them: CHOICE, REST or both */
    bool own;                      /* each list has scratch of its own */
    bool meet;                     /* a stage begins when the one before has ended for all lists, else for its own */
    int n_parts[IG_POLICY_STAGES]; /* of lists that are cut: most tasks of any; 0: none */
    int before[IG_POLICY_STAGES];  /* tasks of all of them in earlier stages */
    atomic_int n_done;             /* of all of them */
} choosing;

static void *scratch_of(const ig_step *step, int i) {
    return step->x->select_scratch + (size_t)i * step->x->select_bytes;
}

/* A list, stage after stage. */
static void choose_whole(const choosing *c, ig_choice *x, int thread) {
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

/* Tasks of a list in a stage. */
static int count_tasks(const choosing *c, const ig_choice *x, int stage) {
    const ig_policy_stage *s = &x->policy->ops->stages[stage];
    return s->run && c->stages & (s->for_rest ? REST : CHOICE) ? ig_policy_tasks(s, &x->list) : 0;
}

/* A part of a list in a stage, once the stages before have ended. These parts were taken earlier. */
static void choose_part(choosing *c, ig_choice *x, int stage, int part, int thread) {
    const ig_policy_stage *s = &x->policy->ops->stages[stage];
    int before = 0;
    if (part >= count_tasks(c, x, stage)) return;
    for (int i = 0; i < stage; i++) before += count_tasks(c, x, i);
    if (c->meet)
        ig_thread_await(&c->n_done, c->before[stage]);
    else
        ig_thread_await(&x->n_done, before);
    double start = ig_clock_seconds(), *seconds = c->step->x->task_seconds + 2 * thread;
    if (c->meet) x->list.scratch = scratch_of(c->step, thread);
    s->run(x->policy, &x->list, part);
    double took = ig_clock_seconds() - start;
    seconds[0] += took;
    if (s->for_rest) seconds[1] += took;
    atomic_fetch_add_explicit(c->meet ? &c->n_done : &x->n_done, 1, memory_order_release);
}

/* Tasks in the order in which they start: the first stage of lists that are cut; whole lists for all threads but one;
 * the second stage, in which a list is one task; the other whole lists; and the stages that are left, whose small parts
 * fill what remains of the time. */
static void choose_task(void *arg, int task, int thread) {
    choosing *c = arg;
    const int n_first = c->n_whole < c->step->x->n_threads ? c->n_whole : c->step->x->n_threads - 1;
    int n_cut = c->n - c->n_whole, whole = 0;
    for (int stage = 0, k = 0; stage < IG_POLICY_STAGES; stage++) {
        int n = n_cut * c->n_parts[stage];
        if (!n) continue;
        if (task < n) {
            ig_choice *x = &c->v[c->n_whole + task / c->n_parts[stage]];
            choose_part(c, x, stage, task % c->n_parts[stage], thread);
            return;
        }
        task -= n;
        n = k == 0 ? n_first : k == 1 ? c->n_whole - n_first : 0;
        if (task < n) break;
        task -= n, whole += n, k++;
    }
    choose_whole(c, &c->v[whole + task], thread);
}

/* Before a layer's selections: nothing is known of what they leave out. A late pass does not look at it then. */
static void forget_rest(const ig_step *step) {
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        size_t n_heads = (size_t)step->heads.n_heads;
        memset(ig_step_rest(step, seg, 0).share, 0, (size_t)seg->n * n_heads * sizeof(float));
    }
}

/* The part of the time of a selection's tasks in which they estimated the rest. */
static double rest_share(const ig_step_scratch *x) {
    double all = 0, rest = 0;
    for (int t = 0; t < x->n_threads; t++) all += x->task_seconds[2 * t], rest += x->task_seconds[2 * t + 1];
    return all > 0 ? rest / all : 0;
}

static bool any_has_parts(const choosing *c) {
    for (int i = 0; i < c->n; i++)
        if (c->v[i].list.e.n_slots > IG_POLICY_PART) return true;
    return false;
}

/* Cuts lists from n_whole on into tasks; the number of all tasks. */
static int cut(choosing *c) {
    int n_tasks = c->n_whole, n_counted = 0;
    atomic_store(&c->n_done, 0);
    for (int i = c->n_whole; i < c->n; i++) {
        atomic_store(&c->v[i].n_done, 0);
        if (!c->own && !c->meet) c->v[i].list.scratch = scratch_of(c->step, c->step->x->n_threads + i - c->n_whole);
    }
    for (int stage = 0; stage < IG_POLICY_STAGES; stage++) {
        c->n_parts[stage] = 0;
        c->before[stage] = n_counted;
        for (int i = c->n_whole; i < c->n; i++) {
            int n = count_tasks(c, &c->v[i], stage);
            n_counted += n;
            if (n > c->n_parts[stage]) c->n_parts[stage] = n;
        }
        n_tasks += c->n_parts[stage] * (c->n - c->n_whole);
    }
    return n_tasks;
}

/* As many whole lists as keep all threads busy; those that are left over, and those that meet, are cut. Results do not
 * depend on which. Returns the seconds of what is for the rest alone. */
static double choose_all(choosing *c) {
    const ig_step *step = c->step;
    double start = ig_clock_seconds();
    if (!c->n) return 0;
    c->n_whole = c->meet ? 0 : any_has_parts(c) ? c->n - c->n % step->x->n_threads : c->n;
    int n_tasks = cut(c);
    memset(step->x->task_seconds, 0, 2 * (size_t)step->x->n_threads * sizeof *step->x->task_seconds);
    step->dev->ops->parallel(step->dev, n_tasks, choose_task, c);
    return (ig_clock_seconds() - start) * rest_share(step->x);
}

/* Of lists that read what they choose from a disk, as many as there is scratch for are estimated later, while that is
 * under way. */
static double choose(const choosing *c) {
    ig_step_scratch *x = c->step->x;
    bool any = false;
    for (int i = 0; i < c->n; i++) any = any || c->v[i].later;
    choosing now = {.step = c->step, .v = c->v, .n = c->n, .stages = c->stages}, later = now;
    later.n = !any ? 0 : c->n < x->n_scratch ? c->n : x->n_scratch;
    now.n -= later.n;
    later.v += now.n, later.stages = CHOICE, later.own = true;
    double rest = choose_all(&now);
    for (int i = 0; i < later.n; i++) later.v[i].list.scratch = scratch_of(c->step, i);
    x->later = later.v, x->n_later = later.n;
    return rest + choose_all(&later);
}

void ig_step_estimate(ig_step *step) {
    ig_step_scratch *x = step->x;
    if (!x->n_later) return;
    choose_all(&(choosing){.step = step, .v = x->later, .n = x->n_later, .stages = REST, .own = true});
    x->n_later = 0;
    ig_step_lap(x, IG_STEP_REST);
}

/* ---- with the device's help ---------------------------------------------------------- */

/* Task: a list is described, or, where the device has nothing to do, chosen from. */
static void describe_task(void *arg, int i, int thread) {
    const choosing *c = arg;
    ig_choice *x = &c->v[i];
    x->list.scratch = scratch_of(c->step, i);
    x->described = x->policy->ops->describe(x->policy, &x->list, &c->step->x->scans[i]);
    if (!x->described) choose_whole(c, x, thread);
}

/* Task: a list that the device has chosen from. */
static void take_task(void *arg, int i, int thread) {
    const choosing *c = arg;
    ig_choice *x = &c->v[i];
    (void)thread;
    if (!x->described) return;
    x->list.n = x->out->n[x->list.list];
    x->policy->ops->take(x->policy, &x->list);
}

/* Where what the device chooses goes. */
static void address(ig_scan_list *list, const ig_choice *x) {
    const ig_late_choice *late = x->late;
    int i = x->list.list;
    list->index = x->list.index, list->n_index = &x->out->n[i];
    if (!late) return;
    bool is_final = x->list.e.has_own;
    const ig_hidden_lists *hidden = x->guess ? &late->guess : &late->chosen;
    size_t at = (size_t)x->list.layer * (size_t)ig_policy_lists(x->policy->ops, &x->policy->shape) + (size_t)i;
    list->index = !is_final ? NULL : late->slots + at * (size_t)late->most, list->n_index = &late->n[at];
    list->picked = hidden->slots + (size_t)i * (size_t)late->most, list->n_picked = &hidden->n[i];
}

/* The described lists, one behind the other; their number. */
static int line_up(const choosing *c) {
    const ig_step_scratch *s = c->step->x;
    int n = 0;
    for (int i = 0; i < c->n; i++) {
        const ig_choice *x = &c->v[i];
        if (!x->described) continue;
        ig_scan_list *list = &s->scans[n];
        *list = s->scans[i];
        list->scratch = s->scan_scratch + (size_t)n * s->scan_floats;
        address(list, x);
        if (x->estimates && list->values.dev) list->rest = x->rest.value, list->rest_share = x->rest.share;
        n++;
    }
    return n;
}

/* Lists from number `first` on that there is scratch for: all of a sequence's together. */
static int fit(const choosing *all, int first) {
    int left = all->n - first, n = left < all->step->x->n_scratch ? left : all->step->x->n_scratch;
    while (n < left && all->v[first + n].list.list) n--;
    return n;
}

/* Lists that the device chooses from, as many at a time as there is scratch for. */
static void choose_helped(const choosing *all) {
    const ig_step *step = all->step;
    const ig_device_ops *ops = step->dev->ops;
    for (int first = 0, n_now; first < all->n; first += n_now) {
        int n = n_now = fit(all, first);
        choosing c = {.step = step, .v = all->v + first, .n = n, .stages = all->stages, .own = true};
        ops->parallel(step->dev, c.n, describe_task, &c);
        n = line_up(&c);
        if (!n) continue;
        ops->choose(step->dev, step->x->scans, n, !step->is_late);
        if (!step->is_late) ops->parallel(step->dev, c.n, take_task, &c);
    }
}

/* ---- a layer -------------------------------------------------------------------------- */

/* How the lists of a policy are chosen. */
typedef enum manner { MEET, HELPED, APART, MANNERS } manner;

/* Where entries were dropped, tokens are not slots: then the device does not help. */
static manner manner_of(const ig_step *step, const ig_sequence *seq) {
    const ig_policy_ops *ops = seq->policy->ops;
    if (ig_policy_is_helped(ops, step->dev) && !ig_kv_has_dropped(seq->kv)) return HELPED;
    return ops->meet ? MEET : APART;
}

/* Takes the lists of all sequences that choose in this manner. */
static void gather(choosing *c, ig_speculation kind, manner m) {
    const ig_step *step = c->step;
    c->meet = m == MEET;
    c->n = 0;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        if (manner_of(step, seg->seq) != m || !chooses(step, seg, kind)) continue;
        for (int list = 0; list < seg->seq->n_lists; list++) c->v[c->n++] = describe(step, seg, list, kind);
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
    bool any = false;
    if (kind == IG_SPECULATE_NONE && !step->is_late) forget_rest(step);
    for (manner m = MEET; m < MANNERS; m++) {
        gather(&c, kind, m);
        if (m == HELPED)
            choose_helped(&c);
        else
            rest += m == MEET ? choose_all(&c) : choose(&c);
        take(&c);
        any = any || c.n;
    }
    if (!any) return;
    double seconds = ig_clock_seconds() - start;
    step->x->decode_seconds += seconds;
    if (kind == IG_SPECULATE_NONE) lap_selection(step->x, seconds > 0 ? rest / seconds : 0);
}
