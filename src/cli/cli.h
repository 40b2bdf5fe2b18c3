/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the command-line program share: the verbs, the option
 * table, the parsed options, and the helpers every verb uses.
 *
 * The program is the library's first user: it sees infinigen.h and nothing
 * below it. One table (options.c) states every option; parsing, help, shell
 * completion and the man page are made from it.
 *
 * Streams: standard output carries the result only. Warnings go to standard error, and
 * progress bars and statistics, which vanish where that is not a terminal.
 */
#ifndef IG_CLI_CLI_H
#define IG_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include "infinigen.h"

/* ---- exit codes -------------------------------------------------------- */

enum { IG_EXIT_OK = 0, IG_EXIT_FAILED = 1, IG_EXIT_USAGE = 2, IG_EXIT_INTERRUPTED = 130 };

/* ---- verbs and options ------------------------------------------------- */

enum {
    IG_VERB_RUN = 1 << 0,
    IG_VERB_CHAT = 1 << 1,
    IG_VERB_TOKENIZE = 1 << 2,
    IG_VERB_LOGITS = 1 << 3,
    IG_VERB_PERPLEXITY = 1 << 4,
    IG_VERB_BENCH = 1 << 5,
    IG_VERB_INSPECT = 1 << 6,
    IG_VERB_FETCH = 1 << 7,
    IG_VERB_COMPLETION = 1 << 8,
    IG_VERB_MAN = 1 << 9,
    IG_VERB_HELP = 1 << 10,
    IG_VERB_VERSION = 1 << 11,
    IG_VERB_EVAL = 1 << 12,
    IG_VERB_PREPARE = 1 << 13,
    IG_VERB_KV = 1 << 14,
    IG_VERB_TASKS = 1 << 15,
    IG_VERB_SERVE = 1 << 16,
    IG_VERB_DEVICES = 1 << 17,
    IG_VERB_ALL = (1 << 18) - 1,
    /* Verbs that open a model with its weights. */
    IG_VERB_ENGINE = IG_VERB_RUN | IG_VERB_CHAT | IG_VERB_LOGITS | IG_VERB_PERPLEXITY | IG_VERB_EVAL | IG_VERB_BENCH |
                     IG_VERB_INSPECT | IG_VERB_PREPARE | IG_VERB_SERVE,
    IG_VERB_MODEL = IG_VERB_ENGINE | IG_VERB_TOKENIZE,
    IG_VERB_NEEDS_MODEL = IG_VERB_MODEL & ~IG_VERB_SERVE, /* a server without has several */
    IG_VERB_GENERATE = IG_VERB_RUN | IG_VERB_CHAT,
    /* Verbs that do what they do for every combination of the lists they are given. */
    IG_VERB_LISTS = IG_VERB_PERPLEXITY | IG_VERB_EVAL | IG_VERB_BENCH | IG_VERB_INSPECT | IG_VERB_TASKS,
};

struct ig_cli_options;

typedef struct ig_cli_verb {
    unsigned bit; /* IG_VERB_... */
    const char *name;
    /* Names of the arguments; "MODEL" may also be given with -m, "X..." is all that follow. */
    const char *positionals[2];
    const char *summary; /* one line */
    const char *details; /* paragraphs for --help and the man page */
    int (*run)(const struct ig_cli_options *o);
} ig_cli_verb;

extern const ig_cli_verb ig_cli_verbs[]; /* ends with a NULL name */
const ig_cli_verb *ig_cli_find_verb(const char *name);

typedef enum ig_cli_kind {
    IG_KIND_FLAG,    /* bool */
    IG_KIND_INT,     /* int within min..max */
    IG_KIND_INTS,    /* ig_cli_ints: a comma list of the same */
    IG_KIND_NUMBER,  /* double within min..max */
    IG_KIND_NUMBERS, /* ig_cli_numbers: a comma list of the same */
    IG_KIND_AMOUNT,  /* ig_cli_amount: "10%", 0.1 and 1.0 are shares, 512 and 1 are numbers */
    IG_KIND_AMOUNTS, /* ig_cli_amounts: a comma list of the same */
    IG_KIND_LIMITS,  /* ig_cli_amounts, a comma list: "80%", 0.8 and 1.0 are shares; else bytes, as IG_KIND_SIZE */
    IG_KIND_SIZE,    /* uint64_t: bytes, with K, M, G or T (powers of 1024) */
    IG_KIND_ROOM,    /* uint64_t: the same, 0, or for "auto" UINT64_MAX */
    IG_KIND_SEED,    /* int64_t: -1 or more */
    IG_KIND_TEXT,    /* const char * */
    IG_KIND_TEXTS,   /* ig_cli_texts: may be given several times */
    IG_KIND_BIASES,  /* ig_cli_biases: may be given several times */
    IG_KIND_CHOICE,  /* const char *: one of choices */
    IG_KIND_CHOICES, /* ig_cli_texts: a comma list of the same */
} ig_cli_kind;

/* Whether a row of this kind takes a comma list, of which verbs other than those of IG_VERB_LISTS take one element. */
bool ig_cli_is_list(ig_cli_kind kind);

enum { IG_CLI_LIST_MAX = 32, IG_CLI_BIASES_MAX = 256 };

/* Lists all begin with the number of their elements. */
typedef struct ig_cli_ints {
    int n;
    int v[IG_CLI_LIST_MAX];
} ig_cli_ints;

typedef struct ig_cli_numbers {
    int n;
    double v[IG_CLI_LIST_MAX];
} ig_cli_numbers;

/* A share, above 0 and up to 1, or a number; the other one is 0. */
typedef struct ig_cli_amount {
    double share;
    uint64_t number;
} ig_cli_amount;

typedef struct ig_cli_amounts {
    int n;
    ig_cli_amount v[IG_CLI_LIST_MAX];
} ig_cli_amounts;

typedef struct ig_cli_texts {
    int n;
    const char *v[IG_CLI_LIST_MAX];
} ig_cli_texts;

typedef struct ig_cli_biases {
    int n;
    ig_logit_bias v[IG_CLI_BIASES_MAX];
} ig_cli_biases;

typedef struct ig_cli_option {
    const char *names; /* "-m, --model": the first long one is the proper name, the rest are aliases */
    const char *arg;   /* what follows it, for the help; NULL for flags */
    const char *help;
    unsigned verbs; /* the verbs that take it */
    ig_cli_kind kind;
    size_t offset;       /* of the value in ig_cli_options */
    const char *initial; /* default, written as a user would; NULL: none */
    double min, max;
    const char *const *choices; /* NULL-terminated */
} ig_cli_option;

extern const ig_cli_option ig_cli_option_table[]; /* ends with NULL names */
extern const size_t ig_cli_option_count;
extern const char *const ig_cli_cpu_levels[]; /* by ig_cpu_level; NULL-terminated */
/* Fills in what the table takes from the library; before all else. */
void ig_cli_open_options(void);

enum { IG_CLI_ROWS_MAX = 256 }; /* of the table of options */

/* Parsed values. Every field is named in the table. Strings are borrowed from argv. */
typedef struct ig_cli_options {
    const ig_cli_verb *verb;
    const char *rest;         /* a positional argument other than MODEL; NULL: not given */
    const char *const *words; /* those of "X..." */
    int n_words;

    bool help, json, verbose;
    const char *model, *hub, *cpu, *device; /* hub: a model of the Hugging Face hub; `model` is its name then */
    const char *draft_model, *draft_hub;
    int threads;

    const char *prompt, *file, *system;
    bool escape, raw, chat;

    int ctx, batch, ubatch, draft;
    ig_cli_ints contexts; /* perplexity, inspect: instead of ctx */
    ig_cli_texts kv_policy, kv_type, kv_evict, kv_sketch;
    ig_cli_amounts kv_budget, kv_limit;
    ig_cli_numbers kv_alpha, kv_partial;
    double kv_mass, kv_locality, kv_inertia;
    int kv_sinks, kv_recent, kv_dense_layers;
    uint64_t kv_ram, kv_vram, kv_disk, weights_ram, weights_vram;
    ig_cli_texts adapters;
    const char *kv_store;
    uint64_t kv_store_size;
    const char *kv_disk_path, *speculate, *kv_trace, *audit_trace;
    int audit;
    ig_cli_ints audit_keys;
    bool kv_map, swa_full, no_prefetch, no_uring, no_kv_rest, no_mmap, no_repack, lora_waits;

    int predict;
    bool ignore_end, special;
    ig_cli_texts stops, dry_breakers;
    const char *grammar, *grammar_file, *schema, *schema_file;
    double temperature, top_p, min_p, typical_p, top_n_sigma, xtc_probability, xtc_threshold;
    double repeat_penalty, presence_penalty, frequency_penalty, dry_multiplier, dry_base, dynatemp_range,
        dynatemp_exponent;
    ig_cli_biases logit_bias;
    int top_k, repeat_last_n, dry_allowed_length, dry_last_n;
    int64_t seed;

    bool ids, decode;             /* tokenize */
    const char *sketch_kind;      /* prepare */
    const char *tokens, *output;  /* logits; output: eval too */
    int chunks, dense_prefix, by; /* perplexity */

    ig_cli_texts tasks, shots_files; /* eval */
    int shots, limit;
    ig_cli_amount dense_part;

    ig_cli_texts recipes; /* tasks; file and output too */
    ig_cli_ints lengths;
    int each, sample_seed;

    int rank; /* prepare; output too */

    ig_cli_ints n_prompt, n_gen, depth, batches; /* bench; batches: inspect too */
    ig_cli_ints thread_counts;                   /* bench */
    int repetitions;
    bool breakdown;
    const char *format;
    const char *server; /* of others; api_key, model and seed too */
    ig_cli_ints clients;
    ig_cli_amount shared;

    bool tensors; /* inspect; tokens and contexts too */
    const char *activations;
    const char *sources; /* fetch */
    bool text;

    const char *note; /* kv; kv_store and model too */
    bool all;

    const char *host, *unix_path, *api_key, *api_key_file, *alias, *models_dir; /* serve */
    int port, parallel, queue, models_max;
    double piece_ms, drain, sleep_idle;
    const char *pooling;
    bool any_model, sandbox, log_prompts;
    const char *log_format, *log_name, *reasoning_format, *allowed_origins;
    const char *chat_template, *template_kwargs, *reasoning_effort, *reasoning; /* run and chat too */
    bool reuse_answers;
    uint64_t max_body;
    int max_connections, max_connections_each;
    double header_timeout, body_timeout, keep_alive, request_timeout;

    const char *threads_batch, *type_k, *type_v, *gpu_layers; /* llama.cpp's, which others must agree with */

    bool has_row[IG_CLI_ROWS_MAX]; /* which rows of the table arguments have named */
    int argc;                      /* the command line, */
    char **argv;                   /* with its words first */
} ig_cli_options;

/* Reads argv[2..] for `verb`; moves what is no option to its front. False after a usage error, which has been printed.
 */
bool ig_cli_parse(ig_cli_options *o, const ig_cli_verb *verb, int argc, char **argv);
/* The options of the command line that was parsed, but those whose values are in o at these addresses, which end with
 * NULL; out has room for all of its arguments. Their number. */
int ig_cli_pass_on(const char **out, const ig_cli_options *o, const void *const *dropped);
/* Whether the option with this value of *o was an argument; else it is as the table has it. */
bool ig_cli_is_given(const ig_cli_options *o, const void *value);
/* Moves *names, of a list such as "-m, --model", past the next name; its length, 0 at the end. */
size_t ig_cli_next_name(const char **start, const char **names);
bool ig_cli_has_name(const char *names, const char *name, size_t n_name);
/* Whether anything of a cache beside its policy and budget is given as a list. */
bool ig_cli_has_settings(const ig_cli_options *o);
/* Place of a type of keys and values in the list of them, the most exact first. */
int ig_cli_kv_type_number(const char *name);
/* Backslash escapes such as \n and \x41, in place; the new length. What is not one of them stays as it is. */
size_t ig_cli_unescape(char *text, size_t n);
/* The candidate of a NULL-terminated list nearest to what was typed, or NULL if none is near. */
const char *ig_cli_nearest(const char *typed, const char *const *candidates);

void ig_cli_print_help(FILE *f, const ig_cli_verb *verb); /* NULL: of the program */

/* ---- the verbs ---------------------------------------------------------- */

int ig_cli_run(const ig_cli_options *o);
int ig_cli_chat(const ig_cli_options *o);
int ig_cli_tokenize(const ig_cli_options *o);
int ig_cli_logits(const ig_cli_options *o);
int ig_cli_perplexity(const ig_cli_options *o);
int ig_cli_eval(const ig_cli_options *o);
int ig_cli_tasks(const ig_cli_options *o);
int ig_cli_prepare(const ig_cli_options *o);
int ig_cli_bench(const ig_cli_options *o);
int ig_cli_bench_server(const ig_cli_options *o);
int ig_cli_inspect(const ig_cli_options *o);
int ig_cli_devices(const ig_cli_options *o);
int ig_cli_fetch(const ig_cli_options *o);
int ig_cli_kv(const ig_cli_options *o);
int ig_cli_serve(const ig_cli_options *o);
int ig_cli_completion(const ig_cli_options *o);
int ig_cli_man(const ig_cli_options *o);

#endif
