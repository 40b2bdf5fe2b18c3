/* SPDX-License-Identifier: Apache-2.0
 *
 * The form that a request wants its answers to have, as a grammar: in OpenAI's words, in llama.cpp's and in vLLM's.
 */
#define _GNU_SOURCE
#include "server/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a field says, as GBNF in *out; false: refused. */
typedef bool (*form_fn)(char **out, ig_call *c, const char *field, const json_t *v);

static bool refuse_form(ig_call *c, const char *field, const ig_error *err) {
    return ig_refuse(c, err->status == IG_E_MEMORY ? 500 : 400, field, "%s: %s", field, err->text);
}

static bool take_schema_text(char **out, ig_call *c, const char *field, const char *text, size_t n) {
    ig_error err;
    return !ig_schema_to_gbnf(out, text, n, &err) || refuse_form(c, field, &err);
}

/* An object, or a text that holds it. */
static bool take_schema(char **out, ig_call *c, const char *field, const json_t *v) {
    if (json_is_string(v)) return take_schema_text(out, c, field, json_string_value(v), json_string_length(v));
    char *text = ig_text_of_json(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!text) return ig_refuse(c, 500, NULL, "out of memory for %s", field);
    bool ok = take_schema_text(out, c, field, text, strlen(text));
    free(text);
    return ok;
}

static bool take_any_object(char **out, ig_call *c, const char *field, const json_t *v) {
    static const char schema[] = "{\"type\":\"object\"}";
    if (!json_is_boolean(v)) return ig_refuse(c, 400, field, "%s must be true or false", field);
    return json_is_false(v) || take_schema_text(out, c, field, schema, sizeof schema - 1);
}

static bool take_grammar(char **out, ig_call *c, const char *field, const json_t *v) {
    ig_error err;
    const char *text = json_string_value(v);
    if (!text) return ig_refuse(c, 400, field, "%s must be a string", field);
    if (!*text) return true;
    if (ig_grammar_check(text, &err)) return refuse_form(c, field, &err);
    *out = strdup(text);
    return *out || ig_refuse(c, 500, NULL, "out of memory for %s", field);
}

static bool take_regex(char **out, ig_call *c, const char *field, const json_t *v) {
    ig_error err;
    const char *text = json_string_value(v);
    if (!text) return ig_refuse(c, 400, field, "%s must be a string", field);
    return !*text || !ig_regex_to_gbnf(out, text, &err) || refuse_form(c, field, &err);
}

void ig_form_literal(FILE *to, const char *text, size_t n) {
    fputs(" \"", to);
    for (; n; n--, text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            fprintf(to, "\\x%02x", (unsigned)*text);
        else
            fputc(*text, to);
    fputc('"', to);
}

static bool take_choice(char **out, ig_call *c, const char *field, const json_t *v) {
    size_t i, n = 0;
    json_t *text;
    if (!json_is_array(v)) return ig_refuse(c, 400, field, "%s must be a list of strings", field);
    if (json_array_size(v) == 0) return true;
    json_array_foreach(v, i, text) {
        if (!json_is_string(text)) return ig_refuse(c, 400, field, "%s: item %zu is no string", field, i);
    }
    FILE *to = open_memstream(out, &n);
    if (to) fputs("root ::= ", to);
    json_array_foreach(v, i, text) {
        if (to && i) fputs(" | ", to);
        if (to) ig_form_literal(to, json_string_value(text), json_string_length(text));
    }
    bool failed = !to || ferror(to);
    if ((to && fclose(to)) || failed) return ig_refuse(c, 500, NULL, "out of memory for %s", field);
    return true;
}

/* ---- where they stand -------------------------------------------------------------------------------- */

typedef struct form {
    const char *name;
    form_fn take;
} form;

static const form top_level[] = {{"grammar", take_grammar},
                                 {"json_schema", take_schema},
                                 {"guided_grammar", take_grammar},
                                 {"guided_json", take_schema},
                                 {"guided_json_object", take_any_object},
                                 {"guided_choice", take_choice},
                                 {"guided_regex", take_regex},
                                 {"regex", take_regex},
                                 {NULL, NULL}};
static const form structured[] = {{"grammar", take_grammar}, {"json", take_schema}, {"json_object", take_any_object},
                                  {"choice", take_choice},   {"regex", take_regex}, {NULL, NULL}};

/* Those of a list that an object has. A request has one form. */
static bool take_forms(ig_exchange *x, const json_t *object, const char *where, const form *list) {
    for (; list->name; list++) {
        const json_t *v = ig_field(object, list->name);
        char field[64], *gbnf = NULL;
        if (!v) continue;
        snprintf(field, sizeof field, "%s%s", where, list->name);
        if (!list->take(&gbnf, x->call, field, v)) return false;
        if (gbnf && x->grammar) {
            free(gbnf);
            return ig_refuse(x->call, 400, field, "%s: the answer has another form already", field);
        }
        if (gbnf) x->grammar = gbnf;
    }
    return true;
}

/* OpenAI's. An object may have a schema, as llama.cpp has it. */
static bool take_response_format(ig_exchange *x) {
    static const form schema[] = {{"schema", take_schema}, {"value", take_schema}, {NULL, NULL}};
    const json_t *v = ig_field(x->body, "response_format"), *inner = ig_field(v, "json_schema");
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!v || (type && strcmp(type, "text") == 0)) return true;
    if (type && strcmp(type, "json_object") == 0) {
        if (ig_field(v, "schema") || ig_field(v, "value")) return take_forms(x, v, "response_format.", schema);
        return take_any_object(&x->grammar, x->call, "response_format", json_true());
    }
    if (!type || strcmp(type, "json_schema") != 0)
        return ig_refuse(x->call, 400, "response_format",
                         "response_format: type must be text, json_object or json_schema");
    if (!inner && ig_field(v, "schema")) return take_forms(x, v, "response_format.", schema); /* llama-server's */
    if (!ig_field(inner, "schema"))
        return ig_refuse(x->call, 400, "response_format", "response_format: json_schema.schema is missing");
    return take_forms(x, inner, "response_format.json_schema.", schema);
}

bool ig_exchange_read_form(ig_exchange *x) {
    const json_t *v = ig_field(x->body, "structured_outputs");
    static const char *const known[] = {"grammar", "json", "json_object", "choice", "regex", NULL};
    if (v && !json_is_object(v))
        return ig_refuse(x->call, 400, "structured_outputs", "structured_outputs must be an object");
    return take_response_format(x) && take_forms(x, x->body, "", top_level) &&
           (!v || (ig_field_only(x->call, v, "structured_outputs.", known) &&
                   take_forms(x, v, "structured_outputs.", structured)));
}
