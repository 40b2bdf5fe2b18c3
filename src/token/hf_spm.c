/* SPDX-License-Identifier: Apache-2.0
 *
 * SentencePiece's tokenizer.model: a protocol buffer (sentencepiece_model.proto), of which the pieces, the kind of
 * model and the normaliser's switches are read. Only BPE models without a character map are taken.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/half.h"
#include "token/hf.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

typedef struct message {
    const unsigned char *at, *end;
} message;

typedef struct field {
    uint32_t number, wire;
    uint64_t value; /* of varints and fixed sizes */
    message bytes;  /* of length-delimited fields */
} field;

static bool read_varint(message *m, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        unsigned char c = *m->at++;
        *out |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) return true;
    }
    return false;
}

/* The next field; false at the end and for malformed bytes, *broken tells which. */
static bool next_field(message *m, field *f, bool *broken) {
    uint64_t tag, size = 0;
    *f = (field){0};
    if (m->at == m->end) return false;
    *broken = true;
    if (!read_varint(m, &tag) || tag >> 3 == 0 || tag >> 3 > 1u << 29) return false;
    f->number = (uint32_t)(tag >> 3);
    f->wire = tag & 7;
    switch (f->wire) {
        case WIRE_VARINT:
            if (!read_varint(m, &f->value)) return false;
            break;
        case WIRE_BYTES:
            if (!read_varint(m, &size) || size > (uint64_t)(m->end - m->at)) return false;
            f->bytes = (message){m->at, m->at + size};
            break;
        case WIRE_64:
        case WIRE_32:
            size = f->wire == WIRE_32 ? 4 : 8;
            if (size > (uint64_t)(m->end - m->at)) return false;
            for (uint64_t i = 0; i < size; i++) f->value |= (uint64_t)m->at[i] << 8 * i;
            break;
        default:
            return false;
    }
    m->at += size;
    *broken = false;
    return true;
}

typedef struct piece {
    ig_text text;
    float score;
    uint64_t kind;
} piece;

static bool read_piece(message m, piece *p) {
    field f;
    bool broken = false;
    *p = (piece){.kind = IG_TOKEN_NORMAL};
    while (next_field(&m, &f, &broken)) {
        if (f.number == 1 && f.wire == WIRE_BYTES)
            p->text = (ig_text){(const char *)f.bytes.at, (size_t)(f.bytes.end - f.bytes.at)};
        if (f.number == 2 && f.wire == WIRE_32) p->score = ig_bits_f32((uint32_t)f.value);
        if (f.number == 3 && f.wire == WIRE_VARINT) p->kind = f.value;
    }
    return !broken;
}

typedef struct settings { /* of TrainerSpec and NormalizerSpec, with their defaults */
    int32_t n_pieces;
    uint64_t model_type, suffix_blanks;
    int32_t unknown, bos, eos;
    uint64_t dummy_prefix, remove_blanks, escape_blanks;
    bool has_map;
} settings;

static bool read_trainer(message m, settings *s) {
    field f;
    bool broken = false;
    while (next_field(&m, &f, &broken)) {
        if (f.wire != WIRE_VARINT) continue;
        switch (f.number) {
            case 3:
                s->model_type = f.value;
                break;
            case 24:
                s->suffix_blanks = f.value;
                break;
            case 40:
                s->unknown = (int32_t)(uint32_t)f.value;
                break;
            case 41:
                s->bos = (int32_t)(uint32_t)f.value;
                break;
            case 42:
                s->eos = (int32_t)(uint32_t)f.value;
                break;
            default:
                break;
        }
    }
    return !broken;
}

static bool read_normalizer(message m, settings *s) {
    field f;
    bool broken = false;
    while (next_field(&m, &f, &broken)) {
        if (f.number == 2 && f.wire == WIRE_BYTES) s->has_map = f.bytes.at != f.bytes.end;
        if (f.wire != WIRE_VARINT) continue;
        if (f.number == 3) s->dummy_prefix = f.value;
        if (f.number == 4) s->remove_blanks = f.value;
        if (f.number == 5) s->escape_blanks = f.value;
    }
    return !broken;
}

static ig_status read_settings(message m, settings *s, const char *path, ig_error *err) {
    field f;
    bool broken = false, ok = true;
    *s = (settings){
        .model_type = MODEL_UNIGRAM, .bos = 1, .eos = 2, .dummy_prefix = 1, .remove_blanks = 1, .escape_blanks = 1};
    while (ok && next_field(&m, &f, &broken)) {
        if (f.wire != WIRE_BYTES) continue;
        if (f.number == 1 && s->n_pieces++ == INT32_MAX / 2) ok = false;
        if (f.number == 2) ok = read_trainer(f.bytes, s);
        if (f.number == 3) ok = read_normalizer(f.bytes, s);
    }
    if (broken || !ok)
        return ig_fail(err, IG_E_FORMAT, "%s: not a SentencePiece model: a field is cut off or malformed", path);
    if (s->n_pieces == 0) return ig_fail(err, IG_E_FORMAT, "%s: pieces: there are none", path);
    const char *what = s->model_type == MODEL_UNIGRAM ? "trainer_spec.model_type: unigram models are"
                       : s->model_type != MODEL_BPE   ? "trainer_spec.model_type: word and character models are"
                       : s->suffix_blanks             ? "trainer_spec.treat_whitespace_as_suffix is"
                       : s->has_map                   ? "normalizer_spec.precompiled_charsmap is"
                       : s->remove_blanks             ? "normalizer_spec.remove_extra_whitespaces is"
                       : !s->escape_blanks            ? "normalizer_spec.escape_whitespaces = false is"
                                                      : NULL;
    return what ? ig_fail(err, IG_E_UNSUPPORTED, "%s: %s not supported", path, what) : IG_OK;
}

static ig_status put_piece(ig_tokenizer *t, int32_t id, const piece *p, const char *path, ig_error *err) {
    if (p->kind < IG_TOKEN_NORMAL || p->kind > IG_TOKEN_BYTE)
        return ig_fail(err, IG_E_FORMAT, "%s: piece %d: unknown type %llu", path, id, (unsigned long long)p->kind);
    if (p->text.size == 0) return ig_fail(err, IG_E_FORMAT, "%s: piece %d is empty", path, id);
    if (p->kind == IG_TOKEN_BYTE && ig_tokenizer_byte_of(p->text.data, p->text.size) < 0)
        return ig_fail(err, IG_E_FORMAT, "%s: piece %d: a byte not of the form <0x0A>", path, id);
    int flags = ig_token_flags((ig_token_kind)p->kind);
    if (p->kind == IG_TOKEN_USER) flags |= IG_TOKEN_NORMALIZED; /* it is found among the blanks as U+2581 */
    if (ig_vocab_put(&t->vocab, id, p->text.data, p->text.size, (ig_token_kind)p->kind, flags)) return IG_OK;
    return ig_fail(err, t->vocab.bytes.failed ? IG_E_MEMORY : IG_E_LIMIT, "%s: no room for piece %d", path, id);
}

/* Tokens that other files add behind the pieces, or name again. */
static ig_status put_added(ig_tokenizer *t, const ig_added_list *added, const char *path, ig_error *err) {
    for (size_t i = 0; i < added->n; i++) {
        const ig_added *a = &added->items[i];
        if (t->vocab.tokens[a->id].kind != IG_TOKEN_HOLE &&
            !ig_text_equal(ig_vocab_text(&t->vocab, (int32_t)a->id), a->text))
            return ig_fail(err, IG_E_FORMAT, "%s: added token '%.64s': piece %lld is another", path, a->text.data,
                           (long long)a->id);
        if (t->vocab.tokens[a->id].kind == IG_TOKEN_UNKNOWN) continue;
        int flags = (a->flags & ~IG_TOKEN_NORMALIZED) | (t->vocab.tokens[a->id].flags & IG_TOKEN_MODEL);
        bool is_byte = t->vocab.tokens[a->id].kind == IG_TOKEN_BYTE; /* which it stays */
        if (!ig_vocab_put(&t->vocab, (int32_t)a->id, a->text.data, a->text.size, is_byte ? IG_TOKEN_BYTE : a->kind,
                          flags))
            return ig_fail(err, IG_E_LIMIT, "%s: no room for added token %lld", path, (long long)a->id);
    }
    return IG_OK;
}

static ig_status read_pieces(ig_tokenizer *t, message m, const settings *set, const ig_added_list *added,
                             const char *path, ig_error *err) {
    field f;
    piece p;
    bool broken = false;
    int32_t n = set->n_pieces, id = 0;
    for (size_t i = 0; i < added->n; i++) {
        /* Ids stand close together: the pieces, then what was added. */
        if (added->items[i].id < 0 || added->items[i].id >= set->n_pieces + (int64_t)added->n)
            return ig_fail(err, IG_E_FORMAT, "%s: added token '%.64s' has no id in range", path,
                           added->items[i].text.data);
        if (added->items[i].id >= n) n = (int32_t)added->items[i].id + 1;
    }
    float *scores = calloc((size_t)n, sizeof *scores);
    if (!scores || !ig_vocab_open(&t->vocab, n)) {
        free(scores);
        return ig_fail_memory(err, path, (size_t)n * sizeof(ig_vocab_token));
    }
    ig_status s = IG_OK;
    while (!s && next_field(&m, &f, &broken)) {
        if (f.number != 1 || f.wire != WIRE_BYTES) continue;
        if (!read_piece(f.bytes, &p))
            s = ig_fail(err, IG_E_FORMAT, "%s: piece %d is malformed", path, id);
        else
            s = put_piece(t, id, &p, path, err);
        scores[id++] = p.score;
    }
    if (!s) s = put_added(t, added, path, err);
    if (!s) s = ig_vocab_index(&t->vocab, path, err);
    if (!s) s = ig_tokenizer_rank_scores(t, scores, path, err);
    free(scores);
    return s;
}

ig_status ig_hf_from_spm(ig_tokenizer *t, const char *path, const ig_added_list *added, ig_error *err) {
    char *bytes;
    size_t n_bytes;
    settings set;
    ig_status s = ig_file_read(&bytes, &n_bytes, path, (size_t)256 << 20, err);
    if (s) return s;
    message m = {(const unsigned char *)bytes, (const unsigned char *)bytes + n_bytes};
    t->sentencepiece = t->added_are_normal = t->rules.fuse_unknown = true;
    s = read_settings(m, &set, path, err);
    if (!s) s = read_pieces(t, m, &set, added, path, err);
    free(bytes);
    if (s) return s;
    t->prefix = set.dummy_prefix ? IG_PREFIX_ALWAYS : IG_PREFIX_NEVER;
    t->rules.unknown = set.unknown < 0 ? -1 : set.unknown;
    t->bos = set.bos < 0 ? -1 : set.bos;
    t->eos = set.eos < 0 ? -1 : set.eos;
    t->adds_bos = true;
    return IG_OK;
}
