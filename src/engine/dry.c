/* SPDX-License-Identifier: Apache-2.0
 *
 * See dry.h.
 */
#define _GNU_SOURCE /* memmem() */
#include "engine/dry.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Far from infinity, so that a form that wants the token can have it. */
static const double most_lowered = 1e30;

ig_status ig_dry_open(ig_dry *d, const ig_sampler_options *o, const ig_tokenizer *t, ig_error *err) {
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const char *const *breakers = o->dry_breakers ? o->dry_breakers : usual;
    size_t n = o->dry_breakers ? o->n_dry_breakers : IG_COUNT(usual);
    *d = (ig_dry){.tokenizer = t,
                  .multiplier = (double)o->dry_multiplier,
                  .base = (double)o->dry_base,
                  .allowed = o->dry_allowed_length,
                  .last_n = o->dry_last_n};
    if (d->multiplier == 0 || !n) return IG_OK;
    d->breakers = calloc(n, sizeof *d->breakers);
    for (; d->breakers && d->n_breakers < n; d->n_breakers++) {
        const char *text = breakers[d->n_breakers];
        if (!(d->breakers[d->n_breakers] = strdup(text))) break;
        if (strlen(text) > d->longest) d->longest = strlen(text);
    }
    return d->n_breakers == n ? IG_OK : ig_fail_memory(err, "breakers of repetitions", n * sizeof *d->breakers);
}

void ig_dry_close(ig_dry *d) {
    for (size_t i = 0; i < d->n_breakers; i++) free(d->breakers[i]);
    free(d->breakers);
    free(d->copied);
    *d = (ig_dry){0};
}

/* Whether a breaker begins in the first n bytes of a text of `size`. */
static bool breaks(const ig_dry *d, const char *text, size_t n, size_t size) {
    for (size_t i = 0; i < d->n_breakers; i++) {
        const char *at = memmem(text, size, d->breakers[i], strlen(d->breakers[i]));
        if (at && at < text + n) return true;
    }
    return false;
}

/* The text of a token; its size. */
static size_t text_of(const ig_dry *d, char text[IG_TOKEN_BYTES_MAX], int32_t id) {
    size_t n = ig_tokenizer_piece(d->tokenizer, id, true, text, IG_TOKEN_BYTES_MAX);
    return n < IG_TOKEN_BYTES_MAX ? n : IG_TOKEN_BYTES_MAX;
}

/* How many tokens have come since a breaker last began. */
static int count_unbroken(const ig_dry *d, const int32_t *tokens, int n) {
    char text[IG_TOKEN_BYTES_MAX + IG_DRY_BREAKER_MAX], piece[IG_TOKEN_BYTES_MAX];
    size_t behind = 0; /* bytes of what follows the token, as far as a breaker can reach into it */
    for (int i = 0; d->tokenizer && d->n_breakers && i < n; i++) {
        size_t size = text_of(d, piece, tokens[n - 1 - i]);
        memmove(text + size, text, behind);
        memcpy(text, piece, size);
        if (breaks(d, text, size, size + behind)) return i;
        behind = size + behind < d->longest ? size + behind : d->longest - 1;
    }
    return n;
}

/* copied[i] is how many of the last tokens are also the last ones without i tokens: the Z function (Gusfield 1997) of
 * the tokens in reverse. */
static void find_copies(int32_t *copied, const int32_t *tokens, int n) {
    const int32_t *last = tokens + n - 1;
    copied[0] = n;
    for (int i = 1, begin = 0, end = 0; i < n; i++) {
        int k = i < end && copied[i - begin] < end - i ? copied[i - begin] : i < end ? end - i : 0;
        while (i + k < n && last[-k] == last[-i - k]) k++;
        copied[i] = k;
        if (i + k > end) begin = i, end = i + k;
    }
}

static bool is_breaker(const ig_dry *d, int32_t id) {
    char text[IG_TOKEN_BYTES_MAX];
    size_t n = d->tokenizer && d->n_breakers ? text_of(d, text, id) : 0;
    return breaks(d, text, n, n);
}

ig_status ig_dry_lower(ig_dry *d, float *logits, int32_t *longest, const int32_t *tokens, int n, ig_error *err) {
    if (d->last_n >= 0 && n > d->last_n) tokens += n - d->last_n, n = d->last_n;
    int unbroken = n > d->allowed ? count_unbroken(d, tokens, n) : 0;
    if (unbroken < d->allowed) return IG_OK;
    if (n > d->room) {
        int32_t *more = realloc(d->copied, 2 * (size_t)n * sizeof *more);
        if (!more) return ig_fail_memory(err, "repetitions", 2 * (size_t)n * sizeof *more);
        d->copied = more;
        d->room = 2 * n;
    }
    find_copies(d->copied, tokens, n);
    for (int i = 1; i < n; i++) { /* the token behind the copy */
        int32_t id = tokens[n - i], length = d->copied[i] < unbroken ? d->copied[i] : unbroken;
        if (length >= d->allowed && length > longest[id]) longest[id] = length;
    }
    for (int i = 1; i < n; i++) {
        int32_t id = tokens[n - i], length = longest[id];
        longest[id] = 0;
        if (!length || is_breaker(d, id)) continue;
        logits[id] -= (float)fmin(d->multiplier * pow(d->base, length - d->allowed), most_lowered);
    }
    return IG_OK;
}
