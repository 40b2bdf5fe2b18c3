/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of the forward pass that do not attend: Gated DeltaNet, Mamba 2, and short convolutions (device.h). Of all
 * tokens before they know a state, which their sequence keeps (kv/states.h).
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
    ops->norm(f->dev, x, x, w->norm, NULL, gates_first ? s->n_key_heads : 1, true, f->c->inner_eps,
              (int)(n / (size_t)n_norm), n_norm);
    if (!gates_first) ops->activate(f->dev, IG_SILU_GATED, gate, x, n);
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

const float *ig_forward_recur(const forward *f, const ig_recurrent *w, const float *x) {
    const ig_batch *b = f->b;
    const ig_recurrence_shape *s = &f->c->recurrence;
    const ig_device_ops *ops = f->dev->ops;
    if (s->kind == IG_SHORT_CONVOLUTION) return convolve(f, w, x);
    size_t rows = (size_t)f->n_rows, heads = (size_t)s->n_value_heads, width = heads * (size_t)s->value_dim;
    float *beta = b->gates, *alpha = b->gates + (s->has_gate_pairs ? heads / (size_t)s->n_key_heads : rows * heads);
    float *to[4] = {b->mixed[0], b->mixed_gate};
    const ig_matrix *from[4] = {&w->qkv, &w->z};
    int n = 2;
    if (w->beta.w) to[n] = beta, from[n++] = &w->beta;
    if (w->alpha.w) to[n] = alpha, from[n++] = &w->alpha;
    ig_forward_multiply(f, to, from, n, x, 0);
    leave_out_failed(f, width);
    ops->convolve(f->dev, b->mixed[1], b->mixed[0], s, &w->w, b->recurrences, b->n_segments);
    ops->recur(f->dev, b->x, b->mixed[1], beta, alpha, s, &w->w, b->recurrences, b->n_segments);
    pass_states(f);
    return gate_and_norm(f, w, width);
}
