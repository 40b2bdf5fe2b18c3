/* SPDX-License-Identifier: Apache-2.0
 *
 * infinigen, for programs that look after models and what is kept of them: sketches made in advance, what goes on in a
 * model over a text, and directories of stored prefixes. A program that only writes text needs infinigen.h alone, whose
 * rules hold here too.
 */
#ifndef INFINIGEN_TOOLS_H
#define INFINIGEN_TOOLS_H

#include "infinigen.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- prepared sketches -------------------------------------------------- */

/* What a sketch file holds: maps that keep the scores best, for "infinigen", or the paper's orthogonal matrices, for
 * "infinigen-osdi24". */

typedef struct ig_prepare_options {
    bool skew;          /* the kind IG_SKETCH_SKEW: n_ctx and rank must be 0. Default false */
    const int32_t *ids; /* tokens of the calibration text, the first 2048 of which are used; NULL (default): a built-in
                           text, for which the model needs a tokenizer */
    int n_ids;
    int n_ctx; /* context the sketch is for; 0 (default): as of a session */
    int rank;  /* numbers kept of a key: a multiple of 8, at most head_dim; 0 (default): head_dim */
    ig_progress_fn progress;
    void *progress_user;
} ig_prepare_options;

typedef struct ig_sketch_info {
    ig_sketch_kind kind;
    uint64_t model; /* identity of the model it was made for */
    int n_layers, head_dim;
    int n_heads;    /* with maps of their own: KV heads, for a skew query heads */
    int rank, bits; /* kept of a key; a skew: what of them, ig_cache_options.partial says */
    int n_ctx;      /* the context it was made for; a skew, which serves any: tokens of the calibration text used */
    uint64_t bytes; /* of the file */
} ig_sketch_info;

IG_API ig_prepare_options ig_prepare_defaults(void);
/* Runs the model over the text and writes the sketch of its keys that keeps the scores of its queries best, for
 * ig_cache_options.sketch. The file at `path` is replaced whole or not at all. `out` may be NULL. */
IG_API ig_status ig_prepare(ig_sketch_info *out, ig_model *model, const char *path, const ig_prepare_options *options,
                            ig_error *err);
/* Checks a sketch file and says what is in it. */
IG_API ig_status ig_sketch_get_info(ig_sketch_info *out, const char *path, ig_error *err);

/* ---- activations ---------------------------------------------------------- */

/* Sums over the tokens of a text, by column: [head_dim] each. */
typedef struct ig_column_sums {
    const double *magnitude; /* of |x| */
    const double *energy;    /* of x x */
} ig_column_sums;

/* Of one query head. Queries and keys are as attention sees them, after RoPE, without its scale; keys are those of its
 * KV head. Skewed: times the head's orthogonal matrix A, the right singular vectors of its queries over this text by
 * falling singular value (the paper's section 4.2), which changes no score. */
typedef struct ig_head_activations {
    ig_column_sums q, k, q_skewed, k_skewed;
} ig_head_activations;

/* Of one layer. The cosines are the paper's Table 1, means over tokens: of the layer's input, the residual stream that
 * enters its block, to the input of the layer before, and to what the attention and the feed-forward part of the layer
 * before add to that stream. The first layer has none, 0. */
typedef struct ig_layer_activations {
    int layer; /* from 0 */
    double input_cosine, attention_cosine, ffn_cosine;
    int n_heads, head_dim;
    const ig_head_activations *heads; /* [n_heads] query heads */
} ig_layer_activations;

/* What `layer` points to lasts as long as the call. Returning true stops with IG_E_INTERRUPTED. Within a step, as
 * ig_cache_trace_fn. */
typedef bool (*ig_layer_activations_fn)(void *user, const ig_layer_activations *layer);

/* The measurements of the InfiniGen paper (OSDI'24): runs the model over a text, in one step of at most IG_BATCH_MAX
 * tokens and at least 2 head_dim, and calls on_layer for each layer. */
IG_API ig_status ig_measure_activations(ig_model *model, const int32_t *ids, int n_ids,
                                        ig_layer_activations_fn on_layer, void *user, ig_error *err);

/* ---- stored prefixes ---------------------------------------------------- */

/* A directory in which the KV of prompts outlives the programs that computed it: looking after it, for which no model
 * is needed. Other processes may use it at the same time. One thread at a time. */
typedef struct ig_stored ig_stored;

/* A chain of stored tokens, which begins where a prompt begins and is named by its last piece, or a note: something
 * saved under a name. Texts last until the function that got them returns. */
typedef struct ig_stored_item {
    const char *model, *kind; /* "smollm2-135m q8_0", "f16 infinigen" */
    const char *root;         /* 32 hexadecimal digits: what all that is of one model and kind has in common */
    const char *id;           /* the same of a chain; "" of a note */
    const char *note;         /* its name; "" of a chain */
    uint64_t n_tokens;        /* from the beginning of the prompt on */
    uint64_t bytes;           /* of all these tokens, also where several chains share them */
    double used;              /* seconds since 1970 when the last piece was used, or the note was written */
    bool is_whole;            /* false: its beginning has left, so that nothing uses it any more */
    const char *file;         /* ig_stored_verify(): name of the file that is damaged, and what is wrong; else "" */
    const char *damage;
} ig_stored_item;
/* True stops the call with IG_E_INTERRUPTED. It must not use the same ig_stored. */
typedef bool (*ig_stored_fn)(void *user, const ig_stored_item *item);

typedef struct ig_stored_info {
    uint64_t n_pieces, bytes; /* of everything that is stored */
    uint64_t n_unread;        /* files that cannot be opened: of those that nothing is known of, nothing is removed */
} ig_stored_info;

/* `write`: for what changes something. IG_E_NOT_FOUND if nothing was ever stored there, IG_E_UNSUPPORTED if it is to be
 * written and another process does so at present. */
IG_API ig_status ig_stored_open(ig_stored **out, const char *directory, bool write, ig_error *err);
IG_API void ig_stored_close(ig_stored *stored);
IG_API void ig_stored_get_info(ig_stored *stored, ig_stored_info *out);

/* Every chain, then every note. */
IG_API ig_status ig_stored_list(ig_stored *stored, ig_stored_fn each, void *user, ig_error *err);

typedef struct ig_stored_health {
    uint64_t n_pieces, n_notes, bytes; /* read */
    uint64_t n_damaged;
    uint64_t n_foreign; /* files that another version, or another store, has written */
} ig_stored_health;
/* Reads everything and compares checksums. `damaged` is called for each piece, note or file that is damaged, `progress`
 * with bytes; both may be NULL. It repairs nothing: a damaged piece is never served, and leaves when it is met. */
IG_API ig_status ig_stored_verify(ig_stored_health *out, ig_stored *stored, ig_stored_fn damaged,
                                  ig_progress_fn progress, void *user, ig_error *err);

/* What a call has removed. The first one's bytes have those in them that ig_stored_open() gave back, of what is damaged
 * or was never finished. */
typedef struct ig_stored_freed {
    uint64_t n_pieces, n_notes, bytes;
} ig_stored_freed;
/* Removes what nothing uses any more: chains without a beginning, files of another version. Then what was not used for
 * the longest time, until at most max_bytes are taken; UINT64_MAX: nothing more. Notes stay. `out` may be NULL. */
IG_API ig_status ig_stored_gc(ig_stored_freed *out, ig_stored *stored, uint64_t max_bytes, ig_error *err);

typedef enum ig_stored_what {
    IG_STORED_ID,   /* the piece whose id begins with the digits `name`, all that follows it, and what before it nothing
                       else needs; IG_E_ARG if several begin so */
    IG_STORED_NOTE, /* every note of this name */
    IG_STORED_MODEL, /* all whose model is `name`, or begins with it and a blank */
    IG_STORED_ALL
} ig_stored_what;
/* IG_E_NOT_FOUND if there is no such thing. `out` may be NULL. */
IG_API ig_status ig_stored_remove(ig_stored_freed *out, ig_stored *stored, ig_stored_what what, const char *name,
                                  ig_error *err);

#ifdef __cplusplus
}
#endif

#endif
