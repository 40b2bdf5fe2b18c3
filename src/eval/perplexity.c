/* SPDX-License-Identifier: Apache-2.0
 *
 * Scores chunks of tokens. Logits are used as they come and never kept: a
 * chunk of a large vocabulary would be hundreds of megabytes.
 */
#include "eval/perplexity.h"

#include <math.h>
#include <string.h>

#include "text/text.h"

double ig_eval_nll(const ig_eval_score *score) { return score->n ? score->sum / (double)score->n : 0; }

double ig_eval_perplexity(const ig_eval_score *score) { return exp(ig_eval_nll(score)); }

double ig_eval_perplexity_error(const ig_eval_score *score) {
    if (score->n < 2) return 0;
    double mean = ig_eval_nll(score), variance = score->sum_2 / (double)score->n - mean * mean;
    return variance > 0 ? sqrt(variance / (double)(score->n - 1)) * exp(mean) : 0;
}

double ig_eval_kl(const ig_eval_score *score) { return score->n_kl ? score->kl / (double)score->n_kl : 0; }

void ig_eval_add(ig_eval_score *total, const ig_eval_score *part) {
    total->n += part->n;
    total->sum += part->sum;
    total->sum_2 += part->sum_2;
    total->n_kl += part->n_kl;
    total->kl += part->kl;
}

double ig_eval_token_nll(const float *logits, int n_vocab, int32_t token) {
    return ig_log_sum(logits, (size_t)n_vocab) - (double)logits[token];
}

int ig_eval_count_parts(int n, int by) { return by > 0 ? (n - 1) / by + 1 : 0; }

static void clear_parts(int n, const ig_eval_chunk_options *options) {
    if (options->by) memset(options->parts, 0, (size_t)ig_eval_count_parts(n, options->by) * sizeof *options->parts);
}

/* The score of one token, to the chunk's and to its part's. */
static void add_token(ig_eval_score *score, int position, const ig_eval_score *token,
                      const ig_eval_chunk_options *options) {
    ig_eval_add(score, token);
    if (options->by) ig_eval_add(&options->parts[position / options->by], token);
}

static ig_eval_score score_of(double nll) { return (ig_eval_score){.n = 1, .sum = nll, .sum_2 = nll * nll}; }

typedef struct row_sink {
    ig_eval_score *score;
    const int32_t *ids;
    int from;
    const ig_eval_chunk_options *options;
} row_sink;

/* The logits at position i - 1 predict the token at i. */
static bool score_rows(void *user, int first, int n_rows, const float *logits) {
    row_sink *sink = user;
    int n_vocab = sink->options->n_vocab;
    for (int i = first + 1; i <= first + n_rows; i++, logits += n_vocab) {
        if (i < sink->from) continue;
        ig_eval_score token = score_of(ig_eval_token_nll(logits, n_vocab, sink->ids[i]));
        add_token(sink->score, i, &token, sink->options);
    }
    return false;
}

ig_status ig_eval_score_prompt(ig_eval_score *out, ig_session *s, const int32_t *ids, int n, int from,
                               const ig_eval_chunk_options *options, ig_error *err) {
    row_sink sink = {out, ids, from, options};
    return ig_session_sync_logits(s, ids, n - 1, score_rows, &sink, err);
}

/* A chunk counts if its perplexity is a number: of finite logits it need not be. */
static ig_status finish(const ig_eval_score *score, ig_error *err) {
    if (isfinite(ig_eval_perplexity(score)) && isfinite(score->kl)) return IG_OK;
    return ig_text_fail(err, IG_E_NUMBER, "the perplexity is not finite: %g nats a token", ig_eval_nll(score));
}

/* Positions n/2 .. n-2 predict the next token. What stands before them needs no logits. */
static ig_status score_second_half(ig_eval_score *out, ig_session *s, const int32_t *ids, int n,
                                   const ig_eval_chunk_options *options, ig_error *err) {
    clear_parts(n, options);
    ig_status status = ig_session_sync(s, ids, n / 2, err);
    if (!status) status = ig_eval_score_prompt(out, s, ids, n, n / 2 + 1, options, err);
    return status ? status : finish(out, err);
}

/* The token at `position`, which `logits` predict. */
static ig_status score_token(ig_eval_score *score, const float *logits, int32_t id, int position,
                             const ig_eval_chunk_options *options, ig_error *err) {
    double log_sum = ig_eval_log_sum(logits, options->n_vocab);
    ig_eval_score token = score_of(log_sum - (double)logits[id]);
    ig_status status = IG_OK;
    if (options->reference && options->keep)
        status = ig_eval_reference_keep(options->reference, logits, log_sum, err);
    else if (options->reference)
        token.n_kl = ig_eval_reference_compare(&token.kl, options->reference,
                                               (size_t)(position - options->dense_prefix), logits, log_sum);
    add_token(score, position, &token, options);
    return status;
}

ig_status ig_eval_chunk_rest(ig_eval_score *out, ig_session *s, const int32_t *ids, int n, const float *first,
                             const ig_eval_chunk_options *options, ig_error *err) {
    int prefix = options->dense_prefix;
    ig_status status = IG_OK;
    *out = (ig_eval_score){0};
    clear_parts(n, options);
    for (int i = prefix; i < n; i++) {
        const float *logits = i == prefix ? first : ig_session_logits(s);
        status = score_token(out, logits, ids[i], i, options, err);
        if (status || i + 1 == n) break;
        if (options->progress && options->progress(options->progress_user, (uint64_t)i, (uint64_t)n))
            return ig_text_fail(err, IG_E_INTERRUPTED, "interrupted");
        status = ig_session_decode(&s, &ids[i], 1, err);
        if (status) break;
    }
    return status ? status : finish(out, err);
}

ig_status ig_eval_chunk(ig_eval_score *out, ig_session *s, int32_t *ids, int n, const ig_eval_chunk_options *options,
                        ig_error *err) {
    *out = (ig_eval_score){0};
    if (options->bos >= 0) ids[0] = options->bos;
    ig_status status = ig_session_cut(s, 0, err);
    if (!status && !options->dense_prefix) return score_second_half(out, s, ids, n, options, err);
    if (!status) status = ig_session_sync(s, ids, options->dense_prefix, err);
    return status ? status : ig_eval_chunk_rest(out, s, ids, n, ig_session_logits(s), options, err);
}
