/* SPDX-License-Identifier: Apache-2.0
 *
 * Guesses of a smaller model: see draft_model.h.
 */
#include "engine/draft_model.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "device/context.h"
#include "engine/cache.h"

enum { FOLLOWS = 64 /* tokens of a text that a draft session gets at most beside a decode step */ };

/* What is expected of a guess before any was seen: as if of `first_guesses` guesses so many had come true. */
static const float least_of_kind[IG_DRAFT_KINDS] = {0, 0.3F, 0.5F, 0.7F, 0.85F, 0.95F};
static const float first_chance[IG_DRAFT_KINDS] = {0.2F, 0.4F, 0.6F, 0.75F, 0.88F, 0.96F};
static const float first_of_all = 0.7F, first_guesses = 4, decay = 0.95F;
static const float decay_unused = 0.998F; /* where nothing is guessed, what is known is forgotten, and tried again */

/* ---- opening ------------------------------------------------------------------- */

ig_session_options ig_draft_model_options(const ig_session_plan *p) {
    const ig_session_options *o = &p->o;
    ig_session_options d = ig_session_defaults();
    d.n_ctx = ig_min_int(o->n_ctx, o->draft_model->config.n_ctx_train);
    d.n_batch = o->n_batch;
    d.cache.memory.type = ig_kv_type_name(p->tiers.type);
    d.cache.memory.n_sessions = o->cache.memory.n_sessions;
    d.cache.memory.whole_windows = true; /* it goes back often */
    d.cache.salt = o->cache.salt;
    d.cache.no_share = o->cache.no_share;
    return d;
}

/* The first token whose text is another one, of those that both have; -1: none. */
static int32_t find_other_text(const ig_tokenizer *a, const ig_tokenizer *b) {
    int n = ig_min_int(ig_tokenizer_n_vocab(a), ig_tokenizer_n_vocab(b));
    for (int32_t id = 0; id < n; id++) {
        char text[2][IG_TOKEN_BYTES_MAX];
        size_t length[2] = {ig_tokenizer_piece(a, id, false, text[0], sizeof text[0]),
                            ig_tokenizer_piece(b, id, false, text[1], sizeof text[1])};
        if (length[0] != length[1] || memcmp(text[0], text[1], length[0]) != 0) return id;
    }
    return -1;
}

ig_status ig_draft_model_check(const ig_model *draft, const ig_model *m, ig_error *err) {
    if (draft == m) return ig_fail(err, IG_E_ARG, "%s: a model is no draft model of its own", m->path);
    if (draft->config.n_recurrent)
        return ig_fail(err, IG_E_UNSUPPORTED,
                       "%s: no draft model, since its recurrent layers cannot go back to where a guess was wrong",
                       draft->path);
    bool has_texts = draft->tokenizer && m->tokenizer;
    int32_t id = has_texts ? find_other_text(draft->tokenizer, m->tokenizer) : -1;
    if (id >= 0)
        return ig_fail(err, IG_E_ARG, "%s: no draft model of %s: its token %d is another text", draft->path, m->path,
                       id);
    if (!has_texts && draft->config.n_vocab != m->config.n_vocab)
        return ig_fail(err, IG_E_ARG, "%s: no draft model of %s: its vocabulary is another one", draft->path, m->path);
    return IG_OK;
}

static void give_up(ig_session *s, const ig_error *why) {
    ig_log(s->model->ctx, IG_LOG_WARN, "the draft model guesses no more: %s", why->text);
    ig_draft_model_close(&s->draft);
}

void ig_draft_model_open(ig_session *s, const ig_session_plan *p) {
    ig_error err;
    ig_session_options o = ig_draft_model_options(p);
    if (p->o.shared) o.shared = p->o.shared->drafts;
    if (ig_session_open(&s->draft.session, p->o.draft_model, &o, &err))
        give_up(s, &err);
    else
        s->draft.session->is_draft = true;
}

void ig_draft_model_close(ig_draft_model *d) {
    ig_session_close(d->session);
    d->session = NULL;
}

/* ---- what came true ------------------------------------------------------------- */

static int kind_of(double probability) {
    int k = IG_DRAFT_KINDS - 1;
    while (k > 0 && probability < (double)least_of_kind[k]) k--;
    return k;
}

static double chance_of(const ig_draft_model *d, int kind) {
    return (double)((d->came_true[kind] + first_guesses * first_chance[kind]) / (d->guessed[kind] + first_guesses));
}

/* Of a guess before it is made. */
static double next_chance(const ig_draft_model *d) {
    return (double)((d->all_true + first_guesses * first_of_all) / (d->all_guessed + first_guesses));
}

static void count(ig_draft_model *d, int kind, bool came_true) {
    d->came_true[kind] = decay * d->came_true[kind] + (float)came_true;
    d->guessed[kind] = decay * d->guessed[kind] + 1;
    d->all_true = decay * d->all_true + (float)came_true;
    d->all_guessed = decay * d->all_guessed + 1;
}

void ig_draft_model_see(ig_draft_model *d, const int32_t *tokens, int n) {
    if (n <= d->first) d->n = 0; /* the text is another one now */
    if (!d->n) {
        d->all_true *= decay_unused;
        d->all_guessed *= decay_unused;
    }
    for (int i = d->n_compared; i < d->n && d->first + i < n; i = ++d->n_compared) {
        bool came_true = d->ids[i] == tokens[d->first + i];
        count(d, d->kinds[i], came_true);
        if (!came_true || i == d->n - 1) d->n = 0;
    }
}

/* ---- steps of draft sessions ------------------------------------------------------ */

/* Of several, all of one draft model. */
typedef struct draft_step {
    ig_session *sessions[IG_ROW_COSTS_MOST]; /* that they are of */
    ig_batch_item items[IG_ROW_COSTS_MOST];
    int n, n_rows;
} draft_step;

/* The session's text has n tokens: of those that its draft session lacks at most `most` take part in the step. Returns
 * how many it then still lacks; -1: it has failed, or there is no room in the step. */
static int add_missing(draft_step *step, ig_session *s, int n, int most) {
    ig_session *d = s->draft.session;
    ig_error err;
    int n_held, left = d->options.n_batch - step->n_rows;
    if (step->n && step->items[0].session->model != d->model) return -1;
    if (ig_session_reuse(&n_held, d, s->tokens, n, &err)) {
        give_up(s, &err);
        return -1;
    }
    int missing = n - n_held, rows = ig_min_int(ig_min_int(missing, most), left);
    if (!missing) return 0;
    if (left < 1) return -1;
    step->sessions[step->n] = s;
    step->items[step->n++] = (ig_batch_item){
        .session = d, .ids = s->tokens + n_held, .n = rows, .prompt = rows > 1, .more = rows > 1 ? missing - rows : 0};
    step->n_rows += rows;
    return missing - rows;
}

static void run(draft_step *step) {
    ig_error err;
    if (step->n) ig_batch_step(step->items, (size_t)step->n, &err);
    for (int i = 0; i < step->n; i++)
        if (step->items[i].status) give_up(step->sessions[i], &step->items[i].error);
}

void ig_draft_model_follow(ig_session *s, int most) {
    draft_step step = {.n = 0};
    if (!s->draft.session) return;
    add_missing(&step, s, ig_min_int(s->n_tokens, s->draft.session->options.n_ctx), most);
    run(&step);
}

/* ---- guessing ------------------------------------------------------------------------ */

/* Of a step of n draft sessions; 0: not known yet. */
static double draft_seconds(const ig_session *d, int n) {
    ig_batch *b = &d->model->batch;
    ig_batch *turn = ig_batch_enter(b);
    double seconds = b->draft_costs.n_steps ? ig_row_costs_guess(&b->draft_costs, n) : 0;
    ig_batch_end(turn);
    return seconds;
}

/* What the step is with another guess, of draft sessions that step n together: tokens per second. */
static double rate_with(const ig_draft_step *step, const ig_session *d, int n, double chance) {
    double draft = step->costs->are_nothing ? 0 : draft_seconds(d, n) / n;
    double seconds = step->spent + draft + ig_row_costs_guess(step->costs, step->n_rows + 1);
    return (step->expected + chance) / (seconds + (1 - chance) * step->costs->going_back);
}

double ig_draft_model_rate(const ig_draft_model *d, const ig_draft_step *step, int most) {
    ig_draft_step s = *step;
    double best = 0, all_true = 1;
    if (!d->session || !step->costs->n_steps) return 0; /* nobody knows what is worth it */
    for (int i = 0; i < most && s.n_rows < s.most_rows; i++) {
        all_true *= next_chance(d);
        double rate = rate_with(&s, d->session, 1, all_true);
        if (rate < best) break;
        best = rate;
        s.spent += step->costs->are_nothing ? 0 : draft_seconds(d->session, 1);
        s.expected += all_true;
        s.n_rows++;
    }
    return best;
}

/* Whether tokens come faster with another guess, of draft sessions that step n together. */
static bool is_worth_another(const ig_draft_step *step, const ig_draft_job *j, int n) {
    const ig_draft_model *d = &j->session->draft;
    if (!d->session || j->guesses.n >= j->most || step->n_rows >= step->most_rows) return false;
    return rate_with(step, d->session, n, j->all_true * next_chance(d)) > ig_draft_step_rate(step);
}

/* What the draft session has logits of. False: it makes no guess. */
static bool take_guess(ig_draft_job *j) {
    ig_draft_model *d = &j->session->draft;
    const ig_model *m = j->session->model;
    const float *logits = d->session ? ig_session_logits(d->session) : NULL;
    if (!logits) return false;
    int n_vocab = d->session->model->config.n_vocab, i = d->n;
    int32_t id = ig_kernels_get(m->ctx->level)->argmax(logits, n_vocab);
    if (id >= m->config.n_vocab || ig_token_is_end(m, id)) return false;
    d->kinds[i] = (uint8_t)kind_of(exp((double)logits[id] - ig_log_sum(logits, (size_t)n_vocab)));
    d->ids[i] = j->session->tokens[j->n_tokens + i] = id;
    d->n++;
    j->guesses.chance[i] = chance_of(d, d->kinds[i]);
    j->all_true *= j->guesses.chance[i];
    j->guesses.n++;
    return true;
}

/* One more guess of each that goes on, as long as that is worth it; n_last did before. How many it was. */
static int guess_round(ig_draft_job *jobs, int n, bool *goes_on, int n_last, ig_draft_step *step) {
    draft_step drafts = {.n = 0};
    int n_guesses = 0;
    for (int i = 0; i < n; i++) {
        const ig_draft_job *j = &jobs[i];
        goes_on[i] = goes_on[i] && is_worth_another(step, j, n_last);
        if (!goes_on[i]) continue;
        goes_on[i] = add_missing(&drafts, j->session, j->n_tokens + j->guesses.n, FOLLOWS) == 0;
    }
    run(&drafts);
    for (int i = 0; i < n; i++) {
        goes_on[i] = goes_on[i] && take_guess(&jobs[i]);
        if (!goes_on[i]) continue;
        n_guesses++;
        step->n_rows++;
        step->expected += jobs[i].all_true;
    }
    return n_guesses;
}

void ig_draft_models_guess(ig_draft_job *jobs, int n, ig_draft_step *step) {
    double start = ig_clock_seconds();
    ig_draft_step all = *step; /* with every guess */
    bool goes_on[IG_ROW_COSTS_MOST];
    for (int i = 0; i < n; i++) {
        ig_draft_model *d = &jobs[i].session->draft;
        d->first = jobs[i].n_tokens;
        d->n = d->n_compared = 0;
        jobs[i].all_true = 1;
        goes_on[i] = true;
    }
    for (int n_last = n; n_last;) {
        n_last = guess_round(jobs, n, goes_on, n_last, &all);
        if (!step->costs->are_nothing) all.spent = ig_clock_seconds() - start;
    }
    step->spent = all.spent;
    for (int i = 0; i < n; i++) jobs[i].n = ig_guesses_plan(&jobs[i].guesses, step);
}
