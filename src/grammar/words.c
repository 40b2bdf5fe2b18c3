/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of a vocabulary.
 */
#include "grammar/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "grammar/rules.h"

static int compare(const void *a, const void *b) {
    const ig_word *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->size < y->size ? x->size : y->size);
    if (order) return order;
    return x->size != y->size ? x->size - y->size : (x->id > y->id) - (x->id < y->id);
}

static uint16_t count_common(const ig_word *a, const ig_word *b) {
    uint16_t n = 0, most = a->size < b->size ? a->size : b->size;
    while (n < most && a->text[n] == b->text[n]) n++;
    return n;
}

/* How the rules have it, in at most IG_TOKEN_BYTES_MAX bytes; 0: not at all. */
static size_t spell(char *text, const ig_tokenizer *t, int32_t id) {
    size_t size = ig_tokenizer_piece(t, id, false, text, IG_TOKEN_BYTES_MAX);
    if (size > IG_TOKEN_BYTES_MAX || memchr(text, IG_RULE_TOKEN_MARK, size)) return 0;
    if (size || !ig_tokenizer_piece(t, id, true, NULL, 0)) return size;
    ig_rule_spell_token((uint8_t *)text, id);
    return IG_RULE_TOKEN_BYTES;
}

static void fill(ig_words *w, const ig_tokenizer *t) {
    char *text = w->texts;
    for (int32_t id = 0; id < w->n_vocab; id++) {
        size_t size = spell(text, t, id);
        if (ig_tokenizer_is_end(t, id))
            w->ends[w->n_ends++] = id;
        else if (size)
            w->v[w->n++] = (ig_word){text, id, (uint16_t)size, 0};
        text += size;
    }
    qsort(w->v, (size_t)w->n, sizeof *w->v, compare);
    for (int i = 0; i < w->n; i++) {
        w->of[w->v[i].id] = &w->v[i];
        if (i) w->v[i].common = count_common(&w->v[i - 1], &w->v[i]);
    }
}

static void free_all(ig_words *w) {
    free(w->v);
    free(w->of);
    free(w->ends);
    free(w->texts);
    w->v = NULL, w->of = NULL, w->ends = NULL, w->texts = NULL; /* ig_words_close() comes here once more */
}

static ig_status make(ig_words *w, const ig_tokenizer *t, int n_vocab, ig_error *err) {
    size_t n = (size_t)n_vocab, n_bytes = IG_TOKEN_BYTES_MAX;
    for (int32_t id = 0; id < n_vocab; id++) n_bytes += IG_RULE_TOKEN_BYTES + ig_tokenizer_piece(t, id, false, NULL, 0);
    w->n_vocab = n_vocab;
    w->n = w->n_ends = 0;
    w->v = malloc(n * sizeof *w->v);
    w->of = calloc(n, sizeof *w->of);
    w->ends = malloc(n * sizeof *w->ends);
    w->texts = malloc(n_bytes);
    if (w->v && w->of && w->ends && w->texts) {
        fill(w, t);
        return IG_OK;
    }
    free_all(w);
    return ig_fail_memory(err, "words of the vocabulary", n_bytes + n * sizeof *w->v);
}

ig_status ig_words_make(ig_words *w, const ig_tokenizer *t, int n_vocab, ig_error *err) {
    pthread_mutex_lock(&w->lock);
    ig_status s = w->v ? IG_OK : make(w, t, n_vocab, err);
    pthread_mutex_unlock(&w->lock);
    return s;
}

void ig_words_init(ig_words *w) {
    *w = (ig_words){0};
    pthread_mutex_init(&w->lock, NULL);
}

void ig_words_close(ig_words *w) {
    free_all(w);
    pthread_mutex_destroy(&w->lock);
}
