/* SPDX-License-Identifier: Apache-2.0
 *
 * What translations of requests to those of a chat have in common.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <stdlib.h>
#include <string.h>

bool ig_is_type(const json_t *object, const char *type) {
    const char *own = json_string_value(ig_field(object, "type"));
    return own && strcmp(own, type) == 0;
}

/* ---- the chat's body -------------------------------------------------------------------------- */

void ig_translation_set(ig_translation *t, json_t *object, const char *name, json_t *value) {
    t->ok &= json_object_set_new(object, name, value) == 0;
}

void ig_translation_append(ig_translation *t, json_t *list, json_t *value) {
    t->ok &= json_array_append_new(list, value) == 0;
}

void ig_translation_drop(ig_translation *t, const char *const *names) {
    for (; *names; names++) json_object_del(t->out, *names);
}

bool ig_translation_refuses(const ig_translation *t, const char *const *names) {
    for (; *names; names++)
        if (ig_field(t->body, *names))
            return !ig_refuse(t->call, 400, *names, "%s is no field of %s", *names, t->call->route->path);
    return false;
}

json_t *ig_translate(ig_call *c, const json_t *body, bool (*translate)(ig_translation *t)) {
    ig_translation t = {.call = c, .body = body, .out = json_copy((json_t *)body), .messages = json_array()};
    t.ok = json_object_size(t.out) == json_object_size(body); /* a copy leaves out what there is no memory for */
    bool ok = translate(&t);
    ig_translation_set(&t, t.out, "messages", t.messages);
    if (ok && !t.ok) ok = ig_refuse(c, 500, NULL, "out of memory for a conversation");
    if (ok) return t.out;
    json_decref(t.out);
    return NULL;
}

void ig_translation_think(ig_translation *t, bool thinks) {
    json_t *variables = ig_field(t->out, "chat_template_kwargs");
    if (variables && !json_is_object(variables)) return; /* which is refused later */
    variables = variables ? json_copy(variables) : json_object();
    ig_translation_set(t, variables, "enable_thinking", json_boolean(thinks));
    ig_translation_set(t, t->out, "chat_template_kwargs", variables);
}

static void note_tool(const ig_translation *t, const json_t *tool) {
    const char *type = json_string_value(ig_field(tool, "type"));
    ig_field_note_tool(t->call->server, type ? type : "?");
}

bool ig_translation_tools(ig_translation *t, const char *type, bool is_said, const char *schema) {
    json_t *list = ig_field(t->body, "tools"), *tool;
    size_t i;
    if (!list) return true;
    if (!json_is_array(list)) return ig_refuse(t->call, 400, "tools", "tools must be a list");
    json_t *out = json_array();
    json_array_foreach(list, i, tool) {
        if (json_is_object(tool) && !ig_is_type(tool, type) && (is_said || ig_field(tool, "type"))) {
            note_tool(t, tool); /* such as a search, that agents add by themselves */
            continue;
        }
        ig_translation_append(t, out,
                              json_pack("{s:s, s:{s:O*, s:O*, s:O*, s:O*}}", "type", "function", "function", "name",
                                        ig_field(tool, "name"), "description", ig_field(tool, "description"),
                                        "parameters", ig_field(tool, schema), "strict", ig_field(tool, "strict")));
    }
    ig_translation_set(t, t->out, "tools", out);
    return true;
}

/* ---- an assistant's message ---------------------------------------------------------------------- */

void ig_said_begin(ig_translation *t, ig_said *a) {
    *a = (ig_said){.texts = json_array(), .calls = json_array()};
    a->to = open_memstream(&a->thoughts, &a->n_thoughts);
    t->ok &= a->to != NULL;
}

void ig_said_think(ig_translation *t, ig_said *a, const char *text) { t->ok &= a->to && fputs(text, a->to) >= 0; }

void ig_said_end(ig_translation *t, ig_said *a) {
    bool has_texts = json_array_size(a->texts) > 0, has_calls = json_array_size(a->calls) > 0;
    json_t *message = json_pack("{s:s, s:O}", "role", "assistant", "content", a->texts);
    t->ok &= a->to && fclose(a->to) == 0;
    if (a->n_thoughts) ig_translation_set(t, message, "reasoning_content", json_stringn(a->thoughts, a->n_thoughts));
    if (has_calls) t->ok &= json_object_set(message, "tool_calls", a->calls) == 0;
    if (has_calls && !has_texts) ig_translation_set(t, message, "content", json_null());
    ig_translation_append(t, t->messages, message);
    json_decref(a->texts);
    json_decref(a->calls);
    free(a->thoughts);
}

/* ---- counting ------------------------------------------------------------------------------------ */

void ig_translation_count(ig_call *c, const ig_api *api, const char *object) {
    json_t *given = ig_body_object(c), *body = given ? api->translate(c, given) : NULL;
    char *text = NULL;
    ig_token_list ids = {0};
    size_t n = 0;
    bool are_more;
    if (body && ig_field_model(c, body) && ig_conversation_prompt(c, body, &text, &n, NULL) &&
        ig_tokens_up_to(c, "messages", text, n, IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL,
                        IG_SERVER_NODES_MAX, &ids, &are_more) &&
        (!are_more || ig_refuse(c, 400, "messages", "messages have more than %d tokens", IG_SERVER_NODES_MAX)))
        ig_reply_json(c, json_pack("{s:s*, s:I}", "object", object, "input_tokens", (json_int_t)ids.n));
    free(ids.v);
    free(text);
    json_decref(body);
    json_decref(given);
}
