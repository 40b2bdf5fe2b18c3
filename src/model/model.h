/* SPDX-License-Identifier: Apache-2.0
 *
 * A model: the mapped files, what they describe, and the tokenizer, immutable once open; and the memory of its
 * sessions' steps.
 */
#ifndef IG_MODEL_MODEL_H
#define IG_MODEL_MODEL_H

#include "device/context.h"
#include "grammar/words.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/expert_cache.h"
#include "model/expert_lane.h"
#include "model/key_frame.h"
#include "model/sampling.h"
#include "model/sketches.h"
#include "model/weight_lane.h"
#include "model/weight_stream.h"
#include "model/weights.h"
#include "token/chat.h"
#include "token/tokenizer.h"

struct ig_model {
    ig_context *ctx;
    char *path;
    ig_gguf *gguf; /* one of these two; of a folder neither with tokenizer_only */
    ig_safetensors *st;
    ig_weight_stream *stream;      /* NULL: weights are mapped or copied */
    ig_expert_cache *experts;      /* with a stream, of a model that has some */
    ig_weight_lane *lane;          /* NULL: the device computes in the host's memory */
    ig_expert_lane *expert_lane;   /* with a lane, of a model whose experts have to share the device's memory */
    uint64_t copied_bytes;         /* of the files; 0: they are mapped */
    uint64_t copied_hash[2];       /* ig_model_hash_weights() of what was copied, parts of which leave memory then */
    const char *_Atomic changed;   /* path of a mapped file that has */
    uint64_t identity;             /* ig_model_identity_of() */
    uint64_t adapters_hash[2];     /* of what is added to its weights where nobody says otherwise; 0: nothing is */
    uint64_t all_adapters_hash[2]; /* of all that can be */
    ig_adapter *adapters;          /* [n_adapters] with copies of the paths */
    int n_adapters;
    bool has_weights;
    ig_config config;
    ig_weights weights;
    ig_sampling_advice sampling;
    ig_tokenizer *tokenizer; /* NULL: none */
    ig_chat chat;
    ig_rope_frequencies inv_freq[IG_ROPE_SETS]; /* scaling applied */
    ig_key_frames key_frames;
    ig_batch batch; /* the memory of its sessions' steps */
    ig_sketches sketches;
    ig_words words; /* made once a grammar asks for them */
};

/* Of its files; of a folder with tokenizer_only there are none. */
static inline size_t ig_model_count_tensors(const ig_model *m) { return ig_tensors_count(m->gguf, m->st); }
static inline const ig_tensor *ig_model_tensor_at(const ig_model *m, size_t i) {
    return ig_tensors_at(m->gguf, m->st, i);
}

/* IG_E_CHANGED if a mapped file is not as it was when the model was opened, now or at an earlier call. */
ig_status ig_model_check(const ig_model *m, ig_error *err);
/* Of a model with a tokenizer. Any thread. */
ig_status ig_model_get_words(const ig_words **out, const ig_model *m, ig_error *err);
/* IG_E_ARG if one of the ids [n], which are for positions from `first` on, is no token. */
ig_status ig_model_check_ids(const ig_model *m, const int32_t *ids, int first, int n, ig_error *err);

#endif
