/* SPDX-License-Identifier: Apache-2.0
 *
 * Text <-> token ids. Byte-level BPE, and SentencePiece's with scores or with a table of merges, behind one
 * handle, built from a GGUF file's metadata or a Hugging Face directory. Immutable once
 * open, so any number of threads may use one.
 */
#ifndef IG_TOKEN_TOKENIZER_H
#define IG_TOKEN_TOKENIZER_H

#include "format/gguf.h"
#include "token/ids.h"

typedef struct ig_tokenizer ig_tokenizer;

/* IG_E_NOT_FOUND if the file or directory holds no tokenizer at all; other errors name file and field. */
ig_status ig_tokenizer_from_gguf(ig_tokenizer **out, const ig_gguf *g, ig_error *err);
/* tokenizer.json, or vocab.json + merges.txt, or tokenizer.model; special ids, added tokens, end-of-generation set,
 * suppressed tokens and chat template also from tokenizer_config.json, added_tokens.json, special_tokens_map.json,
 * generation_config.json, chat_template.jinja, chat_template.json where present. Added tokens from id `limit` on, for
 * which a model has no row, are left out; 0: none is. */
ig_status ig_tokenizer_from_hf(ig_tokenizer **out, const char *directory, int32_t limit, ig_error *err);
void ig_tokenizer_close(ig_tokenizer *t);

int ig_tokenizer_n_vocab(const ig_tokenizer *t);
/* As ig_tokenize() in infinigen.h, into `out`, which says where ids go and how many there may be; flags IG_TOKENIZE_*.
 * Linear in n_bytes (n log n within one word). Memory is in proportion to the longest word. */
ig_status ig_tokenizer_encode(const ig_tokenizer *t, ig_ids *out, const char *text, size_t n_bytes, int flags,
                              ig_error *err);
/* Bytes of one token as they stand in running text ("" for a special token unless `special`; an id out of range gives
 * 0). snprintf manner, no NUL. */
size_t ig_tokenizer_piece(const ig_tokenizer *t, int32_t id, bool special, char *text, size_t cap);
/* SentencePiece models put a blank before the text that the first piece shows again. */
bool ig_tokenizer_drops_first_blank(const ig_tokenizer *t);
int32_t ig_tokenizer_bos(const ig_tokenizer *t); /* -1: none */
int32_t ig_tokenizer_eos(const ig_tokenizer *t);
bool ig_tokenizer_adds_bos(const ig_tokenizer *t);
bool ig_tokenizer_is_end(const ig_tokenizer *t, int32_t id);
/* Ids that no answer may have, as the model's files say: how many, and *ids in order, each once. They are not negative,
 * but may lie beyond the vocabulary, where a model can have rows that no token belongs to. */
size_t ig_tokenizer_suppressed(const ig_tokenizer *t, const int32_t **ids);
/* The Jinja template of conversations, NULL if none: the model's own, until another takes its place, of which the first
 * n bytes are copied. */
const char *ig_tokenizer_chat_template(const ig_tokenizer *t);
ig_status ig_tokenizer_set_chat_template(ig_tokenizer *t, const char *text, size_t n, ig_error *err);

#endif
