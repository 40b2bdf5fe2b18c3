/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling: repetition penalty, top-k, top-p, min-p, temperature, in that order (llama.cpp's). The filters want the
 * candidates in descending order but seldom many of them: a heap over the vocabulary gives them one by one.
 */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/random.h"
#include "base/ranges.h"
#include "engine/session.h"

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

struct ig_sampler {
    ig_sampler_options o;
    const ig_model *model;
    ig_random random;
    const ig_kernels *kernels;
    int n_vocab;
    candidate *heap;   /* [n_vocab] */
    candidate *sorted; /* [n_vocab] those taken from the heap, best first */
    float *logits;     /* [n_vocab] penalised copy */
    uint8_t *seen;     /* [n_vocab] marks for the penalty */
};

ig_sampler_options ig_sampler_defaults(void) {
    return (ig_sampler_options){.top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64};
}

ig_status ig_sampler_open(ig_sampler **out, const ig_model *m, const ig_sampler_options *options, ig_error *err) {
    if (out) *out = NULL;
    if (!out || !m || !m->has_weights) return ig_fail(err, IG_E_ARG, "ig_sampler_open: a model with weights is needed");
    ig_sampler_options o = options ? *options : ig_sampler_defaults();
    ig_status status = ig_check_sampler_options(&o, err);
    if (status) return status;
    size_t n = (size_t)m->config.n_vocab;
    ig_sampler *s = calloc(1, sizeof *s);
    if (!s) return ig_fail_memory(err, "sampler", sizeof *s);
    s->o = o;
    s->model = m;
    s->random.state = o.seed;
    s->kernels = ig_kernels_get(m->ctx->level);
    s->n_vocab = m->config.n_vocab;
    s->heap = malloc(n * sizeof *s->heap);
    s->sorted = malloc(n * sizeof *s->sorted);
    s->logits = malloc(n * sizeof *s->logits);
    s->seen = calloc(n, 1);
    if (!s->heap || !s->sorted || !s->logits || !s->seen) {
        ig_sampler_close(s);
        return ig_fail_memory(err, "sampler", n * (2 * sizeof(candidate) + sizeof(float) + 1));
    }
    *out = s;
    return IG_OK;
}

void ig_sampler_close(ig_sampler *s) {
    if (!s) return;
    free(s->heap);
    free(s->sorted);
    free(s->logits);
    free(s->seen);
    free(s);
}

/* Keskar et al. 2019: logits of tokens seen lately are divided (if negative, multiplied) by the penalty. */
static const float *penalise(ig_sampler *s, const ig_session *session) {
    if (s->o.repeat_penalty == 1.0f || s->o.repeat_last_n == 0) return session->logits;
    int n = session->n_tokens, first = s->o.repeat_last_n < 0 || s->o.repeat_last_n > n ? 0 : n - s->o.repeat_last_n;
    for (int i = 0; i < s->n_vocab; i++) s->logits[i] = session->logits[i];
    for (int i = first; i < n; i++) {
        int32_t id = session->tokens[i];
        if (s->seen[id]) continue;
        s->seen[id] = 1;
        float x = s->logits[id];
        s->logits[id] = x > 0 ? x / s->o.repeat_penalty : x * s->o.repeat_penalty;
    }
    for (int i = first; i < n; i++) s->seen[session->tokens[i]] = 0;
    return s->logits;
}

/* Higher logit first; ties to the lower id, so that the order never depends on the heap. */
static bool before(candidate a, candidate b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

static void sift_down(candidate *heap, int n, int i) {
    candidate c = heap[i];
    for (int child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], c)) break;
        heap[i] = heap[child];
    }
    heap[i] = c;
}

/* Fills the heap; NaN counts as minus infinity. Returns its size. */
static int make_heap(ig_sampler *s, const float *logits) {
    for (int i = 0; i < s->n_vocab; i++) s->heap[i] = (candidate){isnan(logits[i]) ? -INFINITY : logits[i], i};
    for (int i = s->n_vocab / 2 - 1; i >= 0; i--) sift_down(s->heap, s->n_vocab, i);
    return s->n_vocab;
}

/* Moves the best candidates, in order, to s->sorted until a filter ends the list. */
static int filter(ig_sampler *s, const float *logits) {
    int n_heap = make_heap(s, logits), n = 0;
    int most = s->o.top_k > 0 && s->o.top_k < s->n_vocab ? s->o.top_k : s->n_vocab;
    float top = s->heap[0].logit, floor_logit = s->o.min_p > 0 ? top + logf(s->o.min_p) : -INFINITY;
    bool unlimited = most == s->n_vocab && s->o.top_p >= 1 && s->o.min_p <= 0;
    if (unlimited) { /* no filter: the order does not matter */
        for (; n < s->n_vocab; n++) s->sorted[n] = (candidate){isnan(logits[n]) ? -INFINITY : logits[n], n};
        return n;
    }
    double total = 0, sum = 0;
    if (s->o.top_p < 1 && most == s->n_vocab)
        for (int i = 0; i < s->n_vocab; i++) total += exp((double)s->heap[i].logit - top);
    while (n < most && n_heap) {
        candidate c = s->heap[0];
        if (n && c.logit < floor_logit && !(s->o.top_p < 1 && most < s->n_vocab)) break;
        s->sorted[n++] = c;
        s->heap[0] = s->heap[--n_heap];
        sift_down(s->heap, n_heap, 0);
        sum += exp((double)c.logit - top);
        if (total > 0 && sum >= s->o.top_p * total) break;
    }
    if (s->o.top_p < 1 && most < s->n_vocab) { /* top-p's shares are of what top-k left */
        double all = sum;
        int kept = 0;
        for (sum = 0; kept < n && (kept == 0 || sum < s->o.top_p * all); kept++)
            sum += exp((double)s->sorted[kept].logit - top);
        for (n = 1; n < kept && s->sorted[n].logit >= floor_logit;) n++;
    }
    return n;
}

bool ig_sampler_is_for(const ig_sampler *s, const ig_model *m) { return s->model == m; }

int32_t ig_sampler_next(ig_sampler *s, const ig_session *session) {
    if (!s || !session || !ig_sampler_is_for(s, session->model) || !session->has_logits) return -1;
    const float *logits = penalise(s, session);
    if (s->o.temperature <= 0) return s->kernels->argmax(logits, s->n_vocab);
    int n = filter(s, logits);
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) top = s->sorted[i].logit > top ? s->sorted[i].logit : top;
    if (isinf(top)) return s->kernels->argmax(logits, s->n_vocab);
    for (int i = 0; i < n; i++) {
        s->sorted[i].logit = (float)exp((s->sorted[i].logit - top) / s->o.temperature);
        sum += s->sorted[i].logit;
    }
    double u = ig_random_unit(&s->random) * sum;
    for (int i = 0; i < n; i++) {
        u -= s->sorted[i].logit;
        if (u < 0) return s->sorted[i].id;
    }
    return s->sorted[n - 1].id;
}
