/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation and what else a body says of its prompt, as the variables of the model's chat template.
 */
#define _GNU_SOURCE
#include "server/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of "content": a string, or parts of text, which are joined; NULL: refused. */
static json_t *read_content(ig_call *c, json_t *content, const char *where) {
    size_t i, n = 0;
    json_t *part, *joined = NULL;
    char *text = NULL;
    if (json_is_string(content)) return json_incref(content);
    bool ok = json_is_array(content) || ig_refuse(c, 400, where, "%s must be a string or a list of parts", where);
    FILE *to = ok ? open_memstream(&text, &n) : NULL;
    json_array_foreach(content, i, part) {
        const char *type = json_string_value(ig_field(part, "type")), *own = json_string_value(ig_field(part, "text"));
        if (ok && (!type || strcmp(type, "text") != 0 || !own))
            ok = ig_refuse(c, 400, where, "%s[%zu]: only parts of type text are supported", where, i);
        if (to && ok) fputs(own, to);
    }
    bool has_failed = !to || ferror(to);
    if (to) has_failed |= fclose(to) != 0;
    if (ok && !has_failed) joined = json_stringn(text, n);
    if (ok && !joined) ig_refuse(c, 500, NULL, "out of memory for %s", where);
    free(text);
    return joined;
}

static bool add_message(ig_call *c, json_t *list, const json_t *m, size_t i) {
    static const char *const known[] = {"role", "content", NULL};
    char where[64];
    snprintf(where, sizeof where, "messages[%zu].", i);
    if (!json_is_object(m)) return ig_refuse(c, 400, "messages", "messages[%zu] must be an object", i);
    if (!ig_field_others(c, m, where, known)) return false;
    const char *role = json_string_value(ig_field(m, "role"));
    snprintf(where, sizeof where, "messages[%zu].role", i);
    if (!role) return ig_refuse(c, 400, where, "%s must be a string", where);
    if (strcmp(role, "developer") == 0) role = "system";
    if (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)
        return ig_refuse(c, 400, where, "%s: '%.32s' is not supported: system, developer, user, assistant are", where,
                         role);
    snprintf(where, sizeof where, "messages[%zu].content", i);
    json_t *content = read_content(c, ig_field(m, "content"), where);
    return content && (json_array_append_new(list, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0 ||
                       ig_refuse(c, 500, NULL, "out of memory for %s", where));
}

/* What a template may be told beside the conversation, such as Qwen3's "enable_thinking". */
static bool add_others(ig_call *c, json_t *variables, const json_t *body) {
    static const char field[] = "chat_template_kwargs";
    json_t *others = ig_field(body, field), *value;
    const char *name;
    if (others && !json_is_object(others)) return ig_refuse(c, 400, field, "%s must be an object", field);
    json_object_foreach(others, name, value) {
        if (json_object_get(variables, name)) return ig_refuse(c, 400, field, "%s: '%.32s' is not one", field, name);
    }
    return !others || json_object_update(variables, others) == 0 ||
           ig_refuse(c, 500, NULL, "out of memory for %s", field);
}

/* A template that cannot do something with these messages is theirs to know, too. */
static bool refuse_prompt(ig_call *c, const ig_error *err) {
    return ig_refuse(c, err->status == IG_E_MEMORY ? 500 : 400, "messages", "%s", err->text);
}

static bool render(ig_call *c, const json_t *variables, char **text, size_t *n_text) {
    ig_error err = {0};
    const ig_model *model = c->server->o->model;
    char *all = json_dumps(variables, JSON_COMPACT | JSON_REAL_PRECISION(17));
    size_t n = all ? strlen(all) : 0;
    bool ok = all || ig_refuse(c, 500, NULL, "out of memory for a conversation");
    if (ok && ig_chat_prompt_json(n_text, model, all, n, NULL, 0, &err)) ok = refuse_prompt(c, &err);
    if (ok && !(*text = malloc(*n_text + 1))) ok = ig_refuse(c, 500, NULL, "out of memory for %zu bytes", *n_text);
    if (ok && ig_chat_prompt_json(n_text, model, all, n, *text, *n_text + 1, &err)) ok = refuse_prompt(c, &err);
    free(all);
    return ok;
}

bool ig_conversation_prompt(ig_call *c, const json_t *body, char **text, size_t *n_text) {
    const json_t *messages = ig_field(body, "messages");
    size_t n = json_array_size(messages);
    bool begins_answer = true;
    *text = NULL;
    if (!ig_field_bool(c, body, "add_generation_prompt", &begins_answer)) return false;
    if (!json_is_array(messages) || n == 0) return ig_refuse(c, 400, "messages", "messages must be a list, not empty");
    json_t *list = json_array();
    json_t *variables = json_pack("{s:O, s:b}", "messages", list, "add_generation_prompt", begins_answer);
    bool ok = variables || ig_refuse(c, 500, NULL, "out of memory for %zu messages", n);
    for (size_t i = 0; i < n && ok; i++) ok = add_message(c, list, json_array_get(messages, i), i);
    ok = ok && add_others(c, variables, body) && render(c, variables, text, n_text);
    json_decref(variables);
    json_decref(list);
    return ok;
}
