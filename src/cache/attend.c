/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer's attention: what was chosen is fetched, wherever it lies, and attended to; and what is guessed of the next
 * layer is read ahead.
 */
#include "cache/step_parts.h"

#include <assert.h>
#include <limits.h>

/* ---- fetch and attend ------------------------------------------------------------ */

/* The entries of a list that attention reads when they can be in RAM all at once: what was selected, a window, or
 * everything. Windows are of layers that hold every token. */
static ig_kv_pick pick_of(const ig_step *step, const ig_segment *seg, const ig_selection *x, int list, int *first) {
    const ig_sequence *seq = seg->seq;
    int head = list * step->heads.n_kv_heads / seq->n_lists;
    *first = 0;
    if (ig_step_selects(step, seg) && !x->all[list])
        return (ig_kv_pick){x->slots + (size_t)list * (size_t)seq->n_ctx, x->n[list]};
    ig_entries e = ig_step_entries(step, seg, head);
    if (!seg->dense) *first = ig_window_begin(ig_step_window(step), e.n);
    return (ig_kv_pick){e.slot, e.n - *first};
}

/* What the segment selected, or a decode step's window. Without picks nothing has to be brought. */
static ig_kv_want want_of(const ig_step *step, const ig_segment *seg, const ig_selection *x) {
    ig_sequence *seq = seg->seq;
    ig_kv_pick *picks = step->x->picks + (size_t)(seg - step->segments) * (size_t)step->heads.n_heads;
    ig_kv_want want = {.kv = seq->kv, .picks = picks};
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

static ig_attending *attending(const ig_step *step, const ig_segment *seg) {
    return &step->x->attending[seg - step->segments];
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
        if (!decodes(seg) || attending(step, seg)->alone || ig_kv_memory_of(seg->seq->kv) != m) continue;
        ig_kv_want want = want_of(step, seg, ig_step_chosen(seg));
        if (!want.n_picks) continue;
        wants[n++] = want;
        one = seg;
    }
    if (!n) return;
    ig_status status = load(m, step->layer, wants, n, n == 1 ? one->err : NULL);
    if (n == 1) one->status = status;
    for (int i = s; n > 1 && status && i < step->n_segments; i++) {
        const ig_segment *seg = &step->segments[i];
        attending(step, seg)->alone = decodes(seg) && ig_kv_memory_of(seg->seq->kv) == m;
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

/* The views of a token after which `behind` more were kept: it sees as many rows fewer. */
static void look_back(const ig_step *step, const ig_kv_view *from, int behind, ig_kv_view *to) {
    for (int h = 0; h < step->heads.n_kv_heads; h++) to[h] = from[h], to[h].n -= behind;
}

/* They are not all in RAM: piece by piece, of a prompt or of n_jobs tokens that are decoded behind each other, of which
 * `last` is the last one. Each job has views of its own. */
static ig_status attend_streaming(const ig_step *step, const ig_segment *last, ig_attention *jobs, int n_jobs) {
    ig_head_shape shape = step->heads;
    int n = last->first + last->n, first = 0;
    ig_kv_view *views = (ig_kv_view *)jobs[n_jobs - 1].views;
    for (int i = 0; i < n_jobs; i++) {
        jobs[i].rows = IG_ROWS_IN_ORDER;
        jobs[i].carry = step->x->carry + (size_t)i * ig_attend_carry_floats(&shape, 0, n);
    }
    for (int begin = 0; begin < n; begin += IG_ATTEND_UNIT) {
        ig_step_lap(step->x, IG_STEP_ATTEND);
        ig_status s = ig_kv_stream(last->seq->kv, step->layer, begin, n, views, last->err);
        ig_step_lap(step->x, IG_STEP_WAIT);
        if (s) return s;
        while (n - (n_jobs - 1 - first) <= begin) first++; /* it has seen all of its rows */
        for (int i = first; i < n_jobs; i++) {
            int behind = n_jobs - 1 - i;
            if (behind) look_back(step, views, behind, (ig_kv_view *)jobs[i].views);
            jobs[i].begin = begin;
            jobs[i].end = ig_min_int(n - behind, begin + IG_ATTEND_UNIT);
        }
        step->dev->ops->attend(step->dev, &shape, jobs + first, n_jobs - first);
        s = step->dev->ops->finish(step->dev, last->err);
        if (s) return s;
    }
    return IG_OK;
}

ig_status ig_step_attend_all(const ig_step *step, const ig_segment *seg, ig_attention *job, ig_kv_view *views) {
    ig_head_shape shape = step->heads;
    job->views = views;
    if (!ig_kv_in_ram(seg->seq->kv, step->layer, 0, INT_MAX)) return attend_streaming(step, seg, job, 1);
    ig_step_all_views(step, seg, views);
    step->dev->ops->attend(step->dev, &shape, job, 1);
    return step->dev->ops->finish(step->dev, seg->err);
}

/* The lists that attention reads: one per query head only where they differ from each other. */
static int count_views(const ig_step *step, const ig_segment *seg) {
    const ig_sequence *seq = seg->seq;
    bool all = true;
    if (!ig_step_selects(step, seg)) return step->heads.n_kv_heads;
    for (int i = 0; i < seq->n_lists; i++) all = all && ig_step_chosen(seg)->all[i];
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
                          .is_coarse = step->is_coarse,
                          .window = ig_step_window(step),
                          .sink_scores = step->sink_scores ? step->sink_scores[step->layer] : NULL,
                          .cap = step->cap,
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
    see(step, seg, ig_step_chosen(seg), n, views);
    return n;
}

/* Whether there is an estimate of what the segment has not chosen, or it is known to be nothing. */
static bool has_rest(const ig_step *step, const ig_segment *seg) {
    const ig_policy *p = seg->seq->policy;
    return step->is_late ? ig_step_is_hidden(step, seg) && ig_policy_has_rest(p) && !p->options.no_rest
                         : ig_step_selects(step, seg);
}

/* Whether the segment has queries whose attention is asked for now. */
static bool attends(const ig_step *step, const ig_segment *seg, bool dense) {
    return !seg->status && seg->dense == dense && !attending(step, seg)->alone && seg->row + seg->n > step->first_row;
}

/* Whether the segment's rows pass by, since not all of them can be in RAM at once: those of a prompt, or of a decode
 * step that wants all. A window was brought there. */
static bool streams(const ig_step *step, const ig_segment *seg) {
    int first;
    if (ig_step_selects(step, seg)) return false;
    pick_of(step, seg, ig_step_chosen(seg), 0, &first);
    bool are_there = ig_kv_in_ram(seg->seq->kv, step->layer, first, ig_step_entries(step, seg, 0).n_slots);
    assert(are_there || first == 0);
    return !are_there;
}

/* Attention of segment s, whose rows are not all in RAM, and of those before `end` that decode later tokens of its
 * sequence, as many as there is scratch for: their rows pass by once. */
static void stream_together(ig_step *step, int s, int end) {
    ig_segment *seg = &step->segments[s], *last = seg;
    size_t each = ig_attend_carry_floats(&step->heads, 0, seg->first + IG_STEP_ROWS);
    int n = 0, most = seg->dense ? 1 : (int)(step->x->carry_floats / each);
    ig_segment *taken[IG_STEP_ROWS];
    for (int i = s; i < end && n < IG_STEP_ROWS && (n < most || !n); i++) {
        ig_segment *next = &step->segments[i];
        if (next->seq != seg->seq || !attends(step, next, seg->dense) || !streams(step, next)) continue;
        step->x->jobs[n] = ig_step_job(step, next, ig_step_views(step, i));
        taken[n++] = last = next;
        if (seg->dense) break;
    }
    ig_status status = attend_streaming(step, last, step->x->jobs, n);
    for (int i = 0; i < n; i++) taken[i]->status = status, attending(step, taken[i])->streamed = true;
}

/* Attention of those of segments [begin, end) that are prompts, or decode steps, from x->q to x->out. */
static void attend(ig_step *step, int begin, int end, bool dense) {
    jobs all = {.run = step->dev->ops->attend};
    for (int s = begin; s < end; s++) {
        ig_segment *seg = &step->segments[s];
        if (!attends(step, seg, dense) || attending(step, seg)->streamed) continue;
        if (streams(step, seg)) {
            flush(step, &all);
            stream_together(step, s, end);
            continue;
        }
        ig_kv_view *views = ig_step_views(step, s);
        ig_attention job = ig_step_job(step, seg, views);
        ig_rest rest = ig_step_rest(step, seg, 0);
        if (has_rest(step, seg)) job.rest = rest.value, job.rest_share = rest.share;
        if (attending(step, seg)->begun) job.rows = IG_ROWS_LEFT, job.carry = attending(step, seg)->begun;
        add_job(step, &all, &job, see_chosen(step, seg, views));
    }
    flush(step, &all);
}

/* While what decode steps chose is being read: attention over what is there of it. */
static void attend_there(ig_step *step) {
    jobs all = {.run = step->dev->ops->attend};
    size_t taken = 0;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        if (!decodes(seg) || attending(step, seg)->alone) continue;
        if (!ig_step_selects(step, seg) || !ig_kv_is_loading(seg->seq->kv)) continue;
        ig_attention job = ig_step_job(step, seg, ig_step_views(step, s));
        int n_views = see_chosen(step, seg, ig_step_views(step, s)), most = 0;
        for (int v = 0; v < n_views; v++) most = job.views[v].n > most ? job.views[v].n : most;
        size_t floats = ig_attend_carry_floats(&step->heads, 0, most);
        if (taken + floats > step->x->begun_floats) break;
        job.rows = IG_ROWS_THERE;
        job.carry = attending(step, seg)->begun = step->x->begun + taken;
        taken += floats;
        add_job(step, &all, &job, n_views);
    }
    flush(step, &all);
    ig_step_lap(step->x, IG_STEP_ATTEND);
}

/* A segment whose entries could not be brought together with the others'. */
static void attend_alone(ig_step *step, int s) {
    ig_segment *seg = &step->segments[s];
    ig_kv_want want = want_of(step, seg, ig_step_chosen(seg));
    *attending(step, seg) = (ig_attending){0};
    if (seg->status) return; /* as a token before it has */
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

void ig_step_spread_failures(const ig_step *step) {
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *failed = &step->segments[s];
        for (int i = s + 1; i < step->n_segments && failed->status; i++)
            if (step->segments[i].seq == failed->seq) step->segments[i].status = failed->status;
    }
}

ig_status ig_step_attend_to_chosen(ig_step *step, ig_error *err) {
    const ig_attending *now = step->x->attending;
    for (int s = 0; s < step->n_segments; s++) step->x->attending[s] = (ig_attending){0};
    attend(step, 0, step->n_segments, true);
    ig_step_lap(step->x, IG_STEP_ATTEND);
    attend_decode(step);
    ig_step_spread_failures(step);
    ig_status status = must_finish(step) ? finish(step, err) : IG_OK;
    ig_step_lap(step->x, IG_STEP_ATTEND);
    for (int s = 0; s < step->n_segments && !status && !step->is_late; s++)
        if (!now[s].alone) ig_step_observe(step, &step->segments[s]);
    for (int s = 0; s < step->n_segments && !status; s++) {
        if (!now[s].alone) continue;
        ig_step_spread_failures(step);
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
        ig_kv_view *views = ig_step_views(step, s);
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
