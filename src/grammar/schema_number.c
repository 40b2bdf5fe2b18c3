/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers between bounds, digit by digit.
 */
#include <math.h>

#include "grammar/schema_parts.h"

#define NO_BOUND INT64_C(10000000000000000) /* an open one: below are 16 digits */

/* So many digits are told apart by double floats, so that no reader rounds a number up or down to a bound. */
enum { EXACT_DIGITS = 15 };

typedef struct bound {
    int64_t at;
    bool is_open; /* `at` itself is not allowed */
    bool is_said;
} bound;

typedef struct range {
    bound low, high;
} range;

/* ---- reading ----------------------------------------------------------------- */

/* For integers a fraction is as good as the whole number beyond it. */
static bool read_limit(bound *b, const json_t *value, bool is_low, bool for_integers) {
    if (json_is_integer(value)) return b->at = json_integer_value(value), true;
    double x = json_real_value(value), whole = is_low ? floor(x) : ceil(x);
    if (fabs(x) > 9007199254740992.0 || (x != whole && !for_integers)) return false;
    b->is_open |= x != whole;
    b->at = (int64_t)whole;
    return true;
}

static ig_status read_range(const ig_schema_writer *w, range *r, const ig_schema_at *at, bool for_integers) {
    static const struct {
        const char *name;
        bool is_low, is_open;
    } keys[] = {{"minimum", true, false},
                {"exclusiveMinimum", true, true},
                {"maximum", false, false},
                {"exclusiveMaximum", false, true}};
    *r = (range){{-NO_BOUND, true, false}, {NO_BOUND, true, false}};
    for (size_t i = 0; i < IG_COUNT(keys); i++) {
        const json_t *value = json_object_get(at->schema, keys[i].name);
        bound *old = keys[i].is_low ? &r->low : &r->high, b = {0, keys[i].is_open, true};
        if (!value) continue;
        if (!json_is_number(value))
            return ig_fail(w->err, IG_E_FORMAT, "%s: '%s' is not a number", at->place, keys[i].name);
        double x = json_real_value(value);
        if (keys[i].is_low ? x <= -(double)NO_BOUND : x >= (double)NO_BOUND) continue; /* beyond all that is written */
        if (!read_limit(&b, value, keys[i].is_low, for_integers))
            return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: '%s' of %g is not supported", at->place, keys[i].name,
                           json_number_value(value));
        bool is_further = keys[i].is_low ? b.at > old->at : b.at < old->at;
        if (!old->is_said || is_further || (b.at == old->at && b.is_open)) *old = b;
    }
    return IG_OK;
}

static ig_status check_multiple(const ig_schema_writer *w, const ig_schema_at *at, bool for_integers) {
    const json_t *multiple = json_object_get(at->schema, "multipleOf");
    if (!multiple || (for_integers && json_number_value(multiple) == 1)) return IG_OK;
    return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: 'multipleOf' is not supported", at->place);
}

static ig_status fail_empty(const ig_schema_writer *w, const ig_schema_at *at) {
    return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: there is no number between the bounds", at->place);
}

/* ---- whole numbers ----------------------------------------------------------- */

static void write_digits(ig_buffer *b, size_t min, size_t max) {
    if (!max) return;
    ig_buffer_text(b, " [0-9]");
    ig_schema_times(b, (ig_schema_span){min, max});
}

/* Numbers from..to, with as few alternatives as there are of the form: fixed digits, one of a range, free ones. */
static void write_range(ig_buffer *b, uint64_t from, uint64_t to) {
    for (uint64_t x = from; x <= to;) {
        uint64_t size = 1; /* of the numbers that share the digit of a range */
        size_t n_free = 0, n_more = 0;
        for (; x && x % (10 * size) == 0 && 10 * size - 1 <= to - x; n_free++) size *= 10;
        unsigned first = (unsigned)(x / size % 10), last = first;
        uint64_t fixed = x / size / 10, next = x + size;
        for (; last < 9 && next + size - 1 <= to; last++) next += size;
        if (x == size && last == 9) /* all numbers of so many digits; and perhaps of one more */
            for (; next <= to / 10 + (to % 10 == 9); n_more++) next *= 10;
        if (x != from) ig_buffer_text(b, " | ");
        if (first == last) {
            ig_buffer_format(b, "\"%llu\"", (unsigned long long)(x / size));
        } else {
            if (fixed) ig_buffer_format(b, "\"%llu\" ", (unsigned long long)fixed);
            ig_buffer_format(b, "[%u-%u]", first, last);
        }
        write_digits(b, n_free, n_free + n_more);
        x = next;
    }
}

static uint64_t size_of(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }

ig_status ig_schema_integer(ig_schema_writer *w, const ig_schema_at *at) {
    range r;
    ig_status s = check_multiple(w, at, true);
    if (!s) s = read_range(w, &r, at, true);
    if (s) return s;
    if (!r.low.is_said && r.high.at <= -NO_BOUND) r.low = (bound){INT64_MIN, false, false};
    if (!r.high.is_said && r.low.at >= NO_BOUND) r.high = (bound){INT64_MAX, false, false};
    if (r.low.at > INT64_MAX - r.low.is_open || r.high.at < INT64_MIN + r.high.is_open) return fail_empty(w, at);
    int64_t low = r.low.at + r.low.is_open, high = r.high.at - r.high.is_open;
    if (low > high) return fail_empty(w, at);
    if (low < 0) {
        ig_buffer_text(&w->line, "\"-\" (");
        write_range(&w->line, high < 0 ? size_of(high) : 1, size_of(low));
        ig_buffer_text(&w->line, high < 0 ? ")" : ") | ");
    }
    if (high >= 0) write_range(&w->line, low < 0 ? 0 : size_of(low), size_of(high));
    return IG_OK;
}

/* ---- numbers with fractions -------------------------------------------------- */

/* Up to n digits that are not all 0, each text in one way. */
static void write_some(ig_buffer *b, size_t n) {
    for (size_t left = n; left; left--) {
        ig_buffer_text(b, " ([1-9]");
        write_digits(b, 0, left - 1);
        if (left > 1) ig_buffer_text(b, " | \"0\"");
    }
    for (size_t i = 0; i < n; i++) ig_buffer_text(b, ")");
}

/* Positive ones from `low` to `high`, with up to n digits behind the point. */
static void write_fractions(ig_buffer *b, bound low, bound high, size_t n) {
    unsigned long long from = (unsigned long long)low.at, to = (unsigned long long)high.at;
    const char *separator = "";
    if (low.is_open) {
        ig_buffer_format(b, "\"%llu.\"", from++);
        write_some(b, n);
        separator = " | ";
    }
    if (from < to) {
        ig_buffer_format(b, "%s(", separator);
        write_range(b, from, to - 1);
        ig_buffer_text(b, ") (\".\"");
        write_digits(b, 1, n);
        ig_buffer_text(b, ")?");
        separator = " | ";
    }
    if (!high.is_open) {
        ig_buffer_format(b, "%s\"%llu\" (\".\" \"0\"", separator, to);
        ig_schema_times(b, (ig_schema_span){1, n});
        ig_buffer_text(b, ")?");
    }
}

ig_status ig_schema_number(ig_schema_writer *w, const ig_schema_at *at) {
    static const bound zero = {0, false, true};
    range r;
    ig_status s = check_multiple(w, at, false);
    if (!s) s = read_range(w, &r, at, false);
    if (s) return s;
    if (r.low.at > r.high.at || (r.low.at == r.high.at && (r.low.is_open || r.high.is_open))) return fail_empty(w, at);
    uint64_t low = r.low.is_said ? size_of(r.low.at) : 0, high = r.high.is_said ? size_of(r.high.at) : 0;
    size_t n = EXACT_DIGITS - 1;
    for (uint64_t largest = low > high ? low : high; largest > 9 && n; largest /= 10) n--;
    if (!n) return ig_fail(w->err, IG_E_UNSUPPORTED, "%s: bounds of 15 digits are not supported", at->place);
    if (r.low.at < 0) {
        bound near = r.high.at <= 0 ? (bound){-r.high.at, r.high.is_open, true} : zero;
        ig_buffer_text(&w->line, "\"-\" (");
        write_fractions(&w->line, near, (bound){-r.low.at, r.low.is_open, true}, n);
        ig_buffer_text(&w->line, ")");
    }
    if (r.high.at < 0 || (r.high.at == 0 && r.high.is_open)) return IG_OK;
    if (r.low.at < 0) ig_buffer_text(&w->line, " | ");
    write_fractions(&w->line, r.low.at < 0 ? zero : r.low, r.high, n);
    return IG_OK;
}
