/* SPDX-License-Identifier: Apache-2.0
 *
 * What the verbs have in common: opening a model with a progress bar, session
 * options from flags, reading texts, Ctrl-C, safe output to a terminal, and
 * the reports that end a run.
 */
#ifndef IG_CLI_APP_H
#define IG_CLI_APP_H

#include "cli/cli.h"
#include "text/json.h"
#include "text/text.h"

/* ---- errors ------------------------------------------------------------- */

/* Prints "infinigen VERB: text" on standard error; the exit code for `err`: 1, 130 if interrupted, 2 if what the
 * library was asked for cannot be, since only options ask. */
int ig_cli_fail(const ig_cli_options *o, const ig_error *err);
/* The same for a failure the program found itself: exit code 1. */
int ig_cli_complain(const ig_cli_options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a file, with what errno says; 130 if that is Ctrl-C. */
int ig_cli_fail_file(const ig_cli_options *o, const char *path);

/* A line of the log, for what is not an error (ig_context_options.log; user: the options). */
void ig_cli_log(void *user, ig_log_level level, const char *text);
/* From here on a model that is cut short, or a file at its limit of size, is an error and not the program's death. */
void ig_cli_guard_files(const ig_cli_options *o);

/* ---- environment, paths ------------------------------------------------- */

/* The debugging variables IG_CPU_MASK and IG_LOG, INFINIGEN_API_KEY, NULL where unset, systemd's LISTEN_FDS, and
 * HF_ENDPOINT. The only place that reads them. */
typedef struct ig_cli_environment {
    const char *cpu, *log, *api_key;
    const char *hub;       /* address of the Hugging Face hub, never NULL */
    const char *listeners; /* how many sockets systemd hands over (sd_listen_fds(3)); NULL: none */
    bool is_handed_on;     /* a server of several models has started the program */
} ig_cli_environment;
ig_cli_environment ig_cli_read_environment(void);

/* "$XDG_CACHE_HOME/infinigen/<rest>" and the like; false if too long for `cap` or no home is known. */
typedef enum ig_cli_place { IG_PLACE_CACHE, IG_PLACE_CONFIG, IG_PLACE_STATE } ig_cli_place;
bool ig_cli_path(char *path, size_t cap, ig_cli_place place, const char *rest);
/* Makes the folders above the last component of `path`. */
bool ig_cli_make_folders(const char *path);

/* ---- Ctrl-C -------------------------------------------------------------- */

/* From here on the first SIGINT or SIGTERM is noted and the next one kills; the same for SIGHUP, if it is wanted. */
void ig_cli_catch_interrupts(bool with_hangup);
void ig_cli_forget_interrupt(void);
int ig_cli_interrupted(void); /* the signal noted, or 0 */

/* ---- progress ------------------------------------------------------------ */

/* A bar on standard error, gone when done and absent where that is not a terminal. */
typedef struct ig_cli_progress {
    const char *label;
    const char *unit; /* "bytes": sizes; else counted, as in "tokens" */
    double start, shown;
    bool visible;
} ig_cli_progress;
ig_cli_progress ig_cli_progress_start(const char *label, const char *unit);
void ig_cli_progress_show(ig_cli_progress *p, uint64_t done, uint64_t total);
void ig_cli_progress_end(ig_cli_progress *p);
/* Before a line of its own on standard error, where a bar may be: it comes again. */
void ig_cli_clear_bar(void);
/* An ig_progress_fn: user is an ig_cli_progress. True once interrupted. */
bool ig_cli_on_progress(void *user, uint64_t done, uint64_t total);

/* ---- text ---------------------------------------------------------------- */

typedef struct ig_cli_text {
    char *data; /* [n + 1], ends with a NUL; free() it */
    size_t n;
} ig_cli_text;
/* The whole of a file, "-" being standard input; exit code. */
int ig_cli_read_file(ig_cli_text *out, const ig_cli_options *o, const char *path);
/* The same of a file that may have no zero byte. */
int ig_cli_read_plain_file(ig_cli_text *out, const ig_cli_options *o, const char *path);
/* The text of the flags: -p, the words after the model, -f, or piped standard input; exit code, 2 if there is none. */
int ig_cli_read_input(ig_cli_text *out, const ig_cli_options *o);
/* Where that leaves something unread that was piped in. */
void ig_cli_warn_of_unread_input(const ig_cli_options *o);

/* The grammar of the flags, in GBNF, to be given to free(); NULL: there is none. The exit code, 2 if there are several.
 */
int ig_cli_read_grammar(char **gbnf, const ig_cli_options *o);

/* Opens a file to write to, after the check that it is none that the verb reads: `model` (NULL: none), or what options
 * name; exit code. */
int ig_cli_create_file(FILE **out, const ig_cli_options *o, const char *model, const char *path);
/* The same where it may keep what it has. */
int ig_cli_open_file(FILE **out, const ig_cli_options *o, const char *model, const char *path, bool is_kept);
/* Closes it. A plain file that is not whole, because of the failure `code` or one here, is removed; exit code. */
int ig_cli_end_file(FILE *f, const ig_cli_options *o, const char *path, int code);
int ig_cli_check_output(const ig_cli_options *o, const char *model, const char *path);

/* Writes text to standard output. On a terminal control characters other than newline and tab are
 * shown as ^X, so that a model cannot drive it. */
void ig_cli_put(const char *text, size_t n);
/* Gives standard output a way that signals do not cut short, before anything is written there. */
void ig_cli_open_output(void);
/* Writes what standard output has buffered. 0, or the number of the first error there was. */
int ig_cli_flush(void);
/* "98.4 MB" */
const char *ig_cli_size(char out[32], uint64_t bytes);

/* ---- trace of the KV cache (trace.c) ------------------------------------- */

/* What a file had stays in it until its first line is written: a command that is refused changes nothing. */
typedef struct ig_cli_trace_file {
    const char *path; /* NULL: it was not asked for */
    FILE *file;
    bool has_begun;
    int why; /* errno of the first line that could not be written; 0: all could */
} ig_cli_trace_file;

typedef struct ig_cli_trace {
    ig_cli_trace_file steps;  /* of --kv-trace */
    ig_cli_trace_file audits; /* of --audit-trace */
    const ig_cli_ints *keys;  /* of --audit-keys: whose weights it has too */
} ig_cli_trace;

struct ig_cli_app;
/* Opens the files of --kv-trace and --audit-trace that were asked for; the exit code. */
int ig_cli_open_trace(struct ig_cli_app *app);
/* Complains if not all could be written; the exit code, where it was `code` so far. */
int ig_cli_close_trace(struct ig_cli_app *app, int code);
/* An ig_cache_trace_fn: user is an ig_cli_trace. */
void ig_cli_on_step(void *user, const ig_cache_step *step);
/* An ig_cache_audit_fn: likewise. */
void ig_cli_on_audit(void *user, const ig_cache_audit *audit);

/* ---- model and session --------------------------------------------------- */

typedef struct ig_cli_adapters {
    ig_adapter *list;
    double scales[IG_ADAPTERS_MAX]; /* as they were given, also of those that wait for requests that ask */
    int n;
} ig_cli_adapters;

typedef struct ig_cli_app {
    const ig_cli_options *o;
    ig_context *ctx;
    ig_model *model, *draft_model; /* that one NULL: there is none */
    ig_model_info info;
    ig_error unusable; /* inspect: why the model can only be listed, not run */
    double load_seconds;
    char *grammar;       /* of the flags, in GBNF; NULL: none */
    char *chat_template; /* of an option, in place of the model's; NULL: none */
    ig_cli_adapters adapters;
    json_t *variables; /* of chat templates, of the flags; NULL: none */
    char path[4096];
    char sketch[4096];      /* where the model's sketch lies by default, if that was asked for */
    char spill[4096];       /* the KV cache's folder on disk by default, if that was asked for */
    ig_cli_progress prompt; /* bar of long prefills */
    ig_cli_trace trace;
} ig_cli_app;

/* Finds (and fetches) and opens the model of -m; the exit code. Close it in any case. Catches interrupts. */
int ig_cli_open(ig_cli_app *app, const ig_cli_options *o, bool tokenizer_only);
/* `code`, the exit code so far, unless that is 0 and the trace could not be written. */
int ig_cli_close(ig_cli_app *app, int code);
/* Those of --lora, into an empty list: the exit code. Free them in any case (adapters.c). */
int ig_cli_read_adapters(ig_cli_adapters *a, const ig_cli_options *o);
void ig_cli_free_adapters(ig_cli_adapters *a);
/* Options of a session from the flags, with a progress bar that lives in `app`. */
ig_session_options ig_cli_session_options(ig_cli_app *app);
/* Where the disk tier's file goes: --kv-disk-path, or a folder that is made and named in `spill`. */
const char *ig_cli_spill_folder(char spill[4096], const ig_cli_options *o);
void ig_cli_set_budget(ig_cache_options *cache, ig_cli_amount budget);
/* Another policy, with the sketch it wants: a file, NULL (none) for "none", or for "own" and NULL the one that
 * `prepare` has written for the model, if there is one. */
void ig_cli_use_policy(ig_cli_app *app, ig_cache_options *cache, const char *policy, const char *sketch);
/* Policy number i of the given ones; where none was given, the model's own. */
const char *ig_cli_policy(const ig_cli_app *app, int i);
/* A policy that computes a prompt as this one does, and keeps nothing beside keys and values if that can be. */
const char *ig_cli_prompt_policy(const char *policy);
/* That sketch. */
const char *ig_cli_sketch(ig_cli_app *app, const char *policy, const char *sketch);
/* Makes the skew that infinigen-osdi24 wants, if the flags ask for that policy and there is none. The exit code. */
int ig_cli_calibrate(ig_cli_app *app);
/* The exit code: not 0 if --draft or a draft model asks for what cannot be with this model, device and policy. */
int ig_cli_check_draft(const ig_cli_app *app, const ig_session_options *options);
/* A session with such options. With --kv-store it lies in a cache for n_sessions like it, else *cache is NULL. Close
 * both in any case, the session first. */
ig_status ig_cli_open_session(ig_session **out, ig_cache **cache, const ig_cli_app *app, ig_session_options *options,
                              int n_sessions, ig_error *err);
/* What was computed for prompts so far is kept, if there is a store; else a line says why not. */
void ig_cli_commit(const ig_cli_app *app, ig_cache *cache);
/* ig_session_sync with the bar of such a session. */
ig_status ig_cli_sync(ig_cli_app *app, ig_session *s, const int32_t *ids, size_t n, ig_error *err);
static inline double ig_cli_per_second(uint64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : 0; }
/* They point into app and app->o. */
ig_sampler_options ig_cli_sampler_options(const ig_cli_app *app, uint64_t seed);
/* Of a server, for requests in llama-server's and Ollama's own form: what is not said is as in run. */
ig_sampler_options ig_cli_native_sampler(const ig_cli_app *app);
/* The seed of the flags, or a random one for -1. */
uint64_t ig_cli_seed(const ig_cli_options *o);

/* Tokens of a text, malloc'ed; the exit code. */
int ig_cli_tokens(int32_t **ids, size_t *n, const ig_cli_app *app, const char *text, size_t n_text, int flags);
/* Tokens of --tokens, or of the text of -f with its special tokens; the exit code. */
int ig_cli_file_tokens(int32_t **ids, size_t *n, const ig_cli_app *app, const ig_cli_text *text);
/* The same for a prompt: one of more than `most` tokens is refused before it is tokenised to its end. */
int ig_cli_prompt_tokens(int32_t **ids, size_t *n, const ig_cli_app *app, const ig_cli_text *text, int flags,
                         size_t most);

/* ---- models by name (sources.c, verb_fetch.c) ----------------------------- */

/* Where the model of -m is: as it stands if there is such a file, else the cached file of a known
 * name, which is fetched first. The exit code. */
int ig_cli_find_model(char *path, size_t cap, const ig_cli_options *o);
/* The same of the draft model; an empty path: none is asked for. */
int ig_cli_find_draft_model(char *path, size_t cap, const ig_cli_options *o);

/* ---- reports (report.c) --------------------------------------------------- */

uint64_t ig_cli_peak_rss(void);   /* bytes; 0 if unknown */
void ig_cli_reset_peak_rss(void); /* where the system can */

/* The fields that all reports begin with (model, policy, threads, cpu), then speed, memory and kv. */
json_t *ig_cli_report(const ig_cli_app *app, const ig_session *s);
/* What steps read of weights that are not in RAM, if there may be such. */
void ig_cli_report_weights(json_t *report, const ig_cli_app *app);
/* Adds to the "speed" object of a report. */
void ig_cli_report_first_token(json_t *report, double seconds);
/* Prints and drops it; the exit code. */
int ig_cli_print_json(json_t *value);
/* The fields of an object that the NULL-terminated list names, as a line; before it, if asked for, their names. */
void ig_cli_print_csv(const char *const *columns, const json_t *row, bool with_names);
/* The same in two or three lines on standard error. */
void ig_cli_print_stats(const ig_cli_app *app, const ig_session *s);
/* Of these the line about audits, if there were any. */
void ig_cli_print_audits(const ig_session *s);

#endif
