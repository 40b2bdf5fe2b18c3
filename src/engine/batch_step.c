/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of several sessions: pieces of prompts and single tokens together. ig_batch_step() gives each session a status
 * of its own; ig_session_decode() is the same for single tokens, all or none. ig_session_sync() computes its pieces by
 * the same forward pass and takes tokens and logits from it as these do.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "engine/session.h"

/* Only sessions are stepped by the batch of their model. */
static ig_session *session_of(const ig_segment *seg) {
    return (ig_session *)(void *)((char *)seg->seq - offsetof(ig_session, seq));
}

/* ---- what is asked for ---------------------------------------------------------------- */

/* The sessions of a call: of its items, or each with a token to be decoded. */
typedef struct call {
    const char *name;
    const ig_batch_item *items;  /* [n] or NULL */
    ig_session *const *sessions; /* [n] */
    const int32_t *ids;          /* [n] */
    size_t n;
} call;

static ig_session *session_at(const call *c, size_t i) { return c->items ? c->items[i].session : c->sessions[i]; }

static ig_batch_item item_at(const call *c, size_t i) {
    return c->items ? c->items[i] : (ig_batch_item){.session = c->sessions[i], .ids = &c->ids[i], .n = 1};
}

/* Whether one step can be made of n_rows tokens of these sessions. */
static ig_status check_sessions(const call *c, size_t n_rows, ig_error *err) {
    int most = 0;
    for (size_t i = 0; i < c->n; i++)
        if (!session_at(c, i)) return ig_fail(err, IG_E_ARG, "%s: session %zu is missing", c->name, i);
    for (size_t i = 0; i < c->n; i++) {
        const ig_session *s = session_at(c, i);
        if (s->model != session_at(c, 0)->model)
            return ig_fail(err, IG_E_ARG, "%s: sessions of different models", c->name);
        if (s->options.n_batch > most) most = s->options.n_batch;
    }
    if (n_rows > (size_t)most)
        return ig_fail(err, IG_E_LIMIT, "%zu tokens in one step are more than n_batch = %d", n_rows, most);
    for (size_t i = 0; i < c->n; i++)
        for (size_t j = 0; j < i; j++)
            if (session_at(c, i) == session_at(c, j))
                return ig_fail(err, IG_E_ARG, "%s: a session appears twice", c->name);
    return IG_OK;
}

static ig_status check_items(const ig_batch_item *items, size_t n, ig_error *err) {
    size_t n_rows = 0;
    if (!items || n < 1) return ig_fail(err, IG_E_ARG, "ig_batch_step: no items");
    for (size_t i = 0; i < n; i++) {
        if (!items[i].ids || items[i].n < 1) return ig_fail(err, IG_E_ARG, "ig_batch_step: item %zu has no tokens", i);
        if (!items[i].prompt && items[i].n > 1)
            return ig_fail(err, IG_E_ARG, "ig_batch_step: item %zu: %d tokens to be decoded in one step", i,
                           items[i].n);
        if (items[i].more < 0 || items[i].more > IG_CTX_MAX)
            return ig_fail(err, IG_E_ARG, "ig_batch_step: item %zu has %d more tokens to come", i, items[i].more);
        if (!items[i].prompt && items[i].on_states)
            return ig_fail(err, IG_E_ARG, "ig_batch_step: item %zu wants states of a prompt, but is none", i);
        if (!items[i].prompt && items[i].more)
            return ig_fail(err, IG_E_ARG, "ig_batch_step: item %zu has more of a prompt, but is none", i);
        n_rows += (size_t)items[i].n;
    }
    return check_sessions(&(call){.name = "ig_batch_step", .items = items, .n = n}, n_rows, err);
}

static ig_status check_tokens(const ig_session *s, const int32_t *ids, int n, ig_error *err) {
    int n_ctx = s->options.n_ctx;
    if (s->n_tokens >= n_ctx) return ig_fail(err, IG_E_LIMIT, "the context of %d tokens is full", n_ctx);
    if (n > n_ctx - s->n_tokens)
        return ig_fail(err, IG_E_LIMIT, "%d tokens after %d are more than the context of %d", n, s->n_tokens, n_ctx);
    if (n > s->options.n_batch)
        return ig_fail(err, IG_E_LIMIT, "%d tokens in one step are more than the session's n_batch = %d", n,
                       s->options.n_batch);
    return ig_model_check_ids(s->model, ids, s->n_tokens, n, err);
}

static bool is_foreseen(const ig_batch_item *x) { return !x->prompt && ig_session_foresaw(x->session, *x->ids); }

/* Whether a session may get these tokens. What was computed ahead is taken back, unless it is what comes. */
static ig_status admit(const ig_batch_item *x, ig_error *err) {
    ig_status status = check_tokens(x->session, x->ids, x->n, err);
    return status || is_foreseen(x) ? status : ig_session_drop_ahead(x->session, err);
}

/* What was admitted, and the session's guesses of what follows: a segment more of the step, unless it was computed
 * ahead. */
static void add_segment(int *n_segments, int number, const ig_batch_item *x, ig_error *err) {
    ig_session *s = x->session;
    if (is_foreseen(x)) return;
    s->model->batch.segments[*n_segments] = (ig_segment){.seq = &s->seq,
                                                         .ids = s->n_guesses ? s->tokens + s->n_tokens : x->ids,
                                                         .first = s->n_tokens,
                                                         .n = x->n + s->n_guesses,
                                                         .number = number,
                                                         .dense = x->prompt,
                                                         .n_to_come = x->more,
                                                         .shares = s->options.adapter_scales,
                                                         .n_asked = x->on_states ? x->n : !x->more,
                                                         .wants_states = x->on_states != NULL,
                                                         .err = err};
    ++*n_segments;
}

/* ---- what probably comes next ------------------------------------------------------------ */

/* Guesses that a session may have behind the token that is to be decoded: none where entries have been dropped, perhaps
 * by another policy before, since such a store cannot go back. */
static int most_guesses(const ig_session *s) {
    if (ig_kv_has_dropped(s->seq.kv)) return 0;
    return ig_min_int(s->n_draft, s->most_tokens - s->n_tokens - 1);
}

/* Where the text has said it before. */
static void look_up(ig_session *s, ig_draft_step *step) {
    s->n_guesses = ig_drafter_plan(&s->drafter, step, most_guesses(s));
    ig_drafter_write(&s->drafter, s->tokens, s->n_guesses);
    s->is_expected = s->drafter.is_expected;
}

/* Whether a draft model lets expect more, in the same time, than what the text has said before. */
static bool prefers_draft_model(const ig_session *s, const ig_draft_step *step) {
    ig_draft_step looked_up = *step;
    if (!s->draft.session) return false;
    ig_drafter_plan(&s->drafter, &looked_up, most_guesses(s));
    return ig_draft_model_rate(&s->draft, step, most_guesses(s)) > ig_draft_step_rate(&looked_up);
}

/* As the draft models of n sessions say. */
static void ask_draft_models(ig_session *const *sessions, int n, ig_draft_step *step) {
    ig_draft_job jobs[IG_ROW_COSTS_MOST];
    for (int i = 0; i < n; i++) {
        ig_session *s = sessions[i];
        int end = s->n_tokens + 1, most = ig_min_int(most_guesses(s), s->draft.session->options.n_ctx - end);
        jobs[i] = (ig_draft_job){.session = s, .n_tokens = end, .most = most};
    }
    double start = ig_clock_seconds();
    ig_draft_models_guess(jobs, n, step);
    double each = (ig_clock_seconds() - start) / n;
    for (int i = 0; i < n; i++) {
        sessions[i]->n_guesses = jobs[i].n;
        sessions[i]->is_expected = false;
        sessions[i]->draft_seconds += each;
        sessions[i]->decode_seconds += each;
    }
}

/* The same costs for all that is planned for a step. */
static ig_row_costs costs_of(ig_model *m) {
    ig_batch *turn = ig_batch_enter(&m->batch);
    ig_row_costs costs = m->batch.costs;
    ig_batch_end(turn);
    return costs;
}

static void forget_guesses(const call *c) {
    for (size_t i = 0; i < c->n; i++) session_at(c, i)->n_guesses = 0;
}

/* Before a step of what was admitted, if it does nothing but decode: guesses behind the tokens of its sessions. Before
 * its turn, too, which no step of a draft model may hold up. */
static void guess(const call *c) {
    ig_session *waiting[IG_ROW_COSTS_MOST], *asking[IG_ROW_COSTS_MOST];
    int n_waiting = 0, n_asking = 0, most_rows = IG_ROW_COSTS_MOST;
    forget_guesses(c);
    for (size_t i = 0; i < c->n; i++) {
        ig_batch_item x = item_at(c, i);
        if (x.prompt) return;
        if (x.status || is_foreseen(&x)) continue;
        if (n_waiting == IG_ROW_COSTS_MOST) return;
        x.session->tokens[x.session->n_tokens] = *x.ids;
        waiting[n_waiting++] = x.session;
        most_rows = ig_min_int(most_rows, x.session->options.n_batch);
    }
    if (!n_waiting) return;
    ig_row_costs costs = costs_of(waiting[0]->model);
    ig_draft_step step = {.costs = &costs, .n_rows = n_waiting, .most_rows = most_rows, .expected = n_waiting};
    for (int i = 0; i < n_waiting; i++) {
        ig_session *s = waiting[i];
        if (!s->n_draft) continue;
        ig_drafter_see(&s->drafter, s->tokens, s->n_tokens + 1);
        ig_draft_model_see(&s->draft, s->tokens, s->n_tokens + 1);
        if (prefers_draft_model(s, &step))
            asking[n_asking++] = s;
        else
            look_up(s, &step);
    }
    if (n_asking) ask_draft_models(asking, n_asking, &step);
    for (int i = 0; i < n_asking; i++)
        if (!asking[i]->n_guesses) look_up(asking[i], &step);
}

/* What draft models get of the prompts of a step that has been made. */
static void let_drafts_follow(const ig_batch_item *items, int n) {
    for (int i = 0; i < n; i++)
        if (items[i].prompt && !items[i].status && !items[i].on_states)
            ig_draft_model_follow(items[i].session, items[i].n);
}

/* ---- results --------------------------------------------------------------------------- */

void ig_session_take_tokens(ig_session *s, const ig_segment *seg) {
    int n = seg->dense ? seg->n : 1;
    memmove(s->tokens + seg->first, seg->ids, (size_t)seg->n * sizeof *seg->ids);
    s->n_tokens = seg->first + n;
    s->n_ahead = seg->n - n;
    s->n_drafted += (uint64_t)s->n_ahead;
    if (s->is_expected) s->n_expected += (uint64_t)s->n_ahead;
    ig_sequence_stepped(&s->seq, s->tokens, s->n_tokens, seg->dense);
}

ig_status ig_session_take_logits(ig_model *m, ig_error *err) {
    ig_batch *b = &m->batch;
    size_t vocab = (size_t)m->config.n_vocab;
    ig_status status = IG_OK;
    for (int i = 0, n; i < b->n_segments && !status; i += n) {
        status = ig_forward_last_logits(&n, m, b, i, err);
        for (const ig_segment *seg = b->segments + i; seg < b->segments + i + n && !status; seg++) {
            ig_session *s = session_of(seg);
            if (seg->status || !seg->logits) continue;
            s->logits = s->all_logits;
            memcpy(s->logits, seg->logits, (size_t)ig_segment_logits(seg) * vocab * sizeof *seg->logits);
            s->has_logits = false;
        }
    }
    return status;
}

/* Around a decode step, since prompts move blocks as well. */
static void start_decode(ig_session *s) { s->step_start = *ig_kv_moved(s->seq.kv); }

/* `share` of the pass was this session's. */
static void end_decode(ig_session *s, double seconds, double share) {
    const ig_part_work *parts = s->model->batch.rows.clock.parts;
    const ig_kv_stats *now = ig_kv_moved(s->seq.kv);
    s->n_decoded++;
    s->decode_seconds += seconds;
    for (int p = 0; p < IG_STEP_PARTS; p++) ig_part_work_add(&s->parts[p], &parts[p], share);
    s->decode_read_bytes += now->read_bytes - s->step_start.read_bytes;
    s->decode_vram_read_bytes += now->bus.bytes - s->step_start.bus.bytes;
    s->decode_stall_seconds += now->stall_seconds - s->step_start.stall_seconds;
}

/* What a session got it keeps, or else it forgets what it has of it. Of the step's seconds decode steps get those that
 * only they took; the others are shared by all tokens. */
static void settle(const ig_batch *b, ig_status status, double seconds) {
    int n_rows = 0, n_decode = 0;
    for (int i = 0; i < b->n_segments; i++) {
        n_rows += b->segments[i].n;
        if (!b->segments[i].dense) n_decode += b->segments[i].n;
    }
    double own = b->rows.decode_seconds, each = (seconds - own) / n_rows;
    for (int i = 0; i < b->n_segments; i++) {
        const ig_segment *seg = &b->segments[i];
        ig_session *s = session_of(seg);
        if (status || seg->status) {
            ig_session_roll_back(s, seg->first, status ? status : seg->status);
            continue;
        }
        ig_session_take_tokens(s, seg);
        s->has_logits = seg->n_asked > 0 && !seg->wants_states;
        if (!seg->dense) {
            double took = (own / n_decode + each) * seg->n;
            end_decode(s, took, took / seconds);
            continue;
        }
        s->n_prefilled += (uint64_t)seg->n;
        s->prefill_seconds += each * seg->n;
    }
}

/* What rows cost, and whether guesses of entries save time, is learnt from steps that do nothing but decode; these are
 * compared by their number of rows. */
static void learn(ig_batch *b, double seconds) {
    bool may_speculate = false;
    int n_rows = 0;
    for (int i = 0; i < b->n_segments; i++) {
        const ig_segment *seg = &b->segments[i];
        if (seg->dense || seg->status) return;
        n_rows += seg->n;
        may_speculate |= seg->seq->speculate == IG_SPECULATE_AUTO && ig_sequence_reads_ahead(seg->seq);
    }
    bool are_drafts = session_of(&b->segments[0])->is_draft; /* all, or none */
    ig_row_costs_took(are_drafts ? &b->draft_costs : &b->costs, n_rows, seconds);
    if (may_speculate && n_rows == b->n_segments) ig_trial_took(&b->speculation, n_rows, seconds);
}

/* ---- the step ---------------------------------------------------------------------------- */

/* For a step in which all fail together: of all segments, which share `err`. */
static ig_status any_failure(const ig_batch *b, const ig_error *err) {
    for (int i = 0; i < b->n_segments; i++)
        if (b->segments[i].status) return err->status;
    return IG_OK;
}

/* A step over n segments of the model's batch, whose turn it is; `together`: all or none. */
static ig_status run(ig_model *m, int n, bool together, ig_error *err) {
    ig_batch *b = &m->batch;
    for (int i = 0; i < n; i++)
        if (!b->segments[i].dense) start_decode(session_of(&b->segments[i]));
    if (n == 0) return IG_OK;
    ig_status status = ig_forward(m, b, n, err);
    if (!status && together) status = any_failure(b, err);
    if (!status) status = ig_session_take_logits(m, err);
    if (!status && together) status = any_failure(b, err);
    ig_step_lap(&b->rows, IG_STEP_OTHER);
    double seconds = b->rows.clock.now - b->rows.clock.start;
    settle(b, status, seconds);
    if (!status) learn(b, seconds);
    return status;
}

/* The segment of this session, of those that are in the order of the items and of which *k were met; NULL: none. */
static const ig_segment *next_segment(int *k, int n_segments, const ig_session *s) {
    const ig_segment *seg = &s->model->batch.segments[*k];
    if (*k == n_segments || seg->seq != &s->seq) return NULL;
    ++*k;
    return seg;
}

/* Gives items the states of their tokens, as far as they want them. */
static void hand_states(ig_batch_item *items, int n, int n_segments) {
    ig_model *m = items[0].session->model;
    size_t d = (size_t)m->config.d_model;
    int most = 0;
    for (int i = 0; i < n; i++) most = ig_max_int(most, items[i].on_states ? items[i].n : 0);
    if (!most) return;
    float *states = malloc((size_t)most * d * sizeof *states);
    for (int i = 0, k = 0; i < n; i++) {
        ig_batch_item *x = &items[i];
        const ig_segment *seg = next_segment(&k, n_segments, x->session);
        if (!x->on_states || !seg || seg->status) continue;
        x->status = states ? ig_forward_states(states, m, &m->batch, k - 1, x->n, &x->error)
                           : ig_fail_memory(&x->error, "states of a prompt", (size_t)most * d * sizeof *states);
        if (!x->status && x->on_states(x->user, seg->first, x->n, states))
            x->status = ig_fail(&x->error, IG_E_INTERRUPTED, "interrupted");
        if (x->status) ig_session_roll_back(x->session, seg->first, x->status);
    }
    free(states);
}

/* Whether a segment failed with guesses and left its session what that had before. */
static bool may_go_without(const ig_segment *seg) {
    return !seg->dense && seg->n > 1 && session_of(seg)->n_tokens == seg->first;
}

/* A step without what probably comes next may do what one with it could not: it takes less room. The batch's turn. */
static void run_without_drafts(ig_batch_item *x, int number) {
    const ig_batch *b = &x->session->model->batch;
    int n = 0;
    x->error = (ig_error){0};
    x->session->n_guesses = 0;
    add_segment(&n, number, x, &x->error);
    ig_status status = run(x->session->model, n, false, &x->error);
    x->status = status ? status : b->segments[0].status;
}

static ig_status run_items(ig_batch_item *items, int n, ig_error *err) {
    ig_model *m = items[0].session->model;
    int n_segments = 0;
    for (int i = 0; i < n; i++) {
        items[i].error = (ig_error){0};
        items[i].status = admit(&items[i], &items[i].error);
    }
    guess(&(call){.items = items, .n = (size_t)n});
    ig_status status = ig_batch_begin(&m->batch, err);
    if (status) return status;
    for (int i = 0; i < n; i++)
        if (!items[i].status) add_segment(&n_segments, n > 1 ? i + 1 : 0, &items[i], &items[i].error);
    status = run(m, n_segments, false, err);
    if (!status) hand_states(items, n, n_segments);
    for (int i = 0, k = 0; i < n && !status; i++) {
        ig_batch_item *x = &items[i];
        const ig_segment *seg = next_segment(&k, n_segments, x->session);
        if (seg && !x->status)
            x->status = seg->status;
        else if (!x->status)
            ig_session_take_ahead(x->session);
        if (x->status && seg && may_go_without(seg)) run_without_drafts(x, seg->number); /* in segment 0's place */
    }
    ig_batch_end(&m->batch);
    if (!status) let_drafts_follow(items, n);
    return status;
}

ig_status ig_batch_step(ig_batch_item *items, size_t n, ig_error *err) {
    ig_error own;
    if (!err) err = &own;
    ig_status status = check_items(items, n, err);
    if (!status) status = run_items(items, (int)n, err);
    for (size_t i = 0; status && items && i < n; i++) {
        items[i].status = status;
        items[i].error = *err;
    }
    return status;
}

/* What was admitted, with the sessions' guesses; true: another try without them may succeed. */
static bool decode(ig_status *status, const call *c, ig_error *err) {
    ig_model *m = session_at(c, 0)->model;
    const ig_batch *b = &m->batch;
    int n_segments = 0, n_without = 0;
    for (size_t i = 0; i < c->n; i++) {
        const ig_batch_item x = item_at(c, i);
        add_segment(&n_segments, c->n > 1 ? (int)i + 1 : 0, &x, err);
    }
    *status = run(m, n_segments, true, err);
    for (int i = 0; *status && i < n_segments; i++) {
        if (session_of(&b->segments[i])->n_tokens < b->segments[i].first) return false; /* it has lost some */
        n_without += may_go_without(&b->segments[i]);
    }
    int k = 0;
    for (size_t i = 0; i < c->n && !*status; i++)
        if (!next_segment(&k, n_segments, session_at(c, i))) ig_session_take_ahead(session_at(c, i));
    return n_without > 0;
}

ig_status ig_session_decode(ig_session *const *sessions, const int32_t *ids, int n, ig_error *err) {
    ig_error own;
    if (!err) err = &own;
    if (!sessions || !ids || n < 1) return ig_fail(err, IG_E_ARG, "ig_session_decode: no sessions");
    const call c = {.name = "ig_session_decode", .sessions = sessions, .ids = ids, .n = (size_t)n};
    ig_status status = check_sessions(&c, (size_t)n, err);
    for (size_t i = 0; i < c.n && !status; i++) {
        const ig_batch_item x = item_at(&c, i);
        status = admit(&x, err);
    }
    if (status) return status;
    guess(&c);
    ig_batch *b = &sessions[0]->model->batch;
    status = ig_batch_begin(b, err);
    if (status) return status;
    if (decode(&status, &c, err)) {
        *err = (ig_error){0};
        forget_guesses(&c);
        decode(&status, &c, err);
    }
    ig_batch_end(b);
    return status;
}
