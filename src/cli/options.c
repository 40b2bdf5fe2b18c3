/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table: every option of every verb, stated once. Parsing
 * (parse.c), help and man page (help.c) and shell completion (completion.c)
 * are made from it. Short names and defaults follow llama.cpp where it has
 * the same thing. Defaults are written as a user would type them and go
 * through the parser, so that what the help says is what happens.
 */
#include "cli/cli.h"

#include <limits.h>
#include <string.h>

#include "eval/make.h"

static const char *policies[IG_CLI_LIST_MAX]; /* the library's */
static const char *recipes[IG_CLI_LIST_MAX];  /* of made tasks */
static const char *const kv_types[] = {"f16", "q8", "q4", "q2", "q1", NULL};
static const char *const speculations[] = {"auto", "late", "norm", "paper", "none", NULL};
static const char *const evictions[] = {"counter", "lru", "fifo", NULL};
static const char *const sketch_kinds[] = {"balanced", "skew", NULL};
static const char *const log_formats[] = {"text", "json", NULL};
static const char *const reasoning_switch[] = {"auto", "on", "off", NULL};
static const char *const reasoning_formats[] = {"auto", "none", "deepseek", NULL};
static const char *const poolings[] = {"auto", "last", "mean", NULL};
static const char *const formats[] = {"md", "csv", "json", NULL};

const char *const ig_cli_cpu_levels[] = {"scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod", "i8mm", NULL};

int ig_cli_kv_type_number(const char *name) {
    int i = 0;
    while (kv_types[i] && strcmp(kv_types[i], name) != 0) i++;
    return i;
}

#define AT(field) offsetof(ig_cli_options, field)
#define TEXT_IN (IG_VERB_RUN | IG_VERB_TOKENIZE)
#define SAMPLING (IG_VERB_GENERATE | IG_VERB_SERVE) /* a server's is that of requests which say nothing of it */
#define SESSION (IG_VERB_GENERATE | IG_VERB_PERPLEXITY | IG_VERB_EVAL | IG_VERB_INSPECT | IG_VERB_SERVE)
#define TRACED (IG_VERB_GENERATE | IG_VERB_PERPLEXITY | IG_VERB_EVAL) /* one sequence at a time */
#define CACHE (SESSION | IG_VERB_BENCH)
#define DRAFTED (IG_VERB_GENERATE | IG_VERB_INSPECT | IG_VERB_SERVE)
#define STORE (IG_VERB_GENERATE | IG_VERB_PERPLEXITY | IG_VERB_EVAL | IG_VERB_BENCH | IG_VERB_SERVE)
#define JSON                                                                                                  \
    (IG_VERB_RUN | IG_VERB_TOKENIZE | IG_VERB_PERPLEXITY | IG_VERB_EVAL | IG_VERB_INSPECT | IG_VERB_PREPARE | \
     IG_VERB_FETCH | IG_VERB_KV | IG_VERB_DEVICES)

/* The library's limits. */
enum { CTX_MAX = IG_CTX_MAX, BATCH_MAX = IG_BATCH_MAX };

/* names, argument, help, verbs, kind, offset, default, min, max, choices */
const ig_cli_option ig_cli_option_table[] = {
    {"-m, --model", "MODEL", "GGUF file, Hugging Face directory, or a name that fetch knows", IG_VERB_MODEL,
     IG_KIND_TEXT, AT(model), NULL, 0, 0, NULL},
    {"-hf, -hfr, --hf-repo", "OWNER/REPO[:WHICH]",
     "a model of the Hugging Face hub, fetched when it is first used; WHICH: a kind of weights, such as Q8_0 (default: "
     "Q4_K_M if there is one), or a file",
     IG_VERB_MODEL, IG_KIND_TEXT, AT(hub), NULL, 0, 0, NULL},
    {"-m, --model", "MODEL", "count the tokens of this model, of which the tokenizer is enough", IG_VERB_TASKS,
     IG_KIND_TEXT, AT(model), NULL, 0, 0, NULL},

    /* input */
    {"-p, --prompt", "TEXT", "the text", TEXT_IN, IG_KIND_TEXT, AT(prompt), NULL, 0, 0, NULL},
    {"-p, --prompt", "TEXT", "the first message", IG_VERB_CHAT, IG_KIND_TEXT, AT(prompt), NULL, 0, 0, NULL},
    {"-f, --file", "FILE", "read the first message from FILE, - is standard input; -p then comes after it",
     IG_VERB_CHAT, IG_KIND_TEXT, AT(file), NULL, 0, 0, NULL},
    {"-f, --file", "FILE", "read the text from FILE, - is standard input; -p then comes after it", TEXT_IN,
     IG_KIND_TEXT, AT(file), NULL, 0, 0, NULL},
    {"-f, --file", "FILE", "read the text from FILE, - is standard input", IG_VERB_PERPLEXITY, IG_KIND_TEXT, AT(file),
     NULL, 0, 0, NULL},
    {"-e, --escape", NULL,
     "turn \\n, \\t, \\\\, \\\" and \\xHH in -p, -r, -sys and --dry-sequence-breaker into the characters they name",
     TEXT_IN | IG_VERB_CHAT, IG_KIND_FLAG, AT(escape), NULL, 0, 0, NULL},
    {"--raw", NULL, "give the text to the model as it is", IG_VERB_RUN, IG_KIND_FLAG, AT(raw), NULL, 0, 0, NULL},
    {"--chat", NULL, "put the text into the model's chat template (default if it has one)", IG_VERB_RUN, IG_KIND_FLAG,
     AT(chat), NULL, 0, 0, NULL},
    {"--chat-template, --chat-template-file", "FILE",
     "a chat template in place of the model's own: Jinja in FILE, or as it stands, with {{ or {% in it",
     IG_VERB_GENERATE | IG_VERB_SERVE, IG_KIND_TEXT, AT(chat_template), NULL, 0, 0, NULL},
    {"--chat-template-kwargs", "JSON",
     "what the chat template is told beside the conversation: an object such as {\"enable_thinking\": false}",
     IG_VERB_GENERATE | IG_VERB_SERVE, IG_KIND_TEXT, AT(template_kwargs), NULL, 0, 0, NULL},
    {"--reasoning-effort", "LEVEL",
     "how much a reasoning model is to think, if its template has levels: such as low, medium, high",
     IG_VERB_GENERATE | IG_VERB_SERVE, IG_KIND_TEXT, AT(reasoning_effort), "default", 0, 0, NULL},
    {"-rea, --reasoning", "WHETHER",
     "whether a reasoning model thinks, if its template can tell it (enable_thinking); auto: as the template has it",
     IG_VERB_GENERATE | IG_VERB_SERVE, IG_KIND_CHOICE, AT(reasoning), "auto", 0, 0, reasoning_switch},
    {"-sys, --system, --system-prompt", "TEXT", "system message of the conversation", IG_VERB_GENERATE, IG_KIND_TEXT,
     AT(system), NULL, 0, 0, NULL},

    /* generation */
    {"-n, --predict, --n-predict, --max-tokens, --max-new-tokens", "N",
     "most tokens to make; -1: until the model ends or the context is full", IG_VERB_GENERATE, IG_KIND_INT, AT(predict),
     "-1", -1, INT_MAX, NULL},
    {"-n, --predict, --n-predict", "N",
     "most tokens of an answer whose request does not say; -1: chats have what the context holds, completions 16",
     IG_VERB_SERVE, IG_KIND_INT, AT(predict), "-1", -1, INT_MAX, NULL},
    {"--temp, --temperature", "T",
     "temperature; 0 takes the likeliest token each time. Files of models may state other defaults of sampling, which "
     "then "
     "hold",
     IG_VERB_GENERATE, IG_KIND_NUMBER, AT(temperature), "0.8", 0, 1000, NULL},
    {"--top-k", "K", "sample among the K likeliest tokens; 0 or -1: all", IG_VERB_GENERATE, IG_KIND_INT, AT(top_k),
     "40", -1, INT_MAX, NULL},
    {"--top-p", "P", "sample among the likeliest tokens that make up probability P; 1: all", IG_VERB_GENERATE,
     IG_KIND_NUMBER, AT(top_p), "0.95", 0, 1, NULL},
    {"--min-p", "P", "leave out tokens less likely than P times the likeliest; 0: none", IG_VERB_GENERATE,
     IG_KIND_NUMBER, AT(min_p), "0.05", 0, 1, NULL},
    {"--temp, --temperature", "T", "temperature of requests that say none", IG_VERB_SERVE, IG_KIND_NUMBER,
     AT(temperature), "1", 0, 1000, NULL},
    {"--top-k", "K", "the same: sample among the K likeliest tokens; 0 or -1: all", IG_VERB_SERVE, IG_KIND_INT,
     AT(top_k), "0", -1, INT_MAX, NULL},
    {"--top-p", "P", "the same: sample among the likeliest tokens that make up probability P; 1: all", IG_VERB_SERVE,
     IG_KIND_NUMBER, AT(top_p), "1", 0, 1, NULL},
    {"--min-p", "P", "the same: leave out tokens less likely than P times the likeliest; 0: none", IG_VERB_SERVE,
     IG_KIND_NUMBER, AT(min_p), "0", 0, 1, NULL},
    {"--typical, --typical-p", "P",
     "locally typical sampling: among the tokens whose surprise is nearest the expected one, which make up probability "
     "P; "
     "1: all",
     SAMPLING, IG_KIND_NUMBER, AT(typical_p), "1", 0.001, 1, NULL},
    {"--top-n-sigma, --top-nsigma", "N",
     "leave out tokens with a logit more than N standard deviations below the highest; 0 or -1: none", SAMPLING,
     IG_KIND_NUMBER, AT(top_n_sigma), "-1", -1, 1000, NULL},
    {"--xtc-probability", "P", "how often all tokens above --xtc-threshold but the least likely of them are left out",
     SAMPLING, IG_KIND_NUMBER, AT(xtc_probability), "0", 0, 1, NULL},
    {"--xtc-threshold", "P", "probability from which on --xtc-probability leaves out tokens", SAMPLING, IG_KIND_NUMBER,
     AT(xtc_threshold), "0.1", 0, 1, NULL},
    {"--repeat-penalty", "X", "divide the logits of recent tokens by X, multiply negative ones; 1: off", SAMPLING,
     IG_KIND_NUMBER, AT(repeat_penalty), "1", 0.01, 100, NULL},
    {"--presence-penalty", "X", "lower the logits of recent tokens by X; 0: off", SAMPLING, IG_KIND_NUMBER,
     AT(presence_penalty), "0", -1000, 1000, NULL},
    {"--frequency-penalty", "X", "lower the logits of recent tokens by X for each time that they occur; 0: off",
     SAMPLING, IG_KIND_NUMBER, AT(frequency_penalty), "0", -1000, 1000, NULL},
    {"--dry-multiplier", "X",
     "lower tokens that would go on with a repetition of N tokens by X * --dry-base ^ (N - --dry-allowed-length); 0: "
     "off",
     SAMPLING, IG_KIND_NUMBER, AT(dry_multiplier), "0", 0, 1000, NULL},
    {"--dry-base", "X", "the base of that", SAMPLING, IG_KIND_NUMBER, AT(dry_base), "1.75", 1, 1000, NULL},
    {"--dry-allowed-length", "N", "the shortest repetition that counts", SAMPLING, IG_KIND_INT, AT(dry_allowed_length),
     "2", 1, INT_MAX, NULL},
    {"--dry-penalty-last-n", "N", "tokens among which repetitions are looked for; -1: the context", SAMPLING,
     IG_KIND_INT, AT(dry_last_n), "-1", -1, INT_MAX, NULL},
    {"--dry-sequence-breaker", "TEXT",
     "repetitions do not reach over TEXT; may be given several times; none: there is none (default: a new line, :, \" "
     "and *)",
     SAMPLING, IG_KIND_TEXTS, AT(dry_breakers), NULL, 0, 0, NULL},
    {"--dynatemp-range", "T",
     "the temperature is up to T less where the next token is clear and up to T more where it is not; 0: off", SAMPLING,
     IG_KIND_NUMBER, AT(dynatemp_range), "0", 0, 1000, NULL},
    {"--dynatemp-exp", "X", "above 1 it is lower in between, below 1 higher", SAMPLING, IG_KIND_NUMBER,
     AT(dynatemp_exponent), "1", 0, 1000, NULL},
    {"--logit-bias", "TOKEN_ID(+/-)BIAS",
     "add BIAS to a token's logit, as in 15043+1 or 29905-inf; may be given several times", IG_VERB_GENERATE,
     IG_KIND_BIASES, AT(logit_bias), NULL, 0, 0, NULL},
    {"--repeat-last-n", "N", "how many tokens are recent for the penalties; -1: all", SAMPLING, IG_KIND_INT,
     AT(repeat_last_n), "64", -1, INT_MAX, NULL},
    {"-s, --seed", "S", "the same seed gives the same text; -1: a random one, which is shown", IG_VERB_GENERATE,
     IG_KIND_SEED, AT(seed), "-1", 0, 0, NULL},
    {"-r, --stop, --reverse-prompt", "TEXT", "end when the model writes TEXT; may be given several times",
     IG_VERB_GENERATE, IG_KIND_TEXTS, AT(stops), NULL, 0, 0, NULL},
    {"--grammar", "TEXT", "the answer keeps to a grammar in GBNF, llama.cpp's form", IG_VERB_GENERATE, IG_KIND_TEXT,
     AT(grammar), NULL, 0, 0, NULL},
    {"--grammar-file", "FILE", "the same, from FILE", IG_VERB_GENERATE, IG_KIND_TEXT, AT(grammar_file), NULL, 0, 0,
     NULL},
    {"-j, --json-schema", "TEXT", "the answer is JSON of this schema, {} is any JSON", IG_VERB_GENERATE, IG_KIND_TEXT,
     AT(schema), NULL, 0, 0, NULL},
    {"-jf, --json-schema-file", "FILE", "the same, from FILE", IG_VERB_GENERATE, IG_KIND_TEXT, AT(schema_file), NULL, 0,
     0, NULL},
    {"--ignore-eos", NULL, "go on after the model's end token", IG_VERB_RUN | IG_VERB_EVAL, IG_KIND_FLAG,
     AT(ignore_end), NULL, 0, 0, NULL},
    {"-sp, --special", NULL, "print special tokens too", IG_VERB_RUN, IG_KIND_FLAG, AT(special), NULL, 0, 0, NULL},

    /* tokenize */
    {"--special", NULL, "add the model's special tokens, and read their names in the text as such", IG_VERB_TOKENIZE,
     IG_KIND_FLAG, AT(special), NULL, 0, 0, NULL},
    {"--ids", NULL, "print token ids only, separated by blanks", IG_VERB_TOKENIZE, IG_KIND_FLAG, AT(ids), NULL, 0, 0,
     NULL},
    {"--decode", NULL, "the text is token ids: print what they stand for", IG_VERB_TOKENIZE, IG_KIND_FLAG, AT(decode),
     NULL, 0, 0, NULL},

    /* logits */
    {"--tokens", "FILE", "token ids, 32-bit little-endian integers", IG_VERB_LOGITS, IG_KIND_TEXT, AT(tokens), NULL, 0,
     0, NULL},
    {"--tokens", "FILE",
     "token ids instead of a text, apart by white space, for models without a tokenizer; - is standard input",
     IG_VERB_PREPARE | IG_VERB_PERPLEXITY, IG_KIND_TEXT, AT(tokens), NULL, 0, 0, NULL},
    {"--tokens", "FILE", "as --activations, over token ids apart by white space; - is standard input", IG_VERB_INSPECT,
     IG_KIND_TEXT, AT(tokens), NULL, 0, 0, NULL},
    {"-o, --output", "FILE", "where to write the logits: 32-bit little-endian floats, [tokens][vocabulary]",
     IG_VERB_LOGITS, IG_KIND_TEXT, AT(output), NULL, 0, 0, NULL},

    /* perplexity */
    {"-c, --ctx-size", "N", "tokens of one chunk", IG_VERB_PERPLEXITY, IG_KIND_INTS, AT(contexts), "512", 4, CTX_MAX,
     NULL},
    {"--chunks", "N", "most chunks to score; 0 or -1: all", IG_VERB_PERPLEXITY, IG_KIND_INT, AT(chunks), "-1", -1,
     INT_MAX, NULL},
    {"--dense-prefix", "N",
     "feed the first N tokens of a chunk with dense attention, and score the rest token by token through the policy; "
     "-N: all but the last N",
     IG_VERB_PERPLEXITY, IG_KIND_INT, AT(dense_prefix), "0", -CTX_MAX, CTX_MAX, NULL},
    {"--by", "N", "also report by position, N tokens of each chunk together; 0: not", IG_VERB_PERPLEXITY, IG_KIND_INT,
     AT(by), "0", 0, CTX_MAX, NULL},

    /* eval */
    {"--task", "FILE", "questions, one JSON object a line; may be given several times", IG_VERB_EVAL, IG_KIND_TEXTS,
     AT(tasks), NULL, 0, 0, NULL},
    {"--shots", "N", "put the first N examples of the shots file before each question", IG_VERB_EVAL, IG_KIND_INT,
     AT(shots), "0", 0, 10000, NULL},
    {"--shots-file", "FILE", "solved examples, in the form of the task; one for each --task, in the same order",
     IG_VERB_EVAL, IG_KIND_TEXTS, AT(shots_files), NULL, 0, 0, NULL},
    {"--limit", "N", "ask only the first N questions of each task; 0 or -1: all", IG_VERB_EVAL, IG_KIND_INT, AT(limit),
     "-1", -1, INT_MAX, NULL},
    {"-c, --ctx-size", "N",
     "tokens the context holds, longer questions are skipped; 0: what the longest needs, up to what the model states",
     IG_VERB_EVAL, IG_KIND_INT, AT(ctx), "0", 0, CTX_MAX, NULL},
    {"-o, --output", "FILE", "also write each answer with its scores, one JSON object a line", IG_VERB_EVAL,
     IG_KIND_TEXT, AT(output), NULL, 0, 0, NULL},

    {"--dense-prefix", "N|P%",
     "compute only so much of each prompt with dense attention, and the rest through the policy: tokens, or a share "
     "(default: all but the question)",
     IG_VERB_EVAL, IG_KIND_AMOUNT, AT(dense_part), NULL, 0, 0, NULL},
    {"--chat", NULL, "put questions into the model's chat template, as a user's messages", IG_VERB_EVAL, IG_KIND_FLAG,
     AT(chat), NULL, 0, 0, NULL},

    /* tasks */
    {"--task", "LIST", "which tasks to make (default: all of them)", IG_VERB_TASKS, IG_KIND_CHOICES, AT(recipes), NULL,
     0, 0, recipes},
    {"-c, --length, --ctx-size", "LIST",
     "tokens that a question may take with its answer; without -m characters, four for a token", IG_VERB_TASKS,
     IG_KIND_INTS, AT(lengths), "4096", 1, CTX_MAX, NULL},
    {"-n, --each", "N", "questions of each task and length", IG_VERB_TASKS, IG_KIND_INT, AT(each), "20", 1, 1000000,
     NULL},
    {"-s, --seed", "S", "the same seed gives the same questions", IG_VERB_TASKS, IG_KIND_INT, AT(sample_seed), "1", 0,
     INT_MAX, NULL},
    {"-f, --file", "FILE", "hide things in the sentences of this text; - is standard input (default: built-in ones)",
     IG_VERB_TASKS, IG_KIND_TEXT, AT(file), NULL, 0, 0, NULL},
    {"-o, --output", "FILE", "write there instead of to standard output", IG_VERB_TASKS, IG_KIND_TEXT, AT(output), NULL,
     0, 0, NULL},

    /* prepare */
    {"-f, --text, --file", "FILE", "text to calibrate on; - is standard input", IG_VERB_PREPARE, IG_KIND_TEXT, AT(file),
     NULL, 0, 0, NULL},
    {"-c, --ctx-size", "N", "context the sketch is for; 0: the model's own, at most 8192", IG_VERB_PREPARE, IG_KIND_INT,
     AT(ctx), "0", 0, CTX_MAX, NULL},
    {"--kind", "KIND", "sketch for the policy infinigen (balanced), or the skew of infinigen-osdi24", IG_VERB_PREPARE,
     IG_KIND_CHOICE, AT(sketch_kind), "balanced", 0, 0, sketch_kinds},
    {"--rank", "R", "numbers kept of each key, a multiple of 8; 0: as many as it has", IG_VERB_PREPARE, IG_KIND_INT,
     AT(rank), "0", 0, 576, NULL},
    {"-o, --output", "FILE", "where to write the sketch", IG_VERB_PREPARE, IG_KIND_TEXT, AT(output), NULL, 0, 0, NULL},

    /* bench */
    {"-p, --n-prompt", "LIST", "prompt lengths; 0: no prompt test", IG_VERB_BENCH, IG_KIND_INTS, AT(n_prompt), "512", 0,
     INT_MAX / 4, NULL},
    {"-n, --n-gen", "LIST", "tokens to generate; 0: no generation test", IG_VERB_BENCH, IG_KIND_INTS, AT(n_gen), "64",
     0, INT_MAX / 4, NULL},
    {"-d, --n-depth", "LIST", "tokens already in the context", IG_VERB_BENCH, IG_KIND_INTS, AT(depth), "0", 0,
     INT_MAX / 4, NULL},
    {"-b, --batch", "LIST", "sequences that generate in one step; the size of a prompt's steps is -ub", IG_VERB_BENCH,
     IG_KIND_INTS, AT(batches), "1", 1, 256, NULL},
    {"-f, --file", "FILE", "take the tokens from FILE instead of random ones; - is standard input", IG_VERB_BENCH,
     IG_KIND_TEXT, AT(file), NULL, 0, 0, NULL},
    {"-ub, --batch-size, --ubatch-size", "N", "most tokens of one step of the prompt", IG_VERB_BENCH, IG_KIND_INT,
     AT(batch), "512", 1, BATCH_MAX, NULL},
    {"-r, --repetitions", "N", "how often to repeat each test", IG_VERB_BENCH, IG_KIND_INT, AT(repetitions), "5", 1,
     1000, NULL},
    {"--breakdown", NULL,
     "show the parts of a step's time, also of generations with all keys and values in RAM where --kv-ram has some on "
     "disk",
     IG_VERB_BENCH, IG_KIND_FLAG, AT(breakdown), NULL, 0, 0, NULL},
    {"-o, --output", "FORMAT", "how to print the results", IG_VERB_BENCH, IG_KIND_CHOICE, AT(format), "md", 0, 0,
     formats},

    {"--server", "URL",
     "measure the server of OpenAI's API there, such as http://127.0.0.1:8080; -m is what it calls its model",
     IG_VERB_BENCH, IG_KIND_TEXT, AT(server), NULL, 0, 0, NULL},
    {"--clients, --concurrency", "LIST", "with --server: how many ask at the same time, each -r times (default: 1)",
     IG_VERB_BENCH, IG_KIND_INTS, AT(clients), NULL, 1, 4096, NULL},
    {"--shared", "N|P%", "with --server: so much of each prompt is the same in all: tokens, or a share (default: none)",
     IG_VERB_BENCH, IG_KIND_AMOUNT, AT(shared), NULL, 0, 0, NULL},
    {"--api-key", "KEY", "with --server: given as Authorization: Bearer KEY; also INFINIGEN_API_KEY", IG_VERB_BENCH,
     IG_KIND_TEXT, AT(api_key), NULL, 0, 0, NULL},
    {"--seed", "S", "with --server: of the prompts; -1: a random one, so that no server has seen them", IG_VERB_BENCH,
     IG_KIND_SEED, AT(seed), "-1", 0, 0, NULL},

    /* serve */
    {"--host", "ADDRESS", "where to listen; other than at this machine itself only with a key", IG_VERB_SERVE,
     IG_KIND_TEXT, AT(host), "127.0.0.1", 0, 0, NULL},
    {"--port", "N", "the port; 0: any that is free", IG_VERB_SERVE, IG_KIND_INT, AT(port), "8080", 0, 65535, NULL},
    {"--unix", "PATH", "listen at a socket in the file system instead, which only this user can open", IG_VERB_SERVE,
     IG_KIND_TEXT, AT(unix_path), NULL, 0, 0, NULL},
    {"--api-key", "KEY",
     "that clients must give as Authorization: Bearer KEY; others can see it in the list of processes, and not what "
     "is in INFINIGEN_API_KEY (the default)",
     IG_VERB_SERVE, IG_KIND_TEXT, AT(api_key), NULL, 0, 0, NULL},
    {"--api-key-file", "FILE", "keys, one a line, of which clients must give one; read again at SIGHUP", IG_VERB_SERVE,
     IG_KIND_TEXT, AT(api_key_file), NULL, 0, 0, NULL},
    {"--allowed-origins", "ORIGINS",
     "web pages of elsewhere that may ask, as in https://a.example,http://localhost:3000; *: any, which needs a key",
     IG_VERB_SERVE, IG_KIND_TEXT, AT(allowed_origins), NULL, 0, 0, NULL},
    {"-a, --alias, --served-model-name", "NAME",
     "what clients call the model (default: what -hf names, or the file's name)", IG_VERB_SERVE, IG_KIND_TEXT,
     AT(alias), NULL, 0, 0, NULL},
    {"--models-dir", "DIR",
     "without -m: GGUF files and directories in it are served beside the models that 'infinigen fetch' has",
     IG_VERB_SERVE, IG_KIND_TEXT, AT(models_dir), NULL, 0, 0, NULL},
    {"--models-max", "N", "without -m: most models in memory at a time; others make room", IG_VERB_SERVE, IG_KIND_INT,
     AT(models_max), "2", 1, 64, NULL},
    {"--sleep-idle-seconds", "SECONDS",
     "without -m: a model that answers nobody for so long leaves memory; -1: it stays", IG_VERB_SERVE, IG_KIND_NUMBER,
     AT(sleep_idle), "-1", -1, 1e9, NULL},
    {"--pooling", "TYPE", "what embeddings are of: the last token, or the mean of all; auto: as the model's file says",
     IG_VERB_SERVE, IG_KIND_CHOICE, AT(pooling), "auto", 0, 0, poolings},
    {"--any-model", NULL, "answer whatever model a request names", IG_VERB_SERVE, IG_KIND_FLAG, AT(any_model), NULL, 0,
     0, NULL},
    {"--reasoning-format", "FORMAT",
     "where a reasoning model's thoughts go: auto or deepseek: into reasoning_content, none: they stay in the answer",
     IG_VERB_SERVE, IG_KIND_CHOICE, AT(reasoning_format), "auto", 0, 0, reasoning_formats},
    {"--reuse-answers", NULL,
     "the next turn of a conversation takes earlier answers from the cache, too, instead of computing them as a "
     "prompt; "
     "what the model says may then depend, a little, on what was asked before",
     IG_VERB_SERVE, IG_KIND_FLAG, AT(reuse_answers), NULL, 0, 0, NULL},
    {"-np, --parallel, --max-num-seqs", "N", "answers at the same time; memory is planned for so many contexts",
     IG_VERB_SERVE, IG_KIND_INT, AT(parallel), "4", 1, 256, NULL},
    {"--queue", "N", "most requests that wait; further ones get 503", IG_VERB_SERVE, IG_KIND_INT, AT(queue), "2560", 1,
     65536, NULL},
    {"--piece-ms", "MS", "how long running answers wait for a piece of a new prompt, about", IG_VERB_SERVE,
     IG_KIND_NUMBER, AT(piece_ms), "25", 1, 60000, NULL},
    {"--max-body", "SIZE", "most bytes of a request", IG_VERB_SERVE, IG_KIND_SIZE, AT(max_body), "32M", 1024, 1 << 30,
     NULL},
    {"--max-connections", "N", "most connections; those that wait for their clients make room for new ones",
     IG_VERB_SERVE, IG_KIND_INT, AT(max_connections), "1024", 1, 65536, NULL},
    {"--max-connections-per-address", "N", "the same of one address", IG_VERB_SERVE, IG_KIND_INT,
     AT(max_connections_each), "256", 1, 65536, NULL},
    {"--header-timeout", "SECONDS", "how long the head of a request may take", IG_VERB_SERVE, IG_KIND_NUMBER,
     AT(header_timeout), "10", 0.1, 3600, NULL},
    {"--body-timeout", "SECONDS", "how long its body may take, and a second more for each KiB that has come",
     IG_VERB_SERVE, IG_KIND_NUMBER, AT(body_timeout), "10", 0.1, 3600, NULL},
    {"--keep-alive", "SECONDS", "how long a connection may wait for the next request, or for its client to read",
     IG_VERB_SERVE, IG_KIND_NUMBER, AT(keep_alive), "75", 0.1, 86400, NULL},
    {"--request-timeout", "SECONDS", "how long an answer may take; 0: as long as it takes", IG_VERB_SERVE,
     IG_KIND_NUMBER, AT(request_timeout), "0", 0, 86400, NULL},
    {"--drain-timeout", "SECONDS", "at SIGTERM: how long what is being answered may take", IG_VERB_SERVE,
     IG_KIND_NUMBER, AT(drain), "30", 0, 86400, NULL},
    {"--log-format", "FORMAT", "how a line for each request and what the server says are written on standard error",
     IG_VERB_SERVE, IG_KIND_CHOICE, AT(log_format), "text", 0, 0, log_formats},
    {"--log-name", "NAME", "these lines say it; of several models each process has its model's", IG_VERB_SERVE,
     IG_KIND_TEXT, AT(log_name), NULL, 0, 0, NULL},
    {"--log-prompts", NULL, "write what is asked into these lines too; without it no text of clients is logged",
     IG_VERB_SERVE, IG_KIND_FLAG, AT(log_prompts), NULL, 0, 0, NULL},
    {"--sandbox", NULL,
     "before it takes requests, the server gives up the right to open other files than those it needs, to connect, "
     "and to "
     "start programs",
     IG_VERB_SERVE, IG_KIND_FLAG, AT(sandbox), NULL, 0, 0, NULL},
    {"-c, --ctx-size, --max-model-len", "N",
     "tokens the context of each conversation holds; 0: what the model states, at most 8192", IG_VERB_SERVE,
     IG_KIND_INT, AT(ctx), "0", 0, CTX_MAX, NULL},

    /* session */
    {"-c, --ctx-size, --max-model-len", "N",
     "tokens the context holds; 0: what the model states, at most 8192, or what the prompt needs", IG_VERB_GENERATE,
     IG_KIND_INT, AT(ctx), "0", 0, CTX_MAX, NULL},
    {"-c, --ctx-size, --max-model-len", "N", "tokens the context holds; 0: what the model states, at most 8192",
     IG_VERB_INSPECT, IG_KIND_INTS, AT(contexts), "0", 0, CTX_MAX, NULL},
    {"-b, --batch", "N", "sequences that lie in the cache", IG_VERB_INSPECT, IG_KIND_INTS, AT(batches), "1", 1,
     IG_SESSIONS_MAX, NULL},
    {"-b, --batch-size", "N", "most tokens of one step of the prompt (default: 512)",
     (SESSION | IG_VERB_LOGITS) & ~IG_VERB_INSPECT, IG_KIND_INT, AT(batch), NULL, 1, BATCH_MAX, NULL},
    {"-ub, --ubatch-size", "N", "the same; of the two the smaller one counts",
     (SESSION | IG_VERB_LOGITS) & ~IG_VERB_INSPECT, IG_KIND_INT, AT(ubatch), NULL, 1, BATCH_MAX, NULL},
    {"-ub, --batch-size, --ubatch-size", "N", "most tokens of one step of the prompt", IG_VERB_INSPECT, IG_KIND_INT,
     AT(batch), "512", 1, BATCH_MAX, NULL},
    {"--draft, --draft-n, --draft-max, --spec-draft-n-max", "N",
     "most tokens that a step computes ahead, where the text has gone on so before (at most 15); the tokens are the "
     "same",
     DRAFTED, IG_KIND_INT, AT(draft), "15", 0, INT_MAX, NULL},
    {"-md, --model-draft, --spec-draft-model", "MODEL",
     "a smaller model of the same vocabulary, which guesses what comes where the text has not gone on so before; the "
     "tokens are the same",
     DRAFTED, IG_KIND_TEXT, AT(draft_model), NULL, 0, 0, NULL},
    {"-hfd, -hfrd, --hf-repo-draft, --spec-draft-hf", "OWNER/REPO[:WHICH]", "the same, of the Hugging Face hub",
     DRAFTED, IG_KIND_TEXT, AT(draft_hub), NULL, 0, 0, NULL},
    {"--kv-policy", "NAME", "which KV entries attention uses; indexer is the default of models that bring one along",
     CACHE, IG_KIND_CHOICES, AT(kv_policy), "infinigen", 0, 0, policies},
    {"--kv-type", "TYPE", "how keys and values are kept: 16-bit floats, or 8, 4, 2 or 1 bits in groups of 64", CACHE,
     IG_KIND_CHOICES, AT(kv_type), "f16", 0, 0, kv_types},
    {"--kv-sketch", "FILE",
     "sketch that prepare wrote; none: do without; own: the one prepared for the model (default); where lists are "
     "taken, may be given several times",
     CACHE, IG_KIND_TEXTS, AT(kv_sketch), NULL, 0, 0, NULL},
    {"--kv-budget", "N|P%",
     "entries used per KV head: a number, or a share of the context (default: the policy's own, 10%, of few all)",
     CACHE, IG_KIND_AMOUNTS, AT(kv_budget), NULL, 0, 0, NULL},
    {"--kv-mass", "X",
     "stop selecting once this share of the attention is covered; 1: never (default: 0.95; 1 where the budget is all)",
     CACHE, IG_KIND_NUMBER, AT(kv_mass), NULL, 0.001, 1, NULL},
    {"--kv-locality", "X", "0: choose entries one by one; 1: whole blocks, as a slower tier moves them; or between",
     CACHE, IG_KIND_NUMBER, AT(kv_locality), "0.5", 0, 1, NULL},
    {"--kv-inertia", "X", "how much more entries count whose block the step before used; 0: each step chooses anew",
     CACHE, IG_KIND_NUMBER, AT(kv_inertia), "8", 0, 1000, NULL},
    {"--no-kv-rest", NULL, "leave out what is not read, instead of estimating it from a sketch of the values", CACHE,
     IG_KIND_FLAG, AT(no_kv_rest), NULL, 0, 0, NULL},
    {"--kv-sinks", "N", "first entries that are always used", CACHE, IG_KIND_INT, AT(kv_sinks), "4", 0, INT_MAX / 4,
     NULL},
    {"--kv-recent", "N", "last entries that are always used", CACHE, IG_KIND_INT, AT(kv_recent), "32", 1, INT_MAX / 4,
     NULL},
    {"--kv-dense-layers", "N", "first layers that use every entry; -1: the policy's own, 0 to 2", CACHE, IG_KIND_INT,
     AT(kv_dense_layers), "-1", -1, 100000, NULL},
    {"--kv-alpha", "A", "infinigen-osdi24: use entries that score within A nats of the best", CACHE, IG_KIND_NUMBERS,
     AT(kv_alpha), "4", 0, 1000, NULL},
    {"--kv-partial", "R", "infinigen-osdi24: share of a key's columns that its partial cache keeps", CACHE,
     IG_KIND_NUMBERS, AT(kv_partial), "0.3", 0.001, 1, NULL},
    {"--kv-limit", "SIZE|P%", "drop entries for ever beyond this size, or share of the context (default: never)", CACHE,
     IG_KIND_LIMITS, AT(kv_limit), NULL, 0, 0, NULL},
    {"--swa-full", NULL,
     "layers with a sliding window keep all tokens, so that a prompt can go on from anywhere in an earlier one "
     "(default: what the window sees, and an eighth of the rest)",
     CACHE, IG_KIND_FLAG, AT(swa_full), NULL, 0, 0, NULL},
    {"--kv-ram", "SIZE", "most RAM for keys and values, such as 512M; the rest goes to disk (default: no limit)", CACHE,
     IG_KIND_SIZE, AT(kv_ram), NULL, 0, 0, NULL},
    {"--kv-vram", "SIZE|auto", "most of a GPU's memory for copies of what is read most of them; 0: none", CACHE,
     IG_KIND_ROOM, AT(kv_vram), "auto", 0, 0, NULL},
    {"--kv-map", NULL,
     "let the system page keys and values in and out of a mapped file, to compare with, with --kv-ram; on a GPU let "
     "its driver, without",
     CACHE, IG_KIND_FLAG, AT(kv_map), NULL, 0, 0, NULL},
    {"--kv-disk", "SIZE", "most disk space for keys and values, those in RAM too (default: what the context needs)",
     CACHE, IG_KIND_SIZE, AT(kv_disk), NULL, 0, 0, NULL},
    {"--kv-disk-path", "DIR", "where they go (default: a folder beside the fetched models)", CACHE, IG_KIND_TEXT,
     AT(kv_disk_path), NULL, 0, 0, NULL},
    {"--kv-store", "DIR",
     "take what stands before a test (-d) from there and keep it there; prompts also show the time to read them "
     "(stored)",
     IG_VERB_BENCH, IG_KIND_TEXT, AT(kv_store), NULL, 0, 0, NULL},
    {"--kv-store", "DIR", "keep the KV of prompts there, and read instead of computing what is there already",
     STORE & ~IG_VERB_BENCH, IG_KIND_TEXT, AT(kv_store), NULL, 0, 0, NULL},
    {"--kv-store-size", "SIZE", "most disk space of the store; the oldest leaves (default: no limit)", STORE,
     IG_KIND_SIZE, AT(kv_store_size), NULL, 0, 0, NULL},
    {"--kv-evict", "RULE", "which blocks leave RAM first, or entries are dropped", CACHE, IG_KIND_CHOICES, AT(kv_evict),
     "counter", 0, 0, evictions},
    {"--speculate", "HOW",
     "guess the next layer's entries after this layer's attention (late), before it (norm), as the paper does (paper: "
     "the guess is final), not (none), or late or not, as turns out to be faster (default: auto; infinigen-osdi24: "
     "paper)",
     CACHE, IG_KIND_CHOICE, AT(speculate), NULL, 0, 0, speculations},
    {"--no-prefetch", NULL, "guess the next layer's entries as ever, but read none ahead", CACHE, IG_KIND_FLAG,
     AT(no_prefetch), NULL, 0, 0, NULL},
    {"--no-uring", NULL, "disk requests by threads instead of io_uring", CACHE, IG_KIND_FLAG, AT(no_uring), NULL, 0, 0,
     NULL},

    {"--audit", "N", "at every Nth step also compute dense attention, and report how much of it the entries used hold",
     SESSION & ~IG_VERB_SERVE, IG_KIND_INT, AT(audit), "0", 0, INT_MAX, NULL},
    {"--audit-trace", "FILE",
     "write what each query head would have attended to, at every Nth step of --audit (default: every one), as CSV",
     TRACED, IG_KIND_TEXT, AT(audit_trace), NULL, 0, 0, NULL},
    {"--audit-keys", "N,...",
     "with --audit-trace: columns key_N with full attention's weight of these tokens' keys, counted from 0", TRACED,
     IG_KIND_INTS, AT(audit_keys), NULL, 0, CTX_MAX, NULL},
    {"--kv-trace", "FILE", "write what each layer of each step used and fetched, as CSV", TRACED, IG_KIND_TEXT,
     AT(kv_trace), NULL, 0, 0, NULL},

    /* machine */
    {"-t, --threads", "N", "threads; 0 or -1: as many as the process may run on", IG_VERB_ENGINE & ~IG_VERB_BENCH,
     IG_KIND_INT, AT(threads), "0", -1, 1024, NULL},
    {"-t, --threads", "LIST", "threads; 0 or -1: as many as the process may run on", IG_VERB_BENCH, IG_KIND_INTS,
     AT(thread_counts), "0", -1, 1024, NULL},
    {"--no-mmap", NULL, "copy the weights into memory instead of using them where they lie in their file",
     IG_VERB_ENGINE, IG_KIND_FLAG, AT(no_mmap), NULL, 0, 0, NULL},
    {"-nr, --no-repack", NULL, "use weights where they lie in their file, also where an order of their own is faster",
     IG_VERB_ENGINE, IG_KIND_FLAG, AT(no_repack), NULL, 0, 0, NULL},
    {"--lora, --lora-scaled", "[NAME=]FILE[:SCALE]",
     "add a low-rank adapter to the weights, SCALE times (default: 1); a list with commas, or given several times, "
     "adds several. NAME is for clients of a server",
     IG_VERB_ENGINE, IG_KIND_TEXTS, AT(adapters), NULL, 0, 0, NULL},
    {"--lora-init-without-apply", NULL, "adapters are only for requests that ask for them", IG_VERB_SERVE, IG_KIND_FLAG,
     AT(lora_waits), NULL, 0, 0, NULL},
    {"--weights-ram", "SIZE",
     "most RAM for weights; layers that do not fit are read from the file in every step, experts when they are chosen",
     IG_VERB_ENGINE, IG_KIND_SIZE, AT(weights_ram), NULL, 0, 0, NULL},
    {"--weights-vram", "SIZE",
     "most memory of the GPU for weights; layers that do not fit are copied from the host's memory in every step, "
     "experts when they are chosen",
     IG_VERB_ENGINE, IG_KIND_SIZE, AT(weights_vram), NULL, 0, 0, NULL},
    {"-dev, --device", "DEVICE", "where models are computed: cpu, cuda or cuda:N (a GPU), auto (a GPU if there is one)",
     IG_VERB_ENGINE, IG_KIND_TEXT, AT(device), "cpu", 0, 0, NULL},
    {"--cpu", "LEVEL", "highest instruction set to use", IG_VERB_ENGINE, IG_KIND_CHOICE, AT(cpu), NULL, 0, 0,
     ig_cli_cpu_levels},

    /* inspect, fetch */
    {"--tensors", NULL, "list every tensor", IG_VERB_INSPECT, IG_KIND_FLAG, AT(tensors), NULL, 0, 0, NULL},
    {"--activations", "FILE",
     "run the model over the first -c tokens of this text (0: at most 2048), and say how alike the inputs of "
     "neighbouring "
     "layers are, and how few columns of queries and keys hold most of them; - is standard input",
     IG_VERB_INSPECT, IG_KIND_TEXT, AT(activations), NULL, 0, 0, NULL},
    {"--text", NULL, "a text, not a model", IG_VERB_FETCH, IG_KIND_FLAG, AT(text), NULL, 0, 0, NULL},
    {"--sources", "FILE", "a table of further models (with --text: of texts)",
     IG_VERB_FETCH | IG_VERB_MODEL | IG_VERB_TASKS, IG_KIND_TEXT, AT(sources), NULL, 0, 0, NULL},

    /* kv */
    {"--kv-store", "DIR", "the directory of stored KV", IG_VERB_KV, IG_KIND_TEXT, AT(kv_store), NULL, 0, 0, NULL},
    {"--kv-store-size", "SIZE", "gc: most to leave there, such as 10G", IG_VERB_KV, IG_KIND_SIZE, AT(kv_store_size),
     NULL, 0, 0, NULL},
    {"--model", "NAME", "rm: all that is of this model, as ls names it", IG_VERB_KV, IG_KIND_TEXT, AT(model), NULL, 0,
     0, NULL},
    {"--note", "NAME", "rm: the note of this name", IG_VERB_KV, IG_KIND_TEXT, AT(note), NULL, 0, 0, NULL},
    {"--all", NULL, "rm: everything", IG_VERB_KV, IG_KIND_FLAG, AT(all), NULL, 0, 0, NULL},

    /* all */
    {"--json", NULL, "print one JSON object", JSON, IG_KIND_FLAG, AT(json), NULL, 0, 0, NULL},
    {"-v, --verbose", NULL, "show what goes on", IG_VERB_MODEL | IG_VERB_FETCH, IG_KIND_FLAG, AT(verbose), NULL, 0, 0,
     NULL},
    {"-h, --help", NULL, "print this help", IG_VERB_ALL, IG_KIND_FLAG, AT(help), NULL, 0, 0, NULL},
    {NULL, NULL, NULL, 0, IG_KIND_FLAG, 0, NULL, 0, 0, NULL},
};

_Static_assert(sizeof ig_cli_option_table / sizeof *ig_cli_option_table <= IG_CLI_ROWS_MAX, "more rows than places");

const size_t ig_cli_option_count = sizeof ig_cli_option_table / sizeof ig_cli_option_table[0] - 1;

void ig_cli_open_options(void) {
    const ig_policy_info *policy;
    for (size_t i = 0; i + 1 < sizeof policies / sizeof policies[0] && (policy = ig_cache_policy(i)); i++)
        policies[i] = policy->name;
    for (size_t i = 0; i + 1 < sizeof recipes / sizeof recipes[0]; i++) recipes[i] = ig_eval_make_name(i);
}
