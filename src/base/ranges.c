/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of ranges for each structure of options. Every number in them is exact as a double, but of
 * memory.limit_bytes those above 2^53.
 */
#include "base/ranges.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/cpu.h"
#include "base/error.h"

static const double most_entries = INT_MAX / 4; /* that can be added up */
static const double most_kv_bytes = 0x1p62;
static const double most_penalty = 1000; /* for each time that a token occurs: far from infinity */

typedef struct range {
    const char *field;
    double value, min, max;
    bool above; /* min itself is not in it */
} range;

/* NaN is in no range. */
static ig_status check(const char *type, const range *r, size_t n, ig_error *err) {
    for (const range *end = r + n; r < end; r++)
        if (!(r->above ? r->value > r->min : r->value >= r->min) || !(r->value <= r->max))
            return ig_fail(err, IG_E_ARG, "%s.%s = %.10g: must be %s %.10g and at most %.10g", type, r->field, r->value,
                           r->above ? "above" : "at least", r->min, r->max);
    return IG_OK;
}

ig_status ig_check_context_options(const ig_context_options *o, ig_error *err) {
    int level = (int)o->cpu_level;
    const range ranges[] = {
        {"n_threads", o->n_threads, 0, IG_THREADS_MAX, false},
        {"cpu_level", level == IG_CPU_BEST ? IG_CPU_SCALAR : level, IG_CPU_SCALAR, IG_CPU_LEVELS - 1, false},
    };
    return check("ig_context_options", ranges, IG_COUNT(ranges), err);
}

static ig_status check_cache_options(const ig_cache_options *o, ig_error *err) {
    const ig_memory_options *m = &o->memory;
    const range ranges[] = {
        {"budget", o->budget, 0, 1, false},
        {"budget_entries", o->budget_entries, 0, INT_MAX, false},
        {"mass", o->mass, 0, 1, false},
        {"locality", o->locality, 0, 1, false},
        {"inertia", o->inertia, 0, 1000, false},
        {"n_sinks", o->n_sinks, 0, most_entries, false},
        {"n_recent", o->n_recent, 1, most_entries, false},
        {"n_dense_layers", o->n_dense_layers, -1, INT_MAX, false},
        {"alpha", o->alpha, 0, FLT_MAX, false},
        {"partial", o->partial, 0, 1, true},
        {"memory.limit", m->limit, 0, 1, false},
        {"memory.limit_bytes", (double)m->limit_bytes, 0, most_kv_bytes, false},
        {"memory.n_sessions", m->n_sessions, 0, IG_SESSIONS_MAX, false},
        {"audit_every", o->audit_every, 0, INT_MAX, false},
    };
    if (o->budget > 0 && o->budget_entries)
        return ig_fail(err, IG_E_ARG, "KV budget: a share or a number of entries, not both");
    if (m->limit > 0 && m->limit_bytes) return ig_fail(err, IG_E_ARG, "KV limit: a share or bytes, not both");
    return check("ig_cache_options", ranges, IG_COUNT(ranges), err);
}

ig_status ig_check_session_options(const ig_session_options *o, ig_error *err) {
    const range ranges[] = {
        {"n_ctx", o->n_ctx, 0, IG_CTX_MAX, false},
        {"n_batch", o->n_batch, 1, IG_BATCH_MAX, false},
        {"n_draft", o->n_draft, 0, IG_DRAFT_MAX, false},
    };
    ig_status s = check("ig_session_options", ranges, IG_COUNT(ranges), err);
    return s ? s : check_cache_options(&o->cache, err);
}

ig_status ig_check_prepare_options(const ig_prepare_options *o, ig_error *err) {
    const range ranges[] = {
        {"n_ids", o->n_ids, 0, o->ids ? INT_MAX : 0, false},
        {"n_ctx", o->n_ctx, 0, IG_CTX_MAX, false},
        {"rank", o->rank, 0, INT_MAX, false},
    };
    return check("ig_prepare_options", ranges, IG_COUNT(ranges), err);
}

ig_status ig_check_sampler_options(const ig_sampler_options *o, ig_error *err) {
    const range ranges[] = {
        {"temperature", (double)o->temperature, 0, FLT_MAX, false},
        {"top_k", o->top_k, 0, INT_MAX, false},
        {"top_p", (double)o->top_p, 0, 1, true},
        {"min_p", (double)o->min_p, 0, 1, false},
        {"typical_p", (double)o->typical_p, 0, 1, true},
        {"top_n_sigma", (double)o->top_n_sigma, -1, FLT_MAX, false},
        {"xtc_probability", (double)o->xtc_probability, 0, 1, false},
        {"xtc_threshold", (double)o->xtc_threshold, 0, 1, false},
        {"repeat_penalty", (double)o->repeat_penalty, 0, FLT_MAX, true},
        {"presence_penalty", (double)o->presence_penalty, -most_penalty, most_penalty, false},
        {"frequency_penalty", (double)o->frequency_penalty, -most_penalty, most_penalty, false},
        {"repeat_last_n", o->repeat_last_n, -1, INT_MAX, false},
        {"dry_multiplier", (double)o->dry_multiplier, 0, most_penalty, false},
        {"dry_base", (double)o->dry_base, 1, most_penalty, false},
        {"dry_allowed_length", o->dry_allowed_length, 1, INT_MAX, false},
        {"dry_last_n", o->dry_last_n, -1, INT_MAX, false},
        {"n_dry_breakers", (double)o->n_dry_breakers, 0, o->dry_breakers ? INT_MAX : 0, false},
        {"dynatemp_range", (double)o->dynatemp_range, 0, FLT_MAX, false},
        {"dynatemp_exponent", (double)o->dynatemp_exponent, 0, most_penalty, false},
        {"n_logit_bias", (double)o->n_logit_bias, 0, o->logit_bias ? INT_MAX : 0, false},
    };
    ig_status s = check("ig_sampler_options", ranges, IG_COUNT(ranges), err);
    for (size_t i = 0; !s && i < o->n_dry_breakers; i++) {
        const char *text = o->dry_breakers[i];
        if (!text || !*text || strlen(text) > IG_DRY_BREAKER_MAX)
            s = ig_fail(err, IG_E_ARG, "ig_sampler_options.dry_breakers[%zu] must have 1 to %d bytes", i,
                        IG_DRY_BREAKER_MAX);
    }
    for (size_t i = 0; !s && i < o->n_logit_bias; i++) {
        const range bias = {"bias", (double)o->logit_bias[i].bias, -INFINITY, FLT_MAX, false};
        s = check("ig_logit_bias", &bias, 1, err);
    }
    return s;
}

ig_status ig_check_generate_options(const ig_generate_options *o, ig_error *err) {
    const range ranges[] = {{"n_predict", o->n_predict, -1, INT_MAX, false},
                            {"n_least", o->n_least, 0, INT_MAX, false},
                            {"n_expected", (double)o->n_expected, 0, o->expected ? IG_CTX_MAX : 0, false}};
    ig_status s = check("ig_generate_options", ranges, IG_COUNT(ranges), err);
    for (size_t i = 0; !s && i < o->n_stops; i++)
        if (!o->stops || !o->stops[i]) s = ig_fail(err, IG_E_ARG, "ig_generate_options.stops[%zu] is missing", i);
    if (!s && o->n_stop_ids && !o->stop_ids) s = ig_fail(err, IG_E_ARG, "ig_generate_options.stop_ids is missing");
    return s;
}
