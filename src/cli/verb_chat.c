/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen chat`: a conversation. Every turn hands the whole conversation to
 * the session, which computes only what is new. Ctrl-C stops the answer, which
 * stays in the conversation as far as it came. Where the context gets full, the
 * oldest turns leave it.
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
    ig_chat_message *messages; /* the system message if there is one, then turns; contents are owned */
    size_t n_messages, cap;
    FILE *answer; /* text of the turn at work */
    bool at_line_start;
    bool is_terminal;
    int code; /* a script is told at the end what failed; on a terminal the user has seen it */
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

/* ---- what the session is given -------------------------------------------- */

static size_t n_system(const conversation *c) {
    return c->n_messages && strcmp(c->messages[0].role, "system") == 0 ? 1 : 0;
}

/* Whole ones: a message that waits for its answer is none. */
static size_t n_turns(const conversation *c) { return (c->n_messages - n_system(c)) / 2; }

static void drop_oldest(conversation *c, size_t n_leaving) {
    ig_chat_message *first = c->messages + n_system(c);
    size_t n = 2 * n_leaving;
    for (size_t i = 0; i < n; i++) free((char *)first[i].content);
    c->n_messages -= n;
    memmove(first, first + n, (c->n_messages - n_system(c)) * sizeof *first);
}

/* The text of the conversation without its `n_without` oldest turns; the exit code. Free the text in any case. */
static int prompt_text(ig_cli_text *out, const conversation *c, size_t n_without) {
    ig_error err = {0};
    size_t n = 0, n_first = n_system(c), n_view = c->n_messages - 2 * n_without;
    char *text = NULL;
    int code = IG_EXIT_OK;
    ig_chat_message *view = malloc(n_view * sizeof *view);
    if (view) {
        memcpy(view, c->messages, n_first * sizeof *view);
        memcpy(view + n_first, c->messages + n_first + 2 * n_without, (n_view - n_first) * sizeof *view);
        if (ig_chat_prompt(&n, c->app.model, view, n_view, true, NULL, 0, &err)) code = ig_cli_fail(c->app.o, &err);
    }
    if (!code && !(view && (text = malloc(n + 1)))) code = ig_cli_complain(c->app.o, "out of memory");
    if (!code && ig_chat_prompt(&n, c->app.model, view, n_view, true, text, n + 1, &err))
        code = ig_cli_fail(c->app.o, &err);
    *out = (ig_cli_text){.data = text, .n = n};
    free(view);
    return code;
}

enum { PROMPT_FLAGS = IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL };

/* Its tokens. */
static int prompt_tokens(int32_t **ids, size_t *n_ids, const conversation *c, size_t n_without) {
    ig_cli_text text;
    *ids = NULL;
    int code = prompt_text(&text, c, n_without);
    if (!code) code = ig_cli_tokens(ids, n_ids, &c->app, text.data, text.n, PROMPT_FLAGS);
    free(text.data);
    return code;
}

/* Bytes of a message from which on it is first looked at alone: one that is far too long is not tokenised to its end.
 */
enum { LONG_MESSAGE = 1 << 20 };

static int check_long_message(const conversation *c) {
    int32_t *ids = NULL;
    size_t n_ids;
    ig_cli_text text;
    if (strlen(c->messages[c->n_messages - 1].content) < LONG_MESSAGE) return IG_EXIT_OK;
    int code = prompt_text(&text, c, n_turns(c));
    if (!code)
        code = ig_cli_prompt_tokens(&ids, &n_ids, &c->app, &text, PROMPT_FLAGS, (size_t)ig_session_ctx(c->session));
    free(ids);
    free(text.data);
    return code;
}

/* The fewest of the oldest turns without which the prompt has at most `limit` tokens, or all; the exit code. */
static int count_leaving(size_t *out, const conversation *c, size_t limit) {
    size_t least = 0, most = n_turns(c);
    while (least < most) {
        size_t middle = least + (most - least) / 2, n_ids = 0;
        int32_t *ids;
        int code = prompt_tokens(&ids, &n_ids, c, middle);
        free(ids);
        if (code) return code;
        if (n_ids <= limit)
            most = middle;
        else
            least = middle + 1;
    }
    *out = most;
    return IG_EXIT_OK;
}

/* The tokens of the conversation, with room for an answer: a quarter of the context, or what -n asks for if that is
 * less. Else the oldest turns leave until half of the context is free. As many at once because nothing behind the
 * system message is a prefix of what the session holds any more: what stays is computed anew. The exit code. */
static int make_room(int32_t **ids, size_t *n_ids, conversation *c) {
    const ig_cli_options *o = c->app.o;
    size_t ctx = (size_t)ig_session_ctx(c->session), room = ctx / 4, n_leaving = 0, n_before;
    if (o->predict >= 0 && (size_t)o->predict < room) room = (size_t)o->predict;
    int code = check_long_message(c);
    if (!code) code = prompt_tokens(ids, n_ids, c, 0);
    if (code || *n_ids + room <= ctx) return code;
    n_before = *n_ids;
    code = count_leaving(&n_leaving, c, ctx / 2);
    if (!code) {
        free(*ids);
        code = prompt_tokens(ids, n_ids, c, n_leaving);
    }
    if (!code && *n_ids >= ctx)
        return ig_cli_complain(o,
                               "the message alone makes a prompt of %zu tokens, but the context holds %zu (-c makes "
                               "room): it is left out",
                               *n_ids, ctx);
    if (code || !n_leaving) return code;
    drop_oldest(c, n_leaving);
    ig_cli_complain(o, "the context of %zu tokens is nearly full: the oldest %zu of %zu turns leave it (%zu tokens)",
                    ctx, n_leaving, n_leaving + n_turns(c), n_before - *n_ids);
    return IG_EXIT_OK;
}

/* ---- turns ---------------------------------------------------------------- */

/* Answers the last message; the exit code. Adds no message if it fails or is stopped before the answer begins. */
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

    int code = make_room(&ids, &n_ids, c);
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
        code = IG_EXIT_OK;
    else if (!text || !add_message(c, "assistant", text))
        code = ig_cli_complain(o, "out of memory");
    else if (result.finish == IG_FINISH_CONTEXT)
        ig_cli_complain(o, "the context of %d tokens is full, which ends the answer: the next message makes room",
                        ig_session_ctx(c->session));
done:
    free(text);
    free(ids);
    return code;
}

/* Answers the last message. Where that fails or is stopped before the answer begins, the turn is as it was: with the
 * answer `old`, which is owned, or not there at all (NULL). */
static void take_turn(conversation *c, char *old) {
    int failed = answer(c);
    if (failed && !c->is_terminal) c->code = failed;
    bool is_answered = strcmp(c->messages[c->n_messages - 1].role, "assistant") == 0;
    if (is_answered)
        free(old);
    else if (old)
        c->messages[c->n_messages++] = (ig_chat_message){"assistant", old};
    else
        drop_messages(c, c->n_messages - 1);
}

/* ---- commands -------------------------------------------------------------- */

static void show_stats(conversation *c) { ig_cli_print_stats(&c->app, c->session); }

static void answer_again(conversation *c) {
    if (n_turns(c) == 0)
        ig_cli_complain(c->app.o, "there is no message to answer");
    else
        take_turn(c, (char *)c->messages[--c->n_messages].content);
}

static void undo(conversation *c) {
    if (n_turns(c) == 0)
        ig_cli_complain(c->app.o, "there is no turn to take back");
    else
        drop_messages(c, c->n_messages - 2);
}

static void show_help(conversation *c);

static const struct {
    const char *name, *help;
    void (*obey)(conversation *c); /* NULL: ends */
} commands[] = {
    {"/help", "this list", show_help},
    {"/again", "answer the last message anew", answer_again},
    {"/undo", "take the last message and its answer back", undo},
    {"/reset", "forget the conversation", reset},
    {"/stats", "what the session did so far", show_stats},
    {"/exit", "end (also /quit, /bye, Ctrl-D)", NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void show_help(conversation *c) {
    (void)c;
    for (size_t i = 0; i < N_COMMANDS; i++) printf("%-8s %s\n", commands[i].name, commands[i].help);
    puts(
        "Ctrl-C stops an answer or withdraws a line. A backslash at a line's end, or \"\"\" around\n"
        "them, joins lines; what is pasted is one message.");
}

/* False: end. */
static bool obey(conversation *c, const char *command) {
    if (strcmp(command, "/quit") == 0 || strcmp(command, "/bye") == 0) return false;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strcmp(command, commands[i].name) != 0) continue;
        if (commands[i].obey) commands[i].obey(c);
        return commands[i].obey != NULL;
    }
    /* What was typed is not shown again: in a paste it could drive the terminal. */
    char names[128];
    int n = 0;
    for (size_t i = 0; i < N_COMMANDS; i++) n += snprintf(names + n, sizeof names - (size_t)n, " %s", commands[i].name);
    ig_cli_complain(c->app.o, "no such command; there are%s", names);
    return true;
}

/* What was typed or piped; false: end. */
static bool hear(conversation *c, const char *message) {
    if (message[strspn(message, " \t\n")] == 0) return true;
    if (message[0] == '/' && !strpbrk(message, " \n")) return obey(c, message);
    if (add_message(c, "user", message))
        take_turn(c, NULL);
    else
        c->code = ig_cli_complain(c->app.o, "out of memory");
    return true;
}

static int talk(conversation *c) {
    ig_cli_reader *reader = ig_cli_reader_open();
    if (!reader) return ig_cli_complain(c->app.o, "out of memory");
    c->is_terminal = ig_cli_reader_is_terminal(reader);
    if (c->is_terminal) printf("%s. /help lists the commands.\n", c->app.info.name[0] ? c->app.info.name : c->app.path);
    for (bool goes_on = true; goes_on;) {
        const char *message;
        ig_cli_read got = ig_cli_reader_next(reader, &message);
        goes_on = got == IG_READ_INTERRUPTED || (got == IG_READ_MESSAGE && hear(c, message));
        if (got != IG_READ_INTERRUPTED && !ig_cli_interrupted()) continue;
        if (!c->is_terminal || ig_cli_interrupted() == SIGTERM) {
            c->code = IG_EXIT_INTERRUPTED;
            goes_on = false;
        } else if (got == IG_READ_INTERRUPTED && !message[0]) {
            puts("(Ctrl-D or /exit ends)");
        }
    }
    if (c->is_terminal) putchar('\n');
    ig_cli_reader_close(reader);
    return c->code;
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
