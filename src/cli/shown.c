/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers in channels as they are shown.
 */
#define _GNU_SOURCE
#include "cli/shown.h"

#include <stdlib.h>
#include <string.h>

int ig_cli_shown_open(ig_cli_shown *s, const ig_cli_app *app, bool is_chat, bool *special) {
    if (!is_chat || *special || !ig_channels_in(app->info.chat_template)) return IG_EXIT_OK;
    *special = true;
    s->reader.form = ig_channels_in(app->info.chat_template);
    if (app->grammar) s->reader.kind = IG_CHANNEL_TEXT;
    s->to = open_memstream(&s->text, &s->n);
    return s->to ? IG_EXIT_OK : ig_cli_complain(app->o, "out of memory");
}

static void put_mark(ig_cli_shown *s, const char *mark) { s->put(s->user, mark, strlen(mark), false); }

static void show_parts(ig_cli_shown *s, bool is_whole) {
    fflush(s->to);
    for (ig_channel_part p; (p = ig_channel_next(&s->reader, s->text, s->n, is_whole)).kind != IG_CHANNEL_NONE;) {
        bool is_thought = p.kind == IG_CHANNEL_THOUGHTS;
        if (is_thought != s->is_thinking) put_mark(s, is_thought ? "<think>\n" : "\n</think>\n\n");
        s->is_thinking = is_thought;
        s->put(s->user, s->text + p.at, p.n, !is_thought);
    }
}

void ig_cli_show(ig_cli_shown *s, const char *text, size_t n) {
    if (!s->to) {
        s->put(s->user, text, n, true);
        return;
    }
    fwrite(text, 1, n, s->to);
    show_parts(s, false);
}

void ig_cli_shown_close(ig_cli_shown *s) {
    if (!s->to) return;
    show_parts(s, true);
    fclose(s->to);
    free(s->text);
    s->to = NULL;
}

const char *ig_cli_answer_head(const ig_cli_app *app) {
    const ig_channel_form *form = app->grammar ? ig_channels_in(app->info.chat_template) : NULL;
    return form ? form->answers : "";
}
