/* SPDX-License-Identifier: Apache-2.0
 *
 * What keys are packed relative to, in models whose keys have a bias (Qwen2, OPT).
 *
 * The bias of a few pairs of channels is far larger than all else in a key, and a packed group would get a step to
 * match. Where RoPE turns such a pair slowly, its bias hardly changes over thousands of positions: it is subtracted.
 * That adds the same to all scores of a query, which softmax ignores, so nothing has to be put back. What is left of
 * the bias, all of it where RoPE is fast, is divided away, and queries are multiplied instead. Both come from the
 * weights alone. Factors are powers of two: apart from the codes nothing is rounded.
 *
 * Only packed keys are kept like this, and only attention sees them so: policies are shown keys as they are.
 */
#ifndef IG_MODEL_KEY_FRAME_H
#define IG_MODEL_KEY_FRAME_H

#include "base/memory.h"
#include "model/weights.h"

/* Of a layer: kept = (key - origin) / scale, after RoPE. */
typedef struct ig_key_frame {
    float *origin; /* [n_kv_heads][head_dim] */
    float *scale;  /* [n_heads][head_dim], powers of two from 1 on, the same for all query heads of a KV head */
} ig_key_frame;

typedef struct ig_key_frames {
    ig_key_frame *layers; /* [n_layers]; NULL: the keys have no bias that is known after RoPE */
    ig_arena arena;
} ig_key_frames;

/* inv_freq [n_rot / 2]: radians per position. */
ig_status ig_key_frames_open(ig_key_frames *out, const ig_config *c, const ig_weights *w, const double *inv_freq,
                             ig_error *err);
void ig_key_frames_close(ig_key_frames *f);

/* out [head_dim] = what is packed of a key of that KV head. */
void ig_key_frame_enter(float *out, const ig_key_frame *f, const ig_config *c, int kv_head, const float *key);
/* key [head_dim], 16-bit floats as they were unpacked, as it is. */
void ig_key_frame_leave(uint16_t *key, const ig_key_frame *f, const ig_config *c, int kv_head);

#endif
