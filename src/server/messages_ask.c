/* SPDX-License-Identifier: Apache-2.0
 *
 * A body of /v1/messages as one of /v1/chat/completions. What is not translated stays as it is, so that fields of the
 * sampler and of this server are taken here as well.
 */
#define _GNU_SOURCE
#include "server/api.h"

#include <stdio.h>
#include <string.h>

/* ---- messages ------------------------------------------------------------------------------- */

static bool add_block(ig_translation *t, ig_said *a, json_t *block, const char *where) {
    if (ig_is_type(block, "text")) {
        t->ok &= json_array_append(a->texts, block) == 0;
    } else if (ig_is_type(block, "thinking")) {
        const char *text = NULL;
        if (!ig_field_text(t->call, block, "thinking", &text)) return false;
        ig_said_think(t, a, text ? text : "");
    } else if (ig_is_type(block, "tool_use")) {
        json_t *input = ig_field(block, "input");
        const char *id = NULL, *name = NULL;
        if (!ig_field_text(t->call, block, "id", &id) || !ig_field_text(t->call, block, "name", &name)) return false;
        if (!name || (input && !json_is_object(input)))
            return ig_refuse(t->call, 400, where, "%s: a tool_use has a name, and an object as input", where);
        ig_translation_append(t, a->calls,
                              json_pack("{s:s*, s:s, s:{s:s, s:O*}}", "id", id, "type", "function", "function", "name",
                                        name, "arguments", input));
    } else if (!ig_is_type(block, "redacted_thinking")) {
        return ig_refuse(t->call, 400, where,
                         "%s: of an assistant only blocks of type text, thinking and tool_use are supported", where);
    }
    return true;
}

/* An answer that is the last message is gone on with. */
static bool add_answer(ig_translation *t, const json_t *content, size_t number, bool is_last) {
    size_t i;
    ig_said a;
    json_t *block;
    char where[64];
    bool ok = true;
    ig_said_begin(t, &a);
    json_array_foreach(content, i, block) {
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", number, i);
        ok = ok && add_block(t, &a, block, where);
    }
    if (is_last && json_array_size(a.calls) == 0) {
        ig_translation_set(t, t->out, "continue_final_message", json_true());
        ig_translation_set(t, t->out, "add_generation_prompt", json_false());
    }
    ig_said_end(t, &a);
    return ok;
}

/* Takes `texts`, if there are any: a message. */
static void end_texts(ig_translation *t, const char *role, json_t **texts) {
    if (json_array_size(*texts))
        ig_translation_append(t, t->messages, json_pack("{s:s, s:o}", "role", role, "content", *texts));
    else
        json_decref(*texts);
    *texts = NULL;
}

/* The text of a document that is nothing else. */
static json_t *document_text(const json_t *block) {
    const json_t *source = ig_field(block, "source");
    return ig_is_type(block, "document") && ig_is_type(source, "text") ? ig_field(source, "data") : NULL;
}

/* What tools have returned are messages of their own in a chat. */
static bool add_question(ig_translation *t, const char *role, const json_t *content, size_t number) {
    size_t i;
    json_t *block, *texts = NULL;
    bool ok = true, is_user = strcmp(role, "user") == 0;
    json_array_foreach(content, i, block) {
        char where[64];
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", number, i);
        if (ig_is_type(block, "tool_result") && is_user) {
            json_t *result = ig_field(block, "content");
            const char *id = NULL;
            ok = ok && ig_field_text(t->call, block, "tool_use_id", &id);
            end_texts(t, role, &texts);
            ig_translation_append(t, t->messages,
                                  json_pack("{s:s, s:s*, s:o}", "role", "tool", "tool_call_id", id, "content",
                                            result ? json_incref(result) : json_string("")));
        } else if (ig_is_type(block, "text")) {
            if (!texts) texts = json_array();
            t->ok &= json_array_append(texts, block) == 0;
        } else if (is_user && document_text(block)) {
            if (!texts) texts = json_array();
            ig_translation_append(t, texts, json_pack("{s:s, s:O}", "type", "text", "text", document_text(block)));
        } else {
            ok = ig_refuse(t->call, 400, where, "%s: of a %s only blocks of type %s are supported", where, role,
                           is_user ? "text, tool_result and document (of plain text)" : "text");
        }
    }
    end_texts(t, role, &texts);
    return ok;
}

static bool add_messages(ig_translation *t, const json_t *list) {
    size_t i;
    json_t *m;
    if (json_array_size(list) == 0) return ig_refuse(t->call, 400, "messages", "messages must be a list, not empty");
    json_array_foreach(list, i, m) {
        json_t *content = ig_field(m, "content");
        const char *role = NULL;
        if (!ig_field_text(t->call, m, "role", &role)) return false;
        bool is_answer = role && strcmp(role, "assistant") == 0, is_system = role && strcmp(role, "system") == 0;
        if (!is_answer && !is_system && !(role && strcmp(role, "user") == 0))
            return ig_refuse(t->call, 400, "messages", "messages[%zu].role must be user, assistant or system", i);
        if (!json_is_string(content) && !json_is_array(content))
            return ig_refuse(t->call, 400, "messages", "messages[%zu].content must be a string or a list of blocks", i);
        json_t *blocks =
            json_is_array(content) ? json_incref(content) : json_pack("[{s:s, s:O}]", "type", "text", "text", content);
        bool ok =
            is_answer ? add_answer(t, blocks, i, i + 1 == json_array_size(list)) : add_question(t, role, blocks, i);
        t->ok &= blocks != NULL;
        json_decref(blocks);
        if (!ok) return false;
    }
    return true;
}

/* ---- tools ---------------------------------------------------------------------------------- */

static bool add_choice(ig_translation *t, const json_t *choice) {
    bool is_single = false;
    if (!choice) return true;
    if (!ig_field_bool(t->call, choice, "disable_parallel_tool_use", &is_single)) return false;
    if (is_single) ig_translation_set(t, t->out, "parallel_tool_calls", json_false());
    if (ig_is_type(choice, "tool"))
        ig_translation_set(
            t, t->out, "tool_choice",
            json_pack("{s:s, s:{s:O*}}", "type", "function", "function", "name", ig_field(choice, "name")));
    else if (ig_is_type(choice, "any"))
        ig_translation_set(t, t->out, "tool_choice", json_string("required"));
    else if (ig_is_type(choice, "none"))
        ig_translation_set(t, t->out, "tool_choice", json_string("none"));
    else if (!ig_is_type(choice, "auto"))
        return ig_refuse(t->call, 400, "tool_choice", "tool_choice must be of type auto, any, tool or none");
    return true;
}

/* ---- the rest --------------------------------------------------------------------------------- */

static bool add_thinking(ig_translation *t, const json_t *thinking) {
    if (!thinking || ig_is_type(thinking, "adaptive")) return true;
    bool is_on = ig_is_type(thinking, "enabled") || ig_is_type(thinking, "between_tools");
    if (!is_on && !ig_is_type(thinking, "disabled"))
        return ig_refuse(t->call, 400, "thinking",
                         "thinking must be of type enabled, between_tools, disabled or adaptive");
    ig_translation_think(t, is_on);
    return true;
}

static bool add_format(ig_translation *t, const json_t *format, const char *name) {
    if (!format) return true;
    if (!ig_is_type(format, "json_schema") || !ig_field(format, "schema"))
        return ig_refuse(t->call, 400, name, "%s must be of type json_schema, with a schema", name);
    ig_translation_set(t, t->out, "response_format",
                       json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer",
                                 "schema", ig_field(format, "schema")));
    return true;
}

/* How much is to be thought, and the form of the answer, which used to stand by itself. */
static bool add_output(ig_translation *t, const json_t *config) {
    json_t *effort = ig_field(config, "effort");
    if (config && !json_is_object(config))
        return ig_refuse(t->call, 400, "output_config", "output_config must be an object");
    if (effort) t->ok &= json_object_set(t->out, "reasoning_effort", effort) == 0;
    return add_format(t, ig_field(t->body, "output_format"), "output_format") &&
           add_format(t, ig_field(config, "format"), "output_config.format");
}

static bool translate(ig_translation *t) {
    static const char *const absent[] = {"n", "best_of", "logprobs", "top_logprobs", "stream_options", "stop", NULL},
                             *const theirs[] = {
                                 "system",        "tools",         "tool_choice", "stop_sequences",     "thinking",
                                 "output_config", "output_format", "metadata",    "context_management", NULL};
    const json_t *body = t->body;
    json_t *system = ig_field(body, "system"), *stops = ig_field(body, "stop_sequences");
    if (ig_translation_refuses(t, absent)) return false;
    if (ig_field(body, IG_MESSAGES_THREAD))
        return ig_refuse(t->call, 400, IG_MESSAGES_THREAD, "conversations are not kept: send all messages");
    ig_translation_drop(t, theirs);
    if (system) ig_translation_append(t, t->messages, json_pack("{s:s, s:O}", "role", "system", "content", system));
    if (stops) t->ok &= json_object_set(t->out, "stop", stops) == 0;
    return add_messages(t, ig_field(body, "messages")) && ig_translation_tools(t, "custom", false, "input_schema") &&
           add_choice(t, ig_field(body, "tool_choice")) && add_thinking(t, ig_field(body, "thinking")) &&
           add_output(t, ig_field(body, "output_config"));
}

json_t *ig_messages_body(ig_call *c, const json_t *body) { return ig_translate(c, body, translate); }

void ig_route_count_tokens(ig_call *c) { ig_translation_count(c, &ig_api_messages, NULL); }
