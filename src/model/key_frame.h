/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of packed keys (kv/rows.h) from a model's weights alone: the biases of the key projection and the frequencies
 * of RoPE.
 */
#ifndef IG_MODEL_KEY_FRAME_H
#define IG_MODEL_KEY_FRAME_H

#include "base/memory.h"
#include "kv/rows.h"
#include "model/weights.h"

typedef struct ig_key_frames {
    ig_key_frame *layers; /* [n_layers]; NULL: the keys have no bias that is known after RoPE */
    ig_arena arena;
} ig_key_frames;

/* inv_freq [ig_rope_set]. */
ig_status ig_key_frames_open(ig_key_frames *out, const ig_config *c, const ig_weights *w,
                             const ig_rope_frequencies *inv_freq, ig_error *err);
void ig_key_frames_close(ig_key_frames *f);

#endif
