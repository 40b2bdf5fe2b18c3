/* SPDX-License-Identifier: Apache-2.0
 *
 * What expressions are worth.
 */
#include "jinja/node.h"

/* ---- names, attributes, items --------------------------------------------- */

static ig_j_value eval_const(ig_j_render *r, const ig_j_node *n) { return (void)r, n->value; }
static ig_j_value eval_captured(ig_j_render *r, const ig_j_node *n) { return (void)n, r->captured; }

static ig_j_value eval_name(ig_j_render *r, const ig_j_node *n) {
    for (const ig_j_scope *s = r->scope; s; s = s->parent) {
        const ig_j_value *v = ig_j_dict_named(r, &s->names, n->name);
        if (v) return *v;
    }
    const ig_j_builtin *f = ig_j_function_named(n->name);
    return f ? (ig_j_value){.kind = IG_J_FUNCTION, .function = f} : ig_j_undefined(n->name);
}

static ig_j_value method_of(ig_j_render *r, ig_j_value of, ig_text name) {
    const ig_j_builtin *b = ig_j_method_named(of, name);
    ig_j_method *m = b ? ig_j_take(r, sizeof *m) : NULL;
    if (!m) return ig_j_undefined(name);
    *m = (ig_j_method){of, b};
    return (ig_j_value){.kind = IG_J_METHOD, .method = m};
}

static ig_j_value refuse_undefined(ig_j_render *r, ig_j_value v) {
    return ig_j_refuse(r, IG_E_FORMAT, "'%.*s' is undefined", IG_SHOW(v.text));
}

/* A dict's methods come before its keys. */
ig_j_value ig_j_attribute(ig_j_render *r, ig_j_value of, ig_text name) {
    const ig_j_value *found = NULL;
    if (of.kind == IG_J_UNDEFINED) return refuse_undefined(r, of);
    if (of.kind == IG_J_LOOP) return ig_j_loop_attribute(r, of.loop, name);
    if (of.kind == IG_J_CYCLER && ig_j_same(name, IG_J_NAMED("current"))) return of.cycler->items.v[of.cycler->at];
    if (of.kind == IG_J_NAMESPACE) found = ig_j_dict_named(r, of.names, name);
    if (of.kind == IG_J_DICT && !ig_j_method_named(of, name)) found = ig_j_dict_named(r, &of.dict, name);
    return found ? *found : method_of(r, of, name);
}

static ig_j_value item_at(ig_j_render *r, ig_j_value of, int64_t i) {
    int64_t n = 0;
    ig_j_length(r, of, &n);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return ig_j_undefined(IG_J_NAMED("item"));
    if (of.kind != IG_J_STRING) return of.list.v[i];
    size_t at = ig_j_char_offset(of.text, (size_t)i), end = ig_j_char_offset(of.text, (size_t)i + 1);
    return ig_j_string((ig_text){of.text.data + at, end - at});
}

/* A dict's keys come before its methods. */
ig_j_value ig_j_item(ig_j_render *r, ig_j_value of, ig_j_value key) {
    const ig_j_value *found = of.kind == IG_J_DICT ? ig_j_dict_find(r, &of.dict, key) : NULL;
    bool is_sequence = of.kind == IG_J_STRING || of.kind == IG_J_LIST || of.kind == IG_J_TUPLE;
    if (of.kind == IG_J_UNDEFINED) return refuse_undefined(r, of);
    if (found) return *found;
    if (is_sequence && ig_j_is_whole(key)) return item_at(r, of, ig_j_whole(key));
    if (key.kind != IG_J_STRING) return ig_j_undefined(IG_J_NAMED("item"));
    return of.kind == IG_J_DICT ? method_of(r, of, key.text) : ig_j_attribute(r, of, key.text);
}

static ig_j_value eval_attribute(ig_j_render *r, const ig_j_node *n) {
    return ig_j_attribute(r, ig_j_eval(r, n->a), n->name);
}

static ig_j_value eval_item(ig_j_render *r, const ig_j_node *n) {
    ig_j_value of = ig_j_eval(r, n->a), key = ig_j_eval(r, n->b);
    return r->status ? key : ig_j_item(r, of, key);
}

static ig_j_value eval_slice(ig_j_render *r, const ig_j_node *n) {
    ig_j_value of = ig_j_eval(r, n->a), bounds[3];
    const ig_j_node *b = n->b;
    for (int i = 0; i < 3; i++, b = b->next) bounds[i] = ig_j_eval(r, b);
    return r->status ? of : ig_j_slice(r, of, bounds);
}

/* ---- what is made of several --------------------------------------------- */

static ig_j_value eval_list(ig_j_render *r, const ig_j_node *n) {
    ig_j_list items = {0};
    for (const ig_j_node *item = n->a; item && !r->status; item = item->next)
        ig_j_list_add(r, &items, ig_j_eval(r, item));
    return ig_j_listed(n->kind == IG_J_NODE_LIST ? IG_J_LIST : IG_J_TUPLE, items);
}

static ig_j_value eval_dict(ig_j_render *r, const ig_j_node *n) {
    ig_j_dict dict = {0};
    for (const ig_j_node *key = n->a; key && !r->status; key = key->next->next) {
        ig_j_value k = ig_j_eval(r, key), v = ig_j_eval(r, key->next);
        ig_j_dict_set(r, &dict, k, v);
    }
    return ig_j_dictionary(dict);
}

/* ---- operators ------------------------------------------------------------ */

static ig_j_value eval_not(ig_j_render *r, const ig_j_node *n) { return ig_j_bool(!ig_j_truth(ig_j_eval(r, n->a))); }
static ig_j_value eval_minus(ig_j_render *r, const ig_j_node *n) { return ig_j_negate(r, ig_j_eval(r, n->a), true); }
static ig_j_value eval_plus(ig_j_render *r, const ig_j_node *n) { return ig_j_negate(r, ig_j_eval(r, n->a), false); }

static ig_j_value eval_binary(ig_j_render *r, const ig_j_node *n) {
    ig_j_value a = ig_j_eval(r, n->a);
    if (n->op == IG_J_OP_OR) return ig_j_truth(a) ? a : ig_j_eval(r, n->b);
    if (n->op == IG_J_OP_AND) return ig_j_truth(a) ? ig_j_eval(r, n->b) : a;
    ig_j_value b = ig_j_eval(r, n->b);
    return r->status ? b : ig_j_operate(r, n->op, a, b);
}

static ig_j_value eval_compare(ig_j_render *r, const ig_j_node *n) {
    ig_j_value left = ig_j_eval(r, n->a);
    bool holds = true;
    for (const ig_j_node *next = n->b; next && holds && !r->status; next = next->next) {
        ig_j_value right = ig_j_eval(r, next->a);
        holds = ig_j_relate(r, next->op, left, right);
        left = right;
    }
    return ig_j_bool(holds);
}

static ig_j_value eval_choice(ig_j_render *r, const ig_j_node *n) {
    if (ig_j_truth(ig_j_eval(r, n->b))) return ig_j_eval(r, n->a);
    return n->c ? ig_j_eval(r, n->c) : ig_j_undefined(IG_J_NAMED("if without else"));
}

/* ---- calls ---------------------------------------------------------------- */

void ig_j_gather(ig_j_render *r, const ig_j_node *arguments, ig_j_call *c) {
    ig_j_list positional = {0};
    for (const ig_j_node *a = arguments; a && !r->status; a = a->next) {
        ig_j_value v = ig_j_eval(r, a->a);
        if (!a->name.size)
            ig_j_list_add(r, &positional, v);
        else if (ig_j_dict_named(r, &c->named, a->name))
            ig_j_refuse(r, IG_E_FORMAT, "the argument '%.*s' is given twice", IG_SHOW(a->name));
        else
            ig_j_dict_set(r, &c->named, ig_j_string(a->name), v);
    }
    c->v = positional.v;
    c->n = positional.n;
}

ig_j_value ig_j_invoke(ig_j_render *r, ig_j_value callee, ig_j_call *c) {
    if (r->status) return ig_j_none();
    switch (callee.kind) {
        case IG_J_UNDEFINED:
            return refuse_undefined(r, callee);
        case IG_J_MACRO:
            return ig_j_invoke_macro(r, callee.macro, c);
        case IG_J_FUNCTION:
            return ig_j_builtin_call(r, callee.function, c);
        case IG_J_METHOD:
            c->self = callee.method->self;
            return ig_j_builtin_call(r, callee.method->builtin, c);
        default:
            return ig_j_refuse(r, IG_E_FORMAT, "'%s' cannot be called", ig_j_kind_name(callee));
    }
}

static ig_j_value eval_call(ig_j_render *r, const ig_j_node *n) {
    ig_j_call c = {0};
    ig_j_value callee = ig_j_eval(r, n->a);
    ig_j_gather(r, n->b, &c);
    return ig_j_invoke(r, callee, &c);
}

static ig_j_value eval_builtin(ig_j_render *r, const ig_j_node *n) {
    ig_j_call c = {.self = ig_j_eval(r, n->a)};
    ig_j_gather(r, n->b, &c);
    if (!n->builtin) return ig_j_refuse(r, IG_E_UNSUPPORTED, "there is no filter or test '%.*s'", IG_SHOW(n->name));
    return ig_j_builtin_call(r, n->builtin, &c);
}

/* -------------------------------------------------------------------------- */

ig_j_value ig_j_eval(ig_j_render *r, const ig_j_node *n) {
    static ig_j_value (*const kinds[])(ig_j_render * r, const ig_j_node *n) = {
        [IG_J_NODE_CONST] = eval_const,
        [IG_J_NODE_NAME] = eval_name,
        [IG_J_NODE_CAPTURED] = eval_captured,
        [IG_J_NODE_LIST] = eval_list,
        [IG_J_NODE_TUPLE] = eval_list,
        [IG_J_NODE_DICT] = eval_dict,
        [IG_J_NODE_ATTRIBUTE] = eval_attribute,
        [IG_J_NODE_ITEM] = eval_item,
        [IG_J_NODE_SLICE] = eval_slice,
        [IG_J_NODE_CALL] = eval_call,
        [IG_J_NODE_FILTER] = eval_builtin,
        [IG_J_NODE_TEST] = eval_builtin,
        [IG_J_NODE_NOT] = eval_not,
        [IG_J_NODE_MINUS] = eval_minus,
        [IG_J_NODE_PLUS] = eval_plus,
        [IG_J_NODE_BINARY] = eval_binary,
        [IG_J_NODE_COMPARE] = eval_compare,
        [IG_J_NODE_CHOICE] = eval_choice,
    };
    int line = r->line;
    if (!ig_j_enter(r)) return ig_j_none();
    r->line = n->line;
    ig_j_value v = kinds[n->kind](r, n);
    r->line = line;
    r->depth--;
    return r->status ? ig_j_none() : v;
}
