/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of a model's own section of GGUF metadata.
 */
#include "model/config_section.h"

#include <stdio.h>

#include "base/error.h"

ig_section_key ig_section_name(const ig_section *r, const char *name) {
    ig_section_key k;
    snprintf(k.text, sizeof k.text, "%s.%s", r->architecture, name);
    return k;
}

int ig_section_int(ig_section *r, const char *name, int max, int absent) {
    ig_section_key k = ig_section_name(r, name);
    int64_t x = absent;
    bool found = ig_gguf_int(r->g, k.text, 1, max, &x, &r->status, r->err);
    if (!found && absent < 0 && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' is missing", r->path, k.text);
    return r->status ? 1 : (int)x;
}

int ig_section_count(ig_section *r, const char *name, int max) {
    int64_t n = 0;
    ig_gguf_int(r->g, ig_section_name(r, name).text, 0, max, &n, &r->status, r->err);
    return (int)n;
}

void ig_section_list(ig_section *r, const char *name, int max, int *out, int n) {
    ig_section_key k = ig_section_name(r, name);
    const ig_gguf_value *v = ig_gguf_find(r->g, k.text);
    bool is_list = v && v->type == IG_GGUF_ARRAY;
    int one = is_list ? 1 : ig_section_int(r, name, max, -1);
    for (int l = 0; l < n; l++) {
        int64_t x = is_list && (uint64_t)l < v->n_items ? ig_gguf_array_int(v, (uint64_t)l) : is_list ? 0 : one;
        out[l] = x >= 1 && x <= max ? (int)x : 1;
        if (x != out[l] && !r->status)
            r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' must be a number of 1 to %d, or one for each layer",
                                r->path, k.text, max);
    }
}

bool ig_section_flags(ig_section *r, const ig_config *c, const char *name, bool *flags) {
    ig_section_key k = ig_section_name(r, name);
    const ig_gguf_value *v = ig_gguf_find(r->g, k.text);
    if (!v || v->type != IG_GGUF_ARRAY) return false;
    bool fits = v->item_type == IG_GGUF_BOOL && v->n_items == (uint64_t)c->n_layers;
    if (!fits && !r->status)
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' must be true or false for each layer", r->path, k.text);
    for (int l = 0; l < c->n_layers && fits; l++) flags[l] = ig_gguf_array_int(v, (uint64_t)l) != 0;
    return true;
}

void ig_section_read_kinds(ig_section *r, const ig_config *c, const char *name, int max, int *local, int *other) {
    int of[IG_MAX_LAYERS], seen[2] = {0, 0};
    ig_section_list(r, name, max, of, c->n_layers);
    for (int l = 0; l < c->n_layers && !r->status; l++) {
        int *n = &seen[c->window[l] > 0];
        if (*n && *n != of[l])
            r->status = ig_fail(r->err, IG_E_UNSUPPORTED, "%s: key '%s' is %d in layer %d and %d in one of its kind",
                                r->path, ig_section_name(r, name).text, of[l], l, *n);
        *n = of[l];
    }
    *other = seen[0] ? seen[0] : seen[1];
    *local = seen[1] ? seen[1] : seen[0];
}

double ig_section_number(ig_section *r, const char *name, double absent) {
    ig_section_key k = ig_section_name(r, name);
    double x = absent;
    ig_gguf_float(r->g, k.text, &x, &r->status, r->err);
    return x;
}

double ig_section_ranged(ig_section *r, const char *name, double low, double high, double absent) {
    double x = ig_section_number(r, name, absent);
    if (!r->status && x != absent && !(x >= low && x <= high))
        r->status = ig_fail(r->err, IG_E_FORMAT, "%s: key '%s' is %g, must be %g to %g", r->path,
                            ig_section_name(r, name).text, x, low, high);
    return x;
}

double ig_section_scale(ig_section *r, const char *name, double absent) {
    return ig_section_ranged(r, name, IG_LEAST_SCALE, IG_MAX_SCALE, absent);
}
