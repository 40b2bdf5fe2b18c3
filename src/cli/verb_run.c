/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen run`: one prompt, one answer. The text goes to standard output as
 * it comes, or into one JSON object at the end. Ctrl-C ends the generation,
 * what was made is kept and the statistics are printed.
 */
#define _GNU_SOURCE
#include "cli/chat_prompt.h"
#include "cli/shown.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct answer {
    FILE *kept; /* with --json: all text */
    char *text;
    size_t n;
    char last; /* last byte shown */
    ig_cli_shown shown;
} answer;

static void put_text(void *user, const char *text, size_t n, bool is_said) {
    answer *a = user;
    (void)is_said;
    if (a->kept)
        fwrite(text, 1, n, a->kept);
    else
        ig_cli_put(text, n);
    if (n) a->last = text[n - 1];
}

static bool on_text(void *user, const char *text, size_t n) {
    answer *a = user;
    ig_cli_show(&a->shown, text, n);
    return ig_cli_interrupted() != 0 || ferror(stdout);
}

static bool is_chat(const ig_cli_app *app) { return !app->o->raw && (app->o->chat || app->info.chat_template); }

/* Puts the text into the chat template unless --raw; the exit code. Sets *flags for the tokenizer. */
static int apply_template(ig_cli_text *text, int *flags, const ig_cli_app *app) {
    const ig_cli_options *o = app->o;
    *flags = IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_PARSE_SPECIAL;
    if (!is_chat(app)) {
        if (!o->system) return IG_EXIT_OK;
        ig_cli_complain(o, "--system needs a chat template, and %s has none", app->path);
        return IG_EXIT_USAGE;
    }
    if (strlen(text->data) != text->n) return ig_cli_complain(o, "the text contains a zero byte: give it with --raw");
    if (app->info.chat_error)
        return ig_cli_complain(o, "%s: its chat template cannot be used: %s; --raw gives the text as it is", app->path,
                               app->info.chat_error);

    ig_cli_text prompt;
    ig_chat_message messages[2];
    size_t n_messages = 0;
    if (o->system) messages[n_messages++] = (ig_chat_message){"system", o->system};
    messages[n_messages++] = (ig_chat_message){"user", text->data};
    int code = ig_cli_chat_prompt(&prompt, app, messages, n_messages, true);
    if (code) return code;
    free(text->data);
    *text = prompt;
    return IG_EXIT_OK;
}

/* Without -c a prompt that does not fit into the usual context gets one that holds it, as far as the model goes. The
 * usual one is that of a plain cache: what the options ask for, such as a RAM limit, may not do for it and need not. */
static int fit_context(ig_session_options *options, const ig_cli_app *app, size_t n_prompt) {
    const ig_cli_options *o = app->o;
    ig_cache_plan_info plan;
    ig_error err = {0};
    ig_session_options plain = ig_session_defaults();
    plain.n_ctx = options->n_ctx;
    plain.cache.policy = "full";
    if (ig_cache_plan(&plan, app->model, &plain, &err)) return ig_cli_fail(o, &err);
    size_t want = n_prompt + (size_t)(o->predict > 0 ? o->predict : 1);
    if (o->ctx == 0 && want > (size_t)plan.n_ctx && app->info.n_ctx_train > plan.n_ctx) {
        options->n_ctx = want < (size_t)app->info.n_ctx_train ? (int)want : app->info.n_ctx_train;
        plan.n_ctx = options->n_ctx;
    }
    if (n_prompt > (size_t)plan.n_ctx)
        return ig_cli_complain(o, "the prompt has %zu tokens, but the context holds %d%s", n_prompt, plan.n_ctx,
                               o->ctx ? " (-c)" : ", as many as the model was trained for (-c goes beyond)");
    return IG_EXIT_OK;
}

/* Ends the text's line where more is to come: on a terminal, or where both streams go to one file or pipe. The text of
 * a standard output of its own stays as it is. */
static void end_line(const answer *a, bool is_interrupted) {
    struct stat out, err;
    bool is_shared = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
                     out.st_ino == err.st_ino;
    bool is_terminal = isatty(STDOUT_FILENO), echoed = is_terminal && is_interrupted; /* ^C stands there */
    if ((is_terminal || is_shared) && (a->last != '\n' || echoed)) putchar('\n');
    ig_cli_flush();
}

static const char *const finish_names[] = {"length", "end", "stop", "context", "interrupted"};

static int report(const ig_cli_app *app, const ig_session *s, const answer *a, size_t n_prompt, uint64_t seed,
                  const ig_generate_result *result) {
    ig_session_stats st;
    ig_session_get_stats(s, &st);
    if (app->o->json) {
        json_t *json = ig_cli_report(app, s);
        json_object_set_new(json, "text", ig_text_stringn(a->text, a->n));
        json_object_set_new(json, "tokens_prompt", json_integer((json_int_t)n_prompt));
        json_object_set_new(json, "tokens_generated", json_integer(result->n_tokens));
        json_object_set_new(json, "finish", json_string(finish_names[result->finish]));
        json_object_set_new(json, "seed", json_integer((json_int_t)seed));
        if (result->n_tokens) ig_cli_report_first_token(json, st.prefill_seconds + result->first_token_seconds);
        return ig_cli_print_json(json);
    }
    if (ferror(stdout)) return IG_EXIT_OK; /* main() says so; what was counted is of no use */
    bool interrupted = result->finish == IG_FINISH_INTERRUPTED;
    bool has_stats = isatty(STDERR_FILENO) || interrupted || app->o->verbose;
    if (has_stats || isatty(STDOUT_FILENO)) end_line(a, interrupted);
    if (has_stats) {
        if (isatty(STDOUT_FILENO)) fputc('\n', stderr);
        ig_cli_print_stats(app, s);
        fprintf(stderr, "seed        %llu, ended by %s\n", (unsigned long long)seed, finish_names[result->finish]);
    } else {
        if (app->o->audit) end_line(a, false);
        ig_cli_print_audits(s);
    }
    return IG_EXIT_OK;
}

static int generate(ig_cli_app *app, const int32_t *ids, size_t n_ids) {
    const ig_cli_options *o = app->o;
    ig_cache *cache = NULL;
    ig_session *s = NULL;
    ig_sampler *sampler = NULL;
    ig_error err = {0};
    answer a = {.shown = {.put = put_text, .user = &a}};
    uint64_t seed = ig_cli_seed(o);
    ig_generate_result result = {.finish = IG_FINISH_INTERRUPTED};
    ig_session_options options = ig_cli_session_options(app);
    ig_sampler_options sampling = ig_cli_sampler_options(app, seed);
    ig_generate_options generation = ig_generate_defaults();
    generation.n_predict = o->predict;
    generation.ignore_end = o->ignore_end;
    generation.special = o->special;
    generation.stops = o->stops.v;
    generation.n_stops = (size_t)o->stops.n;
    generation.on_text = on_text;
    generation.user = &a;

    int code = fit_context(&options, app, n_ids);
    if (!code) code = ig_cli_check_draft(app, &options);
    if (!code) code = ig_cli_shown_open(&a.shown, app, is_chat(app), &generation.special);
    if (code) return code;
    ig_status status = ig_cli_open_session(&s, &cache, app, &options, 1, &err);
    if (!status) status = ig_sampler_open(&sampler, app->model, &sampling, &err);
    if (!status && o->json && !(a.kept = open_memstream(&a.text, &a.n))) {
        code = ig_cli_complain(o, "out of memory");
        goto done;
    }
    if (!status) status = ig_cli_sync(app, s, ids, n_ids, &err);
    if (!status) status = ig_generate(&result, s, sampler, &generation, &err);
    ig_cli_shown_close(&a.shown);
    if (a.kept) {
        fclose(a.kept);
        a.kept = NULL;
    }
    if (status == IG_E_INTERRUPTED) result.finish = IG_FINISH_INTERRUPTED;
    if (status && status != IG_E_INTERRUPTED) {
        if (a.last && !o->json) end_line(&a, false);
        code = ig_cli_fail(o, &err);
    } else {
        code = report(app, s, &a, n_ids, seed, &result);
    }
    ig_cli_commit(app, cache);
    if (!code && result.finish == IG_FINISH_INTERRUPTED) code = IG_EXIT_INTERRUPTED;
done:
    ig_cli_shown_close(&a.shown);
    free(a.text);
    ig_sampler_close(sampler);
    ig_session_close(s);
    ig_cache_close(cache);
    return code;
}

int ig_cli_run(const ig_cli_options *o) {
    ig_cli_app app;
    ig_cli_text text = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int flags;
    int code = ig_cli_read_input(&text, o);
    if (code) return code;
    if (text.n == 0) {
        ig_cli_complain(o, "the text is empty: give -p TEXT, -f FILE, or pipe it in");
        free(text.data);
        return IG_EXIT_USAGE;
    }
    code = ig_cli_open(&app, o, false);
    if (!code) ig_cli_warn_of_unread_input(o);
    if (!code) code = apply_template(&text, &flags, &app);
    size_t most = o->ctx ? (size_t)o->ctx : app.info.n_ctx_train > 0 ? (size_t)app.info.n_ctx_train : INT_MAX;
    if (!code) code = ig_cli_prompt_tokens(&ids, &n_ids, &app, &text, flags, most);
    if (!code && n_ids == 0) code = ig_cli_complain(o, "the text has no tokens");
    if (!code) code = generate(&app, ids, n_ids);
    free(ids);
    free(text.data);
    return ig_cli_close(&app, code);
}
