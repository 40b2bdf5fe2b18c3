/* SPDX-License-Identifier: Apache-2.0
 *
 * How a model's makers would have it sampled, as far as its files say: generation_config.json, or GGUF's keys
 * general.sampling.*. What is not a number in its range is as if it were not said: it is no more than advice.
 */
#ifndef IG_MODEL_SAMPLING_H
#define IG_MODEL_SAMPLING_H

#include "format/gguf.h"

enum { IG_SAMPLING_ADVICES = 9 };

typedef struct ig_sampling_advice {
    bool is_said[IG_SAMPLING_ADVICES];
    double value[IG_SAMPLING_ADVICES];
} ig_sampling_advice;

/* Of a GGUF file, or if g is NULL of a Hugging Face directory. */
void ig_sampling_advice_read(ig_sampling_advice *out, const ig_gguf *g, const char *directory);

#endif
