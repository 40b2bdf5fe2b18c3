/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of llama.cpp's flags, of llama-cli, llama-completion, llama-perplexity, llama-bench, llama-tokenize and
 * llama-server, and of what `vllm serve` is often started with. An option of the same name comes before a row here. A
 * flag is passed over only where no result could tell.
 */
#define _GNU_SOURCE
#include "cli/llama_flags.h"

#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(ig_cli_options, field)
#define NONE IG_LLAMA_NONE
#define VALUE IG_LLAMA_VALUE
#define SWITCH IG_LLAMA_SWITCH
#define ALL IG_VERB_MODEL
#define RUN IG_VERB_RUN
#define CHAT IG_VERB_CHAT
#define GENERATE IG_VERB_GENERATE
#define BENCH IG_VERB_BENCH
#define PERPLEXITY IG_VERB_PERPLEXITY
#define TOKENIZE IG_VERB_TOKENIZE
#define SERVE IG_VERB_SERVE
#define CACHE (GENERATE | PERPLEXITY | BENCH | IG_VERB_EVAL | IG_VERB_INSPECT | IG_VERB_SERVE)

#define NO_GPU "--device says what computes: leave it out"
#define MAPPED "weights are mapped from the file, or copied with --no-mmap, and not locked in RAM: leave it out"
#define TASKSET "'taskset' binds the program to CPUs, and 'nice' sets its priority"
#define TEMPLATE "the model's own chat template is used, or none with 'infinigen run --raw'"
#define SAMPLERS \
    "--temp, --top-k, --top-p, --min-p, --typical, --xtc-probability and penalties sample, in a fixed order"
#define POSITIONS "positions are what the model's file says they are"
#define NO_ADAPTER "a model is taken as its file has it, but for --lora"
#define STORE "--kv-store DIR keeps what prompts have computed"
#define DRAFTS "-md MODEL names a model that guesses what comes, and --draft N says how many tokens at most"
#define TEXTS_ONLY "models are given texts only"
#define REQUESTS "requests carry it, as stop and seed: leave it out"
#define MODELS \
    "-m takes a file, a directory, or a name that 'infinigen fetch' lists, and -hf a model of the Hugging Face hub"
#define NO_SERVER "'infinigen serve' is the server"
#define NO_FILES "there is no TLS, and there are no files but the page: a proxy can add both"
#define EVAL "'infinigen eval --task FILE' asks questions"
#define DIVERGENCE "--dense-prefix N with --kv-policy full,infinigen says how far a policy is from full"

/* names, verbs, value, passed over, option, instead, offset */
const ig_cli_llama_flag ig_cli_llama_flags[] = {
    {"llama.cpp", 0, NONE, NULL, NULL, NULL, 0},
    /* the same under another name */
    {"-no-cnv, --no-conversation", RUN, NONE, NULL, "--raw", NULL, 0},
    {"-bf, --binary-file, --in-file", RUN | TOKENIZE | PERPLEXITY | BENCH, VALUE, NULL, "--file", NULL, 0},
    {"--log-verbose, --perf, --show-timings", ALL, NONE, NULL, "--verbose", NULL, 0},
    {"--parse-special", TOKENIZE, NONE, NULL, "--special", NULL, 0},
    {"-tb, --threads-batch", IG_VERB_ENGINE & ~IG_VERB_BENCH, VALUE, NULL, NULL, NULL, AT(threads_batch)},
    {"-ctk, --cache-type-k", CACHE, VALUE, NULL, NULL, NULL, AT(type_k)},
    {"-ctv, --cache-type-v", CACHE, VALUE, NULL, NULL, NULL, AT(type_v)},

    /* what things are like here in any case */
    {"-cnv, --conversation, -i, --interactive, -if, --interactive-first", CHAT, NONE, "*", NULL, NULL, 0},
    {"-st, --single-turn", RUN, NONE, "*", NULL, NULL, 0},
    {"--stdin, --no-bos, --no-parse-special", TOKENIZE, NONE, "*", NULL, NULL, 0},
    {"--progress", BENCH, NONE, "*", NULL, NULL, 0},
    {"-fa, --flash-attn", ALL & ~BENCH, SWITCH, "*", NULL, NULL, 0},
    {"-fa, --flash-attn", BENCH, VALUE, "on off auto 0 1", NULL, "attention is computed in one way: leave it out", 0},
    {"-co, --color, --log-colors, -fit, --fit", ALL, SWITCH, "*", NULL, NULL, 0},
    {"-kvo, --kv-offload, -nkvo, --no-kv-offload, --op-offload, -nopo, --no-op-offload, --no-host", ALL & ~BENCH, NONE,
     "*", NULL, NULL, 0},
    {"-nkvo, --no-kv-offload, -nopo, --no-op-offload, --no-host", BENCH, SWITCH, "*", NULL, NULL, 0},
    {"--jinja, --no-jinja, --simple-io, --no-display-prompt, --no-escape, --no-context-shift", ALL, NONE, "*", NULL,
     NULL, 0},
    {"--log-disable, --log-prefix, --no-log-prefix, --log-timestamps, --no-log-timestamps", ALL, NONE, "*", NULL, NULL,
     0},
    {"-cb, --cont-batching, -nocb, --no-cont-batching, -kvu, --kv-unified, -no-kvu, --no-kv-unified", ALL, NONE, "*",
     NULL, NULL, 0},
    {"-cmoe, --cpu-moe, --repack, --warmup", ALL, NONE, "*", NULL, NULL, 0},
    {"--mmap", ALL & ~BENCH, NONE, "*", NULL, NULL, 0},
    {"-mmp, --mmap", BENCH, VALUE, "1", NULL, MAPPED, 0},
    {"--no-warmup", ALL & ~BENCH, NONE, "*", NULL, NULL, 0},
    {"-dt, --defrag-thold, --poll, --poll-batch, --keep, -ncmoe, --n-cpu-moe, -ncffn, --n-cpu-ffn", ALL, VALUE, "*",
     NULL, NULL, 0},

    /* conversation and texts */
    {"-cnv, --conversation, -i, --interactive, -if, --interactive-first", RUN, NONE, NULL, NULL,
     "a conversation is 'infinigen chat', and run answers once", 0},
    {"-no-cnv, --no-conversation", CHAT, NONE, NULL, NULL, "'infinigen run --raw' continues a text as it stands", 0},
    {"-st, --single-turn", CHAT, NONE, NULL, NULL, "'infinigen run' answers once", 0},
    {"-mli, --multiline-input", GENERATE, NONE, NULL, NULL, "lines between two \"\"\" are one message of a chat", 0},
    {"-sysf, --system-prompt-file", GENERATE, VALUE, NULL, NULL, "--system \"$(cat FILE)\" does that", 0},
    {"--display-prompt, --verbose-prompt", ALL, NONE, NULL, NULL, "'infinigen tokenize' shows the tokens of a text", 0},
    {"--context-shift", ALL, NONE, NULL, NULL, "-c makes the context larger", 0},
    {"--in-prefix, --in-suffix", ALL, VALUE, NULL, NULL, TEMPLATE, 0},
    {"--reasoning-budget", ALL, VALUE, "-1", NULL,
     "thoughts have no limit of their own: --reasoning off leaves them out", 0},
    {"--chat-template, --chat-template-file, --chat-template-kwargs, -rea, --reasoning, --reasoning-effort",
     ALL & ~(GENERATE | SERVE), VALUE, NULL, NULL, TEMPLATE, 0},
    {"--reasoning-format", ALL & ~SERVE, VALUE, NULL, NULL, TEMPLATE, 0},
    {"--in-prefix-bos, --skip-chat-parsing, --no-skip-chat-parsing", ALL, NONE, NULL, NULL, TEMPLATE, 0},
    {"-ptc, --print-token-count", ALL, VALUE, NULL, NULL, "--json and -v count the tokens", 0},
    {"--show-count", TOKENIZE, NONE, NULL, NULL, "--json counts the tokens", 0},

    /* sampling */
    {"--samplers, --sampler-seq, --sampling-seq", ALL, VALUE, NULL, NULL, SAMPLERS, 0},
    {"--mirostat", ALL, VALUE, "0", NULL, SAMPLERS, 0},
    {"--dynatemp-range, --dry-multiplier", ALL & ~(GENERATE | SERVE), VALUE, "0 0.0 0.00", NULL, SAMPLERS, 0},
    {"--adaptive-target", ALL, VALUE, "-1 -1.0 -1.00", NULL, SAMPLERS, 0},
    {"--mirostat-lr, --mirostat-ent, --adaptive-decay", ALL, VALUE, NULL, NULL, SAMPLERS, 0},
    {"--dynatemp-exp, --dry-base, --dry-allowed-length, --dry-penalty-last-n, --dry-sequence-breaker",
     ALL & ~(GENERATE | SERVE), VALUE, NULL, NULL, SAMPLERS, 0},
    {"-bs, --backend-sampling", ALL, NONE, NULL, NULL, NO_GPU, 0},
    {"--grammar, --grammar-file, -j, --json-schema, -jf, --json-schema-file", SERVE, VALUE, NULL, NULL, REQUESTS, 0},

    /* the model */
    {"-hff, --hf-file", ALL, VALUE, NULL, NULL, "-hf OWNER/REPO:FILE takes a file of a repository", 0},
    {"-hft, --hf-token", ALL, VALUE, NULL, NULL, "the environment has it, as HF_TOKEN", 0},
    {"-mu, --model-url, -dr, --docker-repo", ALL, VALUE, NULL, NULL, MODELS, 0},
    {"-cl, --cache-list", ALL, NONE, NULL, NULL, "'infinigen fetch' lists the models", 0},
    {"--offline", ALL, NONE, NULL, NULL, "nothing is downloaded but a model that -m names for the first time", 0},
    {"-lm, --load-mode", ALL, VALUE, "auto mmap", NULL, MAPPED, 0},
    {"--mlock, -dio, --direct-io", ALL, NONE, NULL, NULL, MAPPED, 0},
    {"--check-tensors", ALL, NONE, NULL, NULL, "numbers that are not finite end a run by themselves: leave it out", 0},
    {"--control-vector, --control-vector-scaled, --override-kv", ALL, VALUE, NULL, NULL, NO_ADAPTER, 0},
    {"--lora, --lora-scaled", IG_VERB_TOKENIZE, VALUE, "*", NULL, NULL, 0},
    {"--rope-scaling, --rope-scale, --rope-freq-base, --rope-freq-scale", ALL, VALUE, NULL, NULL, POSITIONS, 0},
    {"--yarn-orig-ctx, --yarn-ext-factor, --yarn-attn-factor, --yarn-beta-slow, --yarn-beta-fast", ALL, VALUE, NULL,
     NULL, POSITIONS, 0},
    {"-gan, --grp-attn-n, -gaw, --grp-attn-w", ALL, VALUE, NULL, NULL, POSITIONS, 0},
    {"--draft-min, --draft-n-min, --spec-draft-n-min, --draft-p-min, --spec-draft-p-min, --draft-p-split", ALL, VALUE,
     "*", NULL, NULL, 0},
    {"--spec-draft-p-split, -cd, --ctx-size-draft", ALL, VALUE, "*", NULL, NULL, 0},
    {"-td, --threads-draft, --spec-draft-threads, -tbd, --threads-batch-draft, --spec-draft-threads-batch", ALL, VALUE,
     "*", NULL, NULL, 0},
    {"-ngld, --gpu-layers-draft, --n-gpu-layers-draft, --spec-draft-ngl", ALL, VALUE, "*", NULL, NULL, 0},
    {"-md, --model-draft, --spec-draft-model, -hfd, -hfrd, --hf-repo-draft, --spec-draft-hf",
     ALL & ~(IG_VERB_GENERATE | IG_VERB_INSPECT | SERVE), VALUE, NULL, NULL, "run, chat and serve take a draft model",
     0},
    {"-lcs, --lookup-cache-static, -lcd, --lookup-cache-dynamic", ALL, VALUE, NULL, NULL, DRAFTS, 0},
    {"--spec-default", ALL, NONE, "*", NULL, NULL, 0},
    {"--spec-type", ALL, VALUE, "draft-simple ngram-simple ngram-map-k ngram-map-k4v ngram-mod ngram-cache", NULL,
     DRAFTS, 0},
    {"-devd, --device-draft, --spec-draft-device", ALL, VALUE, NULL, NULL,
     "a draft model is computed where --device says: leave it out", 0},
    {"-ctkd, --cache-type-k-draft, --spec-draft-type-k, -ctvd, --cache-type-v-draft, --spec-draft-type-v", ALL, VALUE,
     NULL, NULL, "a draft model's keys and values are of the type of --kv-type: leave it out", 0},
    {"-mm, --mmproj, -mmu, --mmproj-url, --image, --audio, --video", ALL, VALUE, NULL, NULL, TEXTS_ONLY, 0},
    {"--embedding, --embeddings", ALL & ~SERVE, NONE, NULL, NULL, "'infinigen logits' writes what a model computes", 0},

    /* the machine */
    {"-ngl, --gpu-layers, --n-gpu-layers", ALL, VALUE, NULL, NULL, NULL, AT(gpu_layers)},
    {"-sm, --split-mode", ALL, VALUE, "none", NULL, NO_GPU, 0},
    {"-mg, --main-gpu", ALL, VALUE, "0", NULL, NO_GPU, 0},
    {"-ts, --tensor-split, -ot, --override-tensor, -fitt, --fit-target, -fitc, --fit-ctx, -rpc, --rpc", ALL, VALUE,
     NULL, NULL, NO_GPU, 0},
    {"--list-devices", ALL, NONE, NULL, NULL, "'infinigen devices' lists them", 0},
    {"--prio, --prio-batch, --cpu-strict, --cpu-strict-batch", ALL, VALUE, "0", NULL, TASKSET, 0},
    {"-C, --cpu-mask, -Cr, --cpu-range, -Cb, --cpu-mask-batch, -Crb, --cpu-range-batch", ALL, VALUE, NULL, NULL,
     TASKSET, 0},
    {"--numa", ALL, VALUE, NULL, NULL, "'numactl' says where memory and threads lie", 0},
    {"--prompt-cache, -cram, --cache-ram, -ctxcp, --ctx-checkpoints, --cache-reuse", ALL & ~SERVE, VALUE, NULL, NULL,
     STORE, 0},
    {"--prompt-cache-all, --prompt-cache-ro", ALL, NONE, NULL, NULL, STORE, 0},
    {"-np, --parallel, -ns, --sequences", ALL & ~IG_VERB_SERVE, VALUE, "1", NULL,
     "'infinigen bench -b' computes several sequences", 0},
    {"--host, --port", ALL & ~IG_VERB_SERVE, VALUE, NULL, NULL, NO_SERVER, 0},
    {"--api-key", ALL & ~(IG_VERB_SERVE | IG_VERB_BENCH), VALUE, NULL, NULL, NO_SERVER, 0},

    /* the server */
    {"--metrics, --slots, --cache-prompt, --ui, --webui", SERVE, NONE, "*", NULL, NULL, 0},
    {"--threads-http, -sps, --slot-prompt-similarity, -ctxcp, --ctx-checkpoints", SERVE, VALUE, "*", NULL, NULL, 0},
    {"--logit-bias, -s, --seed, -r, --reverse-prompt", SERVE, VALUE, NULL, NULL, REQUESTS, 0},
    {"-cram, --cache-ram", SERVE, VALUE, NULL, NULL,
     "--kv-ram limits what is kept in RAM of earlier prompts too, --kv-disk the rest", 0},
    {"--cache-reuse", SERVE, VALUE, "0", NULL, "prompts share what they begin with, and nothing after it", 0},
    {"--prompt-cache, --slot-save-path", SERVE, VALUE, NULL, NULL, "--kv-store DIR keeps what prompts have computed",
     0},
    {"--no-cache-prompt", SERVE, NONE, NULL, NULL, "a request with 'cache_prompt': false takes nothing of others", 0},
    {"--prefill-assistant", SERVE, NONE, NULL, NULL,
     "requests with 'continue_final_message': true go on with their last message: leave it out", 0},
    {"--no-prefill-assistant", SERVE, NONE, "*", NULL, NULL, 0},
    {"--sse-ping-interval", SERVE, VALUE, "*", NULL, NULL, 0},
    {"--spm-infill", SERVE, NONE, NULL, NULL, "what comes before the place is told first: leave it out", 0},
    {"--tags", SERVE, VALUE, "*", NULL, NULL, 0},
    {"--tools", SERVE, VALUE, NULL, NULL, "requests say which tools there are, and clients run them: leave it out", 0},
    {"--no-slots", SERVE, NONE, NULL, NULL, "/slots shows no text, and wants the key: leave it out", 0},
    {"--props", SERVE, NONE, NULL, NULL, "/props can be read only: leave it out", 0},
    {"--no-ui, --no-webui", SERVE, NONE, NULL, NULL, "the page shows nothing without the key: leave it out", 0},
    {"-to, --timeout", SERVE, VALUE, NULL, NULL,
     "--header-timeout, --body-timeout, --keep-alive and --request-timeout say how long clients and answers may take",
     0},
    {"--path, --api-prefix, --media-path, --ssl-key-file, --ssl-cert-file", SERVE, VALUE, NULL, NULL, NO_FILES, 0},
    {"--embedding, --embeddings", SERVE, NONE, "*", NULL, NULL, 0},
    {"--rerank, --reranking", SERVE, NONE, "*", NULL, NULL, 0},
    {"--models-autoload", SERVE, NONE, "*", NULL, NULL, 0},
    {"--no-models-autoload", SERVE, NONE, NULL, NULL, "a model is loaded when it is asked for", 0},
    {"--models-preset", SERVE, VALUE, NULL, NULL, "all models have the same options", 0},
    {"--reuse-port", SERVE, NONE, NULL, NULL, "one server listens at a port: leave it out", 0},

    /* the log */
    {"-lv, --verbosity, --log-verbosity", ALL, VALUE, NULL, NULL, "-v shows what goes on, and IG_LOG=debug more", 0},
    {"--license", ALL, NONE, NULL, NULL, "the file LICENSE has it", 0},
    {"--completion-bash", ALL, NONE, NULL, NULL, "'infinigen completion bash' prints it", 0},
    {"--log-file", ALL, VALUE, NULL, NULL, "2>FILE keeps what is logged", 0},
    {"--no-perf, --no-show-timings", ALL, NONE, NULL, NULL, "statistics go to standard error: 2>/dev/null hides them",
     0},

    /* measuring */
    {"--hellaswag, --winogrande, --multiple-choice", PERPLEXITY, NONE, NULL, NULL, EVAL, 0},
    {"--hellaswag-tasks, --winogrande-tasks, --multiple-choice-tasks", PERPLEXITY, VALUE, NULL, NULL, EVAL, 0},
    {"--kl-divergence", PERPLEXITY, NONE, NULL, NULL, DIVERGENCE, 0},
    {"--kl-divergence-base, --save-all-logits", PERPLEXITY, VALUE, NULL, NULL, DIVERGENCE, 0},
    {"--ppl-stride, --ppl-output-type", PERPLEXITY, VALUE, "0", NULL, "chunks follow one another: leave it out", 0},
    {"-pg, -gp", BENCH, VALUE, NULL, NULL, "-p and -n are measured one by one, after the tokens of -d", 0},
    {"-npp, -ntg, -npl", BENCH, VALUE, NULL, NULL, "-p, -n and -b list prompts, generations and sequences", 0},
    {"-oe, --output-err", BENCH, VALUE, NULL, NULL, "results go to standard output (-o)", 0},
    {"-embd", BENCH, VALUE, "0", NULL, "generations are measured: leave it out", 0},
    {"--delay", BENCH, VALUE, "0", NULL, "one test follows at once on another: leave it out", 0},
    {"--no-warmup", BENCH, NONE, NULL, NULL, "one untimed run always comes first: leave it out", 0},

    {"vLLM", 0, NONE, NULL, NULL, NULL, 0},
    {"--enable-auto-tool-choice, --enable-prefix-caching, --enable-chunked-prefill, --trust-remote-code", SERVE, NONE,
     "*", NULL, NULL, 0},
    {"--disable-log-requests, --no-enable-log-requests", SERVE, NONE, "*", NULL, NULL, 0},
    {"--gpu-memory-utilization", SERVE, VALUE, "*", NULL, NULL, 0},
    {"--enable-lora", SERVE, NONE, "*", NULL, NULL, 0},
    {"--max-loras, --max-cpu-loras, --max-lora-rank", SERVE, VALUE, "*", NULL, NULL, 0},
    {"--lora-modules", SERVE, VALUE, NULL, NULL,
     "--lora NAME=FILE adds an adapter, and --lora-init-without-apply keeps it for requests whose 'model' is NAME", 0},
    {"--kv-cache-dtype", SERVE, VALUE, "auto", NULL, "--kv-type q8 keeps keys and values in 8 bits", 0},
    {"-tp, --tensor-parallel-size, -pp, --pipeline-parallel-size", SERVE, VALUE, "1", NULL, "one device computes", 0},
    {"--max-num-batched-tokens", SERVE, VALUE, NULL, "--batch-size", NULL, 0},
    {"--quantization, --load-format, --tokenizer", SERVE, VALUE, "auto", NULL,
     "the model's file says that: leave it out", 0},
    {"--enforce-eager, --disable-log-stats, --disable-uvicorn-access-log", SERVE, NONE, "*", NULL, NULL, 0},
    {"--no-enable-prefix-caching", SERVE, NONE, NULL, NULL, "prompts share what they begin with: leave it out", 0},
    {"--swap-space, --kv-offloading-size, --kv-offloading-backend", SERVE, VALUE, NULL, NULL,
     "all keys and values lie in RAM, or with --kv-ram SIZE on disk beyond that, and --kv-vram SIZE is what of them a "
     "GPU "
     "holds",
     0},
    {"--cpu-offload-gb", SERVE, VALUE, "0", NULL,
     "--weights-vram SIZE is what of the weights a GPU holds, and --weights-ram SIZE what RAM does", 0},
    {"--speculative-config", SERVE, VALUE, NULL, NULL, DRAFTS, 0},
    {"--kv-transfer-config", SERVE, VALUE, NULL, NULL, STORE, 0},
    {"--dtype", SERVE, VALUE, "auto", NULL, "weights keep the type of their file: leave it out", 0},
    {"--tool-call-parser, --reasoning-parser", SERVE, VALUE, "*", NULL, NULL, 0},
    {NULL, 0, NONE, NULL, NULL, NULL, 0},
};

const ig_cli_llama_flag *ig_cli_find_llama_flag(const char **owner, const char *name, size_t n_name, unsigned verbs) {
    for (const ig_cli_llama_flag *flag = ig_cli_llama_flags; flag->names; flag++) {
        if (!flag->verbs && owner) *owner = flag->names;
        if ((flag->verbs & verbs) && ig_cli_has_name(flag->names, name, n_name)) return flag;
    }
    return NULL;
}

/* Whether a blank-separated list holds the word. */
static bool holds(const char *list, const char *word) {
    size_t n = strlen(word);
    for (const char *p = list; *p; p += strcspn(p, " ")) {
        p += strspn(p, " ");
        if (strcspn(p, " ") == n && n && strncmp(p, word, n) == 0) return true;
    }
    return false;
}

bool ig_cli_is_switch_value(const char *text) { return holds("on off auto 0 1 true false enabled disabled", text); }

bool ig_cli_passes_over(const ig_cli_llama_flag *flag, const char *value) {
    if (!flag->passed_over) return false;
    return strcmp(flag->passed_over, "*") == 0 || (value && holds(flag->passed_over, value));
}

/* ---- flags that must agree with others ----------------------------------------- */

/* "q8_0" is kept as "q8"; without a flag it is f16. NULL: no such type. */
static const char *type_of(const char *text) {
    if (!text) return "f16";
    static const char *const names[][2] = {{"f16", "f16"}, {"q8_0", "q8"}, {"q4_0", "q4"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(text, names[i][0]) == 0) return names[i][1];
    return NULL;
}

/* -b and -ub: of the two that are given the smaller one counts, as there. */
static void settle_steps(ig_cli_options *o) {
    if (o->ubatch && (!o->batch || o->ubatch < o->batch)) o->batch = o->ubatch;
    if (!o->batch) o->batch = ig_session_defaults().n_batch;
}

/* -ngl: any layers on a GPU are a wish to have one, unless --device says where models are computed. */
static bool settle_gpu_layers(ig_cli_options *o) {
    char *end;
    if (!o->gpu_layers) return true;
    long n = strtol(o->gpu_layers, &end, 10);
    if (!holds("auto all", o->gpu_layers) && (end == o->gpu_layers || *end || n < -1)) {
        fprintf(stderr, "infinigen %s: -ngl: '%s' is not a number of layers\n", o->verb->name, o->gpu_layers);
        return false;
    }
    if (end != o->gpu_layers && n == 0) o->gpu_layers = NULL;
    if (o->gpu_layers && (o->verb->bit & IG_VERB_ENGINE) && !ig_cli_is_given(o, &o->device)) o->device = "auto";
    return true;
}

bool ig_cli_settle_llama_flags(ig_cli_options *o) {
    char threads[16];
    snprintf(threads, sizeof threads, "%d", o->threads);
    settle_steps(o);
    if (!settle_gpu_layers(o)) return false;
    if (o->threads_batch && (o->threads == 0 || strcmp(o->threads_batch, threads) != 0)) {
        fprintf(stderr, "infinigen %s: -tb %s: here the same threads compute prompt and generation: -t sets them\n",
                o->verb->name, o->threads_batch);
        return false;
    }
    if (!o->type_k && !o->type_v) return true;
    const char *k = type_of(o->type_k), *v = type_of(o->type_v);
    if (!k || !v || strcmp(k, v) != 0 || o->kv_type.n > 1 ||
        (strcmp(o->kv_type.v[0], "f16") != 0 && strcmp(o->kv_type.v[0], k) != 0)) {
        fprintf(stderr,
                "infinigen %s: %s %s: here keys and values are kept in one type, f16, q8_0 or q4_0: give -ctk and -ctv "
                "alike, or --kv-type\n",
                o->verb->name, o->type_k ? "-ctk" : "-ctv", o->type_k ? o->type_k : o->type_v);
        return false;
    }
    o->kv_type.v[0] = k;
    return true;
}
