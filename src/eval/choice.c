/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes and scores the choices of a question.
 */
#define _GNU_SOURCE
#include "eval/choice.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/perplexity.h"
#include "text/text.h"

/* ---- tokens --------------------------------------------------------------- */

ig_status ig_eval_tokenize(int32_t **ids, size_t *n, const ig_model *model, const char *text, size_t n_text, int flags,
                           ig_error *err) {
    size_t cap = n_text + 8;
    for (*ids = NULL;;) {
        int32_t *more = realloc(*ids, cap * sizeof **ids);
        if (!more) break;
        *ids = more;
        ig_status status = ig_tokenize(n, model, text, n_text, flags, *ids, cap, err);
        if (!status && *n <= cap) return IG_OK;
        cap = *n;
        if (status) {
            free(*ids);
            *ids = NULL;
            return status;
        }
    }
    free(*ids);
    *ids = NULL;
    return ig_text_fail(err, IG_E_MEMORY, "out of memory for %zu tokens", cap);
}

int32_t ig_eval_first_token(const ig_model *model, bool is_empty) {
    if (ig_token_adds_bos(model)) return ig_token_bos(model);
    if (!is_empty) return -1;
    return ig_token_bos(model) >= 0 ? ig_token_bos(model) : ig_token_eos(model);
}

/* The context's own tokens, then those of the whole beyond as many. */
static ig_status join(ig_eval_pair *out, int32_t first, const int32_t *context, size_t n_context, const int32_t *whole,
                      size_t n_whole, ig_error *err) {
    size_t n_first = first >= 0, n_rest = n_whole > n_context ? n_whole - n_context : 0,
           n = n_first + n_context + n_rest;
    if (n == n_rest) return ig_text_fail(err, IG_E_FORMAT, "the context has no tokens");
    if (n > INT_MAX / 4) return ig_text_fail(err, IG_E_LIMIT, "%zu tokens are too many", n);
    out->ids = malloc(n * sizeof *out->ids);
    if (!out->ids) return ig_text_fail(err, IG_E_MEMORY, "out of memory for %zu tokens", n);
    if (n_first) out->ids[0] = first;
    memcpy(out->ids + n_first, context, n_context * sizeof *context);
    memcpy(out->ids + n_first + n_context, whole + n_context, n_rest * sizeof *whole);
    out->n = (int)n;
    out->n_context = (int)(n - n_rest);
    return IG_OK;
}

ig_status ig_eval_join(ig_eval_pair *out, int32_t first, const int32_t *ids, size_t n, ig_error *err) {
    return first < 0 && n == 0 ? ig_text_fail(err, IG_E_FORMAT, "the text has no tokens")
                               : join(out, first, ids, n, ids, n, err);
}

ig_status ig_eval_encode(ig_eval_pair *out, const ig_model *model, const char *examples, const char *context,
                         const char *text, ig_error *err) {
    int32_t *head = NULL, *whole = NULL;
    char *joined = NULL;
    size_t n_head = 0, n_whole = 0;
    *out = (ig_eval_pair){0};
    int n_joined = asprintf(&joined, "%s%s%s", examples, context, text);
    if (n_joined < 0) return ig_text_fail(err, IG_E_MEMORY, "out of memory for a question");
    size_t n_before = (size_t)n_joined - strlen(text);
    while (*text && n_before && strchr(" \t\n\r\v\f", joined[n_before - 1])) n_before--;

    ig_status status = ig_eval_tokenize(&head, &n_head, model, joined, n_before, 0, err);
    if (!status) status = ig_eval_tokenize(&whole, &n_whole, model, joined, (size_t)n_joined, 0, err);
    if (!status && *text && n_whole <= n_head)
        status = ig_text_fail(err, IG_E_FORMAT, "the text adds no token to what stands before it");
    if (!status) status = join(out, ig_eval_first_token(model, n_head == 0), head, n_head, whole, n_whole, err);
    free(whole);
    free(head);
    free(joined);
    return status;
}

/* ---- scores --------------------------------------------------------------- */

ig_status ig_eval_read_on(ig_eval_reader *r, const int32_t *ids, int n, ig_error *err) {
    for (int i = 0; i < n; i++) {
        if (r->stopped && r->stopped()) return ig_text_fail(err, IG_E_INTERRUPTED, "interrupted");
        ig_status status = ig_session_decode(&r->s, &ids[i], 1, err);
        if (status) return status;
    }
    return IG_OK;
}

static int count_common(const ig_session *s, const int32_t *ids, int n) {
    const int32_t *held;
    int n_held = ig_session_tokens(s, &held), i = 0;
    while (i < n && i < n_held && held[i] == ids[i]) i++;
    return i;
}

static ig_status keep(ig_eval_reader *r, int n, ig_error *err) {
    ig_status status = ig_session_cut(r->s, n, err);
    int held = ig_session_tokens(r->s, NULL);
    if (held < r->n_dense) r->n_dense = held;
    return status;
}

ig_status ig_eval_reader_use(ig_eval_reader *r, const ig_cache_options *cache, ig_error *err) {
    ig_status status = keep(r, r->n_dense, err);
    return status ? status : ig_session_set_cache(r->s, cache, err);
}

ig_status ig_eval_reader_clear(ig_eval_reader *r, ig_error *err) { return keep(r, 0, err); }

/* Shares of the entries that steps so far have left out, summed. */
static double left_out(const ig_session *s) {
    ig_session_stats st;
    ig_session_get_stats(s, &st);
    return (1 - st.selected_share) * (double)st.n_decoded;
}

/* Entries differ a little between those made through the policy, dense ones, and dense ones made in other batches. So
 * that a result does not depend on what was read before, all of the dense part is reused or what is shared, and the two
 * are always batches of their own. */
ig_status ig_eval_feed(ig_eval_reader *r, const int32_t *ids, int n, int n_tail, ig_error *err) {
    int n_dense = n > n_tail ? n - n_tail : 1, common = count_common(r->s, ids, n);
    int n_shared = r->n_shared < n_dense ? r->n_shared : n_dense, kept = 0;
    if (common == n && ig_session_tokens(r->s, NULL) == n && r->n_dense == n_dense && ig_session_logits(r->s))
        return IG_OK;
    if (common >= n_dense && r->n_dense == n_dense)
        kept = n_dense;
    else if (common >= n_shared && r->n_dense >= n_shared)
        kept = n_shared;
    ig_status status = keep(r, kept, err);
    if (!status && r->n_dense < kept) status = keep(r, kept = 0, err);
    if (!status && kept < n_shared) status = ig_session_sync(r->s, ids, n_shared, err);
    if (!status && (kept < n_dense || n == n_dense)) status = ig_session_sync(r->s, ids, n_dense, err);
    r->n_dense = ig_session_tokens(r->s, NULL);
    r->left_out = left_out(r->s);
    return status ? status : ig_eval_read_on(r, ids + n_dense, n - n_dense, err);
}

ig_status ig_eval_feed_context(ig_eval_reader *r, const ig_eval_pair *pair, ig_error *err) {
    return ig_eval_feed(r, pair->ids, pair->n_context, pair->n_dense ? pair->n_context - pair->n_dense : 1, err);
}

/* All of the pair as a prompt, after what of the context is computed dense: what went through the policy was decoded.
 * The session goes back to it. */
static ig_status score_dense(double *out, ig_eval_reader *r, const ig_eval_pair *pair, ig_error *err) {
    const ig_eval_chunk_options options = {.n_vocab = r->n_vocab};
    ig_eval_score score = {0};
    int n_dense = pair->n_dense && pair->n_dense < pair->n_context ? pair->n_dense : pair->n_context - 1;
    ig_status status = keep(r, n_dense, err);
    if (!status) status = ig_eval_score_prompt(&score, r->s, pair->ids, pair->n, pair->n_context, &options, err);
    if (!status) status = keep(r, n_dense, err);
    *out = -score.sum;
    return status;
}

ig_status ig_eval_score_pair(double *out, ig_eval_reader *r, const ig_eval_pair *pair, ig_error *err) {
    const int32_t *next = pair->ids + pair->n_context;
    double sum = 0;
    ig_status status = ig_eval_feed_context(r, pair, err);
    for (int i = pair->n_context; !status && i < pair->n; i++, next++) {
        sum -= ig_eval_token_nll(ig_session_logits(r->s), r->n_vocab, *next);
        if (i + 1 < pair->n) status = ig_eval_read_on(r, next, 1, err);
    }
    *out = sum;
    bool used_all = left_out(r->s) - r->left_out < 1e-9; /* an entry of a list of a step is more */
    return !status && used_all ? score_dense(out, r, pair, err) : status;
}

int ig_eval_characters(const char *text) {
    text += *text == ' ';
    int n = (int)ig_text_count(text, strlen(text));
    return n > 0 ? n : 1;
}

int ig_eval_argmax(const double *values, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (values[i] > values[best]) best = i;
    return best;
}
