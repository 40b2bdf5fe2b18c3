/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with a recurrence on the CPU. A convolution is cut into stretches of channels of a row. A state is read and
 * written token by token, by one task for a value head, in the order of the text: so results depend neither on threads
 * nor on how a prompt is cut.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "device/cpu.h"

enum { CHANNELS = 512 }; /* of a task */

typedef struct recurrence_job {
    const ig_kernels *k;
    float *out;
    const float *x, *beta, *alpha;
    const ig_recurrence_shape *s;
    const ig_recurrence_weights *w;
    const ig_recurrence *jobs;
    int n_jobs;
} recurrence_job;

static void run(ig_device *dev, recurrence_job *j, ig_task_fn fn, int n_tasks) {
    ig_cpu_device *d = (ig_cpu_device *)dev;
    j->k = d->k;
    ig_pool_run(d->pool, n_tasks, fn, j);
}

/* ---- the convolution ------------------------------------------------------------------ */

/* What the convolution gets of the token `back` ones before row i of a job; NULL: there is none. */
static const float *input_of(const recurrence_job *j, const ig_recurrence *job, int i, int back) {
    size_t n = ig_recurrence_channels(j->s);
    if (back <= i) return j->x + (size_t)(job->row + i - back) * n;
    return job->from ? job->from + (size_t)(j->s->n_taps - 1 + i - back) * n : NULL;
}

/* Of channels [at, at + n): what is behind row i goes to a state. */
static void keep_inputs(const recurrence_job *j, const ig_recurrence *job, int i, float *state, size_t at, int n) {
    for (int t = 0, n_kept = j->s->n_taps - 1; t < n_kept; t++) {
        const float *from = input_of(j, job, i, n_kept - 1 - t);
        float *to = state + (size_t)t * ig_recurrence_channels(j->s) + at;
        if (from)
            memcpy(to, from + at, (size_t)n * sizeof *to);
        else
            memset(to, 0, (size_t)n * sizeof *to);
    }
}

/* Task: a stretch of channels of all rows of a job. */
static void convolve_task(void *arg, int task, int thread) {
    static const float ones[CHANNELS] = {[0 ... CHANNELS - 1] = 1};
    const recurrence_job *j = arg;
    const ig_recurrence *job = &j->jobs[task % j->n_jobs];
    size_t all = ig_recurrence_channels(j->s), at = (size_t)(task / j->n_jobs) * CHANNELS;
    const float *bias = j->w->taps_bias ? j->w->taps_bias + at : NULL;
    int n = all - at < CHANNELS ? (int)(all - at) : CHANNELS, n_taps = j->s->n_taps;
    (void)thread;
    for (int i = 0, kept = 0; i < job->n; i++) {
        const float *x[IG_RECURRENCE_TAPS];
        float *out = j->out + (size_t)(job->row + i) * all + at;
        for (int t = 0; t < n_taps; t++) {
            x[t] = input_of(j, job, i, n_taps - 1 - t);
            if (x[t]) x[t] += at;
        }
        j->k->convolve(out, x, j->w->taps + at, bias, all, n_taps, n);
        if (j->s->kind != IG_SHORT_CONVOLUTION) j->k->silu_mul(out, ones, n);
        for (; kept < job->n_kept && job->kept[kept].after == i + 1; kept++)
            keep_inputs(j, job, i, job->kept[kept].state, at, n);
    }
}

void ig_cpu_convolve(ig_device *dev, float *out, const float *x, const ig_recurrence_shape *s,
                     const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs) {
    recurrence_job j = {.out = out, .x = x, .s = s, .w = w, .jobs = jobs, .n_jobs = n_jobs};
    int stretches = (int)((ig_recurrence_channels(s) + CHANNELS - 1) / CHANNELS);
    if (n_jobs) run(dev, &j, convolve_task, n_jobs * stretches);
}

/* ---- the state ------------------------------------------------------------------------ */

/* to = x at length `length`. */
static void scale_to(float *to, const float *x, int n, float length) {
    enum { LANES = 16 }; /* sums of fixed order, which compilers keep side by side */
    float lanes[LANES] = {0}, sum = 0;
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] += x[i + l] * x[i + l];
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    float scale = sum < INFINITY ? length / sqrtf(sum + 1e-6f) : NAN;
    for (int i = 0; i < n; i++) to[i] = x[i] * scale;
}

/* What a token leaves of each row of a value head's state; returns the number that says how much of all of them, if
 * there is one. */
static float forget(const recurrence_job *j, float *decay, size_t gate, size_t head) {
    int n = ig_recurrence_decays(j->s);
    const float *alpha = j->alpha + gate * (size_t)n, *bias = j->w->decay_bias + head * (size_t)n;
    if (n > 1) {
        j->k->forget(decay, alpha, bias, j->w->decay[head], n);
        return 0;
    }
    float share = ig_softplus(*alpha + *bias), left = expf(j->w->decay[head] * share);
    for (int i = 0; i < j->s->key_dim; i++) decay[i] = left;
    return share;
}

/* A value head goes on by one token, of row `row`: its state is at `from`, and goes to `state`. */
static void change_state(const recurrence_job *j, float *state, const float *from, int row, int head) {
    const ig_recurrence_shape *s = j->s;
    ig_recurrence_parts at = ig_recurrence_places(s);
    size_t h = (size_t)head, r = (size_t)row, n = (size_t)s->value_dim, gate = ig_recurrence_gate(s, r, head),
           keys = (size_t)ig_recurrence_key_head(s, head) * (size_t)s->key_dim;
    const float *x = j->x + r * ig_recurrence_channels(s), *v = x + at.value + h * n;
    float *out = j->out + (r * (size_t)s->n_value_heads + h) * n;
    float q[IG_RECURRENCE_DIMS], k[IG_RECURRENCE_DIMS], decay[IG_RECURRENCE_DIMS];
    float share = forget(j, decay, gate, h);
    if (s->kind == IG_MAMBA_2) {
        j->k->state_space(out, state, from, x + at.query + keys, x + at.key + keys, v, *decay, share, j->w->skip[h],
                          s->key_dim, s->value_dim);
        return;
    }
    scale_to(q, x + at.query + keys, s->key_dim, 1 / sqrtf((float)s->key_dim));
    scale_to(k, x + at.key + keys, s->key_dim, 1);
    j->k->delta_rule(out, state, from, q, k, v, decay, ig_sigmoid(j->beta[gate]), s->key_dim, s->value_dim);
}

/* Task: a value head of a job. */
static void recur_task(void *arg, int task, int thread) {
    const recurrence_job *j = arg;
    const ig_recurrence_shape *s = j->s;
    const ig_recurrence *job = &j->jobs[task % j->n_jobs];
    int head = task / j->n_jobs;
    size_t each = (size_t)s->key_dim * (size_t)s->value_dim,
           at = (size_t)(s->n_taps - 1) * ig_recurrence_channels(s) + (size_t)head * each;
    (void)thread;
    if (!job->n) return;
    float *last = job->kept[job->n_kept - 1].state + at;
    const float *from = job->from ? job->from + at : last;
    if (!job->from) memset(last, 0, each * sizeof *last);
    for (int i = 0, kept = 0; i < job->n; i++) {
        change_state(j, last, i ? last : from, job->row + i, head);
        for (; kept < job->n_kept - 1 && job->kept[kept].after == i + 1; kept++)
            memcpy(job->kept[kept].state + at, last, each * sizeof *last);
    }
}

void ig_cpu_recur(ig_device *dev, float *out, const float *x, const float *beta, const float *alpha,
                  const ig_recurrence_shape *s, const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs) {
    recurrence_job j = {
        .out = out, .x = x, .beta = beta, .alpha = alpha, .s = s, .w = w, .jobs = jobs, .n_jobs = n_jobs};
    if (n_jobs) run(dev, &j, recur_task, n_jobs * s->n_value_heads);
}
