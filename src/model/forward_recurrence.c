/* SPDX-License-Identifier: Apache-2.0
 *
 * States of layers, most of which do not attend: Gated DeltaNet, Kimi Delta, Mamba 2, and short convolutions
 * (device.h). Of all tokens before they know a state, which their sequence keeps (kv/states.h).
 */
#include "kv/store.h"
#include "model/forward_parts.h"

void ig_forward_begin_recurrences(forward *f) {
    for (int s = 0; f->c->n_recurrent && s < f->b->n_segments; s++) {
        const ig_segment *seg = &f->b->segments[s];
        ig_recurrence *job = &f->b->recurrences[s];
        *job = (ig_recurrence){.row = seg->row};
        if (!seg->n || seg->status) continue;
        ig_kv_carry carry;
        ig_kv_begin_carry(&carry, seg->seq->kv, seg->first, seg->n, seg->dense, !seg->n_asked);
        job->n = seg->n;
        job->from = (const float *)(const void *)carry.from;
        job->n_kept = carry.n_kept;
        for (int i = 0; i < carry.n_kept; i++) {
            job->kept[i].after = carry.kept[i].after;
            job->kept[i].state = (float *)(void *)carry.kept[i].state;
        }
    }
}

/* Those that have failed take no part: what the layer gives of their rows is zeros. */
static void leave_out_failed(const forward *f, size_t width) {
    for (int s = 0; s < f->b->n_segments; s++)
        if (f->b->segments[s].status) f->b->recurrences[s].n = 0;
    ig_forward_clear_failed(f, f->b->x, (int)width);
}

/* On to the states of the next layer, which lie behind this one's. */
static void pass_states(const forward *f) {
    size_t n = ig_recurrence_floats(&f->c->recurrence);
    for (int s = 0; s < f->b->n_segments; s++) {
        ig_recurrence *job = &f->b->recurrences[s];
        if (job->from) job->from += n;
        for (int i = 0; i < job->n_kept; i++) job->kept[i].state += n;
    }
}

/* What is read from states, rows at b->x: a norm of each head and then the gate, of Mamba 2 the gate and then a norm.
 */
static const float *gate_and_norm(const forward *f, const ig_recurrent *w, size_t width) {
    const ig_batch *b = f->b;
    const ig_recurrence_shape *s = &f->c->recurrence;
    const ig_device_ops *ops = f->dev->ops;
    bool gates_first = s->kind == IG_MAMBA_2;
    size_t n = (size_t)f->n_rows * width;
    int n_norm = gates_first ? (int)width / s->n_key_heads : s->value_dim;
    float *gate = b->mixed_gate, *x = gates_first ? gate : b->x;
    if (gates_first) ops->activate(f->dev, IG_SILU_GATED, gate, b->x, n);
    if (!w->norm && gates_first) return gate;
    const ig_norm norm = {.n = n_norm,
                          .is_rms = true,
                          .eps = f->c->norms.inner_eps,
                          .w = w->norm,
                          .n_w = gates_first ? s->n_key_heads : 1};
    ops->norm(f->dev, x, x, &norm, (int)(n / (size_t)n_norm));
    ig_activation kind = s->kind == IG_KIMI_DELTA ? IG_SIGMOID_GATED : IG_SILU_GATED;
    if (!gates_first) ops->activate(f->dev, kind, gate, x, n);
    return gate;
}

/* A gate before a convolution, and one behind. */
static const float *convolve(const forward *f, const ig_recurrent *w, const float *x) {
    const ig_batch *b = f->b;
    const ig_device_ops *ops = f->dev->ops;
    size_t width = (size_t)f->c->d_model, n = (size_t)f->n_rows * width;
    ig_forward_multiply(f, (float *[]){b->mixed[0], b->mixed[1], b->mixed_gate},
                        (const ig_matrix *[]){&w->beta, &w->qkv, &w->z}, 3, x, 0);
    leave_out_failed(f, width);
    ops->activate(f->dev, IG_PRODUCT, b->mixed[0], b->mixed[1], n);
    ops->convolve(f->dev, b->x, b->mixed[0], &f->c->recurrence, &w->w, b->recurrences, b->n_segments);
    pass_states(f);
    ops->activate(f->dev, IG_PRODUCT, b->mixed_gate, b->x, n);
    return b->mixed_gate;
}

/* What the convolution gets, to b->mixed[0], and the gates. */
static void project(const forward *f, const ig_recurrent *w, const float *x, float *beta, float *alpha) {
    float *to[4] = {f->b->mixed[0], f->b->mixed_gate};
    const ig_matrix *from[4] = {&w->qkv, &w->z};
    int n = 2;
    if (w->beta.w) to[n] = beta, from[n++] = &w->beta;
    if (w->alpha.w) to[n] = alpha, from[n++] = &w->alpha;
    ig_forward_multiply(f, to, from, n, x, 0);
}

/* The same of Kimi Delta: three parts, which come to lie side by side, and gates by way of narrower vectors. */
static void project_parts(const forward *f, const ig_recurrent *w, const float *x, float *beta, float *alpha) {
    const ig_batch *b = f->b;
    const ig_recurrence_shape *s = &f->c->recurrence;
    size_t channels = ig_recurrence_channels(s), n = channels / 3, all = (size_t)f->n_rows * n;
    float *part = b->mixed[1];
    ig_forward_multiply(f, (float *[]){part, part + all, part + 2 * all, beta},
                        (const ig_matrix *[]){&w->q, &w->k, &w->v, &w->beta}, 4, x, 0);
    for (size_t i = 0; i < 3; i++)
        f->dev->ops->copy_rows(f->dev, b->mixed[0] + i * n, channels, part + i * all, n, (int)n, f->n_rows);
    ig_forward_multiply(f, (float *[]){b->narrow[0], b->narrow[1]}, (const ig_matrix *[]){&w->alpha_in, &w->z_in}, 2, x,
                        0);
    ig_forward_multiply(f, &alpha, (const ig_matrix *[]){&w->alpha}, 1, b->narrow[0], 0);
    ig_forward_multiply(f, (float *[]){b->mixed_gate}, (const ig_matrix *[]){&w->z}, 1, b->narrow[1], 0);
}

const float *ig_forward_recur(const forward *f, const ig_recurrent *w, const float *x) {
    const ig_batch *b = f->b;
    const ig_recurrence_shape *s = &f->c->recurrence;
    const ig_device_ops *ops = f->dev->ops;
    if (s->kind == IG_SHORT_CONVOLUTION) return convolve(f, w, x);
    size_t rows = (size_t)f->n_rows, heads = (size_t)s->n_value_heads, width = heads * (size_t)s->value_dim;
    float *beta = b->gates, *alpha = b->gates + (s->has_gate_pairs ? heads / (size_t)s->n_key_heads : rows * heads);
    (s->kind == IG_KIMI_DELTA ? project_parts : project)(f, w, x, beta, alpha);
    leave_out_failed(f, width);
    ops->convolve(f->dev, b->mixed[1], b->mixed[0], s, &w->w, b->recurrences, b->n_segments);
    ops->recur(f->dev, b->x, b->mixed[1], beta, alpha, s, &w->w, b->recurrences, b->n_segments);
    pass_states(f);
    return gate_and_norm(f, w, width);
}
