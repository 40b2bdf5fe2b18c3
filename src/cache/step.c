/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer's keys, values and attention, in the order of docs/architecture.md's figure: append, select, fetch, attend;
 * and the guess for the layer that follows.
 */
#include <string.h>

#include "cache/step_parts.h"

/* Of a batch of sequences so many chosen entries more than a context are attended to before the others are there. */
enum { BEGUN_ENTRIES = 16 * IG_ATTEND_UNIT };

/* ---- scratch ------------------------------------------------------------------ */

void ig_step_lay_out(ig_space *a, ig_step_scratch *x, const ig_layer_heads *layers, int n_threads,
                     const ig_step_need *need) {
    const ig_head_shape *s = &layers->all, *local = &layers->local;
    size_t rows = (size_t)need->max_rows, n_ctx = (size_t)need->n_ctx, n_heads = (size_t)s->n_heads,
           heads = n_heads * (size_t)s->head_dim, kv = (size_t)s->n_kv_heads * (size_t)s->head_dim,
           local_kv = (size_t)local->n_kv_heads * (size_t)local->head_dim;
    if (kv < local_kv) kv = local_kv;
    x->select_bytes = ig_round_up(need->select_bytes, IG_ALIGN);
    x->q = ig_space_twin(a, rows * heads);
    x->k = ig_space_twin(a, rows * kv);
    x->v = ig_space_twin(a, rows * kv);
    x->lse = ig_space_device(a, rows * n_heads * sizeof(float));
    x->rest.value = ig_space_host(a, rows * heads * sizeof(float));
    x->rest.share = ig_space_host(a, rows * n_heads * sizeof(float));
    x->jobs = ig_space_host(a, rows * sizeof *x->jobs);
    x->appends = ig_space_host(a, rows * sizeof *x->appends);
    x->views = ig_space_host(a, rows * n_heads * sizeof *x->views);
    x->picks = ig_space_host(a, rows * n_heads * sizeof *x->picks);
    x->wants = ig_space_host(a, rows * sizeof *x->wants);
    x->round = ig_space_host(a, rows * sizeof *x->round);
    x->choices = ig_space_host(a, rows * n_heads * sizeof *x->choices);
    x->n_scratch = 2 * n_threads - 1;
    if (need->streams && s->n_kv_heads > x->n_scratch) x->n_scratch = s->n_kv_heads;
    if (need->scans > x->n_scratch) x->n_scratch = need->scans;
    x->select_scratch = ig_space_host(a, (size_t)x->n_scratch * x->select_bytes);
    x->seen = ig_space_host(a, (size_t)n_threads * n_ctx);
    x->n_ctx = n_ctx;
    x->task_seconds = ig_space_host(a, 2 * (size_t)n_threads * sizeof *x->task_seconds);
    x->n_threads = n_threads;
    x->scans = NULL, x->scan_scratch = NULL;
    x->scan_floats = ig_scan_floats(s->n_heads / s->n_kv_heads, s->head_dim, need->n_ctx);
    if (need->scans) x->scans = ig_space_host(a, (size_t)x->n_scratch * sizeof *x->scans);
    if (need->scans) x->scan_scratch = ig_space_device(a, (size_t)x->n_scratch * x->scan_floats * sizeof(float));
    x->weights = x->dense = x->carry = x->begun = NULL;
    x->keep = NULL;
    if (need->weighs || need->drops) x->weights = ig_space_host(a, n_heads * n_ctx * sizeof(float));
    if (need->weighs) x->dense = ig_space_host(a, 2 * heads * sizeof(float));
    x->audits = need->weighs ? ig_space_host(a, n_heads * sizeof *x->audits) : NULL;
    if (need->drops) x->keep = ig_space_host(a, (size_t)s->n_kv_heads * n_ctx * sizeof *x->keep);
    if (!need->streams) return;
    size_t prefill = ig_attend_carry_floats(s, need->max_rows, 0), decode = ig_attend_carry_floats(s, 0, need->n_ctx);
    x->carry = ig_space_device(a, (prefill > decode ? prefill : decode) * sizeof(float));
    x->begun_floats = decode + ig_attend_carry_floats(s, 0, BEGUN_ENTRIES);
    x->begun = ig_space_device(a, x->begun_floats * sizeof(float));
}

/* Of segment s: [n_heads]. */
static ig_kv_view *views_of(const ig_step *step, int s) {
    return step->x->views + (size_t)s * (size_t)step->heads.n_heads;
}

/* ---- append ------------------------------------------------------------------- */

static void show_queries(const ig_step *step, const ig_segment *seg, int kv_head) {
    const ig_head_shape *c = &step->heads;
    ig_policy *p = seg->seq->policy;
    int group = c->n_heads / c->n_kv_heads;
    if (!ig_step_shows_queries(seg)) return;
    for (int h = kv_head * group; h < (kv_head + 1) * group; h++)
        p->ops->see_queries(p, step->layer, h, ig_step_queries(step, seg) + (size_t)h * (size_t)c->head_dim,
                            (size_t)c->n_heads * (size_t)c->head_dim, seg->first, seg->n);
}

/* Writes one head's key and value of a token, and shows them to the policy as 16-bit floats: what attention will see,
 * and what a policy that comes later can have. */
static void append_token(const ig_step *step, const ig_segment *seg, int head, int token, size_t at, bool sketched) {
    ig_sequence *seq = seg->seq;
    int slot = ig_kv_slot(seq->kv, step->layer, head, token);
    ig_kv_row row = ig_kv_at(seq->kv, step->layer, head, slot);
    ig_kv_write(&seq->codec, &row, step->layer, head, step->x->k.host + at, step->x->v.host + at);
    if (seq->shadow) {
        ig_kv_row whole = ig_kv_at(seq->shadow, step->layer, head, token);
        ig_kv_write(&seq->codec, &whole, step->layer, head, step->x->k.host + at, step->x->v.host + at);
    }
    if (!sketched) return;
    ig_kv_plain plain;
    ig_kv_read(&plain, &seq->codec, &row, step->layer, head);
    seq->policy->ops->append(seq->policy, step->layer, head, slot, plain.key, plain.value);
}

/* Task: one KV head of one segment. Writes its new keys and values, and shows queries and keys to the policy. */
static void append_task(void *arg, int task, int thread) {
    const ig_step *step = arg;
    const ig_head_shape *c = &step->heads;
    int head = task % c->n_kv_heads;
    const ig_segment *seg = &step->segments[task / c->n_kv_heads];
    ig_policy *p = seg->seq->policy;
    bool sparse = !ig_policy_is_dense(p, step->layer), sketched = sparse && p->ops->append;
    (void)thread;
    if (seg->status) return;
    if (sparse) show_queries(step, seg, head);
    for (int i = 0; i < seg->n; i++) {
        size_t at = ((size_t)(seg->row + i) * (size_t)c->n_kv_heads + (size_t)head) * (size_t)c->head_dim;
        append_token(step, seg, head, seg->first + i, at, sketched);
    }
}

/* The device keeps the rows. */
static void append_there(const ig_step *step) {
    const ig_head_shape *c = &step->heads;
    size_t width = (size_t)c->n_kv_heads * (size_t)c->head_dim;
    int n_jobs = 0;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        const ig_key_frame *frame = ig_kv_frame(&seg->seq->codec, step->layer);
        ig_kv_view *views = views_of(step, s);
        if (seg->status || !seg->n) continue;
        for (int h = 0; h < c->n_kv_heads; h++)
            views[h] = ig_kv_fetch(seg->seq->kv, step->layer, h, NULL, seg->first, seg->n);
        step->x->appends[n_jobs++] = (ig_append){.k = step->x->k.dev + (size_t)seg->row * width,
                                                 .v = step->x->v.dev + (size_t)seg->row * width,
                                                 .origin = frame ? frame->origin : NULL,
                                                 .scale = frame ? frame->scale : NULL,
                                                 .views = views,
                                                 .n = seg->n};
    }
    step->dev->ops->append(step->dev, c, step->x->appends, n_jobs);
}

static void append(ig_step *step) {
    ig_step_make_room(step);
    for (int s = 0; s < step->n_segments; s++) {
        ig_segment *seg = &step->segments[s];
        int n = seg->first + seg->n;
        if (!seg->status) seg->status = ig_kv_extend(seg->seq->kv, step->layer, n, seg->err);
        if (!seg->status && seg->seq->shadow) seg->status = ig_kv_extend(seg->seq->shadow, step->layer, n, seg->err);
    }
    int tasks = step->n_segments * step->heads.n_kv_heads;
    if (step->is_late)
        append_there(step);
    else if (step->n_rows * step->heads.n_kv_heads * step->heads.head_dim < 4096)
        for (int t = 0; t < tasks; t++) append_task(step, t, 0);
    else
        step->dev->ops->parallel(step->dev, tasks, append_task, step);
    for (int s = 0; s < step->n_segments; s++) {
        ig_segment *seg = &step->segments[s];
        if (!seg->status) seg->status = ig_kv_seal(seg->seq->kv, step->layer, seg->err);
        if (!seg->status && seg->seq->shadow) seg->status = ig_kv_seal(seg->seq->shadow, step->layer, seg->err);
    }
}

static void read_again(const ig_step *step) {
    for (int s = 0; s < step->n_segments; s++)
        if (!step->segments[s].status) ig_kv_read_again(step->segments[s].seq->kv, step->layer);
}

/* ---- select ------------------------------------------------------------------- */

bool ig_sequence_reads_ahead(const ig_sequence *seq) { return seq->prefetch && ig_kv_may_wait(seq->kv); }

ig_speculation ig_step_speculation(const ig_step *step, const ig_sequence *seq) {
    if (seq->speculate != IG_SPECULATE_AUTO) return seq->speculate;
    return step->guesses ? IG_SPECULATE_LATE : IG_SPECULATE_NONE;
}

bool ig_step_guesses(const ig_step *step, const ig_segment *seg, ig_speculation kind) {
    const ig_sequence *seq = seg->seq;
    if (seg->status || ig_step_speculation(step, seq) != kind || !ig_step_selects(step, seg) || seg->first == 0)
        return false;
    if (seq->policy->ops->limit) return false; /* it uses what it holds, and may drop some before */
    if (step->is_late && ig_policy_takes_all(seq->policy, seg->first)) return false;
    return kind == IG_SPECULATE_PAPER || ig_sequence_reads_ahead(seq);
}

void ig_step_take_guesses(const ig_step *step) {
    for (int s = 0; s < step->n_segments; s++) {
        ig_sequence *seq = step->segments[s].seq;
        seq->chosen.layer = -1;
        if (seq->speculate != IG_SPECULATE_PAPER || seq->guess.layer != step->layer) continue;
        ig_selection guess = seq->guess;
        seq->guess = seq->chosen;
        seq->chosen = guess;
        if (!step->is_late) continue;
        ig_hidden_lists hidden = seq->late.guess;
        seq->late.guess = seq->late.chosen;
        seq->late.chosen = hidden;
    }
}

/* A final guess was made before the step's own token was there, which is used in any case. Of a list that is hidden it
 * is one already. */
static void add_own(const ig_step *step, const ig_segment *seg) {
    const ig_sequence *seq = seg->seq;
    ig_selection guess = seq->chosen;
    if (seg->status || guess.layer != step->layer || ig_step_is_hidden(step, seg)) return;
    for (int i = 0; i < seq->n_lists; i++) {
        ig_entries e = ig_kv_entries(seq->kv, step->layer, i * step->heads.n_kv_heads / seq->n_lists);
        int own = e.slot ? e.slot[e.n - 1] : e.n - 1;
        if (!guess.all[i]) guess.slots[(size_t)i * (size_t)seq->n_ctx + (size_t)guess.n[i]] = own;
        guess.n[i]++;
    }
}

/* ---- fetch and attend ------------------------------------------------------------ */

/* The entries of a list that attention reads when they can be in RAM all at once: what was selected, a window, or
 * everything. Windows are of layers that hold every token. */
static ig_kv_pick pick_of(const ig_step *step, const ig_segment *seg, const ig_selection *x, int list, int *first) {
    const ig_sequence *seq = seg->seq;
    int head = list * step->heads.n_kv_heads / seq->n_lists, window = step->window[step->layer];
    *first = 0;
    if (ig_step_selects(step, seg) && !x->all[list])
        return (ig_kv_pick){x->slots + (size_t)list * (size_t)seq->n_ctx, x->n[list]};
    ig_entries e = ig_kv_entries(seq->kv, step->layer, head);
    if (!seg->dense && window > 0 && e.n > window) *first = e.n - window;
    return (ig_kv_pick){e.slot, e.n - *first};
}

/* What the segment selected, or a decode step's window. Without picks nothing has to be brought. */
static ig_kv_want want_of(const ig_step *step, const ig_segment *seg, const ig_selection *x) {
    ig_sequence *seq = seg->seq;
    ig_kv_pick *picks = step->x->picks + (size_t)(seg - step->segments) * (size_t)step->heads.n_heads;
    ig_kv_want want = {.kv = seq->kv, .picks = picks, .is_again = step->is_shared};
    int first;
    if (!ig_kv_has_disk(seq->kv)) return want;
    if (ig_step_selects(step, seg)) {
        want.n_picks = seq->n_lists;
        for (int i = 0; i < seq->n_lists; i++) picks[i] = pick_of(step, seg, x, i, &first);
        return want;
    }
    ig_kv_pick window = pick_of(step, seg, x, 0, &first);
    if (first == 0) return want;
    want.n_picks = step->heads.n_kv_heads;
    for (int i = 0; i < window.n; i++) x->slots[i] = first + i;
    for (int h = 0; h < want.n_picks; h++) picks[h] = (ig_kv_pick){x->slots, window.n};
    return want;
}

/* Whether the segment is a decode step that goes on. */
static bool decodes(const ig_segment *seg) { return !seg->dense && !seg->status; }

/* ig_kv_load_begin() or _end(). */
typedef ig_status (*load_fn)(ig_kv_memory *m, int layer, const ig_kv_want *wants, int n, ig_error *err);

/* Brings what decode steps want of one memory into RAM: all of it at once, or, where that fails, each by itself and for
 * as long as it attends. From segment s on, the first in that memory. */
static void load_together(ig_step *step, int s, load_fn load) {
    ig_kv_memory *m = ig_kv_memory_of(step->segments[s].seq->kv);
    ig_kv_want *wants = step->x->wants;
    int n = 0;
    ig_segment *one = NULL;
    for (int i = s; i < step->n_segments; i++) {
        ig_segment *seg = &step->segments[i];
        if (!decodes(seg) || seg->alone || ig_kv_memory_of(seg->seq->kv) != m) continue;
        ig_kv_want want = want_of(step, seg, &seg->seq->chosen);
        if (!want.n_picks) continue;
        wants[n++] = want;
        one = seg;
    }
    if (!n) return;
    ig_status status = load(m, step->layer, wants, n, n == 1 ? one->err : NULL);
    if (n == 1) one->status = status;
    for (int i = s; n > 1 && status && i < step->n_segments; i++) {
        ig_segment *seg = &step->segments[i];
        seg->alone = decodes(seg) && ig_kv_memory_of(seg->seq->kv) == m;
    }
}

/* Whether no segment before s that decodes lies in the same memory. */
static bool is_first_of_memory(const ig_step *step, int s) {
    const ig_kv_memory *m = ig_kv_memory_of(step->segments[s].seq->kv);
    for (int i = 0; i < s; i++)
        if (decodes(&step->segments[i]) && ig_kv_memory_of(step->segments[i].seq->kv) == m) return false;
    return true;
}

static void load(ig_step *step, load_fn half) {
    for (int s = 0; s < step->n_segments; s++)
        if (decodes(&step->segments[s]) && is_first_of_memory(step, s)) load_together(step, s, half);
}

void ig_step_all_views(const ig_step *step, const ig_segment *seg, ig_kv_view *views) {
    for (int h = 0; h < step->heads.n_kv_heads; h++) {
        ig_entries e = ig_kv_entries(seg->seq->kv, step->layer, h);
        views[h] = ig_kv_fetch(seg->seq->kv, step->layer, h, e.slot, 0, e.n);
    }
}

/* They are not all in RAM: piece by piece. */
static ig_status attend_streaming(const ig_step *step, const ig_segment *seg, ig_attention *job, ig_kv_view *views) {
    ig_head_shape shape = step->heads;
    int n = seg->first + seg->n;
    job->rows = IG_ROWS_IN_ORDER;
    job->carry = step->x->carry;
    for (job->begin = 0; job->begin < n; job->begin = job->end) {
        job->end = n - job->begin < IG_ATTEND_UNIT ? n : job->begin + IG_ATTEND_UNIT;
        ig_step_lap(step->x, IG_STEP_ATTEND);
        ig_status s = ig_kv_stream(seg->seq->kv, step->layer, job->begin, n, views, seg->err);
        ig_step_lap(step->x, IG_STEP_WAIT);
        if (s) return s;
        step->dev->ops->attend(step->dev, &shape, job, 1);
        s = step->dev->ops->finish(step->dev, seg->err);
        if (s) return s;
    }
    return IG_OK;
}

ig_status ig_step_attend_all(const ig_step *step, const ig_segment *seg, ig_attention *job, ig_kv_view *views) {
    ig_head_shape shape = step->heads;
    job->views = views;
    if (!ig_kv_in_ram(seg->seq->kv, step->layer, 0)) return attend_streaming(step, seg, job, views);
    ig_step_all_views(step, seg, views);
    step->dev->ops->attend(step->dev, &shape, job, 1);
    return step->dev->ops->finish(step->dev, seg->err);
}

/* The lists that attention reads: one per query head only where they differ from each other. */
static int count_views(const ig_step *step, const ig_segment *seg) {
    const ig_sequence *seq = seg->seq;
    bool all = true;
    if (!ig_step_selects(step, seg)) return step->heads.n_kv_heads;
    for (int i = 0; i < seq->n_lists; i++) all = all && seq->chosen.all[i];
    return all ? step->heads.n_kv_heads : seq->n_lists;
}

/* Jobs of the same number of views, x->jobs, which go to the device together, to attend() or prefetch(). */
typedef struct jobs {
    void (*run)(ig_device *dev, const ig_head_shape *shape, const ig_attention *jobs, int n_jobs);
    int n, n_views;
} jobs;

static void flush(const ig_step *step, jobs *j) {
    ig_head_shape shape = step->heads;
    shape.n_kv_heads = j->n_views;
    if (j->n) j->run(step->dev, &shape, step->x->jobs, j->n);
    j->n = 0;
}

static void add_job(const ig_step *step, jobs *j, const ig_attention *job, int n_views) {
    if (n_views != j->n_views) flush(step, j);
    j->n_views = n_views;
    step->x->jobs[j->n++] = *job;
}

ig_attention ig_step_job(const ig_step *step, const ig_segment *seg, ig_kv_view *views) {
    int kept = seg->row < step->first_row ? step->first_row - seg->row : 0;
    size_t at = (size_t)(seg->row + kept) * (size_t)step->heads.n_heads, d = (size_t)step->heads.head_dim;
    const ig_key_frame *frame = ig_kv_frame(&seg->seq->codec, step->layer);
    return (ig_attention){.q = step->x->q.dev + at * d,
                          .q_scale = frame ? frame->scale : NULL,
                          .out = step->x->out + at * d,
                          .lse = step->x->lse + at,
                          .n_tokens = seg->n - kept,
                          .prompt = seg->dense,
                          .window = step->window[step->layer],
                          .sink_scores = step->sink_scores ? step->sink_scores[step->layer] : NULL,
                          .views = views};
}

/* Views [n] of a selection's entries. */
static void see(const ig_step *step, const ig_segment *seg, const ig_selection *x, int n, ig_kv_view *views) {
    const ig_sequence *seq = seg->seq;
    for (int v = 0, first; v < n; v++) {
        int list = v * seq->n_lists / n, head = v * step->heads.n_kv_heads / n;
        ig_kv_pick pick = pick_of(step, seg, x, list, &first);
        views[v] = ig_kv_fetch(seq->kv, step->layer, head, pick.index, first, pick.n);
    }
}

/* What the segment's decode step attends to: views of the chosen entries; their number. */
static int see_chosen(const ig_step *step, const ig_segment *seg, ig_kv_view *views) {
    int n = count_views(step, seg);
    if (ig_step_is_hidden(step, seg)) {
        ig_step_hidden_views(step, seg, false, views);
        return seg->seq->n_lists;
    }
    see(step, seg, &seg->seq->chosen, n, views);
    return n;
}

/* Whether there is an estimate of what the segment has not chosen, or it is known to be nothing. */
static bool has_rest(const ig_step *step, const ig_segment *seg) {
    const ig_policy *p = seg->seq->policy;
    return step->is_late ? ig_step_is_hidden(step, seg) && ig_policy_has_rest(p) && !p->options.no_rest
                         : ig_step_selects(step, seg);
}

/* Attention of those of segments [begin, end) that are prompts, or decode steps, from x->q to x->out. */
static void attend(ig_step *step, int begin, int end, bool dense) {
    jobs all = {.run = step->dev->ops->attend};
    for (int s = begin; s < end; s++) {
        ig_segment *seg = &step->segments[s];
        if (seg->status || seg->dense != dense || seg->alone || seg->row + seg->n <= step->first_row) continue;
        ig_kv_view *views = views_of(step, s);
        ig_attention job = ig_step_job(step, seg, views);
        ig_rest rest = ig_step_rest(step, seg, 0);
        if (has_rest(step, seg)) job.rest = rest.value, job.rest_share = rest.share;
        if (seg->begun) job.rows = IG_ROWS_LEFT, job.carry = seg->begun;
        int first;
        pick_of(step, seg, &seg->seq->chosen, 0, &first);
        if (!ig_step_selects(step, seg) && !ig_kv_in_ram(seg->seq->kv, step->layer, first)) {
            seg->status = attend_streaming(step, seg, &job, views);
            continue;
        }
        add_job(step, &all, &job, see_chosen(step, seg, views));
    }
    flush(step, &all);
}

/* While what decode steps chose is being read: attention over what is there of it. */
static void attend_there(ig_step *step) {
    jobs all = {.run = step->dev->ops->attend};
    size_t taken = 0;
    for (int s = 0; s < step->n_segments; s++) {
        ig_segment *seg = &step->segments[s];
        if (!decodes(seg) || seg->alone || !ig_step_selects(step, seg) || !ig_kv_is_loading(seg->seq->kv)) continue;
        ig_attention job = ig_step_job(step, seg, views_of(step, s));
        int n_views = see_chosen(step, seg, views_of(step, s)), most = 0;
        for (int v = 0; v < n_views; v++) most = job.views[v].n > most ? job.views[v].n : most;
        size_t floats = ig_attend_carry_floats(&step->heads, 0, most);
        if (taken + floats > step->x->begun_floats) break;
        job.rows = IG_ROWS_THERE;
        job.carry = seg->begun = step->x->begun + taken;
        taken += floats;
        add_job(step, &all, &job, n_views);
    }
    flush(step, &all);
    ig_step_lap(step->x, IG_STEP_ATTEND);
}

/* A segment whose entries could not be brought together with the others'. */
static void attend_alone(ig_step *step, int s) {
    ig_segment *seg = &step->segments[s];
    ig_kv_want want = want_of(step, seg, &seg->seq->chosen);
    seg->alone = false;
    seg->begun = NULL;
    if (want.n_picks) seg->status = ig_kv_load(want.kv, step->layer, want.picks, want.n_picks, seg->err);
    ig_step_lap(step->x, IG_STEP_WAIT);
    attend(step, s, s + 1, false);
}

/* Fetches and attends for the decode steps, and counts the seconds as theirs. A lap has just ended. */
static void attend_decode(ig_step *step) {
    bool any = false;
    double start = step->x->clock.now;
    for (int s = 0; s < step->n_segments; s++) any = any || decodes(&step->segments[s]);
    if (!any) return;
    for (int s = 0; s < step->n_segments; s++) step->segments[s].alone = false, step->segments[s].begun = NULL;
    load(step, ig_kv_load_begin);
    ig_step_lap(step->x, IG_STEP_WAIT);
    ig_step_estimate(step);
    attend_there(step);
    load(step, ig_kv_load_end);
    ig_step_lap(step->x, IG_STEP_WAIT);
    attend(step, 0, step->n_segments, false);
    ig_step_lap(step->x, IG_STEP_ATTEND);
    step->x->decode_seconds += step->x->clock.now - start;
}

/* Attention has read what it was given. */
static ig_status finish(const ig_step *step, ig_error *err) { return step->dev->ops->finish(step->dev, err); }

/* Whether attention has to have ended before the device is waited for again. */
static bool must_finish(const ig_step *step) {
    for (int s = 0; s < step->n_segments; s++)
        if (ig_sequence_is_watched(step->segments[s].seq)) return true;
    return false;
}

static ig_status attend_once(ig_step *step, ig_error *err) {
    if (step->is_shared)
        read_again(step);
    else
        append(step);
    ig_step_lap(step->x, IG_STEP_APPEND);
    for (int s = 0; s < step->n_segments; s++) add_own(step, &step->segments[s]);
    ig_step_select(step, IG_SPECULATE_NONE);
    ig_step_lap(step->x, IG_STEP_SELECT);
    attend(step, 0, step->n_segments, true);
    ig_step_lap(step->x, IG_STEP_ATTEND);
    attend_decode(step);
    ig_status status = must_finish(step) ? finish(step, err) : IG_OK;
    ig_step_lap(step->x, IG_STEP_ATTEND);
    for (int s = 0; s < step->n_segments && !status && !step->is_late; s++)
        if (!step->segments[s].alone) ig_step_observe(step, &step->segments[s]);
    for (int s = 0; s < step->n_segments && !status; s++) {
        if (!step->segments[s].alone) continue;
        ig_step_lap(step->x, IG_STEP_OTHER);
        attend_alone(step, s);
        status = finish(step, err);
        ig_step_lap(step->x, IG_STEP_ATTEND);
        if (!status) ig_step_observe(step, &step->segments[s]);
    }
    if (!status) ig_step_drop(step);
    ig_step_lap(step->x, IG_STEP_OTHER);
    return status;
}

/* Whether a segment has tokens in a round: all of a prompt in the first one, in each a token that is decoded. */
static bool is_in_round(const ig_segment *seg, int round) {
    return !seg->status && (seg->dense ? round == 0 : round < seg->n);
}

/* Tokens that are decoded behind each other follow one by one, as they would in steps of their own: a token of each
 * sequence is a round. */
static ig_status attend_round(const ig_step *step, int number, ig_error *err) {
    ig_step round = *step;
    round.segments = step->x->round, round.n_segments = 0;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        ig_segment *own = &round.segments[round.n_segments];
        if (!is_in_round(seg, number)) continue;
        *own = *seg;
        if (!seg->dense) own->first += number, own->row += number, own->n = 1;
        if (number > 0) seg->seq->chosen.layer = -1; /* by the token before */
        round.n_segments++;
    }
    ig_status status = attend_once(&round, err);
    for (int s = 0, n = 0; s < step->n_segments; s++)
        if (is_in_round(&step->segments[s], number)) step->segments[s].status = round.segments[n++].status;
    return status;
}

ig_status ig_step_attend(ig_step *step, ig_error *err) {
    int n_rounds = 1;
    for (int s = 0; s < step->n_segments; s++)
        if (!step->segments[s].dense) n_rounds = ig_max_int(n_rounds, step->segments[s].n);
    if (n_rounds == 1) return attend_once(step, err);
    ig_status status = IG_OK;
    for (int i = 0; i < n_rounds && !status; i++) status = attend_round(step, i, err);
    return status;
}

/* ---- guess -------------------------------------------------------------------------- */

/* A guess of step->layer that is to be read ahead. */
static bool reads_ahead(const ig_step *step, const ig_segment *seg, ig_speculation kind) {
    return ig_step_guesses(step, seg, kind) && ig_sequence_reads_ahead(seg->seq);
}

/* Starts to read what was guessed for segments of the memory of segment s, the first of them. */
static void prefetch(ig_step *step, int s, ig_speculation kind) {
    ig_kv_memory *m = ig_kv_memory_of(step->segments[s].seq->kv);
    int n = 0;
    for (int i = 0; i < step->n_segments; i++) {
        const ig_segment *seg = &step->segments[i];
        if (!reads_ahead(step, seg, kind) || ig_kv_memory_of(seg->seq->kv) != m) continue;
        if (i < s) return; /* it was done with that one's */
        step->x->wants[n++] = want_of(step, seg, &seg->seq->guess);
    }
    ig_error *err = n == 1 ? step->segments[s].err : NULL;
    ig_status status = ig_kv_prefetch_all(m, step->layer, step->x->wants, n, err);
    if (n == 1) step->segments[s].status = status; /* of several load() tells which has failed */
}

/* Starts to copy to a device what was guessed for segments and is in RAM. */
static void copy_ahead(const ig_step *step, ig_speculation kind) {
    jobs all = {.run = step->dev->ops->prefetch};
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        ig_kv_view *views = views_of(step, s);
        if (!reads_ahead(step, seg, kind) || !ig_kv_has_copies(seg->seq->kv)) continue;
        if (step->is_late)
            ig_step_hidden_views(step, seg, true, views);
        else
            see(step, seg, &seg->seq->guess, seg->seq->n_lists, views);
        add_job(step, &all, &(ig_attention){.n_tokens = 1, .views = views}, seg->seq->n_lists);
    }
    flush(step, &all);
}

void ig_step_guess(ig_step *step, ig_speculation kind) {
    ig_step_select(step, kind);
    for (int s = 0; s < step->n_segments; s++)
        if (reads_ahead(step, &step->segments[s], kind) && ig_kv_has_disk(step->segments[s].seq->kv))
            prefetch(step, s, kind);
    copy_ahead(step, kind);
}
