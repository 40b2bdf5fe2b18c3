/* SPDX-License-Identifier: Apache-2.0
 *
 * Prompts by the model's chat template, or another.
 */
#define _GNU_SOURCE
#include "cli/chat_prompt.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/shown.h"

int ig_cli_read_template(char **out, const ig_cli_options *o) {
    const char *text = o->chat_template;
    ig_cli_text read = {0};
    *out = NULL;
    if (!text) return IG_EXIT_OK;
    if (strstr(text, "{{") || strstr(text, "{%"))
        return (*out = strdup(text)) ? IG_EXIT_OK : ig_cli_complain(o, "out of memory for %zu bytes", strlen(text));
    if (strcmp(text, "-") != 0 && access(text, F_OK) != 0) {
        ig_cli_complain(o, "--chat-template: there is no file '%s', and templates are not known by names", text);
        return IG_EXIT_USAGE;
    }
    int code = ig_cli_read_plain_file(&read, o, text);
    *out = read.data;
    return code;
}

/* ---- variables ------------------------------------------------------------------------------------ */

static int refuse(const ig_cli_options *o, const char *wrong, const char *name) {
    ig_cli_complain(o, "--chat-template-kwargs: %s%s", wrong, name);
    return IG_EXIT_USAGE;
}

/* What the template gets of this program cannot be given otherwise. */
static int check_names(const ig_cli_options *o, const json_t *variables) {
    static const char *const own[] = {"messages", "tools", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(variables, own[i])) return refuse(o, "it may not have ", own[i]);
    return IG_EXIT_OK;
}

int ig_cli_template_variables(json_t **out, const ig_cli_options *o) {
    const char *text = o->template_kwargs ? o->template_kwargs : "{}";
    const char *effort = o->reasoning_effort && strcmp(o->reasoning_effort, "default") ? o->reasoning_effort : NULL;
    bool thinks = o->reasoning && strcmp(o->reasoning, "on") == 0;
    bool is_still = o->reasoning && strcmp(o->reasoning, "off") == 0;
    if (o->verb->bit != IG_VERB_SERVE) /* whose requests may ask for another effort */
        is_still = is_still || (effort && strcmp(effort, "none") == 0);
    *out = NULL;
    if (!o->template_kwargs && !effort && !thinks && !is_still) return IG_EXIT_OK;
    bool failed;
    json_t *all = ig_json_of_text(text, strlen(text), JSON_REJECT_DUPLICATES, NULL, &failed);
    if (failed) return ig_cli_complain(o, "out of memory for the variables of a chat template");
    if (!json_is_object(all)) {
        json_decref(all);
        return refuse(o, "it must be a JSON object that has every name once", "");
    }
    int code = check_names(o, all);
    bool ok = true;
    if (effort) ok = json_object_set_new(all, "reasoning_effort", ig_text_string(effort)) == 0;
    if (ok && (thinks || is_still)) ok = json_object_set_new(all, "enable_thinking", json_boolean(!is_still)) == 0;
    if (!code && !ok) code = ig_cli_complain(o, "out of memory for the variables of a chat template");
    if (code)
        json_decref(all);
    else
        *out = all;
    return code;
}

int ig_cli_check_variables(const ig_cli_app *app) {
    if ((!app->variables && !app->chat_template) || app->info.chat_template) return IG_EXIT_OK;
    ig_cli_complain(app->o,
                    "--chat-template, --reasoning, --reasoning-effort and --chat-template-kwargs need a chat template, "
                    "and %s has none",
                    app->path);
    return IG_EXIT_USAGE;
}

/* ---- prompts ---------------------------------------------------------------------------------------- */

/* All that the template is given, as JSON; NULL: no memory. */
static char *variables_of(const ig_cli_app *app, const ig_chat_message *messages, size_t n, bool begins_answer) {
    json_t *list = json_array(), *all = json_copy(app->variables);
    bool ok = list && all;
    for (size_t i = 0; i < n && ok; i++)
        ok = json_array_append_new(list, json_pack("{s:s, s:o}", "role", messages[i].role, "content",
                                                   ig_text_string(messages[i].content))) == 0;
    ok = ok && json_object_set(all, "messages", list) == 0 &&
         json_object_set_new(all, "add_generation_prompt", json_boolean(begins_answer)) == 0;
    char *text = ok ? ig_text_of_json(all, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(list);
    json_decref(all);
    return text;
}

int ig_cli_chat_prompt(ig_cli_text *out, const ig_cli_app *app, const ig_chat_message *messages, size_t n,
                       bool begins_answer) {
    const char *head = begins_answer ? ig_cli_answer_head(app) : "";
    char *variables = app->variables ? variables_of(app, messages, n, begins_answer) : NULL, *text = NULL;
    size_t n_text = 0, room = 0;
    ig_error err = {0};
    ig_status s = IG_OK;
    if (app->variables && !variables) return ig_cli_complain(app->o, "out of memory for a conversation");
    for (int pass = 0; pass < 2 && !s; pass++) { /* first it is measured */
        if (variables)
            s = ig_chat_prompt_json(&n_text, app->model, variables, strlen(variables), text, room, &err);
        else
            s = ig_chat_prompt(&n_text, app->model, messages, n, begins_answer, text, room, &err);
        if (s || pass) continue;
        room = n_text + 1;
        if (!(text = malloc(n_text + strlen(head) + 1)))
            s = ig_text_fail(&err, IG_E_MEMORY, "out of memory for %zu bytes", room);
    }
    free(variables);
    if (s) {
        free(text);
        return ig_cli_fail(app->o, &err);
    }
    strcpy(text + n_text, head);
    *out = (ig_cli_text){text, n_text + strlen(head)};
    return IG_EXIT_OK;
}
