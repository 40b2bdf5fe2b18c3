/* SPDX-License-Identifier: Apache-2.0
 *
 * What tags do: output, conditions, loops, assignments, macros. A name is assigned in the innermost scope and looked up
 * from there outwards. Bodies of loops, macros and blocks are scopes, those of conditions are not.
 */
#include "jinja/node.h"

/* ---- scopes ---------------------------------------------------------------- */

static ig_j_scope *push_scope(ig_j_render *r, ig_j_scope *parent) {
    ig_j_scope *s = ig_j_take(r, sizeof *s);
    if (!s) return NULL;
    s->parent = parent;
    return r->scope = s;
}

static void define(ig_j_render *r, ig_text name, ig_j_value v) {
    ig_j_dict_set(r, &r->scope->names, ig_j_string(name), v);
}

static void assign_attribute(ig_j_render *r, const ig_j_node *target, ig_j_value v) {
    ig_j_value of = ig_j_eval(r, target->a);
    if (of.kind == IG_J_NAMESPACE)
        ig_j_dict_set(r, of.names, ig_j_string(target->name), v);
    else
        ig_j_refuse(r, IG_E_FORMAT, "an attribute of '%s', which is no namespace, cannot be set", ig_j_kind_name(of));
}

static void assign(ig_j_render *r, const ig_j_node *target, ig_j_value v) {
    if (target->kind == IG_J_NODE_NAME) {
        define(r, target->name, v);
    } else if (target->kind == IG_J_NODE_ATTRIBUTE) {
        assign_attribute(r, target, v);
    } else {
        ig_j_list parts = ig_j_iterate(r, v);
        uint32_t i = 0;
        for (const ig_j_node *t = target->a; t && i < parts.n && !r->status; t = t->next) assign(r, t, parts.v[i++]);
        uint32_t wanted = 0;
        for (const ig_j_node *t = target->a; t; t = t->next) wanted++;
        if (wanted != parts.n) ig_j_refuse(r, IG_E_FORMAT, "%u values for %u names", parts.n, wanted);
    }
}

/* The text that a body puts out in a scope of its own. */
static ig_j_value capture(ig_j_render *r, const ig_j_node *body, ig_j_scope *parent) {
    ig_buffer text = {0}, *out = r->out;
    ig_j_scope *scope = r->scope;
    if (push_scope(r, parent)) {
        r->out = &text;
        ig_j_exec(r, body);
        r->out = out;
        r->scope = scope;
    }
    return ig_j_take_string(r, &text);
}

/* ---- simple tags ------------------------------------------------------------ */

static void exec_output(ig_j_render *r, const ig_j_node *n) {
    ig_j_value v = ig_j_eval(r, n->a);
    if (!r->status) ig_j_put_value(r, r->out, v);
}

static void exec_if(ig_j_render *r, const ig_j_node *n) {
    for (;;) {
        bool holds = ig_j_truth(ig_j_eval(r, n->a));
        const ig_j_node *then = holds ? n->b : n->c;
        bool is_elif = !holds && then && then->kind == IG_J_NODE_IF && !then->next;
        if (!is_elif || r->status) return ig_j_exec(r, then);
        n = then;
    }
}

static void exec_set(ig_j_render *r, const ig_j_node *n) {
    ig_j_value v = ig_j_eval(r, n->b);
    if (!r->status) assign(r, n->a, v);
}

static void exec_set_block(ig_j_render *r, const ig_j_node *n) {
    r->captured = capture(r, n->c, r->scope);
    if (!r->jump) exec_set(r, n);
}

static void exec_filter_block(ig_j_render *r, const ig_j_node *n) {
    r->captured = capture(r, n->c, r->scope);
    if (r->jump) return;
    ig_j_value v = ig_j_eval(r, n->b);
    ig_j_put_value(r, r->out, v);
}

static void exec_with(ig_j_render *r, const ig_j_node *n) {
    ig_j_scope *outer = r->scope, *inner = push_scope(r, outer);
    for (const ig_j_node *set = n->a; set && !r->status; set = set->next) {
        r->scope = outer;
        ig_j_value v = ig_j_eval(r, set->b);
        r->scope = inner;
        assign(r, set->a, v);
    }
    ig_j_exec(r, n->c);
    r->scope = outer;
}

static void exec_break(ig_j_render *r, const ig_j_node *n) {
    r->jump = n->kind == IG_J_NODE_BREAK ? IG_J_JUMP_BREAK : IG_J_JUMP_CONTINUE;
}

/* ---- macros ------------------------------------------------------------------ */

static ig_j_value new_macro(ig_j_render *r, const ig_j_node *n) {
    ig_j_macro *m = ig_j_take(r, sizeof *m);
    if (!m) return ig_j_none();
    *m = (ig_j_macro){n, r->scope};
    return (ig_j_value){.kind = IG_J_MACRO, .macro = m};
}

static void exec_macro(ig_j_render *r, const ig_j_node *n) { define(r, n->name, new_macro(r, n)); }

/* Gives the parameters of a macro their values in its scope. */
static void bind_macro(ig_j_render *r, const ig_j_node *macro, const ig_j_call *c) {
    uint32_t i = 0, n_named = 0;
    const ig_j_value *caller = ig_j_dict_named(r, &c->named, IG_J_NAMED("caller"));
    if (caller) define(r, IG_J_NAMED("caller"), *caller), n_named++;
    for (const ig_j_node *p = macro->a; p && !r->status; p = p->next, i++) {
        const ig_j_value *named = ig_j_dict_named(r, &c->named, p->name);
        if (named && named != caller) n_named++;
        if (i < c->n && named)
            ig_j_refuse(r, IG_E_FORMAT, "the argument '%.*s' is given twice", IG_SHOW(p->name));
        else if (i < c->n || named)
            define(r, p->name, named ? *named : c->v[i]);
        else
            define(r, p->name, p->a ? ig_j_eval(r, p->a) : ig_j_undefined(p->name));
    }
    if (c->n > i || n_named != c->named.n)
        ig_j_refuse(r, IG_E_FORMAT, "the macro '%.*s' does not take all of these arguments", IG_SHOW(macro->name));
}

ig_j_value ig_j_invoke_macro(ig_j_render *r, const ig_j_macro *m, const ig_j_call *c) {
    ig_j_scope *scope = r->scope, *inner = push_scope(r, m->scope);
    if (!inner) return ig_j_none();
    bind_macro(r, m->node, c);
    ig_j_value v = capture(r, m->node->c, inner);
    r->scope = scope;
    return v;
}

static void exec_call_block(ig_j_render *r, const ig_j_node *n) {
    ig_j_call c = {0};
    ig_j_value callee = ig_j_eval(r, n->b->a);
    ig_j_gather(r, n->b->b, &c);
    ig_j_dict_set(r, &c.named, ig_j_string(n->name), new_macro(r, n));
    ig_j_value v = ig_j_invoke(r, callee, &c);
    if (!r->status) ig_j_put_value(r, r->out, v);
}

/* ---- loops ------------------------------------------------------------------- */

struct ig_j_loop {
    const ig_j_node *node; /* its condition chooses among the items, as late as it can */
    ig_j_scope *scope;     /* around the loop */
    ig_j_list items;
    uint32_t next;  /* of items, to be looked at */
    bool is_chosen; /* all that follow */
    bool has_after;
    ig_j_value before, now, after;
    int64_t index0, length; /* length: -1 is not known yet */
    ig_j_list last;         /* what changed() was asked about */
    bool has_last;
};

static bool passes_condition(ig_j_render *r, const ig_j_loop *l, ig_j_value v) {
    ig_j_scope *scope = r->scope;
    if (!l->node->d || l->is_chosen) return true;
    bool chosen = false;
    if (push_scope(r, l->scope)) {
        assign(r, l->node->a, v);
        chosen = ig_j_truth(ig_j_eval(r, l->node->d));
    }
    r->scope = scope;
    return chosen;
}

/* Looks one item ahead. */
static bool peek(ig_j_render *r, ig_j_loop *l) {
    while (!l->has_after && l->next < l->items.n && !r->status) {
        l->after = l->items.v[l->next++];
        l->has_after = passes_condition(r, l, l->after);
    }
    return l->has_after && !r->status;
}

static bool step(ig_j_render *r, ig_j_loop *l) {
    if (!peek(r, l)) return false;
    l->before = l->now;
    l->now = l->after;
    l->has_after = false;
    l->index0++;
    return true;
}

static int64_t length(ig_j_render *r, ig_j_loop *l) {
    ig_j_list chosen = {0};
    if (l->length >= 0) return l->length;
    for (; l->next < l->items.n && !r->status; l->next++)
        if (passes_condition(r, l, l->items.v[l->next])) ig_j_list_add(r, &chosen, l->items.v[l->next]);
    l->items = chosen;
    l->next = 0;
    l->is_chosen = true;
    return l->length = chosen.n + l->index0 + 1 + l->has_after;
}

static ig_j_value loop_cycle(ig_j_render *r, ig_j_call *c) {
    if (!c->n) return ig_j_refuse(r, IG_E_FORMAT, "loop.cycle() takes arguments");
    return c->v[c->self.loop->index0 % c->n];
}

/* Whether it is asked about something else than the time before. */
static ig_j_value loop_changed(ig_j_render *r, ig_j_call *c) {
    ig_j_loop *l = c->self.loop;
    bool is_same = l->has_last && l->last.n == c->n;
    for (uint32_t i = 0; is_same && i < c->n; i++) is_same = ig_j_equal(r, l->last.v[i], c->v[i]);
    l->last = (ig_j_list){.v = c->v, .n = c->n};
    l->has_last = true;
    return ig_j_bool(!is_same);
}

ig_j_value ig_j_loop_attribute(ig_j_render *r, ig_j_loop *l, ig_text name) {
    static const ig_j_builtin methods[] = {{"cycle", loop_cycle, NULL, 0}, {"changed", loop_changed, NULL, 0}};
    if (ig_j_same(name, IG_J_NAMED("index"))) return ig_j_int(l->index0 + 1);
    if (ig_j_same(name, IG_J_NAMED("index0"))) return ig_j_int(l->index0);
    if (ig_j_same(name, IG_J_NAMED("first"))) return ig_j_bool(l->index0 == 0);
    if (ig_j_same(name, IG_J_NAMED("last"))) return ig_j_bool(!peek(r, l));
    if (ig_j_same(name, IG_J_NAMED("length"))) return ig_j_int(length(r, l));
    if (ig_j_same(name, IG_J_NAMED("revindex"))) return ig_j_int(length(r, l) - l->index0);
    if (ig_j_same(name, IG_J_NAMED("revindex0"))) return ig_j_int(length(r, l) - l->index0 - 1);
    if (ig_j_same(name, IG_J_NAMED("previtem"))) return l->before;
    if (ig_j_same(name, IG_J_NAMED("nextitem"))) return peek(r, l) ? l->after : ig_j_undefined(name);
    if (ig_j_same(name, IG_J_NAMED("depth"))) return ig_j_int(1);
    if (ig_j_same(name, IG_J_NAMED("depth0"))) return ig_j_int(0);
    const ig_j_builtin *method = ig_j_builtin_find(methods, IG_COUNT(methods), name);
    if (!method) return ig_j_undefined(name);
    ig_j_method *m = ig_j_take(r, sizeof *m);
    if (!m) return ig_j_none();
    *m = (ig_j_method){{.kind = IG_J_LOOP, .loop = l}, method};
    return (ig_j_value){.kind = IG_J_METHOD, .method = m};
}

static ig_j_loop *new_loop(ig_j_render *r, const ig_j_node *n) {
    ig_j_list items = ig_j_iterate(r, ig_j_eval(r, n->b));
    ig_j_loop *l = ig_j_take(r, sizeof *l);
    if (!l) return NULL;
    *l =
        (ig_j_loop){.node = n, .scope = r->scope, .items = items, .index0 = -1, .length = n->d ? -1 : (int64_t)items.n};
    l->now = ig_j_undefined(IG_J_NAMED("previtem"));
    return l;
}

static void exec_for(ig_j_render *r, const ig_j_node *n) {
    ig_j_loop *l = new_loop(r, n);
    ig_j_scope *outer = r->scope, *inner = l ? push_scope(r, outer) : NULL;
    bool any = false; /* as in Jinja, a first turn that is left early is none */
    while (inner && step(r, l)) {
        r->scope = inner;
        inner->names.n = 0; /* what a turn assigns is forgotten in the next */
        define(r, IG_J_NAMED("loop"), (ig_j_value){.kind = IG_J_LOOP, .loop = l});
        assign(r, n->a, l->now);
        ig_j_exec(r, n->c);
        ig_j_jump jump = r->jump;
        r->jump = IG_J_JUMP_NONE;
        if (jump == IG_J_JUMP_BREAK) break;
        any = any || !jump;
    }
    if (!any && n->e && push_scope(r, outer)) ig_j_exec(r, n->e);
    r->scope = outer;
}

/* -------------------------------------------------------------------------- */

void ig_j_exec(ig_j_render *r, const ig_j_node *body) {
    static void (*const kinds[])(ig_j_render * r, const ig_j_node *n) = {
        [IG_J_NODE_OUTPUT] = exec_output,
        [IG_J_NODE_IF] = exec_if,
        [IG_J_NODE_FOR] = exec_for,
        [IG_J_NODE_SET] = exec_set,
        [IG_J_NODE_SET_BLOCK] = exec_set_block,
        [IG_J_NODE_MACRO] = exec_macro,
        [IG_J_NODE_CALL_BLOCK] = exec_call_block,
        [IG_J_NODE_FILTER_BLOCK] = exec_filter_block,
        [IG_J_NODE_WITH] = exec_with,
        [IG_J_NODE_BREAK] = exec_break,
        [IG_J_NODE_CONTINUE] = exec_break,
    };
    if (!body || !ig_j_enter(r)) return;
    for (const ig_j_node *n = body; n && !r->status && !r->jump; n = n->next) {
        r->line = n->line;
        kinds[n->kind](r, n);
    }
    r->depth--;
}
