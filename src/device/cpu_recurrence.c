/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers with a recurrence on the CPU. A convolution is cut into stretches of channels of a row. A state is read and
 * written token by token, by one task for a key head and the value heads that it serves, in the order of the text: so
 * results depend neither on threads nor on how a prompt is cut.
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
    int n = all - at < CHANNELS ? (int)(all - at) : CHANNELS, n_taps = j->s->n_taps;
    (void)thread;
    for (int i = 0, kept = 0; i < job->n; i++) {
        const float *x[IG_RECURRENCE_TAPS];
        float *out = j->out + (size_t)(job->row + i) * all + at;
        for (int t = 0; t < n_taps; t++) {
            x[t] = input_of(j, job, i, n_taps - 1 - t);
            if (x[t]) x[t] += at;
        }
        j->k->convolve(out, x, j->w->taps + at, all, n_taps, n);
        j->k->silu_mul(out, ones, n);
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

/* NaN of what is not finite. */
static float softplus(float x) { return (x > 20 ? x : log1pf(expf(x))) + (x - x); }
static float sigmoid(float x) { return 1 / (1 + expf(-x)) + (x - x); }

/* Value head `head` goes on by one token, of row `row`. */
static void change_state(const recurrence_job *j, float *state, int row, int head, const float *q, const float *k) {
    const ig_recurrence_shape *s = j->s;
    size_t n_heads = (size_t)s->n_value_heads, h = (size_t)head, n = (size_t)s->value_dim, r = (size_t)row;
    const float *x = j->x + r * ig_recurrence_channels(s);
    const float *v = x + 2 * (size_t)s->n_key_heads * (size_t)s->key_dim + h * n;
    size_t gate = ig_recurrence_gate(s, r, head);
    float beta = sigmoid(j->beta[gate]), decay = expf(j->w->decay[h] * softplus(j->alpha[gate] + j->w->decay_bias[h]));
    j->k->delta_rule(j->out + (r * n_heads + h) * n, state, q, k, v, decay, beta, s->key_dim, s->value_dim);
}

/* Task: the value heads of a key head. */
static void recur_task(void *arg, int task, int thread) {
    const recurrence_job *j = arg;
    const ig_recurrence_shape *s = j->s;
    const ig_recurrence *job = &j->jobs[task % j->n_jobs];
    int key_head = task / j->n_jobs, group = s->n_value_heads / s->n_key_heads;
    size_t channels = ig_recurrence_channels(s), d = (size_t)s->key_dim, each = d * (size_t)s->value_dim,
           first = (size_t)(s->n_taps - 1) * channels;
    float q[IG_RECURRENCE_DIMS], k[IG_RECURRENCE_DIMS], *last = job->n ? job->kept[job->n_kept - 1].state : NULL;
    (void)thread;
    if (!job->n) return;
    for (int g = 0; g < group; g++) {
        int head = s->is_tiled ? g * s->n_key_heads + key_head : key_head * group + g;
        size_t at = first + (size_t)head * each;
        if (job->from)
            memcpy(last + at, job->from + at, each * sizeof *last);
        else
            memset(last + at, 0, each * sizeof *last);
        for (int i = 0, kept = 0; i < job->n; i++) {
            const float *x = j->x + (size_t)(job->row + i) * channels + (size_t)key_head * d;
            scale_to(q, x, s->key_dim, 1 / sqrtf((float)s->key_dim));
            scale_to(k, x + (size_t)s->n_key_heads * d, s->key_dim, 1);
            change_state(j, last + at, job->row + i, head, q, k);
            for (; kept < job->n_kept - 1 && job->kept[kept].after == i + 1; kept++)
                memcpy(job->kept[kept].state + at, last + at, each * sizeof *last);
        }
    }
}

void ig_cpu_recur(ig_device *dev, float *out, const float *x, const float *beta, const float *alpha,
                  const ig_recurrence_shape *s, const ig_recurrence_weights *w, const ig_recurrence *jobs, int n_jobs) {
    recurrence_job j = {
        .out = out, .x = x, .beta = beta, .alpha = alpha, .s = s, .w = w, .jobs = jobs, .n_jobs = n_jobs};
    if (n_jobs) run(dev, &j, recur_task, n_jobs * s->n_key_heads);
}
