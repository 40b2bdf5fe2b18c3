/* SPDX-License-Identifier: Apache-2.0
 *
 * What `is` can ask.
 */
#include "jinja/node.h"

static bool is_kind(const ig_j_call *c, ig_j_kind kind) { return c->self.kind == kind; }

#define KIND_TEST(name, kind) \
    static ig_j_value name(ig_j_render *r, ig_j_call *c) { return (void)r, ig_j_bool(is_kind(c, kind)); }
KIND_TEST(test_undefined, IG_J_UNDEFINED)
KIND_TEST(test_none, IG_J_NONE)
KIND_TEST(test_boolean, IG_J_BOOL)
KIND_TEST(test_integer, IG_J_INT)
KIND_TEST(test_float, IG_J_FLOAT)
KIND_TEST(test_string, IG_J_STRING)
KIND_TEST(test_mapping, IG_J_DICT)

static ig_j_value test_defined(ig_j_render *r, ig_j_call *c) { return (void)r, ig_j_bool(!is_kind(c, IG_J_UNDEFINED)); }
static ig_j_value test_true(ig_j_render *r, ig_j_call *c) {
    return (void)r, ig_j_bool(is_kind(c, IG_J_BOOL) && c->self.yes);
}
static ig_j_value test_false(ig_j_render *r, ig_j_call *c) {
    return (void)r, ig_j_bool(is_kind(c, IG_J_BOOL) && !c->self.yes);
}
static ig_j_value test_number(ig_j_render *r, ig_j_call *c) { return (void)r, ig_j_bool(ig_j_is_number(c->self)); }

/* Jinja's undefined values pass for both of these. */
static ig_j_value test_sequence(ig_j_render *r, ig_j_call *c) {
    ig_j_kind k = c->self.kind;
    return (void)r,
           ig_j_bool(k == IG_J_STRING || k == IG_J_LIST || k == IG_J_TUPLE || k == IG_J_DICT || k == IG_J_UNDEFINED);
}

static ig_j_value test_iterable(ig_j_render *r, ig_j_call *c) {
    ig_j_kind k = c->self.kind;
    return (void)r, ig_j_bool((k >= IG_J_STRING && k <= IG_J_DICT) || k == IG_J_LOOP || k == IG_J_UNDEFINED);
}

static ig_j_value test_callable(ig_j_render *r, ig_j_call *c) {
    return (void)r, ig_j_bool(c->self.kind >= IG_J_LOOP || is_kind(c, IG_J_UNDEFINED));
}

static ig_j_value test_lower(ig_j_render *r, ig_j_call *c) {
    return ig_j_bool(ig_j_is_case(r, ig_j_to_text(r, c->self), IG_J_LOWER));
}
static ig_j_value test_upper(ig_j_render *r, ig_j_call *c) {
    return ig_j_bool(ig_j_is_case(r, ig_j_to_text(r, c->self), IG_J_UPPER));
}

/* ---- with an argument --------------------------------------------------------- */

#define RELATION_TEST(name, op) \
    static ig_j_value name(ig_j_render *r, ig_j_call *c) { return ig_j_bool(ig_j_relate(r, op, c->self, c->v[0])); }
RELATION_TEST(test_eq, IG_J_OP_EQ)
RELATION_TEST(test_ne, IG_J_OP_NE)
RELATION_TEST(test_lt, IG_J_OP_LT)
RELATION_TEST(test_le, IG_J_OP_LE)
RELATION_TEST(test_gt, IG_J_OP_GT)
RELATION_TEST(test_ge, IG_J_OP_GE)
RELATION_TEST(test_in, IG_J_OP_IN)

static ig_j_value test_sameas(ig_j_render *r, ig_j_call *c) {
    return ig_j_bool(c->self.kind == c->v[0].kind && ig_j_equal(r, c->self, c->v[0]));
}

static ig_j_value rest_is(ig_j_render *r, ig_j_value v, ig_j_value by, int64_t rest) {
    return ig_j_bool(ig_j_equal(r, ig_j_operate(r, IG_J_OP_MOD, v, by), ig_j_int(rest)));
}

static ig_j_value test_odd(ig_j_render *r, ig_j_call *c) { return rest_is(r, c->self, ig_j_int(2), 1); }
static ig_j_value test_even(ig_j_render *r, ig_j_call *c) { return rest_is(r, c->self, ig_j_int(2), 0); }
static ig_j_value test_divisible(ig_j_render *r, ig_j_call *c) { return rest_is(r, c->self, c->v[0], 0); }
static ig_j_value test_filter(ig_j_render *r, ig_j_call *c) {
    return (void)r, ig_j_bool(is_kind(c, IG_J_STRING) && ig_j_filter_named(c->self.text));
}
static ig_j_value test_test(ig_j_render *r, ig_j_call *c) {
    return (void)r, ig_j_bool(is_kind(c, IG_J_STRING) && ig_j_test_named(c->self.text));
}

static const ig_j_builtin tests[] = {
    {"defined", test_defined, "", 0},
    {"undefined", test_undefined, "", 0},
    {"none", test_none, "", 0},
    {"boolean", test_boolean, "", 0},
    {"true", test_true, "", 0},
    {"false", test_false, "", 0},
    {"integer", test_integer, "", 0},
    {"float", test_float, "", 0},
    {"number", test_number, "", 0},
    {"string", test_string, "", 0},
    {"mapping", test_mapping, "", 0},
    {"sequence", test_sequence, "", 0},
    {"iterable", test_iterable, "", 0},
    {"callable", test_callable, "", 0},
    {"lower", test_lower, "", 0},
    {"upper", test_upper, "", 0},
    {"eq == equalto", test_eq, "other", 1},
    {"ne !=", test_ne, "other", 1},
    {"lt < lessthan", test_lt, "other", 1},
    {"le <=", test_le, "other", 1},
    {"gt > greaterthan", test_gt, "other", 1},
    {"ge >=", test_ge, "other", 1},
    {"in", test_in, "seq", 1},
    {"sameas", test_sameas, "other", 1},
    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},
    {"divisibleby", test_divisible, "num", 1},
    {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},
};

const ig_j_builtin *ig_j_test_named(ig_text name) { return ig_j_builtin_find(tests, IG_COUNT(tests), name); }
