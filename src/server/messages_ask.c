/* SPDX-License-Identifier: Apache-2.0
 *
 * A body of /v1/messages as one of /v1/chat/completions. What is not translated stays as it is, so that fields of the
 * sampler and of this server are taken here as well.
 */
#define _GNU_SOURCE
#include "server/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct translation {
    ig_call *call;
    json_t *out;      /* the chat's body */
    json_t *messages; /* of it */
    bool ok;          /* there was memory for all of it so far */
} translation;

static bool is_type(const json_t *block, const char *type) {
    const char *own = json_string_value(ig_field(block, "type"));
    return own && strcmp(own, type) == 0;
}

/* Takes `value`. */
static void set(translation *t, json_t *object, const char *name, json_t *value) {
    t->ok &= json_object_set_new(object, name, value) == 0;
}

/* The same. */
static void append(translation *t, json_t *list, json_t *value) { t->ok &= json_array_append_new(list, value) == 0; }

/* ---- messages ------------------------------------------------------------------------------- */

/* The blocks of an assistant, of which its message in a chat is made. */
typedef struct answer {
    json_t *texts, *calls;
    FILE *thoughts; /* all of them, one behind the other */
} answer;

static bool add_block(translation *t, answer *a, json_t *block, const char *where) {
    if (is_type(block, "text")) {
        t->ok &= json_array_append(a->texts, block) == 0;
    } else if (is_type(block, "thinking")) {
        const char *text = NULL;
        if (!ig_field_text(t->call, block, "thinking", &text)) return false;
        t->ok &= a->thoughts && fputs(text ? text : "", a->thoughts) >= 0;
    } else if (is_type(block, "tool_use")) {
        json_t *input = ig_field(block, "input");
        const char *id = NULL, *name = NULL;
        if (!ig_field_text(t->call, block, "id", &id) || !ig_field_text(t->call, block, "name", &name)) return false;
        if (!name || (input && !json_is_object(input)))
            return ig_refuse(t->call, 400, where, "%s: a tool_use has a name, and an object as input", where);
        append(t, a->calls,
               json_pack("{s:s*, s:s, s:{s:s, s:O*}}", "id", id, "type", "function", "function", "name", name,
                         "arguments", input));
    } else if (!is_type(block, "redacted_thinking")) {
        return ig_refuse(t->call, 400, where,
                         "%s: of an assistant only blocks of type text, thinking and tool_use are supported", where);
    }
    return true;
}

/* An answer that is the last message is gone on with. */
static bool add_answer(translation *t, const json_t *content, size_t number, bool is_last) {
    char *thoughts = NULL;
    size_t i, n_thoughts = 0;
    answer a = {json_array(), json_array(), open_memstream(&thoughts, &n_thoughts)};
    json_t *block;
    char where[64];
    bool ok = true;
    json_array_foreach(content, i, block) {
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", number, i);
        ok = ok && add_block(t, &a, block, where);
    }
    bool has_calls = json_array_size(a.calls) > 0;
    json_t *message = json_pack("{s:s, s:O}", "role", "assistant", "content", a.texts);
    t->ok &= a.thoughts && fclose(a.thoughts) == 0;
    if (n_thoughts) set(t, message, "reasoning_content", json_stringn(thoughts, n_thoughts));
    if (has_calls) t->ok &= json_object_set(message, "tool_calls", a.calls) == 0;
    if (has_calls && json_array_size(a.texts) == 0) set(t, message, "content", json_null());
    append(t, t->messages, message);
    if (is_last && !has_calls) {
        set(t, t->out, "continue_final_message", json_true());
        set(t, t->out, "add_generation_prompt", json_false());
    }
    json_decref(a.texts);
    json_decref(a.calls);
    free(thoughts);
    return ok;
}

/* Takes `texts`, if there are any: a user's message. */
static void end_texts(translation *t, json_t **texts) {
    if (json_array_size(*texts))
        append(t, t->messages, json_pack("{s:s, s:o}", "role", "user", "content", *texts));
    else
        json_decref(*texts);
    *texts = NULL;
}

/* What tools have returned are messages of their own in a chat. */
static bool add_question(translation *t, const json_t *content, size_t number) {
    size_t i;
    json_t *block, *texts = NULL;
    bool ok = true;
    json_array_foreach(content, i, block) {
        char where[64];
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", number, i);
        if (is_type(block, "tool_result")) {
            json_t *result = ig_field(block, "content");
            const char *id = NULL;
            ok = ok && ig_field_text(t->call, block, "tool_use_id", &id);
            end_texts(t, &texts);
            append(t, t->messages,
                   json_pack("{s:s, s:s*, s:o}", "role", "tool", "tool_call_id", id, "content",
                             result ? json_incref(result) : json_string("")));
        } else if (is_type(block, "text")) {
            if (!texts) texts = json_array();
            t->ok &= json_array_append(texts, block) == 0;
        } else {
            ok = ig_refuse(t->call, 400, where, "%s: of a user only blocks of type text and tool_result are supported",
                           where);
        }
    }
    end_texts(t, &texts);
    return ok;
}

static bool add_messages(translation *t, const json_t *list) {
    size_t i;
    json_t *m;
    if (json_array_size(list) == 0) return ig_refuse(t->call, 400, "messages", "messages must be a list, not empty");
    json_array_foreach(list, i, m) {
        json_t *content = ig_field(m, "content");
        const char *role = NULL;
        if (!ig_field_text(t->call, m, "role", &role)) return false;
        bool is_answer = role && strcmp(role, "assistant") == 0;
        if (!is_answer && !(role && strcmp(role, "user") == 0))
            return ig_refuse(t->call, 400, "messages", "messages[%zu].role must be user or assistant", i);
        if (!json_is_string(content) && !json_is_array(content))
            return ig_refuse(t->call, 400, "messages", "messages[%zu].content must be a string or a list of blocks", i);
        json_t *blocks =
            json_is_array(content) ? json_incref(content) : json_pack("[{s:s, s:O}]", "type", "text", "text", content);
        bool ok = is_answer ? add_answer(t, blocks, i, i + 1 == json_array_size(list)) : add_question(t, blocks, i);
        t->ok &= blocks != NULL;
        json_decref(blocks);
        if (!ok) return false;
    }
    return true;
}

/* ---- tools ---------------------------------------------------------------------------------- */

static bool add_tools(translation *t, const json_t *list) {
    json_t *out = json_array(), *tool;
    size_t i;
    if (json_is_array(list)) set(t, t->out, "tools", out);
    if (!json_is_array(list)) json_decref(out);
    if (list && !json_is_array(list)) return ig_refuse(t->call, 400, "tools", "tools must be a list");
    json_array_foreach(list, i, tool) {
        const json_t *type = ig_field(tool, "type");
        if (type && !is_type(tool, "custom"))
            return ig_refuse(t->call, 400, "tools", "tools[%zu]: only those of type custom are supported", i);
        json_t *name = ig_field(tool, "name"), *words = ig_field(tool, "description"),
               *schema = ig_field(tool, "input_schema");
        append(t, out,
               json_pack("{s:s, s:{s:O*, s:O*, s:O*}}", "type", "function", "function", "name", name, "description",
                         words, "parameters", schema));
    }
    return true;
}

static bool add_choice(translation *t, const json_t *choice) {
    bool is_single = false;
    if (!choice) return true;
    if (!ig_field_bool(t->call, choice, "disable_parallel_tool_use", &is_single)) return false;
    if (is_single) set(t, t->out, "parallel_tool_calls", json_false());
    if (is_type(choice, "tool"))
        set(t, t->out, "tool_choice",
            json_pack("{s:s, s:{s:O*}}", "type", "function", "function", "name", ig_field(choice, "name")));
    else if (is_type(choice, "any"))
        set(t, t->out, "tool_choice", json_string("required"));
    else if (is_type(choice, "none"))
        set(t, t->out, "tool_choice", json_string("none"));
    else if (!is_type(choice, "auto"))
        return ig_refuse(t->call, 400, "tool_choice", "tool_choice must be of type auto, any, tool or none");
    return true;
}

/* ---- the rest --------------------------------------------------------------------------------- */

static bool add_thinking(translation *t, const json_t *thinking) {
    if (!thinking || is_type(thinking, "adaptive")) return true;
    bool is_on = is_type(thinking, "enabled");
    if (!is_on && !is_type(thinking, "disabled"))
        return ig_refuse(t->call, 400, "thinking", "thinking must be of type enabled, disabled or adaptive");
    set(t, t->out, "chat_template_kwargs", json_pack("{s:b}", "enable_thinking", is_on));
    return true;
}

/* How much is to be thought, and the form of the answer. */
static bool add_output(translation *t, const json_t *config) {
    json_t *format = ig_field(config, "format"), *effort = ig_field(config, "effort");
    if (config && !json_is_object(config))
        return ig_refuse(t->call, 400, "output_config", "output_config must be an object");
    if (effort) t->ok &= json_object_set(t->out, "reasoning_effort", effort) == 0;
    if (!format) return true;
    if (!is_type(format, "json_schema") || !ig_field(format, "schema"))
        return ig_refuse(t->call, 400, "output_config",
                         "output_config.format must be of type json_schema, with a schema");
    set(t, t->out, "response_format",
        json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema", "name", "answer", "schema",
                  ig_field(format, "schema")));
    return true;
}

/* What a chat may be asked for, and these replies have no place for. */
static bool check_others(ig_call *c, const json_t *body) {
    static const char *const names[] = {"n", "best_of", "logprobs", "top_logprobs", "stream_options", "stop"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ig_field(body, names[i])) return ig_refuse(c, 400, names[i], "%s is no field of /v1/messages", names[i]);
    return true;
}

static bool translate(translation *t, const json_t *body) {
    json_t *system = ig_field(body, "system"), *stops = ig_field(body, "stop_sequences");
    static const char *const theirs[] = {
        "system",   "messages",      "tools",    "tool_choice",        "stop_sequences",
        "thinking", "output_config", "metadata", "context_management", "container"};
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++) json_object_del(t->out, theirs[i]);
    set(t, t->out, "messages", t->messages);
    if (system) append(t, t->messages, json_pack("{s:s, s:O}", "role", "system", "content", system));
    if (stops) t->ok &= json_object_set(t->out, "stop", stops) == 0;
    return check_others(t->call, body) && add_messages(t, ig_field(body, "messages")) &&
           add_tools(t, ig_field(body, "tools")) && add_choice(t, ig_field(body, "tool_choice")) &&
           add_thinking(t, ig_field(body, "thinking")) && add_output(t, ig_field(body, "output_config"));
}

json_t *ig_messages_body(ig_call *c, json_t *body) {
    translation t = {.call = c, .out = json_copy(body), .messages = json_array(), .ok = true};
    bool ok = body && translate(&t, body);
    if (ok && !t.ok) ok = ig_refuse(c, 500, NULL, "out of memory for a conversation");
    json_decref(body);
    if (ok) return t.out;
    json_decref(t.out);
    return NULL;
}

void ig_route_count_tokens(ig_call *c) {
    json_t *body = ig_body_object(c);
    char *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0, n_ids = 0;
    if (body) body = ig_messages_body(c, body);
    if (body && ig_field_model(c, body) && ig_conversation_prompt(c, body, &text, &n, NULL) &&
        ig_tokens_up_to(c, "messages", text, n, IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL,
                        IG_SERVER_NODES_MAX, &ids, &n_ids) &&
        (n_ids <= IG_SERVER_NODES_MAX ||
         ig_refuse(c, 400, "messages", "messages have more than %d tokens", IG_SERVER_NODES_MAX)))
        ig_reply_json(c, json_pack("{s:I}", "input_tokens", (json_int_t)n_ids));
    free(ids);
    free(text);
    json_decref(body);
}
