/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen chat`: a conversation. Every turn hands the whole conversation to
 * the session, which computes only what is new. Ctrl-C stops the answer, which
 * stays in the conversation as far as it came. Where the context gets full, the
 * oldest turns leave it. With --kv-store conversations are saved, as a note with
 * their messages beside the keys and values of their prompt.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/chat_prompt.h"
#include "cli/keyboard.h"
#include "cli/line.h"
#include "cli/messages.h"
#include "cli/shown.h"

typedef struct conversation {
    ig_cli_app app;
    ig_cache *cache; /* with --kv-store: of the session and of one that saves */
    ig_session *session;
    ig_sampler *sampler;
    uint64_t seed;
    ig_cli_messages messages; /* the system message if there is one, then turns */
    FILE *answer;             /* text of the turn at work */
    ig_cli_shown shown;
    bool at_line_start;
    bool is_terminal;
    int code; /* a script is told at the end what failed; on a terminal the user has seen it */
} conversation;

/* Starts over with the system message only. */
static void reset(conversation *c) {
    ig_cli_messages_cut(&c->messages, 0);
    if (c->app.o->system) ig_cli_messages_add(&c->messages, "system", c->app.o->system);
}

static void put_text(void *user, const char *text, size_t n, bool is_said) {
    conversation *c = user;
    if (is_said) fwrite(text, 1, n, c->answer);
    ig_cli_put(text, n);
    if (n) c->at_line_start = text[n - 1] == '\n';
}

static bool on_text(void *user, const char *text, size_t n) {
    conversation *c = user;
    ig_cli_show(&c->shown, text, n);
    return ig_cli_interrupted() != 0 || ferror(stdout);
}

/* ---- what the session is given -------------------------------------------- */

/* Whole ones: a message that waits for its answer is none. */
static size_t n_turns(const conversation *c) { return (c->messages.n - ig_cli_messages_system(&c->messages)) / 2; }

static const char *plural(const conversation *c) { return n_turns(c) == 1 ? "" : "s"; }

static void drop_oldest(conversation *c, size_t n_leaving) {
    size_t n = 2 * n_leaving, n_first = ig_cli_messages_system(&c->messages);
    ig_chat_message *first = c->messages.v + n_first;
    for (size_t i = 0; i < n; i++) free((char *)first[i].content);
    c->messages.n -= n;
    memmove(first, first + n, (c->messages.n - n_first) * sizeof *first);
}

/* The text of the conversation without its `n_without` oldest turns, up to where an answer begins if it waits for one;
 * the exit code. Free the text in any case. */
static int prompt_text(ig_cli_text *out, const conversation *c, size_t n_without) {
    const ig_chat_message *all = c->messages.v;
    size_t n_first = ig_cli_messages_system(&c->messages), n_view = c->messages.n - 2 * n_without;
    bool waits = n_view > 0 && strcmp(all[c->messages.n - 1].role, "user") == 0;
    ig_chat_message *view = malloc(n_view * sizeof *view);
    *out = (ig_cli_text){0};
    if (!view) return ig_cli_complain(c->app.o, "out of memory");
    memcpy(view, all, n_first * sizeof *view);
    memcpy(view + n_first, all + n_first + 2 * n_without, (n_view - n_first) * sizeof *view);
    int code = ig_cli_chat_prompt(out, &c->app, view, n_view, waits);
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
    if (strlen(c->messages.v[c->messages.n - 1].content) < LONG_MESSAGE) return IG_EXIT_OK;
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
    c->shown = (ig_cli_shown){.put = put_text, .user = c};
    if (!code) code = ig_cli_shown_open(&c->shown, &c->app, true, &generation.special);
    if (!code && !(c->answer = open_memstream(&text, &n_text))) code = ig_cli_complain(o, "out of memory");
    if (code) goto done;

    c->at_line_start = false;
    ig_status status = ig_cli_sync(&c->app, c->session, ids, n_ids, &err);
    if (!status) status = ig_generate(&result, c->session, c->sampler, &generation, &err);
    ig_cli_shown_close(&c->shown);
    if (!c->at_line_start) ig_cli_put("\n", 1);
    if (fclose(c->answer) != 0) text = NULL;
    if (status && status != IG_E_INTERRUPTED)
        code = ig_cli_fail(o, &err);
    else if (text && n_text == 0 && ig_cli_interrupted())
        code = IG_EXIT_OK;
    else if (!text || !ig_cli_messages_add(&c->messages, "assistant", text))
        code = ig_cli_complain(o, "out of memory");
    else if (result.finish == IG_FINISH_CONTEXT)
        ig_cli_complain(o, "the context of %d tokens is full, which ends the answer: the next message makes room",
                        ig_session_ctx(c->session));
done:
    ig_cli_shown_close(&c->shown);
    free(text);
    free(ids);
    return code;
}

/* Answers the last message. Where that fails or is stopped before the answer begins, the turn is as it was: with the
 * answer `old`, which is owned, or not there at all (NULL). */
static int take_turn(conversation *c, char *old) {
    int failed = answer(c);
    ig_cli_commit(&c->app, c->cache);
    bool is_answered = strcmp(c->messages.v[c->messages.n - 1].role, "assistant") == 0;
    if (is_answered)
        free(old);
    else if (old)
        c->messages.v[c->messages.n++] = (ig_chat_message){"assistant", old};
    else
        ig_cli_messages_cut(&c->messages, c->messages.n - 1);
    return failed;
}

/* ---- saved conversations ----------------------------------------------------- */

/* What the next prompt begins with goes to the store, in a session of its own: the answers that this one holds were
 * decoded, with the entries that the policy chose, and as parts of a prompt they have other keys and values. What is
 * there is taken, the rest computed. */
static int store_prompt(conversation *c) {
    ig_error err = {0};
    ig_session *saver = NULL;
    int32_t *ids;
    size_t n_ids, n_ctx = (size_t)ig_session_ctx(c->session);
    int code = prompt_tokens(&ids, &n_ids, c, 0);
    if (code) return code;
    ig_session_options o = ig_cli_session_options(&c->app);
    o.shared = c->cache;
    ig_cli_use_policy(&c->app, &o.cache, ig_cli_prompt_policy(o.cache.policy), "none");
    ig_status status = ig_session_open(&saver, c->app.model, &o, &err);
    if (!status) status = ig_cli_sync(&c->app, saver, ids, n_ids < n_ctx ? n_ids : n_ctx, &err);
    ig_session_close(saver);
    if (!status) status = ig_cache_commit(c->cache, &err);
    free(ids);
    return status ? ig_cli_fail(c->app.o, &err) : IG_EXIT_OK;
}

/* What was typed is shown again only if it is a name. */
static bool is_name(const conversation *c, const char *name) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strspn(name, allowed);
    if (n && n <= 64 && name[0] != '.' && name[n] == 0) return true;
    ig_cli_complain(c->app.o, "a name is 1 to 64 letters, digits, dots, dashes and underscores, no dot first");
    return false;
}

/* The messages are safe before the long part begins. */
static int save(conversation *c, const char *name) {
    ig_session_stats stats;
    ig_error err = {0};
    if (n_turns(c) == 0) return ig_cli_complain(c->app.o, "there is no turn to save");
    if (!is_name(c, name)) return IG_EXIT_FAILED;
    char *text = ig_cli_messages_write(&c->messages);
    if (!text) return ig_cli_complain(c->app.o, "out of memory");
    ig_status status = ig_cache_note_put(c->cache, name, text, strlen(text), &err);
    free(text);
    if (status) return ig_cli_fail(c->app.o, &err);
    ig_session_get_stats(c->session, &stats);
    if (!stats.shares) {
        ig_cli_complain(c->app.o,
                        "%s is saved without keys and values, which %s cannot take over: they will be "
                        "computed anew",
                        name, c->app.o->kv_limit.n ? "--kv-limit" : stats.policy);
        return IG_EXIT_OK;
    }
    int code = store_prompt(c);
    if (code)
        ig_cli_complain(c->app.o, "%s is saved; what is missing of its keys and values will be computed anew", name);
    else if (c->is_terminal)
        printf("%s is saved: %zu turn%s\n", name, n_turns(c), plural(c));
    return code;
}

static bool show_note(void *user, const ig_cache_note *note) {
    char size[32], when[32] = "";
    time_t written = (time_t)note->written;
    struct tm local;
    if (localtime_r(&written, &local)) strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    printf("%-24s %8s  %s\n", note->name, ig_cli_size(size, note->n_bytes), when);
    ++*(size_t *)user;
    return false;
}

static int list_saved(conversation *c) {
    ig_error err = {0};
    size_t n = 0;
    if (ig_cache_note_list(c->cache, show_note, &n, &err)) return ig_cli_fail(c->app.o, &err);
    return n ? IG_EXIT_OK : ig_cli_complain(c->app.o, "nothing is saved of this model");
}

static int resume(conversation *c, const char *name) {
    ig_error err = {0};
    ig_cli_messages saved = {0};
    void *text;
    size_t n;
    if (!name[0]) return list_saved(c);
    if (!is_name(c, name)) return IG_EXIT_FAILED;
    ig_status status = ig_cache_note_get(&text, &n, c->cache, name, &err);
    if (status == IG_E_NOT_FOUND)
        return ig_cli_complain(c->app.o, "no conversation '%s' is saved: /resume lists those that are", name);
    if (status) return ig_cli_fail(c->app.o, &err);
    const char *wrong = ig_cli_messages_read(&saved, text, n);
    free(text);
    if (wrong) return ig_cli_complain(c->app.o, "%s cannot be resumed: %s", name, wrong);
    ig_cli_messages_close(&c->messages);
    c->messages = saved;
    if (c->is_terminal) printf("%s is resumed: %zu turn%s\n", name, n_turns(c), plural(c));
    return IG_EXIT_OK;
}

static int with_store(conversation *c, const char *name, int (*act)(conversation *c, const char *name)) {
    return c->cache ? act(c, name) : ig_cli_complain(c->app.o, "--kv-store DIR says where conversations are saved");
}

/* ---- commands -------------------------------------------------------------- */

static int save_as(conversation *c, const char *name) { return with_store(c, name, save); }
static int resume_from(conversation *c, const char *name) { return with_store(c, name, resume); }

static int show_stats(conversation *c, const char *name) {
    (void)name;
    ig_cli_print_stats(&c->app, c->session);
    fprintf(stderr, "seed        %llu\n", (unsigned long long)c->seed);
    return IG_EXIT_OK;
}

static int forget(conversation *c, const char *name) {
    (void)name;
    reset(c);
    if (c->is_terminal) puts("the conversation is forgotten");
    return IG_EXIT_OK;
}

static int answer_again(conversation *c, const char *name) {
    (void)name;
    if (n_turns(c) == 0) return ig_cli_complain(c->app.o, "there is no message to answer");
    return take_turn(c, (char *)c->messages.v[--c->messages.n].content);
}

static int undo(conversation *c, const char *name) {
    (void)name;
    if (n_turns(c) == 0) return ig_cli_complain(c->app.o, "there is no turn to take back");
    ig_cli_messages_cut(&c->messages, c->messages.n - 2);
    if (c->is_terminal) printf("the last turn is taken back: %zu turn%s left\n", n_turns(c), plural(c));
    return IG_EXIT_OK;
}

static int show_help(conversation *c, const char *name);

static const struct {
    const char *name, *argument, *help;                 /* argument: NULL if it takes none; help: NULL if not listed */
    int (*obey)(conversation *c, const char *argument); /* the exit code; NULL: ends */
} commands[] = {
    {"/help", NULL, "this list", show_help},
    {"/again", NULL, "answer the last message anew", answer_again},
    {"/undo", NULL, "take the last message and its answer back", undo},
    {"/reset", NULL, "forget the conversation", forget},
    {"/save", "NAME", "save the conversation in the directory of --kv-store", save_as},
    {"/resume", "[NAME]", "go on with a saved one; without a name: list them", resume_from},
    {"/stats", NULL, "what the session did so far", show_stats},
    {"/exit", NULL, "end (also /quit, /bye, Ctrl-D)", NULL},
    {"/quit", NULL, NULL, NULL},
    {"/bye", NULL, NULL, NULL},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static int show_help(conversation *c, const char *name) {
    (void)c, (void)name;
    for (size_t i = 0; i < N_COMMANDS && commands[i].help; i++) {
        const char *argument = commands[i].argument ? commands[i].argument : "";
        printf("%s %-*s %s\n", commands[i].name, 14 - (int)strlen(commands[i].name), argument, commands[i].help);
    }
    puts(
        "Ctrl-C stops an answer or withdraws a line. A backslash at a line's end, or \"\"\" around\n"
        "them, joins lines; what is pasted is one message.");
    return IG_EXIT_OK;
}

/* A line that begins with / and is one word, or whose first word is letters: the first one of a path is not. */
static bool is_command(const char *message) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz?";
    if (message[0] != '/' || strchr(message, '\n')) return false;
    size_t n = 1 + strspn(message + 1, letters);
    return message[strcspn(message, " \t")] == 0 || (n > 1 && strchr(" \t", message[n]));
}

/* What was typed is not shown again: in a paste it could drive the terminal. */
static int complain_of_command(const conversation *c) {
    char names[128];
    int n = 0;
    for (size_t i = 0; i < N_COMMANDS && commands[i].help; i++)
        n += snprintf(names + n, sizeof names - (size_t)n, " %s", commands[i].name);
    return ig_cli_complain(c->app.o, "no such command; there are%s (a blank before the / makes it a message)", names);
}

/* A script is told at the end what failed. */
static void note_failure(conversation *c, int code) {
    if (code && !c->is_terminal) c->code = code;
}

/* False: end. */
static bool obey(conversation *c, const char *message) {
    size_t n = strcspn(message, " \t"), i = 0;
    int failed = IG_EXIT_OK;
    const char *argument = message + n + strspn(message + n, " \t");
    while (i < N_COMMANDS && (strlen(commands[i].name) != n || strncmp(commands[i].name, message, n) != 0)) i++;
    if (i == N_COMMANDS) {
        failed = complain_of_command(c);
    } else if (argument[0] && !commands[i].argument) {
        failed =
            ig_cli_complain(c->app.o, "%s stands alone (a blank before the / makes it a message)", commands[i].name);
    } else if (commands[i].obey) {
        char name[80]; /* what does not fit is no name either */
        n = (size_t)snprintf(name, sizeof name, "%s", argument);
        for (n = n < sizeof name ? n : sizeof name - 1; n && strchr(" \t", name[n - 1]); n--) name[n - 1] = 0;
        failed = commands[i].obey(c, name);
    } else {
        return false;
    }
    note_failure(c, failed);
    return true;
}

/* A message of n bytes is answered. */
static void answer_message(conversation *c, const char *message, size_t n) {
    int code;
    if (message[strspn(message, " \t\n")] == 0 && strlen(message) == n) return;
    if (strlen(message) != n)
        code = ig_cli_complain(c->app.o, "the message contains a zero byte: it is left out");
    else if (!ig_cli_messages_add(&c->messages, "user", message))
        code = ig_cli_complain(c->app.o, "out of memory");
    else
        code = take_turn(c, NULL);
    note_failure(c, code);
}

/* What was typed or piped; false: end. */
static bool hear(conversation *c, const char *message, size_t n) {
    if (strlen(message) == n && is_command(message)) return obey(c, message);
    answer_message(c, message, n);
    return true;
}

static int talk(conversation *c, const ig_cli_text *first) {
    ig_cli_reader *reader = ig_cli_reader_open();
    if (!reader) return ig_cli_complain(c->app.o, "out of memory");
    c->is_terminal = ig_cli_reader_is_terminal(reader);
    if (c->is_terminal) printf("%s. /help lists the commands.\n", c->app.info.name[0] ? c->app.info.name : c->app.path);
    for (bool goes_on = true, is_first = first->data; goes_on; is_first = false) {
        const char *message = first->data;
        ig_cli_read got = is_first ? IG_READ_MESSAGE : ig_cli_reader_next(reader, &message);
        if (is_first)
            answer_message(c, message, first->n);
        else
            goes_on = got == IG_READ_INTERRUPTED ||
                      (got == IG_READ_MESSAGE && hear(c, message, ig_cli_reader_length(reader)));
        if (got == IG_READ_NO_MEMORY) c->code = ig_cli_complain(c->app.o, "out of memory for a message");
        if (got != IG_READ_INTERRUPTED && !ig_cli_interrupted()) continue;
        if (!c->is_terminal || ig_cli_interrupted() == SIGTERM) {
            c->code = IG_EXIT_INTERRUPTED;
            goes_on = false;
        } else if (got == IG_READ_INTERRUPTED && !message[0]) {
            puts("(Ctrl-D or /exit ends)");
        }
    }
    if (c->is_terminal)
        putchar('\n');
    else if (!c->code && ig_cli_key_error())
        c->code = ig_cli_complain(c->app.o, "standard input: %s", strerror(ig_cli_key_error()));
    ig_cli_reader_close(reader);
    return c->code;
}

int ig_cli_chat(const ig_cli_options *o) {
    conversation c = {0};
    ig_error err = {0};
    ig_cli_text first = {0};
    int code = o->prompt || o->file ? ig_cli_read_input(&first, o) : IG_EXIT_OK;
    if (code) return code;
    while (first.n && first.data[first.n - 1] == '\n') first.data[--first.n] = 0;
    code = ig_cli_open(&c.app, o, false);
    const char *why = c.app.info.chat_error;
    if (!code && (why || !c.app.info.chat_template))
        code = ig_cli_complain(o, "%s has no chat template%s%s: 'infinigen run --raw' continues texts", c.app.path,
                               why ? " that can be used: " : "", why ? why : "");
    if (!code) {
        ig_session_options session = ig_cli_session_options(&c.app);
        c.seed = ig_cli_seed(o);
        ig_sampler_options sampling = ig_cli_sampler_options(&c.app, c.seed);
        code = ig_cli_check_draft(&c.app, &session);
        if (!code && (ig_cli_open_session(&c.session, &c.cache, &c.app, &session, 2, &err) ||
                      ig_sampler_open(&c.sampler, c.app.model, &sampling, &err)))
            code = ig_cli_fail(o, &err);
    }
    if (!code) {
        reset(&c);
        code = talk(&c, &first);
    }
    free(first.data);
    ig_cli_messages_close(&c.messages);
    ig_sampler_close(c.sampler);
    ig_session_close(c.session);
    ig_cache_close(c.cache);
    return ig_cli_close(&c.app, code);
}
