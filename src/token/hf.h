/* SPDX-License-Identifier: Apache-2.0
 *
 * What the builders of Hugging Face tokenizers share: JSON files with checked fields, and added tokens.
 */
#ifndef IG_TOKEN_HF_H
#define IG_TOKEN_HF_H

#include <jansson.h>

#include "token/parts.h"

/* Where a value comes from, for errors: "path: field". */
typedef struct ig_json_place {
    const char *path, *field;
    ig_error *err;
} ig_json_place;

/* Members of an object; absent and null leave *out alone, another type is an error. `at` names the object. */
ig_status ig_json_bool(const json_t *object, const char *key, bool *out, ig_json_place at);
ig_status ig_json_text(const json_t *object, const char *key, ig_text *out, ig_json_place at);
ig_status ig_json_fail(ig_json_place at, const char *what);

/* An added token on its way into the vocabulary; the text belongs to a JSON tree. */
typedef struct ig_added {
    int64_t id;
    ig_text text;
    ig_token_kind kind;
    int flags;
} ig_added;

typedef struct ig_added_list {
    ig_added *items; /* [n] */
    size_t n;
} ig_added_list;

void ig_added_close(ig_added_list *list);
/* Leaves out tokens whose ids are `limit` or more; 0: none. */
void ig_added_drop(ig_added_list *list, int64_t limit);
/* tokenizer.json's "added_tokens" (array) or tokenizer_config.json's "added_tokens_decoder" (object by id). NULL: none.
 */
ig_status ig_added_read(ig_added_list *list, const json_t *tokens, ig_json_place at);
/* {"text": id} of an added_tokens.json. */
ig_status ig_added_read_ids(ig_added_list *list, const json_t *ids, ig_json_place at);

/* Vocabulary from {"text": id} and added tokens: fills t->vocab and its hash; t->rules.bytewise says how texts are
 * written. Ids must be below max_id. */
ig_status ig_hf_vocab(ig_tokenizer *t, const json_t *vocab, const ig_added_list *added, int64_t max_id,
                      ig_json_place at);
/* One merge in the letters of the vocabulary. */
ig_status ig_hf_merge(ig_tokenizer *t, ig_text left, ig_text right, uint32_t i, ig_json_place at);

/* The normalizer, pre_tokenizer and post_processor of a tokenizer.json. */
ig_status ig_hf_stages(ig_tokenizer *t, const json_t *root, const char *path, ig_error *err);

/* Appends to `out` what PCRE2 must be given for an expression of a tokenizer.json; no more of it than one byte above
 * what ig_pretoken_add() takes. IG_E_UNSUPPORTED names what cannot be said exactly. */
ig_status ig_hf_expression(ig_buffer *out, const char *expression, const char *where, ig_error *err);

/* Builders. `added` are tokens known from other files. */
ig_status ig_hf_from_json(ig_tokenizer *t, const char *path, ig_error *err); /* tokenizer.json */
ig_status ig_hf_from_merges(ig_tokenizer *t, const char *vocab_path, const char *merges_path,
                            const ig_added_list *added, ig_error *err); /* vocab.json, merges.txt */
ig_status ig_hf_from_spm(ig_tokenizer *t, const char *path, const ig_added_list *added,
                         ig_error *err); /* tokenizer.model */

#endif
