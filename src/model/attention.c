/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer's keys, values and attention: what the forward pass asks of the KV store and the policy, in the order of
 * docs/architecture.md's figure: append, select, fetch, attend; and the guess for the layer that follows.
 */
#include <string.h>

#include "base/clock.h"
#include "model/forward_parts.h"

/* ---- append ------------------------------------------------------------------- */

int ig_forward_row(const forward *f, int segment) {
    if (f->few) return segment;
    int row = 0;
    for (int s = 0; s < segment; s++) row += f->segments[s].n;
    return row;
}

/* A prompt's queries, for policies that want them; without a prompt the first step's. */
static void show_queries(const forward *f, const ig_segment *seg, int row, int kv_head) {
    const ig_config *c = f->c;
    ig_policy *p = seg->seq->policy;
    int group = c->n_heads / c->n_kv_heads;
    if (!p->ops->see_queries || !(seg->dense || seg->first == 0)) return;
    for (int h = kv_head * group; h < (kv_head + 1) * group; h++)
        p->ops->see_queries(p, f->layer, h,
                            f->ws->q + ((size_t)row * (size_t)c->n_heads + (size_t)h) * (size_t)c->head_dim,
                            (size_t)c->n_heads * (size_t)c->head_dim, seg->first, seg->n);
}

/* Writes one head's key and value of a token, and shows them to the policy as 16-bit floats: what attention will see,
 * and what a policy that comes later can have. A packed key lies in its layer's frame. */
static void append_token(const forward *f, const ig_segment *seg, int head, int token, size_t at, bool sketched) {
    const ig_sequence *seq = seg->seq;
    int d = f->c->head_dim;
    int slot = ig_kv_slot(seq->kv, f->layer, head, token);
    ig_kv_type type = ig_kv_type_of(seq->kv);
    ig_kv_line *lines = ig_kv_lines(seq->kv, f->layer, head, slot);
    void *key = ig_kv_key(seq->kv, f->layer, head, slot), *value = ig_kv_value(seq->kv, f->layer, head, slot);
    ig_kv_line *value_lines = lines ? lines + ig_kv_row_lines(type, d) : NULL;
    const ig_key_frame *frame = ig_forward_key_frame(f, seg);
    float framed[IG_KV_DIMS];
    if (frame) ig_key_frame_enter(framed, frame, f->c, head, f->ws->k + at);
    f->kernels->kv_pack[type](key, lines, frame ? framed : f->ws->k + at, d);
    f->kernels->kv_pack[type](value, value_lines, f->ws->v + at, d);
    if (!sketched) return;
    uint16_t plain[2][IG_KV_DIMS];
    if (type != IG_KV_F16) {
        f->kernels->kv_unpack[type](plain[0], &(ig_kv_packed){key, lines}, 1, d);
        f->kernels->kv_unpack[type](plain[1], &(ig_kv_packed){value, value_lines}, 1, d);
        if (frame) ig_key_frame_leave(plain[0], frame, f->c, head);
        key = plain[0], value = plain[1];
    }
    seq->policy->ops->append(seq->policy, f->layer, head, slot, key, value);
}

/* Task: one KV head of one segment. Writes its new keys and values, and shows queries and keys to the policy. */
static void append_task(void *arg, int task, int thread) {
    const forward *f = arg;
    const ig_config *c = f->c;
    int head = task % c->n_kv_heads, s = task / c->n_kv_heads, row = ig_forward_row(f, s);
    const ig_segment *seg = &f->segments[s];
    ig_policy *p = seg->seq->policy;
    bool sparse = !ig_policy_is_dense(p, f->layer), sketched = sparse && p->ops->append;
    (void)thread;
    if (sparse) show_queries(f, seg, row, head);
    for (int i = 0; i < seg->n; i++) {
        size_t at = ((size_t)(row + i) * (size_t)c->n_kv_heads + (size_t)head) * (size_t)c->head_dim;
        append_token(f, seg, head, seg->first + i, at, sketched);
    }
}

static ig_status append(forward *f, ig_error *err) {
    ig_status status = ig_forward_make_room(f, err);
    for (int s = 0; s < f->n_segments && !status; s++)
        status = ig_kv_extend(f->segments[s].seq->kv, f->layer, f->segments[s].first + f->segments[s].n, err);
    if (status) return status;
    int tasks = f->n_segments * f->c->n_kv_heads;
    if (f->n_rows * f->c->n_kv_heads * f->c->head_dim < 4096)
        for (int t = 0; t < tasks; t++) append_task(f, t, 0);
    else
        f->dev->ops->parallel(f->dev, tasks, append_task, f);
    for (int s = 0; s < f->n_segments && !status; s++) status = ig_kv_seal(f->segments[s].seq->kv, f->layer, err);
    return status;
}

/* ---- select ------------------------------------------------------------------- */

/* The selection that is being made: for this layer, or a guess for it while the one before computes. */
static ig_selection *selection(ig_sequence *seq, bool guess) { return guess ? &seq->guess : &seq->chosen; }

/* A pass of the policy over all lists of all sequences that select. */
typedef struct choice {
    forward *f;
    ig_speculation kind; /* of a guess; NONE: no guess */
    int n_lists;         /* most of any sequence */
    bool scoring;        /* the pass of `score` */
} choice;

bool ig_forward_guesses(const forward *f, const ig_segment *seg, ig_speculation kind) {
    const ig_sequence *seq = seg->seq;
    if (seq->speculate != kind || !ig_forward_selects(f, seg) || seg->first == 0) return false;
    if (seq->policy->ops->limit) return false; /* it uses what it holds, and may drop some before */
    return kind == IG_SPECULATE_PAPER || (seq->prefetch && ig_kv_has_disk(seq->kv));
}

/* True if the sequence chooses in this pass. */
static bool chooses(const choice *x, const ig_segment *seg) {
    if (x->kind != IG_SPECULATE_NONE) return ig_forward_guesses(x->f, seg, x->kind);
    return ig_forward_selects(x->f, seg) && seg->seq->chosen.layer != x->f->layer;
}

static void choose_task(void *arg, int task, int thread) {
    const choice *x = arg;
    const forward *f = x->f;
    const ig_config *c = f->c;
    int list = task % x->n_lists, s = task / x->n_lists;
    const ig_segment *seg = &f->segments[s];
    ig_sequence *seq = seg->seq;
    ig_policy *p = seq->policy;
    if (!chooses(x, seg) || list >= seq->n_lists || (x->scoring && !p->ops->score)) return;
    bool guess = x->kind != IG_SPECULATE_NONE, narrow = guess && seq->narrow;
    int per_list = c->n_heads / seq->n_lists, head = list * per_list / (c->n_heads / c->n_kv_heads);
    int per_head = narrow ? seq->narrow->n_out / c->n_heads : c->head_dim;
    const float *q = ig_forward_queries(f, s) + (size_t)(list * per_list) * (size_t)per_head;
    uint8_t *scratch = f->ws->select_scratch + (size_t)thread * f->ws->select_bytes;
    ig_entries e = ig_kv_entries(seq->kv, f->layer, head);
    e.has_own = !guess;
    e.narrow = narrow;
    if (x->scoring) {
        p->ops->score(p, f->layer, list, q, &e, scratch);
        return;
    }
    ig_selection *out = selection(seq, guess);
    ig_rest rest = ig_forward_rest(f, s, list * per_list);
    out->n[list] = p->ops->select(p, f->layer, list, q, &e, out->slots + (size_t)list * (size_t)seq->n_ctx,
                                  guess ? NULL : &rest, scratch);
    out->all[list] = out->n[list] == e.n;
}

/* Before a layer's selections: nothing is known of what they leave out. */
static void forget_rest(const forward *f) {
    memset(f->ws->rest.share, 0, (size_t)f->n_rows * (size_t)f->c->n_heads * sizeof(float));
}

/* Selects with ws->q for all sequences that choose in this pass. */
static void choose(forward *f, ig_speculation kind) {
    choice x = {.f = f, .kind = kind};
    bool score = false;
    int n = 0;
    for (int s = 0; s < f->n_segments; s++) {
        const ig_sequence *seq = f->segments[s].seq;
        if (!chooses(&x, &f->segments[s])) continue;
        n++;
        if (seq->n_lists > x.n_lists) x.n_lists = seq->n_lists;
        score = score || seq->policy->ops->score;
    }
    if (!n) return;
    double start = ig_clock_seconds();
    x.scoring = true;
    if (score) f->dev->ops->parallel(f->dev, f->n_segments * x.n_lists, choose_task, &x);
    x.scoring = false;
    f->dev->ops->parallel(f->dev, f->n_segments * x.n_lists, choose_task, &x);
    double seconds = (ig_clock_seconds() - start) / n;
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        if (!chooses(&x, seg)) continue;
        seg->seq->select_seconds += seconds;
        selection(seg->seq, kind != IG_SPECULATE_NONE)->layer = f->layer;
    }
}

void ig_forward_take_guesses(const forward *f) {
    for (int s = 0; s < f->n_segments; s++) {
        ig_sequence *seq = f->segments[s].seq;
        seq->chosen.layer = -1;
        if (seq->speculate != IG_SPECULATE_PAPER || seq->guess.layer != f->layer) continue;
        ig_selection guess = seq->guess;
        seq->guess = seq->chosen;
        seq->chosen = guess;
    }
}

/* A final guess was made before the step's own token was there, which is used in any case. */
static void add_own(const forward *f, const ig_segment *seg) {
    const ig_sequence *seq = seg->seq;
    ig_selection guess = seq->chosen;
    if (guess.layer != f->layer) return;
    for (int i = 0; i < seq->n_lists; i++) {
        ig_entries e = ig_kv_entries(seq->kv, f->layer, i * f->c->n_kv_heads / seq->n_lists);
        int own = e.slot ? e.slot[e.n - 1] : e.n - 1;
        if (!guess.all[i]) guess.slots[(size_t)i * (size_t)seq->n_ctx + (size_t)guess.n[i]] = own;
        guess.n[i]++;
    }
}

/* ---- fetch and attend ------------------------------------------------------------ */

/* The entries of a list that attention reads when they can be in RAM all at once: what was selected, a window, or
 * everything. Windows are of layers that hold every token. */
static ig_kv_pick pick_of(const forward *f, const ig_segment *seg, const ig_selection *x, int list, int *first) {
    const ig_sequence *seq = seg->seq;
    int head = list * f->c->n_kv_heads / seq->n_lists, window = f->c->window[f->layer];
    *first = 0;
    if (ig_forward_selects(f, seg) && !x->all[list])
        return (ig_kv_pick){x->slots + (size_t)list * (size_t)seq->n_ctx, x->n[list]};
    ig_entries e = ig_kv_entries(seq->kv, f->layer, head);
    if (!seg->dense && window > 0 && e.n > window) *first = e.n - window;
    return (ig_kv_pick){e.slot, e.n - *first};
}

/* The picks of all lists, in ws->picks. */
static void pick_all(const forward *f, const ig_segment *seg, const ig_selection *x) {
    int first;
    for (int i = 0; i < seg->seq->n_lists; i++) f->ws->picks[i] = pick_of(f, seg, x, i, &first);
}

/* Brings what the segment selected, or a decode step's window, into RAM. */
static ig_status load(const forward *f, const ig_segment *seg, ig_error *err) {
    ig_sequence *seq = seg->seq;
    int first;
    if (!ig_kv_has_disk(seq->kv)) return IG_OK;
    ig_kv_pick pick = pick_of(f, seg, &seq->chosen, 0, &first);
    if (ig_forward_selects(f, seg)) {
        pick_all(f, seg, &seq->chosen);
        return ig_kv_load(seq->kv, f->layer, f->ws->picks, seq->n_lists, err);
    }
    if (first == 0) return IG_OK;
    for (int i = 0; i < pick.n; i++) seq->chosen.slots[i] = first + i;
    for (int h = 0; h < f->c->n_kv_heads; h++) f->ws->picks[h] = (ig_kv_pick){seq->chosen.slots, pick.n};
    return ig_kv_load(seq->kv, f->layer, f->ws->picks, f->c->n_kv_heads, err);
}

void ig_forward_all_views(const forward *f, const ig_segment *seg, ig_kv_view *views) {
    for (int h = 0; h < f->c->n_kv_heads; h++) {
        ig_entries e = ig_kv_entries(seg->seq->kv, f->layer, h);
        views[h] = ig_kv_fetch(seg->seq->kv, f->layer, h, e.slot, 0, e.n);
    }
}

bool ig_forward_in_ram(const forward *f, const ig_segment *seg, int first) {
    return ig_kv_in_ram(seg->seq->kv, f->layer, first, ig_kv_entries(seg->seq->kv, f->layer, 0).n_slots);
}

/* They are not all in RAM: piece by piece. */
static ig_status attend_streaming(const forward *f, const ig_segment *seg, ig_attention *job, ig_kv_view *views,
                                  ig_error *err) {
    ig_head_shape shape = ig_forward_heads(f);
    int n = seg->first + seg->n;
    job->carry = seg->seq->ws->carry;
    for (job->begin = 0; job->begin < n; job->begin = job->end) {
        job->end = n - job->begin < IG_ATTEND_UNIT ? n : job->begin + IG_ATTEND_UNIT;
        ig_status s = ig_kv_stream(seg->seq->kv, f->layer, job->begin, n, views, err);
        if (s) return s;
        f->dev->ops->attend(f->dev, &shape, job, 1);
    }
    return IG_OK;
}

ig_status ig_forward_attend_all(const forward *f, const ig_segment *seg, ig_attention *job, ig_kv_view *views,
                                ig_error *err) {
    ig_head_shape shape = ig_forward_heads(f);
    job->views = views;
    if (!ig_forward_in_ram(f, seg, 0)) return attend_streaming(f, seg, job, views, err);
    ig_forward_all_views(f, seg, views);
    f->dev->ops->attend(f->dev, &shape, job, 1);
    return IG_OK;
}

/* The lists that attention reads: one per query head only where they differ from each other. */
static int count_views(const forward *f, const ig_segment *seg) {
    const ig_sequence *seq = seg->seq;
    bool all = true;
    if (!ig_forward_selects(f, seg)) return f->c->n_kv_heads;
    for (int i = 0; i < seq->n_lists; i++) all = all && seq->chosen.all[i];
    return all ? f->c->n_kv_heads : seq->n_lists;
}

/* Jobs of the same number of views go to the device together. */
static void flush(const forward *f, int n_views, int *n_jobs) {
    ig_head_shape shape = ig_forward_heads(f);
    shape.n_kv_heads = n_views;
    if (*n_jobs) f->dev->ops->attend(f->dev, &shape, f->ws->jobs, *n_jobs);
    *n_jobs = 0;
}

ig_attention ig_forward_job(const forward *f, int segment, ig_kv_view *views) {
    size_t at = (size_t)ig_forward_row(f, segment) * (size_t)f->c->n_heads, d = (size_t)f->c->head_dim;
    const ig_key_frame *frame = ig_forward_key_frame(f, &f->segments[segment]);
    return (ig_attention){.q = f->ws->q + at * d,
                          .q_scale = frame ? frame->scale : NULL,
                          .out = f->ws->x + at * d,
                          .lse = f->ws->lse + at,
                          .n_tokens = f->segments[segment].n,
                          .prompt = f->segments[segment].dense,
                          .window = f->c->window[f->layer],
                          .views = views};
}

/* Attention of all segments, from ws->q to ws->x. */
static ig_status attend(forward *f, ig_error *err) {
    const ig_config *c = f->c;
    int n_jobs = 0, n_views = 0, first;
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        const ig_sequence *seq = seg->seq;
        ig_kv_view *views = f->ws->views + (size_t)s * (size_t)c->n_heads;
        ig_attention job = ig_forward_job(f, s, views);
        ig_rest rest = ig_forward_rest(f, s, 0);
        if (ig_forward_selects(f, seg)) job.rest = rest.value, job.rest_share = rest.share;
        pick_of(f, seg, &seq->chosen, 0, &first);
        if (!ig_forward_selects(f, seg) && !ig_forward_in_ram(f, seg, first)) {
            ig_status status = attend_streaming(f, seg, &job, views, err);
            if (status) return status;
            continue;
        }
        int now = count_views(f, seg);
        if (now != n_views) flush(f, n_views, &n_jobs);
        n_views = now;
        for (int v = 0; v < now; v++) {
            int list = v * seq->n_lists / now, head = v * c->n_kv_heads / now;
            ig_kv_pick pick = pick_of(f, seg, &seq->chosen, list, &first);
            views[v] = ig_kv_fetch(seq->kv, f->layer, head, pick.index, first, pick.n);
        }
        f->ws->jobs[n_jobs++] = job;
    }
    flush(f, n_views, &n_jobs);
    return IG_OK;
}

ig_status ig_forward_attend(forward *f, ig_error *err) {
    ig_status status = append(f, err);
    if (status) return status;
    for (int s = 0; s < f->n_segments; s++) add_own(f, &f->segments[s]);
    forget_rest(f);
    choose(f, IG_SPECULATE_NONE);
    double start = ig_clock_seconds();
    for (int s = 0; s < f->n_segments && !status; s++) status = load(f, &f->segments[s], err);
    if (!status) status = attend(f, err);
    double seconds = (ig_clock_seconds() - start) / f->n_segments;
    for (int s = 0; s < f->n_segments; s++)
        if (!f->segments[s].dense) f->segments[s].seq->attention_seconds += seconds;
    if (!status) status = ig_forward_observe(f, err);
    if (!status) ig_forward_drop(f);
    return status;
}

/* ---- guess -------------------------------------------------------------------------- */

ig_status ig_forward_guess(forward *f, ig_speculation kind, ig_error *err) {
    choose(f, kind);
    for (int s = 0; s < f->n_segments; s++) {
        const ig_segment *seg = &f->segments[s];
        ig_sequence *seq = seg->seq;
        if (!ig_forward_guesses(f, seg, kind) || !seq->prefetch || !ig_kv_has_disk(seq->kv)) continue;
        pick_all(f, seg, &seq->guess);
        ig_status status = ig_kv_prefetch(seq->kv, f->layer, f->ws->picks, seq->n_lists, err);
        if (status) return status;
    }
    return IG_OK;
}
