/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling. The order is llama.cpp's: logit bias, penalties (dry.c, too), the grammar, then the filters (candidates.c)
 * and the temperature. What the model's files suppress is gone before the filters, whatever its bias.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "base/ranges.h"
#include "engine/candidates.h"
#include "engine/dry.h"
#include "engine/sampler.h"
#include "grammar/constraint.h"

struct ig_sampler {
    ig_sampler_options o;
    const ig_model *model;
    ig_random random;
    const ig_kernels *kernels;
    ig_candidates candidates;
    ig_dry dry;
    ig_constraint *constraint; /* NULL: there is no grammar */
    const int32_t *suppressed; /* [n_suppressed] tokens that never come; the model's */
    size_t n_suppressed;
    float *logits;        /* [n_vocab] changed copy */
    float *weights;       /* [n_vocab] of all tokens */
    int32_t *counts;      /* [n_vocab] of tokens that the penalties look back on; 0 between calls */
    ig_logit_bias bias[]; /* [o.n_logit_bias] */
};

ig_sampler_options ig_sampler_defaults(void) {
    return (ig_sampler_options){.top_p = 1,
                                .typical_p = 1,
                                .xtc_threshold = 0.1f,
                                .repeat_penalty = 1,
                                .repeat_last_n = 64,
                                .dry_base = 1.75f,
                                .dry_allowed_length = 2,
                                .dry_last_n = -1,
                                .dynatemp_exponent = 1};
}

/* All but the grammar. */
static ig_status check_numbers(const ig_sampler_options *o, const ig_model *m, ig_error *err) {
    ig_status s = ig_check_sampler_options(o, err);
    for (size_t i = 0; !s && i < o->n_logit_bias; i++)
        if (o->logit_bias[i].id < 0 || o->logit_bias[i].id >= m->config.n_vocab)
            s = ig_fail(err, IG_E_ARG, "logit bias: token %d is not in the vocabulary of %d", o->logit_bias[i].id,
                        m->config.n_vocab);
    if (!s && o->grammar && !m->tokenizer)
        s = ig_fail(err, IG_E_UNSUPPORTED, "a grammar wants a model with a tokenizer");
    return s;
}

ig_status ig_sampler_check(const ig_sampler_options *o, const ig_model *m, ig_error *err) {
    ig_status s = check_numbers(o, m, err);
    return s || !o->grammar ? s : ig_grammar_check(o->grammar, err);
}

static ig_status open_constraint(ig_sampler *s, ig_error *err) {
    const ig_words *words;
    if (!s->o.grammar) return IG_OK;
    ig_status status = ig_model_get_words(&words, s->model, err);
    return status ? status : ig_constraint_open(&s->constraint, words, s->o.grammar, err);
}

/* Those of the ids that the model has logits of. */
static void find_suppressed(ig_sampler *s) {
    const ig_model *m = s->model;
    size_t n = m->tokenizer ? ig_tokenizer_suppressed(m->tokenizer, &s->suppressed) : 0;
    while (n > 0 && s->suppressed[n - 1] >= m->config.n_vocab) n--;
    s->n_suppressed = n;
}

ig_status ig_sampler_open(ig_sampler **out, const ig_model *m, const ig_sampler_options *options, ig_error *err) {
    if (out) *out = NULL;
    if (!out || !m || !m->has_weights) return ig_fail(err, IG_E_ARG, "ig_sampler_open: a model with weights is needed");
    ig_sampler_options o = options ? *options : ig_sampler_defaults();
    ig_status status = check_numbers(&o, m, err);
    if (status) return status;
    size_t n = (size_t)m->config.n_vocab, bias_bytes = o.n_logit_bias * sizeof *o.logit_bias;
    ig_sampler *s = calloc(1, sizeof *s + bias_bytes);
    if (!s) return ig_fail_memory(err, "sampler", sizeof *s + bias_bytes);
    s->o = o;
    if (bias_bytes) memcpy(s->bias, o.logit_bias, bias_bytes);
    s->model = m;
    find_suppressed(s);
    s->random.state = o.seed;
    s->kernels = ig_kernels_get(m->ctx->level);
    s->logits = malloc(n * sizeof *s->logits);
    s->weights = malloc(n * sizeof *s->weights);
    s->counts = calloc(n, sizeof *s->counts);
    if (!ig_candidates_open(&s->candidates, m->config.n_vocab) || !s->logits || !s->weights || !s->counts) {
        ig_sampler_close(s);
        return ig_fail_memory(err, "sampler", n * (2 * sizeof(ig_candidate) + 2 * sizeof(float) + sizeof(int32_t)));
    }
    status = ig_dry_open(&s->dry, &o, m->tokenizer, err);
    if (!status) status = open_constraint(s, err);
    s->o.grammar = NULL; /* the caller's, as the next */
    s->o.dry_breakers = NULL;
    if (status)
        ig_sampler_close(s);
    else
        *out = s;
    return status;
}

void ig_sampler_close(ig_sampler *s) {
    if (!s) return;
    ig_candidates_close(&s->candidates);
    ig_constraint_close(s->constraint);
    ig_dry_close(&s->dry);
    free(s->logits);
    free(s->weights);
    free(s->counts);
    free(s);
}

/* Tokens seen lately: a logit is divided (if negative, multiplied) by the repeat penalty (Keskar et al. 2019), then
 * lowered by the frequency penalty for each time and by the presence penalty once. */
static void penalise(ig_sampler *s, const int32_t *tokens, int n) {
    const ig_sampler_options *o = &s->o;
    for (int i = 0; i < n; i++) s->counts[tokens[i]]++;
    for (int i = 0; i < n; i++) {
        float count = (float)s->counts[tokens[i]], *x = &s->logits[tokens[i]];
        if (count == 0) continue; /* done before */
        s->counts[tokens[i]] = 0;
        *x = *x > 0 ? *x / o->repeat_penalty : *x * o->repeat_penalty;
        *x -= count * o->frequency_penalty + o->presence_penalty;
    }
}

/* Leaves the tokens of a mask, a bit for each. */
static void mask_logits(ig_sampler *s, const uint64_t *mask) {
    for (int i = 0; i < s->model->config.n_vocab; i++) {
        if (i % 64 == 0 && mask[i / 64] == UINT64_MAX)
            i += 63;
        else if (!(mask[i / 64] >> i % 64 & 1))
            s->logits[i] = -INFINITY;
    }
}

static void remove_tokens(ig_sampler *s, const int32_t *ids, size_t n) {
    for (size_t i = 0; i < n; i++) s->logits[ids[i]] = -INFINITY;
}

static void copy_logits(ig_sampler *s, const ig_session *session) {
    memcpy(s->logits, session->logits, (size_t)s->model->config.n_vocab * sizeof *s->logits);
}

const float *ig_sampler_possible(ig_sampler *s, const ig_session *session) {
    if (!s->n_suppressed) return session->logits;
    copy_logits(s, session);
    remove_tokens(s, s->suppressed, s->n_suppressed);
    return s->logits;
}

/* The session's logits with bias and penalties, of the tokens of `mask` (NULL: all), and without some. NULL: no
 * memory. */
static const float *adjust(ig_sampler *s, const ig_session *session, const uint64_t *mask, const int32_t *without,
                           size_t n_without, ig_error *err) {
    const ig_sampler_options *o = &s->o;
    bool is_dry = o->dry_multiplier > 0;
    bool penalises = o->repeat_penalty != 1 || o->frequency_penalty != 0 || o->presence_penalty != 0;
    int n = session->n_tokens, n_back = !penalises ? 0 : o->repeat_last_n < 0 ? n : o->repeat_last_n;
    if (!o->n_logit_bias && !n_back && !is_dry && !n_without && !mask && !s->n_suppressed) return session->logits;
    if (n_back > n) n_back = n;
    copy_logits(s, session);
    for (size_t i = 0; i < o->n_logit_bias; i++) s->logits[s->bias[i].id] += s->bias[i].bias;
    penalise(s, session->tokens + n - n_back, n_back);
    if (is_dry && ig_dry_lower(&s->dry, s->logits, s->counts, session->tokens, n, err)) return NULL;
    if (mask) mask_logits(s, mask);
    remove_tokens(s, without, n_without);
    remove_tokens(s, s->suppressed, s->n_suppressed);
    return s->logits;
}

double ig_log_sum(const float *logits, size_t n) {
    enum { PIECE = 1024 };
    const ig_kernels *kernels = ig_kernels_get(IG_CPU_BEST);
    float weights[PIECE];
    double top = -INFINITY, sum = 0;
    for (size_t begin = 0; logits && begin < n; begin += PIECE) {
        size_t n_here = n - begin < PIECE ? n - begin : PIECE;
        float most = -INFINITY, total = 0;
        memcpy(weights, logits + begin, n_here * sizeof *weights);
        kernels->softmax_step(weights, (int)n_here, &most, &total);
        if ((double)most > top) {
            sum = sum * exp(top - (double)most) + (double)total;
            top = (double)most;
        } else if (total > 0) {
            sum += (double)total * exp((double)most - top);
        }
    }
    return top + log(sum);
}

/* Weights of all tokens: exp((logit - top) / temperature), top being the highest logit; their sum. */
static double weigh_all(ig_sampler *s, const float *logits, float top, float temperature) {
    float highest = -INFINITY, total = 0;
    int n = s->model->config.n_vocab;
    for (int i = 0; i < n; i++) { /* NaN is never drawn */
        float below = logits[i] - top;
        s->weights[i] = below <= 0 ? below / temperature : -INFINITY;
    }
    s->kernels->softmax_step(s->weights, n, &highest, &total);
    return (double)total;
}

/* Only what top_p and min_p can leave: tokens that have together no more than what top_p takes away are none of it.
 * The total weight of all tokens, 0 if it is not wanted. */
static double fill_likely(ig_sampler *s, const float *logits, float top) {
    const ig_sampler_options *o = &s->o;
    const double margin = 1e-3; /* nats, for rounding */
    int n = s->model->config.n_vocab;
    double total = o->top_p < 1 ? weigh_all(s, logits, top, 1) : 0;
    double least = o->min_p > 0 ? log((double)o->min_p) : -INFINITY;
    if (o->top_p < 1) least = fmax(least, log((1 - (double)o->top_p) * total / n));
    /* Large logits lie further apart than that: rounding must not leave out what it is meant to leave in. */
    float below = nextafterf((float)((double)top + least - margin), -INFINITY);
    ig_candidates_fill_above(&s->candidates, s->kernels, logits, n, below);
    return total;
}

static void filter(ig_sampler *s, const float *logits, float top) {
    const ig_sampler_options *o = &s->o;
    ig_candidates *c = &s->candidates;
    int n_vocab = s->model->config.n_vocab;
    bool is_few = o->top_k > 0 && o->top_k <= n_vocab / 16;
    double total = 0;
    if (is_few && o->top_n_sigma <= 0) { /* the usual cases: without a list of all */
        ig_candidates_fill_top_k(c, logits, n_vocab, o->top_k);
    } else if (o->top_k <= 0 && o->top_n_sigma <= 0 && o->typical_p >= 1) {
        total = fill_likely(s, logits, top);
    } else {
        ig_candidates_fill(c, logits, n_vocab);
        if (o->top_n_sigma > 0) ig_candidates_top_n_sigma(c, o->top_n_sigma);
        if (o->top_k > 0) ig_candidates_top_k(c, o->top_k);
    }
    if (o->typical_p < 1) ig_candidates_typical(c, o->typical_p);
    if (o->top_p < 1) ig_candidates_top_p(c, o->top_p, total > 0 ? total : ig_candidates_total(c));
    if (o->min_p > 0) ig_candidates_min_p(c, o->min_p);
    if (o->xtc_probability > 0 && ig_random_unit(&s->random) < (double)o->xtc_probability)
        ig_candidates_xtc(c, o->xtc_threshold);
}

/* The candidates' weights, exp((logit - top) / temperature); their sum. */
static double weigh(ig_candidates *c, double temperature) {
    double top = (double)ig_candidates_top(c), sum = 0;
    for (int i = 0; i < c->n; i++) {
        c->v[i].key = (float)exp(((double)c->v[i].logit - top) / temperature);
        sum += (double)c->v[i].key;
    }
    return sum;
}

/* The more evenly the candidates share the probability, the higher. Never 0, at which only the likeliest is left. */
static double temperature_of(ig_sampler *s) {
    const ig_sampler_options *o = &s->o;
    ig_candidates *c = &s->candidates;
    double middle = (double)o->temperature, range = (double)o->dynatemp_range, entropy = 0;
    if (range == 0 || c->n < 2) return middle;
    double total = weigh(c, 1), least = fmax(0, middle - range);
    for (int i = 0; i < c->n; i++) {
        double p = (double)c->v[i].key / total;
        if (p > 0) entropy -= p * log(p);
    }
    double share = fmin(entropy / log(c->n), 1);
    return fmax(least + (middle + range - least) * pow(share, (double)o->dynatemp_exponent), 1e-6);
}

static int32_t draw(ig_sampler *s) {
    ig_candidates *c = &s->candidates;
    double sum = weigh(c, temperature_of(s));
    double u = ig_random_unit(&s->random) * sum;
    int last = 0;
    for (int i = 0; i < c->n && u >= 0; i++) {
        u -= (double)c->v[i].key;
        if (c->v[i].key > 0) last = i; /* the likeliest has 1 */
    }
    return c->v[last].id;
}

/* Of all tokens. */
static int32_t draw_any(ig_sampler *s, const float *logits, float top) {
    double u = ig_random_unit(&s->random) * weigh_all(s, logits, top, s->o.temperature);
    int32_t last = 0;
    for (int32_t i = 0; i < s->model->config.n_vocab && u >= 0; i++) {
        u -= (double)s->weights[i];
        if (s->weights[i] > 0) last = i;
    }
    return last;
}

static bool has_filters(const ig_sampler_options *o) {
    return o->top_n_sigma > 0 || o->top_k > 0 || o->typical_p < 1 || o->top_p < 1 || o->min_p > 0 ||
           o->xtc_probability > 0 || o->dynatemp_range > 0;
}

bool ig_sampler_is_for(const ig_sampler *s, const ig_model *m) { return s->model == m; }

void ig_sampler_restart(ig_sampler *s) {
    if (s && s->constraint) ig_constraint_restart(s->constraint);
}

bool ig_sampler_is_done(const ig_sampler *s) { return s->constraint && ig_constraint_is_done(s->constraint); }

/* One of the tokens; -1: there is none. */
static int32_t choose(ig_sampler *s, const float *logits) {
    int32_t best = s->kernels->argmax(logits, s->model->config.n_vocab);
    if (!(logits[best] > -INFINITY)) return -1;
    if (s->o.temperature <= 0 || isinf(logits[best])) return best;
    if (!has_filters(&s->o)) return draw_any(s, logits, logits[best]);
    filter(s, logits, logits[best]);
    return draw(s);
}

ig_status ig_sampler_take(int32_t *id, ig_sampler *s, const ig_session *session, const int32_t *without,
                          size_t n_without, ig_error *err) {
    const uint64_t *mask = NULL;
    ig_status status = s->constraint ? ig_constraint_mask(s->constraint, &mask, err) : IG_OK;
    if (status) return status;
    const float *logits = adjust(s, session, mask, without, n_without, err);
    if (!logits) return IG_E_MEMORY;
    *id = choose(s, logits);
    if (*id < 0)
        return ig_fail(err, IG_E_ARG, "no token can come next: all have a logit of minus infinity%s",
                       mask ? ", or the grammar does not go on with them" : "");
    if (s->constraint) ig_constraint_take(s->constraint, *id);
    return IG_OK;
}

int32_t ig_sampler_next(ig_sampler *s, const ig_session *session) {
    int32_t id;
    if (!s || !session || !ig_sampler_is_for(s, session->model) || !session->has_logits) return -1;
    return ig_sampler_take(&id, s, session, NULL, 0, NULL) ? -1 : id;
}
