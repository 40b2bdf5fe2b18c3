/* SPDX-License-Identifier: Apache-2.0
 *
 * Calling what is built in, and the functions that are.
 */
#include <string.h>

#include "jinja/parts.h"

/* The place of a name among names with blanks between; -1 if it is not there. */
static int place_of(const char *names, ig_text name) {
    for (int i = 0; *names; i++) {
        size_t n = strcspn(names, " ");
        if (ig_j_same(name, (ig_text){names, n})) return i;
        names += n + (names[n] == ' ');
    }
    return -1;
}

const ig_j_builtin *ig_j_builtin_find(const ig_j_builtin *table, size_t n, ig_text name) {
    for (size_t i = 0; i < n; i++)
        if (place_of(table[i].name, name) >= 0) return &table[i];
    return NULL;
}

/* ---- arguments ------------------------------------------------------------- */

/* Puts arguments in the order of the names, those left out as undefined. */
static bool bind_builtin(ig_j_render *r, const ig_j_builtin *f, ig_j_call *c) {
    uint32_t n_names = *f->takes != 0;
    for (const char *at = f->takes; *at; at++) n_names += *at == ' ';
    if (c->n + c->named.n < f->least || c->n + c->named.n > n_names)
        ig_j_refuse(r, IG_E_FORMAT, "'%s' takes %u to %u arguments", f->name, f->least, n_names);
    ig_j_value *v = ig_j_take(r, n_names * sizeof *v); /* nothing after a failure */
    if (!v) return false;
    if (c->n) memcpy(v, c->v, c->n * sizeof *v);
    for (uint32_t i = 0; i < c->named.n; i++) {
        ig_text name = c->named.v[i].key.text;
        int at = place_of(f->takes, name);
        if (at < (int)c->n)
            ig_j_refuse(r, IG_E_FORMAT, "'%s' does not take the argument '%.*s' here", f->name, IG_SHOW(name));
        else
            v[at] = c->named.v[i].value;
    }
    c->v = v;
    return !r->status;
}

ig_j_value ig_j_builtin_call(ig_j_render *r, const ig_j_builtin *f, ig_j_call *c) {
    if ((f->takes && !bind_builtin(r, f, c)) || !ig_j_enter(r)) return ig_j_none();
    ig_j_value v = f->fn(r, c);
    r->depth--;
    return v;
}

ig_text ig_j_want_string(ig_j_render *r, ig_j_value v) {
    if (v.kind == IG_J_STRING) return v.text;
    ig_j_refuse(r, IG_E_FORMAT, "'%s' is there where a str is wanted", ig_j_kind_name(v));
    return IG_J_NAMED("");
}

int64_t ig_j_want_int(ig_j_render *r, ig_j_value v, int64_t otherwise) {
    if (v.kind == IG_J_UNDEFINED || v.kind == IG_J_NONE) return otherwise;
    if (ig_j_is_whole(v)) return ig_j_whole(v);
    ig_j_refuse(r, IG_E_FORMAT, "'%s' is there where an int is wanted", ig_j_kind_name(v));
    return 0;
}

/* ---- functions -------------------------------------------------------------- */

static ig_j_value call_range(ig_j_render *r, ig_j_call *c) {
    int64_t from = c->n > 1 ? ig_j_want_int(r, c->v[0], 0) : 0, to = ig_j_want_int(r, c->v[c->n > 1], 0);
    int64_t step = ig_j_want_int(r, c->v[2], 1);
    ig_j_list all = {0};
    for (uint32_t i = 0; i < c->n; i++)
        if (!ig_j_is_whole(c->v[i])) return ig_j_refuse(r, IG_E_FORMAT, "a range by '%s'", ig_j_kind_name(c->v[i]));
    if (step == 0) return ig_j_refuse(r, IG_E_FORMAT, "the step of a range is zero");
    for (int64_t i = from; step > 0 ? i < to : i > to;) {
        if (all.n == IG_JINJA_RANGE) return ig_j_refuse(r, IG_E_LIMIT, "a range of more than %d", IG_JINJA_RANGE);
        if (!ig_j_spend(r, 1)) break;
        ig_j_list_add(r, &all, ig_j_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    return ig_j_listed(IG_J_LIST, all);
}

/* Its argument, a dict if any, and those with names. */
static ig_j_dict merged(ig_j_render *r, const ig_j_call *c) {
    ig_j_dict all = {0};
    if (c->n > 1 || (c->n && c->v[0].kind != IG_J_DICT)) ig_j_refuse(r, IG_E_FORMAT, "only a dict is taken here");
    for (uint32_t i = 0; !r->status && c->n && i < c->v[0].dict.n; i++)
        ig_j_dict_set(r, &all, c->v[0].dict.v[i].key, c->v[0].dict.v[i].value);
    for (uint32_t i = 0; i < c->named.n; i++) ig_j_dict_set(r, &all, c->named.v[i].key, c->named.v[i].value);
    return all;
}

static ig_j_value call_dict(ig_j_render *r, ig_j_call *c) { return ig_j_dictionary(merged(r, c)); }

static ig_j_value call_namespace(ig_j_render *r, ig_j_call *c) {
    ig_j_dict *names = ig_j_take(r, sizeof *names);
    if (!names) return ig_j_none();
    *names = merged(r, c);
    return (ig_j_value){.kind = IG_J_NAMESPACE, .names = names};
}

static ig_j_value new_cycler(ig_j_render *r, ig_j_list items) {
    ig_j_cycler *y = ig_j_take(r, sizeof *y);
    if (!y) return ig_j_none();
    y->items = items;
    return (ig_j_value){.kind = IG_J_CYCLER, .cycler = y};
}

static ig_j_value call_cycler(ig_j_render *r, ig_j_call *c) {
    if (!c->n || c->named.n) return ig_j_refuse(r, IG_E_FORMAT, "cycler() takes at least one item, and no names");
    return new_cycler(r, (ig_j_list){.v = c->v, .n = c->n});
}

/* Nothing at first, then what it joins by. */
static ig_j_value call_joiner_again(ig_j_render *r, ig_j_call *c) {
    ig_j_cycler *y = c->self.cycler;
    ig_j_value now = y->items.v[y->at];
    y->at = 1;
    return (void)r, now;
}

static ig_j_value call_joiner(ig_j_render *r, ig_j_call *c) {
    static const ig_j_builtin again = {"joiner", call_joiner_again, "", 0};
    ig_j_list both = {0};
    ig_j_list_add(r, &both, ig_j_string(IG_J_NAMED("")));
    ig_j_list_add(r, &both, c->v[0].kind == IG_J_UNDEFINED ? ig_j_string(IG_J_NAMED(", ")) : c->v[0]);
    ig_j_method *m = ig_j_take(r, sizeof *m);
    if (!m) return ig_j_none();
    *m = (ig_j_method){new_cycler(r, both), &again};
    return (ig_j_value){.kind = IG_J_METHOD, .method = m};
}

static ig_j_value call_raise(ig_j_render *r, ig_j_call *c) {
    ig_text text = ig_j_to_text(r, c->v[0]);
    if (!r->status) r->status = ig_fail(r->err, IG_E_ARG, "%.*s", (int)text.size, text.data);
    return ig_j_none();
}

static ig_j_value call_strftime(ig_j_render *r, ig_j_call *c) {
    char format[256], text[1024];
    ig_text given = ig_j_want_string(r, c->v[0]);
    if (given.size + 1 >= sizeof format) return ig_j_refuse(r, IG_E_LIMIT, "strftime_now: the format is too long");
    memcpy(format, given.data, given.size);
    memcpy(format + given.size, " ", 2); /* 0 bytes then mean that there is too little room */
    size_t n = strftime(text, sizeof text, format, &r->now);
    if (n == 0) return ig_j_refuse(r, IG_E_LIMIT, "strftime_now: the date is too long");
    char *kept = ig_j_take(r, n - 1);
    if (!kept) return ig_j_none();
    memcpy(kept, text, n - 1);
    return ig_j_string((ig_text){kept, n - 1});
}

static const ig_j_builtin functions[] = {
    {"range", call_range, "start stop step", 1},
    {"dict", call_dict, NULL, 0},
    {"namespace", call_namespace, NULL, 0},
    {"raise_exception", call_raise, "message", 1},
    {"strftime_now", call_strftime, "format", 1},
    {"cycler", call_cycler, NULL, 0},
    {"joiner", call_joiner, "sep", 0},
};

const ig_j_builtin *ig_j_function_named(ig_text name) {
    return ig_j_builtin_find(functions, IG_COUNT(functions), name);
}
