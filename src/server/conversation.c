/* SPDX-License-Identifier: Apache-2.0
 *
 * A conversation and what else a body says of its prompt, as the variables of the model's chat template. Tools, calls
 * and what these have returned are there for templates that know them; other models are told in words.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef struct conversation {
    ig_call *call;
    const ig_tool_format *format;
    json_t *list;  /* the template's "messages" */
    json_t *names; /* of called functions, by the ids of calls */
    FILE *results; /* of calls, in words, for the last message; NULL: it has none */
    char *results_text;
    size_t n_results;
    size_t n_values;  /* of arguments that were texts */
    json_t *thoughts; /* of the message that is being read; NULL: it has none */
} conversation;

/* Whether there was memory for a part; if not, the call is refused. */
static bool has_memory_for(ig_call *c, bool ok) {
    return ok || ig_refuse(c, 500, NULL, "out of memory for a conversation");
}

static bool has_memory(const conversation *v, bool ok) { return has_memory_for(v->call, ok); }

/* ---- content ------------------------------------------------------------------------------ */

/* The text of a part; NULL: it has none. Only answers have parts that say why there is no answer. */
static const char *part_text(const json_t *part, bool is_answer) {
    const char *type = json_string_value(ig_field(part, "type"));
    bool has_text = type && (strcmp(type, "text") == 0 || (is_answer && strcmp(type, "refusal") == 0));
    return has_text ? json_string_value(ig_field(part, type)) : NULL;
}

json_t *ig_content_text(ig_call *c, json_t *content, bool is_answer, const char *where) {
    size_t i, n = 0;
    json_t *part, *joined = NULL;
    char *text = NULL;
    if (json_is_string(content)) return json_incref(content);
    bool ok = json_is_array(content) || ig_refuse(c, 400, where, "%s must be a string or a list of parts", where);
    FILE *to = ok ? open_memstream(&text, &n) : NULL;
    json_array_foreach(content, i, part) {
        const char *own = part_text(part, is_answer);
        if (ok && !own) ok = ig_refuse(c, 400, where, "%s[%zu]: only parts of type text are supported", where, i);
        if (to && ok) fputs(own, to);
    }
    bool has_failed = !to || ferror(to);
    if (to) has_failed |= fclose(to) != 0;
    if (ok && !has_failed) joined = json_stringn(text, n);
    if (ok) has_memory_for(c, joined);
    free(text);
    return joined;
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Arguments as the template wants them: an object, or its text. What is no object stays a text. */
static json_t *arguments_of(conversation *v, json_t *given) {
    bool has_no_memory = false;
    const char *text = json_string_value(given);
    if (!given || (text && !*text)) return v->format->wants_text ? json_string("{}") : json_object();
    if (!v->format->wants_text == !text) return json_incref(given);
    if (!text) {
        char *dumped = ig_text_of_json(given, JSON_REAL_PRECISION(17));
        json_t *out = dumped ? json_string(dumped) : NULL;
        free(dumped);
        return out;
    }
    size_t n = ig_json_values(text, json_string_length(given));
    v->n_values = n > IG_SERVER_NODES_MAX - v->n_values ? IG_SERVER_NODES_MAX : v->n_values + n;
    if (v->n_values == IG_SERVER_NODES_MAX) {
        ig_refuse(v->call, 400, "messages", "arguments of calls have too many values, or go too deep");
        return NULL;
    }
    json_t *object = ig_json_of_text(text, json_string_length(given), 0, NULL, &has_no_memory);
    if (json_is_object(object) || has_no_memory) return object;
    json_decref(object);
    return json_incref(given);
}

/* One of an assistant's calls, as the template has them; NULL: refused. */
static json_t *read_call(conversation *v, const json_t *call, const char *where) {
    const json_t *function = ig_field(call, "function"), *name = ig_field(function, "name");
    json_t *arguments = ig_field(function, "arguments");
    const char *id = json_string_value(ig_field(call, "id")), *type = json_string_value(ig_field(call, "type"));
    if ((type && strcmp(type, "function") != 0) ||
        !ig_tool_is_name(json_string_value(name), json_string_length(name)) ||
        (arguments && !json_is_string(arguments) && !json_is_object(arguments))) {
        ig_refuse(v->call, 400, where, "%s: a call has a function with a name, and arguments as text", where);
        return NULL;
    }
    if (id && !has_memory(v, json_object_set(v->names, id, (json_t *)name) == 0)) return NULL;
    json_t *out = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name, "arguments",
                            arguments_of(v, arguments));
    if (out && id && json_object_set_new(out, "id", json_string(id)) != 0) json_decref(out), out = NULL;
    has_memory(v, out);
    return out;
}

static json_t *read_calls(conversation *v, const json_t *calls, const char *where) {
    json_t *out = json_array();
    if (!json_is_array(calls)) ig_refuse(v->call, 400, where, "%s must be a list", where);
    bool ok = has_memory(v, out) && json_is_array(calls);
    for (size_t i = 0; i < json_array_size(calls) && ok; i++) {
        json_t *one = read_call(v, json_array_get(calls, i), where);
        ok = one && has_memory(v, json_array_append_new(out, one) == 0);
    }
    return ig_json_if(ok, out);
}

/* An answer with calls as the text that the model would have written. */
static json_t *calls_in_words(const conversation *v, const char *content, const json_t *calls) {
    const ig_tool_format *f = v->format;
    size_t i, n = 0;
    char *text = NULL;
    json_t *call, *out;
    FILE *to = open_memstream(&text, &n);
    bool ok = true;
    if (!to) return NULL;
    fprintf(to, "%s%s", content, *content ? "\n" : "");
    json_array_foreach(calls, i, call) {
        const json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
        char *dumped = json_is_object(arguments) ? ig_text_of_json(arguments, JSON_REAL_PRECISION(17)) : NULL;
        ok = ok && (dumped || !json_is_object(arguments));
        if (ok)
            fprintf(to, "%s%s%s%s%s%s", i ? f->between : "", f->before,
                    json_string_value(json_object_get(function, "name")), f->middle,
                    dumped ? dumped : json_string_value(arguments), f->after);
        free(dumped);
    }
    out = fclose(to) == 0 && ok ? json_stringn(text, n) : NULL;
    free(text);
    return out;
}

/* ---- messages --------------------------------------------------------------------------------- */

/* The last message has all results now. */
static bool end_results(conversation *v) {
    if (!v->results) return true;
    bool ok = fclose(v->results) == 0;
    json_t *last = json_array_get(v->list, json_array_size(v->list) - 1);
    ok = ok && json_object_set_new(last, "content", json_stringn(v->results_text, v->n_results)) == 0;
    free(v->results_text);
    v->results = NULL;
    v->results_text = NULL;
    return has_memory(v, ok);
}

/* Takes `message`. */
static bool append(conversation *v, json_t *message) {
    if (!end_results(v)) {
        json_decref(message);
        return false;
    }
    const char *name = v->format->has_channels ? "thinking" : "reasoning_content"; /* as templates call them */
    if (message && v->thoughts) json_object_set(message, name, v->thoughts);
    return has_memory(v, message && json_array_append_new(v->list, message) == 0);
}

/* The message whose calls have returned what came last, where the template wants that in it; NULL: there is none. */
static json_t *calls_before(const conversation *v) {
    json_t *last = json_array_get(v->list, json_array_size(v->list) - 1);
    return v->format->takes_results && json_object_get(last, "tool_calls") ? last : NULL;
}

/* Takes `content`; NULL: there is none. */
static bool add_answer(conversation *v, json_t *content, const json_t *calls, const char *where) {
    const char *text = content ? json_string_value(content) : "";
    bool is_one = !v->format->has_channels || json_array_size(calls) == 1 ||
                  ig_refuse(v->call, 400, where, "%s: the model's chat template takes one call of a message", where);
    json_t *read = is_one ? read_calls(v, calls, where) : NULL, *message = NULL;
    bool takes_one = v->format->has_channels && json_string_length(v->thoughts); /* the template */
    if (takes_one || v->format->drops_text) text = "";
    if (read && !v->format->is_native)
        message = json_pack("{s:s, s:o}", "role", "assistant", "content", calls_in_words(v, text, read));
    else if (read)
        message = json_pack("{s:s, s:s?, s:O}", "role", "assistant", "content",
                            *text || !v->format->wants_null ? text : NULL, "tool_calls", read);
    json_decref(content);
    bool ok = read && append(v, message);
    json_decref(read);
    return ok;
}

/* What a function has returned. Takes `content`. In words, what comes from several calls is one message: many templates
 * want users and assistants in turns. */
static bool add_result(conversation *v, json_t *content, const json_t *m) {
    const char *id = json_string_value(ig_field(m, "tool_call_id")), *text = json_string_value(content);
    const json_t *name = ig_field(m, "name");
    json_t *calls = calls_before(v);
    bool ok;
    if (!name && id) name = json_object_get(v->names, id);
    if (calls) {
        json_t *results = json_object_get(calls, "tool_responses"), *result = json_pack("{s:O}", "response", content);
        if (result && name) json_object_set(result, "name", (json_t *)name);
        if (!results && json_object_set_new(calls, "tool_responses", json_array()) == 0)
            results = json_object_get(calls, "tool_responses");
        ok = has_memory(v, json_array_append_new(results, result) == 0);
    } else if (v->format->is_native) {
        json_t *message = json_pack("{s:s, s:O}", "role", "tool", "content", content);
        if (message && id) json_object_set_new(message, "tool_call_id", json_string(id));
        if (message && name) json_object_set(message, "name", (json_t *)name);
        ok = append(v, message);
    } else {
        bool is_first = !v->results;
        ok = !is_first || append(v, json_pack("{s:s, s:s}", "role", "user", "content", ""));
        if (ok && is_first) v->results = open_memstream(&v->results_text, &v->n_results);
        ok = ok && has_memory(v, v->results);
        if (ok) fprintf(v->results, "%s<tool_response>\n%s\n</tool_response>", is_first ? "" : "\n", text);
    }
    json_decref(content);
    return ok;
}

/* Takes `content`. An answer goes to the calls and results that it follows, if these are one message. */
static bool add_text(conversation *v, json_t *content, const char *role, bool is_answer) {
    json_t *calls = is_answer ? calls_before(v) : NULL;
    if (!json_object_get(calls, "tool_responses") || json_string_length(json_object_get(calls, "content")))
        return append(v, json_pack("{s:s, s:o}", "role", role, "content", content));
    return has_memory(v, json_object_set_new(calls, "content", content) == 0);
}

static bool add_message(conversation *v, const json_t *m, size_t i) {
    static const char *const known[] = {"role", "content", "tool_calls", "tool_call_id", "reasoning_content", NULL},
                             *const roles[] = {"system", "developer", "user", "assistant", "tool", NULL};
    char before[64], where[80];
    size_t r = 0;
    snprintf(before, sizeof before, "messages[%zu].", i);
    if (!json_is_object(m)) return ig_refuse(v->call, 400, "messages", "messages[%zu] must be an object", i);
    if (!ig_field_others(v->call, m, before, known)) return false;
    const char *role = json_string_value(ig_field(m, "role"));
    snprintf(where, sizeof where, "%srole", before);
    if (!role) return ig_refuse(v->call, 400, where, "%s must be a string", where);
    while (roles[r] && strcmp(role, roles[r]) != 0) r++;
    if (!roles[r])
        return ig_refuse(v->call, 400, where,
                         "%s: '%.32s' is not supported: system, developer, user, assistant, tool are", where, role);
    if (strcmp(role, "developer") == 0) role = "system";
    bool is_answer = strcmp(role, "assistant") == 0;
    v->thoughts = is_answer ? ig_field(m, "reasoning_content") : NULL;
    if (v->thoughts && !json_is_string(v->thoughts))
        return ig_refuse(v->call, 400, "messages", "%sreasoning_content must be a string", before);
    json_t *content = ig_field(m, "content"), *calls = ig_field(m, "tool_calls");
    if (json_is_array(calls) && json_array_size(calls) == 0) calls = NULL;
    snprintf(where, sizeof where, "%stool_calls", before);
    if (calls && !is_answer) return ig_refuse(v->call, 400, where, "%s: only an assistant makes calls", where);
    if (calls && !content) return add_answer(v, NULL, calls, where);
    snprintf(where, sizeof where, "%scontent", before);
    bool is_null = json_is_null(json_object_get(m, "content")) && strcmp(role, "tool") == 0;
    bool is_empty = is_null || (is_answer && !content); /* clients leave out what is null */
    content = is_empty ? json_string("") : ig_content_text(v->call, content, is_answer, where);
    if (!content) return has_memory(v, v->call->refusal.status);
    snprintf(where, sizeof where, "%stool_calls", before);
    if (calls) return add_answer(v, content, calls, where);
    if (strcmp(role, "tool") == 0) return add_result(v, content, m);
    return add_text(v, content, role, is_answer);
}

/* ---- tools --------------------------------------------------------------------------------------- */

/* Of a model whose template does not. */
static json_t *tools_in_words(const conversation *v, const json_t *tools) {
    size_t i, n = 0;
    char *text = NULL;
    json_t *tool;
    FILE *to = open_memstream(&text, &n);
    bool ok = true;
    if (!to) return NULL;
    fputs("You can call functions. Each line here describes one in JSON:\n<tools>\n", to);
    json_array_foreach(tools, i, tool) {
        char *line = ig_text_of_json(tool, JSON_REAL_PRECISION(17));
        ok = ok && line && fprintf(to, "%s\n", line) > 0;
        free(line);
    }
    fprintf(to,
            "</tools>\nTo call a function, write its name and its arguments in this way:\n%sNAME%s{ARGUMENTS}%s\n"
            "What it returns will be given to you within <tool_response></tool_response>.",
            v->format->before, v->format->middle, v->format->after);
    json_t *out = fclose(to) == 0 && ok ? json_stringn(text, n) : NULL;
    free(text);
    return out;
}

/* Behind what the system message says; where the template has none, before the first message. */
static bool add_tools_in_words(const conversation *v, const json_t *tools) {
    json_t *words = tools_in_words(v, tools), *first = json_array_get(v->list, 0);
    const char *text = words ? json_string_value(words) : "",
               *own = json_string_value(json_object_get(first, "content")),
               *role = json_string_value(json_object_get(first, "role"));
    bool is_system = role && strcmp(role, "system") == 0, ok;
    if (!is_system && v->format->takes_system)
        ok = json_array_insert_new(v->list, 0, json_pack("{s:s, s:O}", "role", "system", "content", words)) == 0;
    else
        ok = json_object_set_new(first, "content",
                                 json_sprintf("%s\n\n%s", is_system ? own : text, is_system ? text : own)) == 0;
    ok = ok && words;
    json_decref(words);
    return has_memory(v, ok);
}

/* ---- the whole ------------------------------------------------------------------------------------ */

/* What a template may be told beside the conversation, such as Qwen3's "enable_thinking", which some clients say by
 * itself. */
static bool add_others(ig_call *c, json_t *variables, const json_t *body) {
    static const char field[] = "chat_template_kwargs", thinks[] = "enable_thinking";
    json_t *others = ig_field(body, field), *value, *thinking = ig_field(body, thinks);
    const char *name;
    if (thinking && !json_is_boolean(thinking)) return ig_refuse(c, 400, thinks, "%s must be true or false", thinks);
    if (others && !json_is_object(others)) return ig_refuse(c, 400, field, "%s must be an object", field);
    json_object_foreach(others, name, value) {
        if (json_object_get(variables, name)) return ig_refuse(c, 400, field, "%s: '%.32s' is not one", field, name);
    }
    bool ok = !others || json_object_update(variables, others) == 0;
    if (thinking && !ig_field(others, thinks)) ok = ok && json_object_set(variables, thinks, thinking) == 0;
    return ok || ig_refuse(c, 500, NULL, "out of memory for %s", field);
}

/* Templates look at one of two names: no effort is no thinking. */
static bool be_still(json_t *variables) { return json_object_set_new(variables, "enable_thinking", json_false()) == 0; }

/* How much a reasoning model is to think. */
static bool add_effort(ig_call *c, json_t *variables, const json_t *body) {
    const char *effort = NULL;
    if (!ig_field_text(c, body, "reasoning_effort", &effort) || !effort) return !effort && !c->refusal.status;
    bool ok = json_object_set_new(variables, "reasoning_effort", json_string(effort)) == 0;
    if (strcmp(effort, "none") == 0) ok &= be_still(variables);
    return ok || ig_refuse(c, 500, NULL, "out of memory for reasoning_effort");
}

/* ---- going on with a message --------------------------------------------------------------------- */

enum { TAG_BYTES = 16 };

/* The last message of a conversation that an answer goes on with: its text is shown with letters behind it that are
 * nowhere else, where the prompt is cut. */
typedef struct last_message {
    char *own; /* its text */
    size_t n;  /* without the blanks at its end */
    char tag[TAG_BYTES + 1];
} last_message;

static size_t without_blanks(const char *text, size_t n) {
    while (n && strchr(" \t\r\n", text[n - 1])) n--;
    return n;
}

static bool mark_last(last_message *last, const conversation *v) {
    json_t *message = json_array_get(v->list, json_array_size(v->list) - 1);
    const char *role = json_string_value(json_object_get(message, "role")),
               *own = json_string_value(json_object_get(message, "content"));
    last->n = own ? without_blanks(own, strlen(own)) : 0;
    bool is_call = json_object_get(message, "tool_calls") && !json_object_get(message, "tool_responses");
    if (!role || strcmp(role, "assistant") != 0 || is_call || last->n == 0)
        return ig_refuse(v->call, 400, "continue_final_message",
                         "continue_final_message: the last message must be an assistant's, with a text");
    last->own = strdup(own);
    if (getrandom(last->tag, TAG_BYTES, GRND_NONBLOCK) != TAG_BYTES) memset(last->tag, 0, TAG_BYTES);
    for (int i = 0; i < TAG_BYTES; i++) last->tag[i] = (char)('a' + (unsigned char)last->tag[i] % 26);
    bool ok =
        last->own && json_object_set_new(message, "content", json_sprintf("%.*s%s", (int)last->n, own, last->tag)) == 0;
    return has_memory(v, ok);
}

/* Cuts what the template has behind the message, but for blanks at its end. */
static bool cut_behind(const last_message *last, const conversation *v, char *text, size_t *n) {
    char *at = memmem(text, *n, last->tag, TAG_BYTES);
    if (!at)
        return ig_refuse(v->call, 400, "continue_final_message",
                         "continue_final_message: the model's chat template does not show the last message");
    size_t left = *n - (size_t)(at - text), n_blanks = strlen(last->own + last->n);
    if (n_blanks > left) n_blanks = left;
    memcpy(at, last->own + last->n, n_blanks);
    *n = (size_t)(at - text) + n_blanks;
    return true;
}

ig_status ig_prompt_render(char **text, size_t *n, const ig_model *model, const json_t *variables, ig_error *err) {
    char *all = ig_text_of_json(variables, JSON_COMPACT | JSON_REAL_PRECISION(17));
    size_t n_all = all ? strlen(all) : 0;
    *text = NULL;
    ig_status s = all ? ig_chat_prompt_json(n, model, all, n_all, NULL, 0, err)
                      : ig_text_fail(err, IG_E_MEMORY, "out of memory for a conversation");
    if (!s && !(*text = malloc(*n + 1))) s = ig_text_fail(err, IG_E_MEMORY, "out of memory for %zu bytes", *n);
    if (!s) s = ig_chat_prompt_json(n, model, all, n_all, *text, *n + 1, err);
    free(all);
    if (!s) return s;
    free(*text);
    *text = NULL;
    return s;
}

/* A template that cannot do something with these messages is theirs to know, too. */
static bool render(ig_call *c, const json_t *variables, char **text, size_t *n) {
    ig_error err = {0};
    ig_status s = ig_prompt_render(text, n, c->server->o->model, variables, &err);
    return !s || ig_refuse(c, s == IG_E_MEMORY ? 500 : 400, "messages", "%s", err.text);
}

/* With what the template cannot do without. The caller's. */
static json_t *tools_for_template(const conversation *v, const json_t *tools) {
    size_t i;
    const ig_tool_format *f = v->format;
    if (!f->needs_description && !f->needs_parameters) return json_incref((json_t *)tools);
    json_t *tool, *list = json_deep_copy(tools);
    bool ok = has_memory(v, list);
    json_array_foreach(list, i, tool) {
        json_t *function = json_object_get(tool, "function");
        if (ok && f->needs_description && !ig_field(function, "description"))
            ok = has_memory(v, json_object_set_new(function, "description", json_string("")) == 0);
        if (ok && f->needs_parameters && !ig_field(function, "parameters"))
            ok = has_memory(v, json_object_set_new(function, "parameters", json_pack("{s:s}", "type", "object")) == 0);
        json_t *parameters = json_object_get(function, "parameters");
        if (ok && f->needs_parameters && !ig_field(parameters, "properties"))
            ok = has_memory(v, json_object_set_new(parameters, "properties", json_object()) == 0);
    }
    return ig_json_if(ok, list);
}

/* What the server was told, where the request says nothing. */
static bool add_defaults(json_t *variables, const json_t *defaults) {
    if (!defaults) return true;
    if (json_object_update_missing(variables, (json_t *)(uintptr_t)defaults) != 0) return false;
    const char *effort = json_string_value(json_object_get(variables, "reasoning_effort"));
    bool is_none = effort && strcmp(effort, "none") == 0 && !json_object_get(variables, "enable_thinking");
    return !is_none || be_still(variables);
}

/* Renders the list of messages. */
static bool render_list(conversation *v, const json_t *body, const json_t *tools, bool begins_answer, char **text,
                        size_t *n) {
    json_t *variables = json_pack("{s:O, s:b}", "messages", v->list, "add_generation_prompt", begins_answer);
    bool ok = has_memory(v, variables);
    if (ok && tools && v->format->is_native)
        ok = has_memory(v, json_object_set_new(variables, "tools", tools_for_template(v, tools)) == 0);
    ok = ok && add_others(v->call, variables, body) && add_effort(v->call, variables, body) &&
         has_memory(v, add_defaults(variables, v->call->server->o->variables)) && render(v->call, variables, text, n);
    json_decref(variables);
    return ok;
}

static bool make_prompt(conversation *v, const json_t *body, char **text, size_t *n, ig_thought_stage *stage) {
    const json_t *messages = ig_field(body, "messages");
    bool begins_answer = true, goes_on = false;
    ig_tools said;
    if (!ig_field_bool(v->call, body, "continue_final_message", &goes_on)) return false;
    begins_answer = !goes_on;
    if (!ig_field_bool(v->call, body, "add_generation_prompt", &begins_answer) || !ig_tools_read(v->call, body, &said))
        return false;
    const json_t *tools = said.told; /* of the body */
    ig_tools_close(&said);
    if (goes_on && begins_answer)
        return ig_refuse(v->call, 400, "add_generation_prompt",
                         "add_generation_prompt: an answer goes on with the last message, or begins behind it");
    if (json_array_size(messages) == 0)
        return ig_refuse(v->call, 400, "messages", "messages must be a list, not empty");
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!add_message(v, json_array_get(messages, i), i)) return false;
    if (!end_results(v) || (tools && !v->format->is_native && !add_tools_in_words(v, tools))) return false;
    const ig_thought_marks *marks = v->call->server->thoughts;
    last_message last = {0};
    bool ok = (!goes_on || mark_last(&last, v)) && render_list(v, body, tools, begins_answer, text, n) &&
              (!goes_on || cut_behind(&last, v, *text, n));
    bool is_plain = goes_on && !v->format->has_channels;
    if (ok) *stage = is_plain ? ig_thoughts_within(marks, last.own) : ig_thoughts_after(marks, *text, *n);
    free(last.own);
    if (ok) return true;
    free(*text);
    *text = NULL;
    return false;
}

bool ig_conversation_prompt(ig_call *c, const json_t *body, char **text, size_t *n, ig_thought_stage *stage) {
    ig_thought_stage unused;
    conversation v = {.call = c, .format = c->server->tool_format, .list = json_array(), .names = json_object()};
    *text = NULL;
    bool ok = has_memory(&v, v.list && v.names) && make_prompt(&v, body, text, n, stage ? stage : &unused);
    if (v.results) fclose(v.results);
    free(v.results_text);
    json_decref(v.list);
    json_decref(v.names);
    return ok;
}
