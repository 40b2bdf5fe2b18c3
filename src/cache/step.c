/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer of a step, in the order of docs/architecture.md's figure: append, select, fetch, attend.
 */
#include <assert.h>
#include <string.h>

#include "cache/step_parts.h"

/* Of a batch of sequences so many chosen entries more than a context are attended to before the others are there. */
enum { BEGUN_ENTRIES = 16 * IG_ATTEND_UNIT };

/* ---- scratch ------------------------------------------------------------------ */

/* Of any layer. */
static size_t carry_floats(const ig_layer_heads *layers, int n_tokens, int n) {
    size_t all = ig_attend_carry_floats(&layers->all, n_tokens, n),
           local = ig_attend_carry_floats(&layers->local, n_tokens, n);
    return all > local ? all : local;
}

void ig_step_lay_out(ig_space *a, ig_step_scratch *x, const ig_layer_heads *layers, int n_threads,
                     const ig_step_need *need) {
    const ig_head_shape *s = &layers->all, *local = &layers->local;
    size_t rows = (size_t)need->max_rows, n_ctx = (size_t)need->n_ctx,
           n_heads = (size_t)ig_max_int(s->n_heads, local->n_heads),
           heads = (size_t)ig_max_int(s->n_heads * s->head_dim, local->n_heads * local->head_dim),
           kv = (size_t)s->n_kv_heads * (size_t)s->head_dim,
           local_kv = (size_t)local->n_kv_heads * (size_t)local->head_dim;
    if (kv < local_kv) kv = local_kv;
    x->select_bytes = ig_round_up(need->select_bytes, IG_ALIGN);
    x->q = ig_space_twin(a, rows * heads);
    x->k = ig_space_twin(a, rows * kv);
    x->v = ig_space_twin(a, rows * kv);
    size_t index_heads = (size_t)layers->index.n_heads, index_dim = (size_t)layers->index.dim;
    x->index_k = ig_space_twin(a, rows * index_dim);
    for (int i = 0; i < 2; i++) x->index[i].q = ig_space_twin(a, rows * index_heads * index_dim);
    for (int i = 0; i < 2 && !layers->index.block; i++) x->index[i].weights = ig_space_twin(a, rows * index_heads);
    x->lse = ig_space_device(a, rows * n_heads * sizeof(float));
    x->rest.value = ig_space_host(a, rows * heads * sizeof(float));
    x->rest.share = ig_space_host(a, rows * n_heads * sizeof(float));
    x->jobs = ig_space_host(a, rows * sizeof *x->jobs);
    x->appends = ig_space_host(a, rows * sizeof *x->appends);
    x->views = ig_space_host(a, rows * n_heads * sizeof *x->views);
    x->picks = ig_space_host(a, rows * n_heads * sizeof *x->picks);
    x->wants = ig_space_host(a, rows * sizeof *x->wants);
    x->single = ig_space_host(a, rows * sizeof *x->single);
    x->pieces = ig_space_host(a, rows * sizeof *x->pieces);
    x->kept_entries = (size_t)need->kept_entries;
    x->kept = ig_space_host(a, rows * x->kept_entries * sizeof *x->kept);
    x->n_kept = ig_space_host(a, rows * sizeof *x->n_kept);
    x->attending = ig_space_host(a, rows * sizeof *x->attending);
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
    x->weights = x->dense = x->own = x->sorted = x->carry = x->begun = NULL;
    x->keep = NULL;
    if (need->weighs || need->drops) x->weights = ig_space_host(a, n_heads * n_ctx * sizeof(float));
    x->audits = NULL;
    if (need->weighs) {
        x->dense = ig_space_host(a, heads * sizeof(float));
        x->own = ig_space_host(a, heads * sizeof(float));
        x->sorted = ig_space_host(a, n_ctx * sizeof(float));
        x->audits = ig_space_host(a, n_heads * sizeof *x->audits);
    }
    if (need->drops) x->keep = ig_space_host(a, (size_t)s->n_kv_heads * n_ctx * sizeof *x->keep);
    if (!need->streams) return;
    size_t prefill = carry_floats(layers, need->max_rows, 0), decode = carry_floats(layers, 0, need->n_ctx);
    x->carry_floats = prefill > decode ? prefill : decode;
    x->carry = ig_space_device(a, x->carry_floats * sizeof(float));
    x->begun_floats = decode + carry_floats(layers, 0, BEGUN_ENTRIES);
    x->begun = ig_space_device(a, x->begun_floats * sizeof(float));
}

/* ---- a pass ------------------------------------------------------------------- */

void ig_step_begin(const ig_step *step) {
    for (int s = 0; s < step->n_segments; s++) {
        ig_sequence *seq = step->segments[s].seq;
        seq->guess.layer = -1;
        ig_kv_begin_step(ig_kv_memory_of(seq->kv));
    }
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

/* One head's key and value in a row of the batch. */
static void write_row(const ig_step *step, const ig_kv_codec *codec, const ig_kv_row *to, int head, size_t row) {
    const ig_head_shape *c = &step->heads;
    size_t at = (row * (size_t)c->n_kv_heads + (size_t)head) * (size_t)c->head_dim,
           dim = (size_t)step->layers->index.dim;
    ig_kv_write(codec, to, step->layer, head, step->x->k.host + at, step->x->v.host + at);
    if (ig_has_index(step->layers, step->layer)) ig_kv_write_index(codec, to, head, step->x->index_k.host + row * dim);
}

/* Writes one head's key and value of a token, and shows them to the policy as 16-bit floats: what attention will see,
 * and what a policy that comes later can have. */
static void append_token(const ig_step *step, const ig_segment *seg, int head, int i, bool sketched) {
    ig_sequence *seq = seg->seq;
    int token = seg->first + i, slot = ig_kv_slot(seq->kv, step->layer, head, token);
    ig_kv_row row = ig_kv_at(seq->kv, step->layer, head, slot);
    write_row(step, &seq->codec, &row, head, (size_t)(seg->row + i));
    if (seq->shadow) {
        ig_kv_row whole = ig_kv_at(seq->shadow, step->layer, head, token);
        write_row(step, &seq->codec, &whole, head, (size_t)(seg->row + i));
    }
    if (sketched) ig_sequence_show(seq, step->layer, head, slot, &row);
}

/* Task: one KV head of one segment. Writes its new keys and values, and shows queries and keys to the policy. */
static void append_task(void *arg, int task, int thread) {
    const ig_step *step = arg;
    const ig_head_shape *c = &step->heads;
    int head = task % c->n_kv_heads;
    const ig_segment *seg = &step->segments[task / c->n_kv_heads];
    ig_policy *p = seg->seq->policy;
    bool sparse = !ig_policy_is_dense(p, step->layer), sketched = sparse && ig_policy_sees_rows(p->ops);
    (void)thread;
    if (seg->status) return;
    if (sparse) show_queries(step, seg, head);
    for (int i = 0; i < seg->n; i++) append_token(step, seg, head, i, sketched);
}

/* The device keeps the rows. */
static void append_there(const ig_step *step) {
    const ig_head_shape *c = &step->heads;
    size_t width = (size_t)c->n_kv_heads * (size_t)c->head_dim;
    int n_jobs = 0;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        const ig_key_frame *frame = ig_kv_frame(&seg->seq->codec, step->layer);
        ig_kv_view *views = ig_step_views(step, s);
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
    return step->speculates ? IG_SPECULATE_LATE : IG_SPECULATE_NONE;
}

bool ig_step_guesses(const ig_step *step, const ig_segment *seg, ig_speculation kind) {
    const ig_sequence *seq = seg->seq;
    if (seg->status || ig_step_speculation(step, seq) != kind || !ig_step_selects(step, seg) || seg->first == 0)
        return false;
    if (seq->policy->ops->limit) return false; /* it uses what it holds, and may drop some before */
    if (step->is_late && ig_policy_takes_all(seq->policy, seg->first)) return false;
    if (kind == IG_SPECULATE_PAPER && ig_policy_keeps_choice(seq->policy, step->layer)) return false; /* it is known */
    return kind == IG_SPECULATE_PAPER || ig_sequence_reads_ahead(seq);
}

/* A layer begins: nothing is chosen for it, but what it keeps of the layer before. */
static void begin_choice(const ig_step *step, const ig_sequence *seq, ig_selection *x) {
    bool is_kept = ig_policy_keeps_choice(seq->policy, step->layer) && x->layer == step->layer - 1;
    x->layer = is_kept ? step->layer : -1;
}

void ig_step_take_guesses(const ig_step *step) {
    for (int s = 0; s < step->n_segments; s++) {
        ig_sequence *seq = step->segments[s].seq;
        begin_choice(step, seq, seq->chosen);
        if (seq->speculate != IG_SPECULATE_PAPER || seq->guess.layer != step->layer) continue;
        ig_selection guess = seq->guess;
        seq->guess = *seq->chosen;
        *seq->chosen = guess;
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
    ig_selection guess = *ig_step_chosen(seg);
    if (seg->status || guess.layer != step->layer || ig_step_is_hidden(step, seg)) return;
    if (ig_policy_keeps_choice(seq->policy, step->layer)) return; /* it is there */
    for (int i = 0; i < seq->n_lists; i++) {
        ig_entries e = ig_kv_entries(seq->kv, step->layer, i * step->heads.n_kv_heads / seq->n_lists);
        int own = ig_entry_slot(&e, e.n - 1);
        if (!guess.all[i]) guess.slots[(size_t)i * (size_t)seq->n_ctx + (size_t)guess.n[i]] = own;
        guess.n[i]++;
    }
}

/* Keys and values of segments are kept, of one token each where they decode, and the policies select for these. */
static void choose(ig_step *step) {
    if (step->is_shared)
        read_again(step);
    else
        append(step);
    ig_step_lap(step->x, IG_STEP_APPEND);
    for (int s = 0; s < step->n_segments; s++) add_own(step, &step->segments[s]);
    ig_step_select(step, IG_SPECULATE_NONE);
    ig_step_lap(step->x, IG_STEP_SELECT);
}

/* Where sequences decode tokens behind each other, each token becomes a segment: first those of all first tokens, with
 * prompts, which stay whole, then those of second ones, and so on. Whether there are such sequences. */
static bool split(ig_step *step) {
    const ig_segment *whole = step->segments;
    int n_whole = step->n_segments, n_rounds = 1;
    for (int s = 0; s < n_whole; s++)
        if (!whole[s].dense) n_rounds = ig_max_int(n_rounds, whole[s].n);
    if (n_rounds == 1) return false;
    step->segments = step->x->single, step->n_segments = 0;
    for (int i = 0; i < n_rounds; i++) {
        for (int s = 0; s < n_whole; s++) {
            ig_segment *one = &step->segments[step->n_segments];
            if (i > 0 && (whole[s].dense || i >= whole[s].n)) continue;
            *one = whole[s];
            if (!one->dense) one->first += i, one->row += i, one->n = 1, one->ahead = i;
            if (i > 0) begin_choice(step, one->seq, ig_step_chosen(one));
            step->n_segments++;
        }
    }
    return true;
}

/* What has become of the segments' tokens. */
static void join(const ig_step *step, const ig_step *single) {
    for (int s = 0; s < step->n_segments; s++) {
        ig_segment *seg = &step->segments[s];
        for (int i = 0; i < single->n_segments && !seg->status; i++)
            if (single->segments[i].seq == seg->seq) seg->status = single->segments[i].status;
    }
}

/* A choice depends on what the tokens before it have chosen, and on nothing else of theirs. */
static ig_status attend(ig_step *step, ig_error *err) {
    ig_step all = *step;
    if (!split(&all)) {
        choose(step);
        return ig_step_attend_to_chosen(step, err);
    }
    for (int begin = 0, end = 0; begin < all.n_segments; begin = end) {
        ig_step round = all;
        while (end < all.n_segments && all.segments[end].ahead == all.segments[begin].ahead) end++;
        round.segments += begin, round.n_segments = end - begin;
        choose(&round);
        if (end < all.n_segments) ig_step_estimate(&round); /* those of the last round wait for what is read */
        ig_step_spread_failures(&all);
    }
    ig_status status = ig_step_attend_to_chosen(&all, err);
    join(step, &all);
    return status;
}

/* ---- prompts whose tokens choose ------------------------------------------------ */

/* How many of a segment's first tokens attend to everything before them, if its others choose; else all. */
static int count_dense(const ig_step *step, const ig_segment *seg) {
    const ig_policy *p = seg->seq->policy;
    int n = 0;
    if (!seg->dense || !p->ops->info.chooses_in_prompts || ig_policy_is_dense(p, step->layer)) return seg->n;
    while (n < seg->n && ig_policy_takes_all(p, seg->first + n + 1)) n++;
    return n;
}

/* Tokens [begin, begin + n) of a segment. */
static ig_segment part_of(const ig_segment *seg, int begin, int n) {
    ig_segment part = *seg;
    part.first += begin, part.row += begin, part.n = n;
    return part;
}

/* What is not of such tokens, to x->pieces; whether there are any. */
static bool put_off(ig_step *step) {
    const ig_segment *all = step->segments;
    int n_all = step->n_segments;
    bool any = false;
    for (int s = 0; s < n_all; s++) any = any || count_dense(step, &all[s]) < all[s].n;
    if (!any) return false;
    step->segments = step->x->pieces, step->n_segments = 0;
    for (int s = 0; s < n_all; s++) {
        int n = count_dense(step, &all[s]);
        if (n || !all[s].n) step->segments[step->n_segments++] = part_of(&all[s], 0, n);
    }
    return true;
}

/* The next tokens of each, behind the first `passed` that choose, to x->pieces. Whether there are any. */
static bool take_next(const ig_step *step, int passed, ig_step *pieces) {
    *pieces = *step;
    pieces->segments = step->x->pieces, pieces->n_segments = 0;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *seg = &step->segments[s];
        int begin = count_dense(step, seg) + passed, n = ig_min_int(seg->n - begin, IG_STEP_ROWS);
        if (n > 0) pieces->segments[pieces->n_segments++] = part_of(seg, begin, n);
    }
    return pieces->n_segments > 0;
}

/* Each of their tokens by itself, to x->single; of those before the step's first row only keys and values are asked
 * for. */
static void part_pieces(const ig_step *pieces, ig_step *single) {
    *single = *pieces;
    single->segments = pieces->x->single, single->n_segments = 0;
    for (int s = 0; s < pieces->n_segments; s++)
        for (int i = 0; i < pieces->segments[s].n; i++) {
            ig_segment one = part_of(&pieces->segments[s], i, 1);
            one.dense = false, one.of_prompt = true, one.ahead = i;
            if (one.row >= pieces->first_row) single->segments[single->n_segments++] = one;
        }
}

/* Whether the next layer uses what this one chooses. */
static bool is_for_next(const ig_step *step, const ig_segment *seg) {
    const ig_policy *p = seg->seq->policy;
    return step->layer + 1 < p->shape.n_layers && ig_policy_keeps_choice(p, step->layer + 1);
}

/* Tokens choose, or have chosen in the layer before. */
static void choose_in_prompts(ig_step *step) {
    const ig_step_scratch *x = step->x;
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *one = &step->segments[s];
        ig_selection *out = ig_step_chosen(one);
        out->layer = -1;
        if (one->status || !ig_policy_keeps_choice(one->seq->policy, step->layer)) continue;
        assert(x->n_kept[one->row] <= one->seq->n_ctx);
        out->layer = step->layer, *out->n = x->n_kept[one->row], *out->all = false;
        memcpy(out->slots, x->kept + (size_t)one->row * x->kept_entries, (size_t)*out->n * sizeof *out->slots);
    }
    ig_step_select(step, IG_SPECULATE_NONE);
    for (int s = 0; s < step->n_segments; s++) {
        const ig_segment *one = &step->segments[s];
        const ig_selection *out = ig_step_chosen(one);
        if (one->status || ig_policy_keeps_choice(one->seq->policy, step->layer) || !is_for_next(step, one)) continue;
        assert((size_t)*out->n <= x->kept_entries);
        x->n_kept[one->row] = *out->n;
        memcpy(x->kept + (size_t)one->row * x->kept_entries, out->slots, (size_t)*out->n * sizeof *out->slots);
    }
}

/* Their time is not that of decode steps. */
static ig_status attend_in_prompts(ig_step *step, ig_error *err) {
    ig_step pieces, single;
    ig_status status = IG_OK;
    double seconds = step->x->decode_seconds;
    for (int passed = 0; !status && take_next(step, passed, &pieces); passed += IG_STEP_ROWS) {
        append(&pieces);
        ig_step_lap(step->x, IG_STEP_APPEND);
        part_pieces(&pieces, &single);
        choose_in_prompts(&single);
        ig_step_lap(step->x, IG_STEP_SELECT);
        status = ig_step_attend_to_chosen(&single, err);
        join(step, &pieces);
        join(step, &single);
    }
    step->x->decode_seconds = seconds;
    return status;
}

ig_status ig_step_attend(ig_step *step, ig_error *err) {
    ig_step others = *step;
    if (!put_off(&others)) return attend(step, err);
    ig_status status = others.n_segments ? attend(&others, err) : IG_OK;
    join(step, &others);
    return status ? status : attend_in_prompts(step, err);
}
