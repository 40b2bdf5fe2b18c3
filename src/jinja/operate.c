/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators, as Python computes them. Integers are of 64 bits: what does not fit is refused.
 */
#include <math.h>
#include <string.h>

#include "jinja/node.h"

static ig_j_value too_large(ig_j_render *r) { return ig_j_refuse(r, IG_E_LIMIT, "a number is too large"); }

static ig_j_value no_operator(ig_j_render *r, ig_j_value a, ig_j_value b) {
    ig_j_value odd = a.kind == IG_J_UNDEFINED ? a : b;
    if (odd.kind == IG_J_UNDEFINED) return ig_j_refuse(r, IG_E_FORMAT, "'%.*s' is undefined", IG_SHOW(odd.text));
    return ig_j_refuse(r, IG_E_FORMAT, "'%s' and '%s' have no such operator", ig_j_kind_name(a), ig_j_kind_name(b));
}

/* ---- numbers ------------------------------------------------------------- */

static ig_j_value divide_whole(ig_j_render *r, ig_j_op op, int64_t a, int64_t b) {
    if (b == 0) return ig_j_refuse(r, IG_E_FORMAT, "division by zero");
    if (b == -1) { /* INT64_MIN / -1 is too large */
        if (op == IG_J_OP_MOD) return ig_j_int(0);
        return ig_j_negate(r, ig_j_int(a), true);
    }
    int64_t quotient = a / b, rest = a % b;
    bool below = rest != 0 && (rest < 0) != (b < 0);
    return ig_j_int(op == IG_J_OP_MOD ? rest + (below ? b : 0) : quotient - below);
}

static ig_j_value power_whole(ig_j_render *r, int64_t base, int64_t exponent) {
    int64_t result = 1;
    for (bool over = false; exponent > 0; exponent /= 2) {
        if (over) return too_large(r); /* the square before is needed, and did not fit */
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return too_large(r);
        over = exponent > 1 && __builtin_mul_overflow(base, base, &base);
    }
    return ig_j_int(result);
}

static ig_j_value operate_whole(ig_j_render *r, ig_j_op op, int64_t a, int64_t b) {
    int64_t result;
    bool over = op == IG_J_OP_ADD   ? __builtin_add_overflow(a, b, &result)
                : op == IG_J_OP_SUB ? __builtin_sub_overflow(a, b, &result)
                                    : __builtin_mul_overflow(a, b, &result);
    return over ? too_large(r) : ig_j_int(result);
}

static ig_j_value divide(ig_j_op op, double a, double b) {
    double rest = fmod(a, b);
    double quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) {
        rest += b;
        quotient -= 1;
    }
    if (op == IG_J_OP_MOD) return ig_j_float(rest != 0 ? rest : copysign(0, b));
    double whole = floor(quotient);
    return ig_j_float(quotient != 0 ? whole + (quotient - whole > 0.5) : copysign(0, a / b));
}

static ig_j_value operate_float(ig_j_render *r, ig_j_op op, double a, double b) {
    if (op == IG_J_OP_ADD) return ig_j_float(a + b);
    if (op == IG_J_OP_SUB) return ig_j_float(a - b);
    if (op == IG_J_OP_MUL) return ig_j_float(a * b);
    if (b == 0 && op != IG_J_OP_POW) return ig_j_refuse(r, IG_E_FORMAT, "division by zero");
    if (op == IG_J_OP_DIV) return ig_j_float(a / b);
    if (op != IG_J_OP_POW) return divide(op, a, b);
    double power = pow(a, b);
    if (isfinite(a) && isfinite(b) && !isfinite(power)) return ig_j_refuse(r, IG_E_FORMAT, "a power is no number");
    return ig_j_float(power);
}

static ig_j_value operate_numbers(ig_j_render *r, ig_j_op op, ig_j_value a, ig_j_value b) {
    bool is_whole = ig_j_is_whole(a) && ig_j_is_whole(b) && op != IG_J_OP_DIV;
    if (!is_whole || (op == IG_J_OP_POW && ig_j_whole(b) < 0))
        return operate_float(r, op, ig_j_number(a), ig_j_number(b));
    if (op == IG_J_OP_POW) return power_whole(r, ig_j_whole(a), ig_j_whole(b));
    if (op == IG_J_OP_MOD || op == IG_J_OP_FLOOR_DIV) return divide_whole(r, op, ig_j_whole(a), ig_j_whole(b));
    return operate_whole(r, op, ig_j_whole(a), ig_j_whole(b));
}

ig_j_value ig_j_negate(ig_j_render *r, ig_j_value v, bool minus) {
    if (!ig_j_is_number(v)) return no_operator(r, v, v);
    if (v.kind == IG_J_FLOAT) return minus ? ig_j_float(-v.f) : v;
    return operate_whole(r, minus ? IG_J_OP_SUB : IG_J_OP_ADD, 0, ig_j_whole(v));
}

/* ---- strings and lists --------------------------------------------------- */

static ig_j_value repeat_string(ig_j_render *r, ig_text what, int64_t times) {
    if (times <= 0 || !what.size) return ig_j_string(IG_J_NAMED(""));
    if (what.size > (size_t)(IG_JINJA_STRING_BYTES / times))
        return ig_j_refuse(r, IG_E_LIMIT, "a text of more than %d bytes", IG_JINJA_STRING_BYTES);
    size_t size = what.size * (size_t)times;
    char *text = ig_j_take(r, size);
    if (!text || !ig_j_spend(r, size / IG_JINJA_STEP_CHARS)) return ig_j_none();
    for (size_t at = 0; at < size; at += what.size) memcpy(text + at, what.data, what.size);
    return ig_j_string((ig_text){text, size});
}

static ig_j_value repeat_list(ig_j_render *r, ig_j_value what, int64_t times) {
    ig_j_list all = {0};
    for (int64_t i = 0; what.list.n && i < times && ig_j_spend(r, 1); i++)
        for (uint32_t k = 0; k < what.list.n && !r->status; k++) ig_j_list_add(r, &all, what.list.v[k]);
    return ig_j_listed(what.kind, all);
}

static ig_j_value repeat(ig_j_render *r, ig_j_value what, int64_t times) {
    if (what.kind != IG_J_STRING) return repeat_list(r, what, times);
    return ig_j_like(repeat_string(r, what.text, times), what);
}

static ig_j_value concatenate(ig_j_render *r, ig_j_kind kind, ig_j_list a, ig_j_list b) {
    ig_j_list all = {0};
    for (uint32_t i = 0; i < a.n && ig_j_spend(r, 1); i++) ig_j_list_add(r, &all, a.v[i]);
    for (uint32_t i = 0; i < b.n && ig_j_spend(r, 1); i++) ig_j_list_add(r, &all, b.v[i]);
    return ig_j_listed(kind, all);
}

static ig_j_value add_strings(ig_j_render *r, ig_j_value a, ig_j_value b) {
    bool is_markup = a.is_markup || b.is_markup;
    if (is_markup) {
        a = ig_j_escaped(r, a);
        b = ig_j_escaped(r, b);
    }
    ig_j_value sum = ig_j_joined(r, a.text, b.text);
    sum.is_markup = is_markup;
    return sum;
}

static bool is_sequence(ig_j_value v) { return v.kind == IG_J_STRING || v.kind == IG_J_LIST || v.kind == IG_J_TUPLE; }

ig_j_value ig_j_operate(ig_j_render *r, ig_j_op op, ig_j_value a, ig_j_value b) {
    if (op == IG_J_OP_CONCAT) {
        ig_text left = ig_j_to_text(r, a), right = ig_j_to_text(r, b);
        return ig_j_joined(r, left, right);
    }
    if (ig_j_is_number(a) && ig_j_is_number(b)) return operate_numbers(r, op, a, b);
    if (op == IG_J_OP_ADD && a.kind == IG_J_STRING && b.kind == IG_J_STRING) return add_strings(r, a, b);
    if (op == IG_J_OP_ADD && a.kind == b.kind && is_sequence(a)) return concatenate(r, a.kind, a.list, b.list);
    if (op == IG_J_OP_MUL && is_sequence(a) && ig_j_is_whole(b)) return repeat(r, a, ig_j_whole(b));
    if (op == IG_J_OP_MUL && is_sequence(b) && ig_j_is_whole(a)) return repeat(r, b, ig_j_whole(a));
    if (op == IG_J_OP_MOD && a.kind == IG_J_STRING)
        return ig_j_refuse(r, IG_E_UNSUPPORTED, "formatting a string by %% is not supported");
    return no_operator(r, a, b);
}

bool ig_j_relate(ig_j_render *r, ig_j_op op, ig_j_value a, ig_j_value b) {
    switch (op) {
        case IG_J_OP_EQ:
            return ig_j_equal(r, a, b);
        case IG_J_OP_NE:
            return !ig_j_equal(r, a, b);
        case IG_J_OP_IN:
            return ig_j_contains(r, b, a);
        case IG_J_OP_NOT_IN:
            return !ig_j_contains(r, b, a);
        default:
            break;
    }
    if (ig_j_is_number(a) && ig_j_is_number(b) && (isnan(ig_j_number(a)) || isnan(ig_j_number(b)))) return false;
    int order = ig_j_compare(r, a, b);
    return op == IG_J_OP_LT ? order < 0 : op == IG_J_OP_LE ? order <= 0 : op == IG_J_OP_GT ? order > 0 : order >= 0;
}

/* ---- slices -------------------------------------------------------------- */

/* A bound as an index from `least` to `most`; `otherwise` if there is none. */
static int64_t bound(ig_j_value v, int64_t n, int64_t least, int64_t most, int64_t otherwise) {
    if (v.kind == IG_J_NONE) return otherwise;
    int64_t i = ig_j_whole(v);
    if (i < 0) i = i < -n ? least : i + n;
    return i < least ? least : i > most ? most : i;
}

ig_j_value ig_j_slice(ig_j_render *r, ig_j_value of, const ig_j_value bounds[3]) {
    bool fits = is_sequence(of);
    if (of.kind == IG_J_UNDEFINED) return ig_j_refuse(r, IG_E_FORMAT, "'%.*s' is undefined", IG_SHOW(of.text));
    for (int i = 0; i < 3; i++) fits = fits && (bounds[i].kind == IG_J_NONE || ig_j_is_whole(bounds[i]));
    if (!fits) return ig_j_undefined(IG_J_NAMED("item"));
    int64_t n, step = bounds[2].kind == IG_J_NONE ? 1 : ig_j_whole(bounds[2]);
    bool back = step < 0;
    if (step == 0) return ig_j_refuse(r, IG_E_FORMAT, "the step of a slice is zero");
    ig_j_length(r, of, &n);
    int64_t from = bound(bounds[0], n, back ? -1 : 0, back ? n - 1 : n, back ? n - 1 : 0);
    int64_t to = bound(bounds[1], n, back ? -1 : 0, back ? n - 1 : n, back ? -1 : n);
    if (step == 1 && to <= from) to = from;
    if (step == 1 && of.kind == IG_J_STRING) { /* a view, and of a list, too */
        size_t begin = ig_j_char_offset(of.text, (size_t)from), end = ig_j_char_offset(of.text, (size_t)to);
        return ig_j_like(ig_j_string((ig_text){of.text.data + begin, end - begin}), of);
    }
    if (step == 1) {
        uint32_t length = (uint32_t)(to - from);
        return ig_j_listed(of.kind, (ig_j_list){length ? of.list.v + from : NULL, length, length});
    }
    ig_j_list all = ig_j_iterate(r, of), cut = {0};
    ig_buffer text = {0};
    for (int64_t i = from; (back ? i > to : i < to) && all.n && ig_j_spend(r, 1); i += step) {
        if (of.kind == IG_J_STRING)
            ig_j_put(r, &text, all.v[i].text);
        else
            ig_j_list_add(r, &cut, all.v[i]);
        if (step > n || step < -n) break;
    }
    return of.kind == IG_J_STRING ? ig_j_like(ig_j_take_string(r, &text), of) : ig_j_listed(of.kind, cut);
}
