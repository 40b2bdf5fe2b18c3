/* SPDX-License-Identifier: Apache-2.0
 *
 * Late passes: all layers of a step go through on a device with memory of its own before the host looks at any of them.
 * The device keeps keys and values itself, chooses entries where that has to be done, and attends to what it has
 * chosen; what it guesses for the next layer, it copies ahead. Afterwards the host sees what was kept and chosen, for
 * policies and statistics. Bits are those of a pass that waits for each layer.
 */
#include <string.h>

#include "cache/step_parts.h"

bool ig_sequence_is_watched(const ig_sequence *seq) {
    const ig_policy_ops *ops = seq->policy->ops;
    return ig_kv_has_disk(seq->kv) || seq->limit || ops->limit || ops->observe || seq->audit.every;
}

/* Whether the device can choose by itself. The step's own entry, which has no sketch yet, is chosen as a recent one, of
 * which there is one at least; also where what is guessed before it is there is final, if the policy can do with that.
 */
static bool may_hide(const ig_step *step, const ig_sequence *seq) {
    const ig_policy_ops *ops = seq->policy->ops;
    if (!seq->late.most || (ops->is_ready && !ops->is_ready(seq->policy))) return false;
    return ops->guess_is_final || ig_step_speculation(step, seq) != IG_SPECULATE_PAPER;
}

bool ig_step_may_be_late(const ig_step *step) {
    if (!step->dev->ops->append || step->layers->index.dim) return false;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        const ig_sequence *seq = seg->seq;
        if (ig_sequence_is_watched(seq) || seq->shadow || seq->trace || ig_step_shows_queries(seg)) return false;
        if (ig_kv_has_dropped(seq->kv)) return false; /* tokens are not slots any more */
        if (!seg->dense && seg->n > 1) return false;  /* the host makes the rounds of a layer */
        if (!seg->dense && !ig_policy_takes_all(seq->policy, seg->first + seg->n) && !may_hide(step, seq)) return false;
    }
    return true;
}

bool ig_step_is_hidden(const ig_step *step, const ig_segment *seg) {
    return step->is_late && ig_step_selects(step, seg) && !ig_policy_takes_all(seg->seq->policy, seg->first + seg->n);
}

void ig_step_hidden_views(const ig_step *step, const ig_segment *seg, bool guess, ig_kv_view *views) {
    const ig_late_choice *late = &seg->seq->late;
    const ig_hidden_lists *lists = guess ? &late->guess : &late->chosen;
    int n = guess ? seg->first : seg->first + seg->n;
    for (int i = 0; i < seg->seq->n_lists; i++) {
        const int32_t *slots = lists->slots + (size_t)i * (size_t)late->most;
        int head = i * step->heads.n_kv_heads / seg->seq->n_lists;
        views[i] = ig_kv_fetch(seg->seq->kv, step->layer, head, slots, 0, late->most < n ? late->most : n);
        views[i].n_listed = lists->n + i;
    }
}

int32_t *ig_step_list(const ig_step *step, const ig_segment *seg, int list, int *n) {
    const ig_sequence *seq = seg->seq;
    const ig_selection *x = ig_step_chosen(seg);
    const ig_late_choice *late = &seq->late;
    if (ig_step_is_hidden(step, seg)) {
        size_t at = (size_t)step->layer * (size_t)seq->n_lists + (size_t)list;
        *n = late->n[at];
        return late->slots + at * (size_t)late->most;
    }
    *n = x->n[list];
    return x->all[list] ? NULL : x->slots + (size_t)list * (size_t)seq->n_ctx;
}

/* Task: a KV head of a layer of a segment. If the device has chosen of it, the policy sees what, and it is counted. */
static void see_head(void *arg, int task, int thread) {
    ig_step step = *(const ig_step *)arg;
    int n_heads = step.layers->all.n_kv_heads, n_layers = step.segments->seq->policy->shape.n_layers,
        head = task % n_heads;
    const ig_segment *seg = &step.segments[task / n_heads / n_layers];
    ig_sequence *seq = seg->seq;
    int per_head = seq->n_lists / n_heads;
    ig_step_enter(&step, task / n_heads % n_layers);
    if (seg->status || !ig_step_is_hidden(&step, seg)) return;
    for (int i = head * per_head; i < (head + 1) * per_head; i++) {
        ig_choosing x = {.layer = step.layer, .list = i, .e = ig_kv_entries(seq->kv, step.layer, head)};
        x.e.has_own = true;
        x.index = ig_step_list(&step, seg, i, &x.n);
        seq->policy->ops->take(seq->policy, &x);
    }
    ig_step_count(&step, seg, head, thread);
}

static bool any_hidden(ig_step *step, int n_layers) {
    for (int l = 0; l < n_layers; l++) {
        ig_step_enter(step, l);
        for (int s = 0; s < step->n_segments; s++)
            if (!step->segments[s].status && ig_step_is_hidden(step, &step->segments[s])) return true;
    }
    return false;
}

/* Heads of all layers are seen in one fork: threads are awake still from the one before, in which keys were. */
void ig_step_catch_up(ig_step *step) {
    int n_layers = step->segments->seq->policy->shape.n_layers;
    for (int s = 0; s < step->n_segments; s++) {
        ig_segment *seg = &step->segments[s];
        if (!seg->status)
            seg->status = ig_sequence_replay(seg->seq, step->dev, seg->first, seg->first + seg->n, seg->err);
    }
    ig_step_lap(step->x, IG_STEP_APPEND);
    if (any_hidden(step, n_layers))
        step->dev->ops->parallel(step->dev, step->n_segments * n_layers * step->layers->all.n_kv_heads, see_head, step);
    for (int l = 0; l < n_layers; l++) {
        ig_step_enter(step, l);
        for (int s = 0; s < step->n_segments; s++) ig_step_observe(step, &step->segments[s]);
    }
    ig_step_lap(step->x, IG_STEP_SELECT);
}
