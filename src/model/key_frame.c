/* SPDX-License-Identifier: Apache-2.0
 *
 * Origins and scales of packed keys, from the biases of the key projection and the frequencies of RoPE.
 */
#include "model/key_frame.h"

#include <math.h>

#include "base/error.h"

enum {
    POSITIONS = 8192, /* that the frames are made for; further ones are only packed less well */
    MOST_DOUBLINGS = 16,
};

/* The bias of a pair goes along an arc of a circle as the position goes from 0 to POSITIONS - 1. The origin is the
 * middle of the arc's chord, from which no point is farther than its ends are; from half a circle on it is 0. Scales
 * bring that distance to about 2, the size of what else is in a key. */
static void frame_pair(float *origin, float *scale, const float *bias, int a, int b, double arc, double gain) {
    double x = gain * (double)bias[a], y = gain * (double)bias[b], left = hypot(x, y);
    if (arc < acos(-1.0)) {
        double c = cos(arc / 2), s = sin(arc / 2);
        origin[a] = (float)(c * (c * x - s * y));
        origin[b] = (float)(c * (s * x + c * y));
        left *= s;
    }
    double doublings = left > 2 ? rint(log2(left / 2)) : 0;
    scale[a] = scale[b] = (float)exp2(doublings < MOST_DOUBLINGS ? doublings : MOST_DOUBLINGS);
}

/* The part of a KV head, with the scale of the first of its query heads. */
static ig_key_frame frame_of_head(const ig_key_frame *f, const ig_config *c, int kv_head) {
    size_t at = (size_t)kv_head * (size_t)c->head_dim, group = (size_t)(c->n_heads / c->n_kv_heads);
    return (ig_key_frame){f->origin + at, f->scale + group * at};
}

/* inv_freq NULL: the layer does not rotate. Origins stay 0 where not all that softmax sees would move with them. */
static void frame_head(ig_key_frame f, const ig_config *c, const float *bias, const double *inv_freq, double gain,
                       bool has_sink_scores) {
    int n_rot = inv_freq ? c->rope.n : 0, half = n_rot / 2;
    bool adjacent = c->rope.kind == IG_ROPE_ADJACENT;
    for (int i = 0; i < half; i++)
        frame_pair(f.origin, f.scale, bias, adjacent ? 2 * i : i, adjacent ? 2 * i + 1 : half + i,
                   has_sink_scores ? INFINITY : inv_freq[i] * (POSITIONS - 1), gain);
    for (int i = n_rot; i < c->head_dim; i++) {
        if (!has_sink_scores) f.origin[i] = bias[i];
        f.scale[i] = 1;
    }
}

static void frame_layer(const ig_key_frame *f, const ig_config *c, const ig_weights *w, const ig_rope_frequencies *all,
                        int layer) {
    const float *bias = w->layers[layer].k.bias;
    int set = c->rope.kind == IG_ROPE_NONE ? IG_ROPE_LEFT_OUT : c->rope.set[layer];
    const double *inv_freq = set == IG_ROPE_LEFT_OUT ? NULL : all[set];
    double gain = set == IG_ROPE_MAIN ? c->rope.gain : 1;
    int group = c->n_heads / c->n_kv_heads, d = c->head_dim;
    for (int h = 0; h < c->n_kv_heads; h++) {
        ig_key_frame head = frame_of_head(f, c, h);
        frame_head(head, c, bias + (size_t)h * (size_t)d, inv_freq, gain, w->sink_scores != NULL);
        for (int i = d; i < group * d; i++) head.scale[i] = head.scale[i - d];
    }
}

/* One walk over the layers: first it sums their memory, then it fills it. */
static void frame_all(ig_key_frames *f, const ig_config *c, const ig_weights *w, const ig_rope_frequencies *inv_freq) {
    size_t floats = (size_t)c->head_dim * sizeof(float);
    f->layers = ig_arena_take(&f->arena, (size_t)c->n_layers * sizeof *f->layers);
    for (int l = 0; l < c->n_layers; l++) {
        ig_key_frame frame = {.origin = ig_arena_take(&f->arena, (size_t)c->n_kv_heads * floats),
                              .scale = ig_arena_take(&f->arena, (size_t)c->n_heads * floats)};
        if (!f->layers) continue;
        f->layers[l] = frame;
        frame_layer(&frame, c, w, inv_freq, l);
    }
}

ig_status ig_key_frames_open(ig_key_frames *out, const ig_config *c, const ig_weights *w,
                             const ig_rope_frequencies *inv_freq, ig_error *err) {
    *out = (ig_key_frames){0};
    /* A norm of the heads hides what becomes of a bias. */
    if (!w->layers[0].k.bias || w->layers[0].k_norm || c->n_recurrent) return IG_OK;
    frame_all(out, c, w, inv_freq);
    if (!ig_arena_open(&out->arena)) return ig_fail_memory(err, "frames of packed keys", out->arena.size);
    frame_all(out, c, w, inv_freq);
    return IG_OK;
}

void ig_key_frames_close(ig_key_frames *f) {
    ig_arena_close(&f->arena);
    *f = (ig_key_frames){0};
}
