/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen chat`: a conversation. Every turn hands the whole conversation to
 * the session, which computes only what is new. Ctrl-C stops the answer, which
 * stays in the conversation as far as it came.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/line.h"

typedef struct conversation {
    ig_cli_app app;
    ig_session *session;
    ig_sampler *sampler;
    ig_chat_message *messages; /* contents are owned */
    size_t n_messages, cap;
    FILE *answer; /* text of the turn at work */
    bool at_line_start;
} conversation;

/* Takes a copy of `content`. */
static bool add_message(conversation *c, const char *role, const char *content) {
    if (c->n_messages == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 16;
        ig_chat_message *more = realloc(c->messages, cap * sizeof *more);
        if (!more) return false;
        c->messages = more;
        c->cap = cap;
    }
    char *copy = strdup(content);
    if (!copy) return false;
    c->messages[c->n_messages++] = (ig_chat_message){role, copy};
    return true;
}

static void drop_messages(conversation *c, size_t keep) {
    while (c->n_messages > keep) free((char *)c->messages[--c->n_messages].content);
}

/* Starts over with the system message only. */
static void reset(conversation *c) {
    drop_messages(c, 0);
    if (c->app.o->system) add_message(c, "system", c->app.o->system);
}

static bool on_text(void *user, const char *text, size_t n) {
    conversation *c = user;
    fwrite(text, 1, n, c->answer);
    ig_cli_put(text, n);
    if (n) c->at_line_start = text[n - 1] == '\n';
    return ig_cli_interrupted() != 0 || ferror(stdout);
}

/* The tokens of the whole conversation; the exit code. */
static int prompt_tokens(conversation *c, int32_t **ids, size_t *n_ids) {
    ig_error err = {0};
    size_t n = 0;
    if (ig_chat_prompt(&n, c->app.model, c->messages, c->n_messages, true, NULL, 0, &err))
        return ig_cli_fail(c->app.o, &err);
    char *text = malloc(n + 1);
    if (!text) return ig_cli_complain(c->app.o, "out of memory for %zu bytes", n + 1);
    int code;
    if (ig_chat_prompt(&n, c->app.model, c->messages, c->n_messages, true, text, n + 1, &err))
        code = ig_cli_fail(c->app.o, &err);
    else
        code = ig_cli_tokens(ids, n_ids, &c->app, text, n, IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL);
    free(text);
    return code;
}

/* Answers the last message. What fails drops that message, so that the conversation can go on. */
static int answer(conversation *c) {
    const ig_cli_options *o = c->app.o;
    int32_t *ids = NULL;
    size_t n_ids = 0, n_text = 0;
    char *text = NULL;
    ig_error err = {0};
    ig_generate_result result = {0};
    ig_generate_options generation = ig_generate_defaults();
    generation.n_predict = o->predict;
    generation.stops = o->stops.v;
    generation.n_stops = (size_t)o->stops.n;
    generation.on_text = on_text;
    generation.user = c;

    int code = prompt_tokens(c, &ids, &n_ids);
    if (!code && n_ids >= (size_t)ig_session_ctx(c->session))
        code = ig_cli_complain(
            o, "the conversation has %zu tokens, but the context holds %d: /reset starts over, -c makes room", n_ids,
            ig_session_ctx(c->session));
    if (!code && !(c->answer = open_memstream(&text, &n_text))) code = ig_cli_complain(o, "out of memory");
    if (code) goto done;

    c->at_line_start = false;
    ig_status status = ig_cli_sync(&c->app, c->session, ids, n_ids, &err);
    if (!status) status = ig_generate(&result, c->session, c->sampler, &generation, &err);
    if (!c->at_line_start) ig_cli_put("\n", 1);
    if (fclose(c->answer) != 0) text = NULL;
    if (status && status != IG_E_INTERRUPTED)
        code = ig_cli_fail(o, &err);
    else if (text && n_text == 0 && ig_cli_interrupted())
        drop_messages(c, c->n_messages - 1); /* stopped before the answer began: the question is withdrawn */
    else if (!text || !add_message(c, "assistant", text))
        code = ig_cli_complain(o, "out of memory");
    else if (result.finish == IG_FINISH_CONTEXT)
        ig_cli_complain(o, "the context of %d tokens is full: /reset starts over", ig_session_ctx(c->session));
done:
    if (code) drop_messages(c, c->n_messages - 1);
    free(text);
    free(ids);
    return code;
}

static const char help_text[] =
    "/help    this list\n"
    "/reset   forget the conversation\n"
    "/stats   what the session did so far\n"
    "/exit    end (also Ctrl-D)\n"
    "Ctrl-C stops an answer. A backslash at a line's end, or \"\"\" around them, joins lines.\n";

/* False: end. */
static bool obey(conversation *c, const char *command) {
    if (strcmp(command, "/exit") == 0 || strcmp(command, "/quit") == 0 || strcmp(command, "/bye") == 0) return false;
    if (strcmp(command, "/reset") == 0)
        reset(c);
    else if (strcmp(command, "/stats") == 0)
        ig_cli_print_stats(&c->app, c->session);
    else if (strcmp(command, "/help") == 0)
        fputs(help_text, stdout);
    else
        fprintf(stderr, "no command '%s' (see /help)\n", command);
    return true;
}

static int talk(conversation *c) {
    ig_cli_reader *reader = ig_cli_reader_open();
    if (!reader) return ig_cli_complain(c->app.o, "out of memory");
    bool is_terminal = ig_cli_reader_is_terminal(reader);
    int code = IG_EXIT_OK;
    if (is_terminal) printf("%s. /help lists the commands.\n", c->app.info.name[0] ? c->app.info.name : c->app.path);
    for (;;) {
        const char *message;
        ig_cli_read got = ig_cli_reader_next(reader, &message);
        if (got == IG_READ_INTERRUPTED) {
            if (!is_terminal || ig_cli_interrupted() == SIGTERM) {
                code = IG_EXIT_INTERRUPTED;
                break;
            }
            if (!message[0]) puts("(Ctrl-D or /exit ends)");
            continue;
        }
        if (got == IG_READ_END) break;
        if (message[strspn(message, " \t\n")] == 0) continue;
        if (message[0] == '/' && !strchr(message, '\n') && !strchr(message, ' ')) {
            if (!obey(c, message)) break;
            continue;
        }
        if (!add_message(c, "user", message)) {
            code = ig_cli_complain(c->app.o, "out of memory");
            break;
        }
        /* On a terminal the user can go on after a failure; a script is told at the end. */
        int failed = answer(c);
        if (failed && !is_terminal) code = failed;
        if (ig_cli_interrupted() && (!is_terminal || ig_cli_interrupted() == SIGTERM)) {
            code = IG_EXIT_INTERRUPTED;
            break;
        }
    }
    if (is_terminal) putchar('\n');
    ig_cli_reader_close(reader);
    return code;
}

int ig_cli_chat(const ig_cli_options *o) {
    conversation c = {0};
    ig_error err = {0};
    int code = ig_cli_open(&c.app, o, false);
    if (!code && !c.app.info.chat_format[0])
        code = ig_cli_complain(o, "%s has no chat template that is recognised: 'infinigen run --raw' continues texts",
                               c.app.path);
    if (!code) {
        ig_session_options session = ig_cli_session_options(&c.app);
        ig_sampler_options sampling = ig_cli_sampler_options(o, ig_cli_seed(o));
        if (ig_session_open(&c.session, c.app.model, &session, &err) ||
            ig_sampler_open(&c.sampler, c.app.model, &sampling, &err))
            code = ig_cli_fail(o, &err);
    }
    if (!code) {
        reset(&c);
        code = talk(&c);
    }
    drop_messages(&c, 0);
    free(c.messages);
    ig_sampler_close(c.sampler);
    ig_session_close(c.session);
    return ig_cli_close(&c.app, code);
}
