/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of a config.json.
 */
#include <math.h>

#include "base/error.h"
#include "model/config_hf.h"

const json_t *ig_hf_get(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

void ig_hf_fail_kind(ig_hf_reader *r, const char *key, const char *wanted) {
    if (!r->status) r->status = ig_fail(r->err, IG_E_FORMAT, "%s: '%s' must be %s", r->path, key, wanted);
}

static int between(ig_hf_reader *r, const char *key, json_int_t x, int min, int max) {
    if (x >= min && x <= max) return (int)x;
    if (!r->status)
        r->status =
            ig_fail(r->err, IG_E_FORMAT, "%s: '%s' is %lld, must be %d to %d", r->path, key, (long long)x, min, max);
    return min;
}

static json_int_t integer(ig_hf_reader *r, const json_t *v, const char *key) {
    if (!json_is_integer(v)) ig_hf_fail_kind(r, key, "an integer");
    return json_integer_value(v);
}

int ig_hf_int(ig_hf_reader *r, const json_t *object, const char *key, int max, int absent) {
    const json_t *v = ig_hf_get(object, key);
    if (v) return between(r, key, integer(r, v, key), 1, max);
    if (absent == IG_HF_ABSENT && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: '%s' is missing", r->path, key);
    return absent == IG_HF_ABSENT ? 1 : absent;
}

void ig_hf_size(ig_hf_reader *r, int *out, const char *key, int max) {
    *out = ig_hf_int(r, r->root, key, max, *out ? *out : IG_HF_ABSENT);
}

int ig_hf_count(ig_hf_reader *r, const char *key, int max, int absent) {
    const json_t *v = ig_hf_get(r->root, key);
    return between(r, key, v ? integer(r, v, key) : absent, 0, max);
}

double ig_hf_number(ig_hf_reader *r, const json_t *object, const char *key, double absent) {
    const json_t *v = ig_hf_get(object, key);
    if (!v) {
        if (absent == IG_HF_ABSENT && !r->status)
            r->status = ig_fail(r->err, IG_E_FORMAT, "%s: '%s' is missing", r->path, key);
        return absent;
    }
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || x <= 0) ig_hf_fail_kind(r, key, "a number above 0");
    return x;
}

double ig_hf_scale(ig_hf_reader *r, const char *key, double absent) {
    double x = ig_hf_number(r, r->root, key, absent);
    if (x < IG_LEAST_SCALE || x > IG_MAX_SCALE) ig_hf_fail_kind(r, key, "1e-6 to 1e6");
    return x;
}

double ig_hf_theta(ig_hf_reader *r, const json_t *object, const char *key, double absent) {
    double x = ig_hf_number(r, object, key, absent);
    if (x < 1 || x > IG_MAX_THETA) ig_hf_fail_kind(r, key, "1 to 1e15");
    return x;
}

bool ig_hf_bool(ig_hf_reader *r, const char *key, bool absent) {
    const json_t *v = ig_hf_get(r->root, key);
    if (!v) return absent;
    if (!json_is_boolean(v)) ig_hf_fail_kind(r, key, "true or false");
    return json_is_true(v);
}

const char *ig_hf_text(ig_hf_reader *r, const json_t *object, const char *key, const char *absent) {
    const json_t *v = ig_hf_get(object, key);
    if (!v) return absent;
    if (!json_is_string(v)) {
        ig_hf_fail_kind(r, key, "a string");
        return absent;
    }
    return json_string_value(v);
}

void ig_hf_refuse(ig_hf_reader *r, const char *key, const char *value) {
    if (!r->status)
        r->status =
            ig_fail(r->err, IG_E_UNSUPPORTED, "%s: '%s' is '%.60s', which is not supported", r->path, key, value);
}
