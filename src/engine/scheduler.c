/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler's thread is one loop (run(), at the end): requests that wait get places, a step is made of a token of
 * every answer and a piece of the prompts, and what has ended leaves. Of an owner the oldest prompt comes first; owners
 * take turns, so that nobody waits for all that another one wants to have read.
 *
 * The piece adapts to what it costs: a step that took longer than is allowed makes the next one smaller, and one that
 * took less lets it grow. Without running answers nobody waits for it, and it is as large as a step can be.
 */
#define _GNU_SOURCE
#include "engine/scheduler.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "engine/cache.h"

enum { DEFAULT_PLACES = 4, QUEUE_MAX = 1 << 16, PIECE_START = 32, PIECE_LEAST = 16, TURN = 128 };

static const double commit_seconds = 5;
/* Between two looks at all blocks of all sessions; and at least so many times as long as the last one took. */
static const double observe_seconds = 0.25, observe_rest = 100;

ig_scheduler_options ig_scheduler_defaults(void) {
    return (ig_scheduler_options){.session = ig_session_defaults(), .n_queue = 2560, .piece_seconds = 0.025};
}

static int n_places(const ig_scheduler *c) { return c->o.session.cache.memory.n_sessions; }

/* ---- what waits --------------------------------------------------------------------- */

static int count_running(const ig_scheduler *c, uint64_t owner) {
    int n = 0;
    for (int i = 0; i < c->n_running; i++) n += c->running[i]->o.owner == owner;
    return n;
}

static ig_request *unlink_waiting(ig_scheduler *c, ig_request **at) {
    ig_request *r = *at;
    *at = r->next;
    if (c->last == &r->next) c->last = at;
    c->n_waiting--;
    return r;
}

/* The first one of this owner that wants an answer: of states many may be asked for at once, and nobody reads them as
 * they come. NULL: there is none. */
static ig_request **first_for_answer(ig_request **at, uint64_t owner) {
    while (*at && ((*at)->o.owner != owner || (*at)->o.on_states)) at = &(*at)->next;
    return *at ? at : NULL;
}

/* Whose turn it is: of the owners that have the fewest running, who came first. With the lock; NULL: nobody waits. */
static ig_request *take_waiting(ig_scheduler *c) {
    ig_request **best = NULL;
    int fewest = 0;
    for (ig_request **at = &c->first; *at; at = &(*at)->next) {
        int n = count_running(c, (*at)->o.owner);
        if (best && n >= fewest) continue;
        best = at;
        fewest = n;
        if (n == 0) break;
    }
    if (!best) return NULL;
    ig_request **answer = first_for_answer(best, (*best)->o.owner);
    return unlink_waiting(c, answer ? answer : best);
}

/* One that waits and was cancelled; NULL: none. With the lock. */
static ig_request *take_cancelled(ig_scheduler *c) {
    for (ig_request **at = &c->first; *at; at = &(*at)->next)
        if (atomic_load(&(*at)->is_cancelled)) return unlink_waiting(c, at);
    return NULL;
}

/* ---- what runs ------------------------------------------------------------------------ */

static void count_end(ig_scheduler_stats *t, const ig_request *r) {
    const ig_request_result *x = &r->result;
    t->n_ended++;
    t->n_failed += x->error.status != IG_OK;
    t->n_cancelled += !x->error.status && x->finish == IG_FINISH_INTERRUPTED;
    t->cached_tokens += (uint64_t)x->n_cached;
    t->answer_tokens += (uint64_t)x->n_tokens;
    t->prompt_tokens += x->stats.n_prefilled + x->stats.n_taken;
    t->drafted_tokens += x->stats.n_drafted;
    t->draft_hits += x->stats.n_draft_hits;
    t->prefetch_hits += x->stats.prefetch_hits;
    t->prefetch_misses += x->stats.prefetch_misses;
}

/* The request is not touched after this. */
static void end(ig_scheduler *c, ig_request *r) {
    ig_request_end(r);
    pthread_mutex_lock(&c->lock);
    count_end(&c->stats, r);
    c->stats.n_running = c->n_running;
    pthread_mutex_unlock(&c->lock);
    if (r->o.on_end) r->o.on_end(r->o.user, &r->result);
    pthread_mutex_lock(&c->lock);
    r->has_ended = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void end_running(ig_scheduler *c, int i) {
    ig_request *r = c->running[i];
    memmove(&c->running[i], &c->running[i + 1], (size_t)(c->n_running - i - 1) * sizeof *c->running);
    c->n_running--;
    end(c, r);
}

static void end_cancelled(ig_scheduler *c) {
    for (int i = c->n_running - 1; i >= 0; i--)
        if (atomic_load(&c->running[i]->is_cancelled)) end_running(c, i);
    for (;;) {
        pthread_mutex_lock(&c->lock);
        ig_request *r = take_cancelled(c);
        pthread_mutex_unlock(&c->lock);
        if (!r) return;
        end(c, r);
    }
}

/* An owner whose prompts are being computed goes on where it is. Another one begins with those that have most, so that
 * it passes nobody who waits for a turn. */
static uint64_t first_turn(const ig_scheduler *c, uint64_t owner) {
    uint64_t most = 0;
    for (int i = 0; i < c->n_running; i++) {
        const ig_request *r = c->running[i];
        if (r->is_answering) continue;
        if (r->o.owner == owner) return r->n_turn;
        if (r->n_turn > most) most = r->n_turn;
    }
    return most;
}

static void fill_places(ig_scheduler *c) {
    while (c->n_running < n_places(c)) {
        pthread_mutex_lock(&c->lock);
        ig_request *r = take_waiting(c);
        c->stats.n_running += r != NULL; /* its first token may be out before the step is published */
        pthread_mutex_unlock(&c->lock);
        if (!r) return;
        r->n_turn = first_turn(c, r->o.owner);
        if (ig_request_begin(r, &r->result.error))
            end(c, r);
        else
            c->running[c->n_running++] = r;
    }
}

/* ---- a step ---------------------------------------------------------------------------- */

/* What takes part in a step. */
typedef struct step {
    int n;             /* items */
    int n_answers;     /* of them, the first ones: single tokens */
    int n_rows;        /* tokens of prompts */
    ig_request *alone; /* computes a piece of its prompt by itself; NULL: nobody */
    int n_alone;       /* tokens of it */
} step;

static void add_item(ig_scheduler *c, step *s, ig_request *r, const int32_t *ids, int n, bool is_prompt) {
    c->of_item[s->n] = r;
    int more = is_prompt ? r->o.n_ids - r->session->n_tokens - n : 0;
    c->items[s->n++] = (ig_batch_item){.session = r->session,
                                       .ids = ids,
                                       .n = n,
                                       .prompt = is_prompt,
                                       .more = more,
                                       .on_states = is_prompt ? r->o.on_states : NULL,
                                       .user = r->o.user};
}

/* Those whose owners had fewest of the turns come first, of these the oldest. Returns their number. */
static int list_prompts(ig_scheduler *c) {
    int n = 0;
    for (int i = 0; i < c->n_running; i++) {
        ig_request *r = c->running[i];
        int at = n;
        if (r->is_answering) continue;
        for (; at > 0 && c->prompts[at - 1]->n_turn / TURN > r->n_turn / TURN; at--)
            c->prompts[at] = c->prompts[at - 1];
        c->prompts[at] = r;
        n++;
    }
    return n;
}

static void count_turn(ig_scheduler *c, uint64_t owner, int n) {
    for (int i = 0; i < c->n_running; i++)
        if (c->running[i]->o.owner == owner) c->running[i]->n_turn += (uint64_t)n;
}

/* A token of every answer, then the next tokens of the prompts, as many as a piece has. */
static step plan_step(ig_scheduler *c) {
    step s = {0};
    ig_scheduler_share_room(c);
    for (int i = 0; i < c->n_running; i++)
        if (c->running[i]->is_answering && c->running[i]->session->n_tokens < c->running[i]->most)
            add_item(c, &s, c->running[i], &c->running[i]->next_id, 1, false);
    s.n_answers = s.n;
    int left = c->o.session.n_batch - s.n;
    if (s.n_answers && left > c->piece) left = c->piece;
    for (int i = 0, n_prompts = list_prompts(c); i < n_prompts && left > 0; i++) {
        ig_request *r = c->prompts[i];
        if (r->is_alone && s.n_rows) continue;
        int n = ig_request_rest(r);
        if (n == 0) continue; /* it waits for room, or for more of the store */
        if (n > left) n = left;
        if (r->is_alone) {
            s.alone = r;
            s.n_alone = n;
            left = 0;
        } else {
            add_item(c, &s, r, r->o.ids + r->session->n_tokens, n, true);
            left -= n;
        }
        s.n_rows += n;
        count_turn(c, r->o.owner, n);
    }
    return s;
}

/* After a step that took so long. What answers take by themselves is not the piece's, and the last step without one
 * says how much that is; where there was none lately, it is at most most of the time. */
static void adapt_piece(ig_scheduler *c, const step *s, double seconds) {
    bool is_ahead = false; /* beside pieces no token is computed ahead */
    for (int i = 0; i < s->n_answers; i++) is_ahead |= c->of_item[i]->session->n_ahead > 0;
    if (s->n_answers && !s->n_rows && !is_ahead) c->answer_seconds = seconds / s->n_answers;
    if (!s->n_answers || !s->n_rows) return;
    double answers = c->answer_seconds * s->n_answers, own = seconds - answers;
    if (own < seconds / 8) own = seconds / 8;
    double allowed = answers > c->o.piece_seconds ? answers : c->o.piece_seconds;
    double ratio = allowed / (own > 1e-6 ? own : 1e-6);
    if (ratio >= 1 && s->n_rows < c->piece) return; /* it was not the piece that made it short */
    if (ratio > 2) ratio = 2;
    double piece = s->n_rows * ratio;
    int most = c->o.session.n_batch;
    c->piece = piece > most ? most : piece < PIECE_LEAST ? (PIECE_LEAST < most ? PIECE_LEAST : most) : (int)piece;
}

static bool settle(ig_request *r, ig_status status, const ig_error *error) {
    if (!status) return ig_request_advance(r);
    if (status == IG_E_INTERRUPTED && atomic_load(&r->is_cancelled)) return true;
    r->result.error = *error;
    return true;
}

static void leave(ig_scheduler *c, const ig_request *r) {
    for (int i = 0; i < c->n_running; i++)
        if (c->running[i] == r) {
            end_running(c, i);
            return;
        }
}

/* Statistics that others may ask for. */
static void publish(ig_scheduler *c, bool has_stepped, double seconds) {
    ig_cache_stats cache;
    double now = ig_clock_seconds();
    bool observes = c->n_running == 0 || now >= c->next_observed;
    if (observes) { /* not with the lock: a step whose callback waits for that may have the model's turn */
        ig_cache_get_stats(c->cache, &cache);
        for (int i = 0; i < c->n_running; i++)
            ig_session_get_stats(c->running[i]->session, &c->running[i]->result.stats);
        double took = ig_clock_seconds() - now, rest = observe_rest * took;
        c->next_observed = now + (rest > observe_seconds ? rest : observe_seconds);
    }
    pthread_mutex_lock(&c->lock);
    ig_scheduler_stats *t = &c->stats;
    t->n_running = c->n_running;
    t->piece_tokens = c->piece;
    t->n_steps += has_stepped;
    t->step_seconds += seconds;
    if (observes) t->cache = cache;
    for (int i = 0; i < n_places(c); i++) {
        ig_request *r = i < c->n_running ? c->running[i] : NULL;
        ig_scheduler_place *p = &c->places[i];
        if (!r) {
            *p = (ig_scheduler_place){0};
            continue;
        }
        *p = (ig_scheduler_place){.is_busy = true,
                                  .request = r->number,
                                  .n_prompt = r->o.n_ids,
                                  .n_held = r->session->n_tokens,
                                  .n_tokens = r->answer.n_tokens,
                                  .kv_bytes = r->result.stats.kv_bytes,
                                  .disk_bytes = r->result.stats.disk_bytes};
        memccpy(p->policy, r->session->options.cache.policy, 0, sizeof p->policy - 1);
    }
    pthread_mutex_unlock(&c->lock);
}

static void make_step(ig_scheduler *c) {
    step s = plan_step(c);
    ig_error err = {0};
    double start = ig_clock_seconds();
    ig_status alone = s.alone ? ig_request_compute(s.alone, s.n_alone, &err) : IG_OK;
    if (s.n) ig_batch_step(c->items, (size_t)s.n, NULL); /* each has its own status */
    double seconds = ig_clock_seconds() - start;
    adapt_piece(c, &s, seconds);
    c->is_dirty |= s.n_rows > 0;
    if (s.alone && settle(s.alone, alone, &err)) leave(c, s.alone);
    for (int i = 0; i < s.n; i++)
        if (settle(c->of_item[i], c->items[i].status, &c->items[i].error)) leave(c, c->of_item[i]);
    publish(c, s.n || s.alone, seconds);
}

/* ---- the loop ---------------------------------------------------------------------------- */

/* What was computed for the store is safe: when there is nothing else to do, and now and then. */
static void commit(ig_scheduler *c, bool is_idle) {
    double now = ig_clock_seconds();
    if (!c->is_dirty || (!is_idle && now - c->committed < commit_seconds)) return;
    if (c->cache->keeper.n_put) {
        ig_error err;
        bool fails = ig_cache_commit(c->cache, &err);
        if (fails && !c->is_failing) ig_log(c->model->ctx, IG_LOG_ERROR, "%s", err.text);
        c->is_failing = fails;
        publish(c, false, 0);
    }
    c->is_dirty = false;
    c->committed = now;
}

/* Waits for something to do; false at the end. */
static bool wait_for_work(ig_scheduler *c) {
    pthread_mutex_lock(&c->lock);
    while (!c->n_running && !c->first && !c->is_closing) pthread_cond_wait(&c->changed, &c->lock);
    bool goes_on = c->n_running || c->first;
    pthread_mutex_unlock(&c->lock);
    return goes_on;
}

static void *run(void *arg) {
    ig_scheduler *c = arg;
    do {
        end_cancelled(c);
        fill_places(c);
        if (c->n_running) make_step(c);
        if (!c->n_running) publish(c, false, 0);
        commit(c, !c->n_running);
    } while (wait_for_work(c));
    return NULL;
}

/* ---- from outside ------------------------------------------------------------------------- */

static ig_status check_options(ig_scheduler_options *o, ig_error *err) {
    if (o->session.cache.memory.n_sessions == 0) o->session.cache.memory.n_sessions = DEFAULT_PLACES;
    if (o->session.shared || o->session.progress)
        return ig_fail(err, IG_E_ARG,
                       "ig_scheduler_open: the session lies in the scheduler's own cache, and has no progress");
    if (o->n_queue < 1 || o->n_queue > QUEUE_MAX)
        return ig_fail(err, IG_E_ARG, "ig_scheduler_options.n_queue is %d, but goes from 1 to %d", o->n_queue,
                       QUEUE_MAX);
    if (!(o->piece_seconds >= 0.001 && o->piece_seconds <= 60))
        return ig_fail(err, IG_E_ARG, "ig_scheduler_options.piece_seconds is %g, but goes from 0.001 to 60",
                       o->piece_seconds);
    if (o->session.cache.memory.n_sessions >= o->session.n_batch)
        return ig_fail(err, IG_E_ARG, "%d sessions and steps of %d tokens: a step must hold more tokens than sessions",
                       o->session.cache.memory.n_sessions, o->session.n_batch);
    return IG_OK;
}

/* A request may have all the room there is. */
static ig_status fit_context(ig_scheduler *c, ig_error *err) {
    size_t most = ig_kv_room(c->cache->memory) * (size_t)ig_kv_piece_tokens(c->cache->memory);
    if (most >= (size_t)c->o.session.n_ctx) return IG_OK;
    if (!most) return ig_fail(err, IG_E_LIMIT, "there is no room for the KV cache on the disk, or within its limit");
    ig_log(c->model->ctx, IG_LOG_WARN,
           "the KV cache's disk tier has room for %zu tokens: the context is not %d but as many", most,
           c->o.session.n_ctx);
    c->o.session.n_ctx = (int)most;
    return IG_OK;
}

static ig_status start(ig_scheduler *c, ig_error *err) {
    ig_status s = ig_cache_open(&c->cache, c->model, &c->o.session, err);
    if (s) return s;
    size_t n = (size_t)n_places(c);
    c->o.session.n_ctx = c->cache->options.n_ctx;
    s = fit_context(c, err);
    if (s) return s;
    c->piece = PIECE_START < c->o.session.n_batch ? PIECE_START : c->o.session.n_batch;
    c->stats.n_places = n_places(c);
    c->running = calloc(n, sizeof *c->running);
    c->of_item = calloc(n, sizeof *c->of_item);
    c->items = calloc(n, sizeof *c->items);
    c->places = calloc(n, sizeof *c->places);
    c->prompts = calloc(n, sizeof *c->prompts);
    c->kvs = calloc(n, sizeof *c->kvs);
    c->held = calloc(n, sizeof *c->held);
    if (!c->running || !c->of_item || !c->items || !c->places || !c->prompts || !c->kvs || !c->held)
        return ig_fail_memory(err, "scheduler", n * sizeof *c->items);
    s = ig_thread_start(&c->thread, run, c, "the scheduler's thread", err);
    c->has_thread = !s;
    return s;
}

ig_status ig_scheduler_open(ig_scheduler **out, ig_model *model, const ig_scheduler_options *options, ig_error *err) {
    if (out) *out = NULL;
    if (!out || !model) return ig_fail(err, IG_E_ARG, "ig_scheduler_open: model and result are needed");
    ig_scheduler_options o = options ? *options : ig_scheduler_defaults();
    ig_status s = check_options(&o, err);
    if (!s) s = ig_batch_begin(&model->batch, err); /* not within a step, whose end closing would wait for */
    if (s) return s;
    ig_batch_end(&model->batch);
    ig_scheduler *c = calloc(1, sizeof *c);
    if (!c) return ig_fail_memory(err, "scheduler", sizeof *c);
    c->model = model;
    c->o = o;
    c->last = &c->first;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    s = start(c, err);
    if (s)
        ig_scheduler_close(c);
    else
        *out = c;
    return s;
}

void ig_scheduler_close(ig_scheduler *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->is_closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread) pthread_join(c->thread, NULL);
    ig_cache_close(c->cache);
    free(c->running);
    free(c->of_item);
    free(c->items);
    free(c->places);
    free(c->prompts);
    free(c->kvs);
    free(c->held);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

int ig_scheduler_ctx(const ig_scheduler *c) { return c ? c->o.session.n_ctx : 0; }

/* How many of an owner would wait with n more requests. */
static size_t count_of(const ig_scheduler *c, uint64_t owner, ig_request *const *requests, size_t n) {
    size_t count = 0;
    for (const ig_request *r = c->first; r; r = r->next) count += r->o.owner == owner;
    for (size_t i = 0; i < n; i++) count += requests[i]->o.owner == owner;
    return count;
}

/* Whether n more may wait: an owner that is named leaves an eighth of the queue to others. */
static ig_status find_room(const ig_scheduler *c, ig_request *const *requests, size_t n, ig_error *err) {
    if (n > (size_t)(c->o.n_queue - c->n_waiting))
        return ig_fail(err, IG_E_LIMIT, "%d requests wait already, and at most %d may", c->n_waiting, c->o.n_queue);
    for (size_t i = 0; i < n; i++) {
        uint64_t owner = requests[i]->o.owner;
        if (i && owner == requests[i - 1]->o.owner) continue;
        size_t own = count_of(c, owner, requests, n), most = (size_t)(c->o.n_queue - (owner ? c->o.n_queue / 8 : 0));
        if (own > most)
            return ig_fail(err, IG_E_LIMIT, "%zu requests of one client would wait, and at most %zu may", own, most);
    }
    return IG_OK;
}

/* All of them at the queue's end, if there is room. */
static ig_status enqueue(ig_scheduler *c, ig_request *const *requests, size_t n, ig_error *err) {
    double now = ig_clock_seconds();
    ig_status s = IG_OK;
    pthread_mutex_lock(&c->lock);
    if (c->is_closing)
        s = ig_fail(err, IG_E_INTERRUPTED, "the scheduler is being closed");
    else
        s = find_room(c, requests, n, err);
    for (size_t i = 0; i < n && !s; i++) {
        requests[i]->arrived = now;
        requests[i]->number = ++c->n_submitted;
        *c->last = requests[i];
        c->last = &requests[i]->next;
        c->n_waiting++;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return s;
}

ig_status ig_scheduler_submit(ig_request **out, size_t *refused, ig_scheduler *c, const ig_request_options *requests,
                              size_t n, ig_error *err) {
    size_t ignored, done = 0;
    if (!refused) refused = &ignored;
    *refused = 0;
    if (!out || !c || !requests || n < 1)
        return ig_fail(err, IG_E_ARG, "ig_scheduler_submit: scheduler, requests and places for them are needed");
    ig_status s = IG_OK;
    for (; done < n && !s; done++) s = ig_request_open(&out[done], c, &requests[done], err);
    *refused = s ? done - 1 : n;
    if (!s) s = enqueue(c, out, n, err);
    for (size_t i = 0; s && i < n; i++) {
        if (i < done) ig_request_free(out[i]);
        out[i] = NULL;
    }
    return s;
}

void ig_request_cancel(ig_request *r) {
    if (!r) return;
    ig_scheduler *c = r->scheduler;
    atomic_store(&r->is_cancelled, true);
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void ig_request_close(ig_request *r) {
    if (!r) return;
    ig_scheduler *c = r->scheduler;
    ig_request_cancel(r);
    pthread_mutex_lock(&c->lock);
    while (!r->has_ended) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    ig_request_free(r);
}

void ig_scheduler_get_stats(ig_scheduler *c, ig_scheduler_stats *out) {
    if (!out) return;
    *out = (ig_scheduler_stats){0};
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    *out = c->stats;
    out->n_requests = c->n_submitted;
    out->n_waiting = c->n_waiting;
    pthread_mutex_unlock(&c->lock);
}

bool ig_scheduler_get_place(ig_scheduler *c, int i, ig_scheduler_place *out) {
    if (!c || !out || i < 0 || i >= n_places(c)) return false;
    pthread_mutex_lock(&c->lock);
    *out = c->places[i];
    pthread_mutex_unlock(&c->lock);
    return true;
}
