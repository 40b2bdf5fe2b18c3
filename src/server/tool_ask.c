/* SPDX-License-Identifier: Apache-2.0
 *
 * What a request says of tools: which there are, and whether one must be called.
 */
#define _GNU_SOURCE
#include "server/answers.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { TOOLS_MAX = 256 };

bool ig_tool_is_name(const char *name, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !memchr("_-.:/", name[i], 5)) return false;
    return n > 0 && n <= IG_TOOL_NAME_BYTES;
}

static const char *name_of(const json_t *tool) {
    return json_string_value(json_object_get(ig_field(tool, "function"), "name"));
}

const json_t *ig_tool_find(const json_t *list, const char *name, size_t n) {
    for (size_t i = 0; i < json_array_size(list) && i < n; i++)
        if (strcmp(name_of(json_array_get(list, i)), name) == 0) return json_array_get(list, i);
    return NULL;
}

/* A type, or a list of some; without one anything goes. */
static bool takes_object(const json_t *type) {
    const char *word = json_string_value(type);
    size_t i;
    json_t *one;
    json_array_foreach(type, i,
                       one) if (json_is_string(one) && strcmp(json_string_value(one), "object") == 0) return true;
    return !type || (word && strcmp(word, "object") == 0);
}

static bool check_tool(ig_call *c, const json_t *list, size_t i) {
    const json_t *tool = json_array_get(list, i), *function = ig_field(tool, "function"), *v;
    const char *type = json_string_value(ig_field(tool, "type")), *text = NULL;
    const json_t *name = ig_field(function, "name");
    char where[64];
    bool is_strict;
    if (!type || strcmp(type, "function") != 0 || !json_is_object(function))
        return ig_refuse(c, 400, "tools", "tools[%zu]: only objects with type 'function' and a function are supported",
                         i);
    snprintf(where, sizeof where, "tools[%zu].function.", i);
    if (!ig_tool_is_name(json_string_value(name), json_string_length(name)))
        return ig_refuse(c, 400, "tools", "%sname must have 1 to %d letters, digits or _-.:/", where,
                         IG_TOOL_NAME_BYTES);
    if (ig_tool_find(list, json_string_value(name), i))
        return ig_refuse(c, 400, "tools", "%sname: there are two of '%s'", where, json_string_value(name));
    if ((v = ig_field(function, "parameters")) && !json_is_object(v))
        return ig_refuse(c, 400, "tools", "%sparameters must be an object", where);
    if (!takes_object(ig_field(v, "type")))
        return ig_refuse(c, 400, "tools", "%sparameters: their type must be object", where);
    return ig_field_text(c, function, "description", &text) && ig_field_bool(c, function, "strict", &is_strict);
}

/* Adds the function of this name to those that may be called. */
static bool allow(ig_call *c, ig_tools *out, const char *name) {
    const json_t *tool = name ? ig_tool_find(out->told, name, SIZE_MAX) : NULL;
    if (!tool) return ig_refuse(c, 400, "tool_choice", "tool_choice: no tool is named '%.128s'", name ? name : "");
    if (ig_tool_find(out->list, name, SIZE_MAX)) return true;
    if (!out->list) out->list = json_array();
    return json_array_append(out->list, (json_t *)(uintptr_t)tool) == 0 ||
           ig_refuse(c, 500, NULL, "out of memory for tools");
}

/* Some of the functions by name, of which one may, or must, be called. */
static bool allow_some(ig_call *c, ig_tools *out, const json_t *choice) {
    const json_t *inner = ig_field(choice, "allowed_tools"), *v = inner ? inner : choice, *names = ig_field(v, "tools");
    const char *mode = "auto";
    size_t i;
    json_t *one;
    if (!ig_field_text(c, v, "mode", &mode)) return false;
    out->must_call = strcmp(mode, "required") == 0;
    if ((strcmp(mode, "auto") != 0 && !out->must_call) || !json_array_size(names) || json_array_size(names) > TOOLS_MAX)
        return ig_refuse(c, 400, "tool_choice",
                         "tool_choice: allowed_tools have a mode, auto or required, and up to %d tools", TOOLS_MAX);
    json_array_foreach(names, i, one) {
        const json_t *function = ig_field(one, "function");
        if (!allow(c, out, json_string_value(ig_field(function ? function : one, "name")))) return false;
    }
    return true;
}

/* As a word, or functions by name. Of these the model is told of all as well, so that the prompt stays the same. */
static bool read_choice(ig_call *c, const json_t *body, ig_tools *out) {
    const json_t *v = ig_field(body, "tool_choice");
    const char *word = json_string_value(v), *type = json_string_value(ig_field(v, "type")),
               *name = json_string_value(ig_field(ig_field(v, "function"), "name"));
    bool is_auto = !v || (word && strcmp(word, "auto") == 0), is_named = type && strcmp(type, "function") == 0 && name,
         are_some = type && strcmp(type, "allowed_tools") == 0;
    if (word && strcmp(word, "none") == 0) {
        out->told = NULL;
        return true;
    }
    if (!is_auto && !is_named && !are_some && !(word && strcmp(word, "required") == 0))
        return ig_refuse(c, 400, "tool_choice",
                         "tool_choice must be none, auto, required, a function by its name or allowed_tools");
    if (!is_auto && !out->told) return ig_refuse(c, 400, "tool_choice", "tool_choice: there are no tools");
    if (are_some) return allow_some(c, out, v);
    out->must_call = !is_auto;
    out->is_single |= is_named;
    if (is_named) return allow(c, out, name);
    out->list = json_incref((json_t *)(uintptr_t)out->told);
    return true;
}

static bool read_tools(ig_call *c, const json_t *body, ig_tools *out) {
    const json_t *list = ig_field(body, "tools");
    size_t n = json_array_size(list);
    bool are_many = true;
    if (list && (!json_is_array(list) || n > TOOLS_MAX))
        return ig_refuse(c, 400, "tools", "tools must be a list of at most %d", TOOLS_MAX);
    for (size_t i = 0; i < n; i++)
        if (!check_tool(c, list, i)) return false;
    if (!ig_field_bool(c, body, "parallel_tool_calls", &are_many)) return false;
    *out = (ig_tools){.told = n ? list : NULL, .is_single = !are_many};
    if (!read_choice(c, body, out)) return false;
    const ig_tool_format *f = c->server->tool_format;
    return !out->told || !f->has_recipients || f->takes_tools ||
           ig_refuse(c, 400, "tools", "calls are not read as this model writes them: leave the tools out");
}

bool ig_tools_read(ig_call *c, const json_t *body, ig_tools *out) {
    *out = (ig_tools){0};
    bool ok = read_tools(c, body, out);
    if (!ok) ig_tools_close(out);
    return ok;
}

void ig_tools_close(ig_tools *tools) {
    json_decref(tools->list);
    *tools = (ig_tools){0};
}
