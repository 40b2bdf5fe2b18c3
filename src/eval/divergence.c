/* SPDX-License-Identifier: Apache-2.0
 *
 * References are lists of the tokens that are likely enough, one after the
 * other in one growing array.
 */
#include "eval/divergence.h"

#include <math.h>
#include <stdlib.h>

#include "text/text.h"

typedef struct likely {
    int32_t token;
    float log_p;
} likely;

typedef struct distribution {
    size_t end;  /* of its tokens in the array */
    double rest; /* probability of all others */
} distribution;

struct ig_eval_reference {
    int n_vocab;
    likely *entries;
    size_t n_entries, room, cap; /* cap: at most */
    distribution *tokens;
    size_t n_tokens, room_tokens, cap_tokens;
    bool is_full;
};

double ig_eval_log_sum(const float *logits, int n_vocab) {
    float most = logits[0];
    double sum = 0;
    for (int i = 1; i < n_vocab; i++)
        if (logits[i] > most) most = logits[i];
    for (int i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - (double)most);
    return (double)most + log(sum);
}

static ig_status fail_memory(ig_error *err, size_t bytes) {
    return ig_text_fail(err, IG_E_MEMORY, "out of memory: %zu bytes for the distributions to compare with", bytes);
}

ig_status ig_eval_reference_open(ig_eval_reference **out, int n_vocab, size_t cap_bytes, ig_error *err) {
    ig_eval_reference *r = *out = calloc(1, sizeof *r);
    if (!r) return fail_memory(err, sizeof *r);
    r->n_vocab = n_vocab;
    r->cap_tokens = cap_bytes / 16 / sizeof *r->tokens; /* a token has dozens of entries or more */
    r->cap = (cap_bytes - r->cap_tokens * sizeof *r->tokens) / sizeof *r->entries;
    return IG_OK;
}

void ig_eval_reference_close(ig_eval_reference *r) {
    if (!r) return;
    free(r->entries);
    free(r->tokens);
    free(r);
}

void ig_eval_reference_clear(ig_eval_reference *r) {
    r->n_entries = r->n_tokens = 0;
    r->is_full = false;
}

/* The array with room for n items, `cap` or fewer; doubles, so that it is rarely called for. NULL if there is no
 * memory. */
static void *grow(void *array, size_t *room, size_t n, size_t cap, size_t size) {
    if (n <= *room) return array;
    size_t wanted = 2 * *room > n ? 2 * *room : n + 1024;
    if (wanted > cap) wanted = cap;
    void *grown = realloc(array, wanted * size);
    if (grown) *room = wanted;
    return grown;
}

ig_status ig_eval_reference_keep(ig_eval_reference *r, const float *logits, double log_sum, ig_error *err) {
    double least = log_sum + log(IG_EVAL_RARE), rest = 1;
    size_t n = 0;
    for (int i = 0; i < r->n_vocab; i++) n += (double)logits[i] >= least;
    if (r->is_full || r->n_entries + n > r->cap || r->n_tokens == r->cap_tokens) {
        r->is_full = true;
        return IG_OK;
    }
    likely *entries = grow(r->entries, &r->room, r->n_entries + n, r->cap, sizeof *entries);
    if (!entries) return fail_memory(err, (r->n_entries + n) * sizeof *entries);
    r->entries = entries;
    distribution *tokens = grow(r->tokens, &r->room_tokens, r->n_tokens + 1, r->cap_tokens, sizeof *tokens);
    if (!tokens) return fail_memory(err, (r->n_tokens + 1) * sizeof *tokens);
    r->tokens = tokens;
    for (int i = 0; i < r->n_vocab; i++) {
        if ((double)logits[i] < least) continue;
        float log_p = (float)((double)logits[i] - log_sum);
        r->entries[r->n_entries++] = (likely){i, log_p};
        rest -= exp((double)log_p);
    }
    r->tokens[r->n_tokens++] = (distribution){r->n_entries, rest};
    return IG_OK;
}

bool ig_eval_reference_compare(double *kl, const ig_eval_reference *r, size_t i, const float *logits, double log_sum) {
    if (i >= r->n_tokens) return false;
    double sum = 0, rest = r->tokens[i].rest, rest_q = 1;
    for (size_t k = i ? r->tokens[i - 1].end : 0; k < r->tokens[i].end; k++) {
        /* Rounded as they were, so that equal distributions give 0. */
        float log_p = r->entries[k].log_p, log_q = (float)((double)logits[r->entries[k].token] - log_sum);
        sum += exp((double)log_p) * ((double)log_p - (double)log_q);
        rest_q -= exp((double)log_q);
    }
    /* What is left is a difference of numbers near 1. */
    if (rest > 1e-9) sum += rest * log(rest / (rest_q > 1e-9 ? rest_q : 1e-9));
    *kl = sum;
    return true;
}
