/* SPDX-License-Identifier: Apache-2.0
 *
 * infinigen: LLM inference when the KV cache outgrows the fast memory.
 *
 * Four nouns:
 *   ig_context  device, threads, CPU level, log sink. Outlives its models.
 *   ig_model    weights and tokenizer: immutable, shared. Outlives its sessions.
 *   ig_cache    the memory in which the KV of many sessions of a model lies. Outlives them.
 *   ig_session  one timeline of tokens. One thread at a time.
 *
 * And for a program that answers many (infinigen_requests.h): ig_scheduler, which drives sessions of its own.
 *
 * The caller always hands over the *whole* token prefix: ig_session_sync()
 * reuses what the session already holds, extends it or cuts it back.
 * ig_session_decode() steps several sessions as one batch, and ig_batch_step()
 * mixes such steps with pieces of prompts.
 *
 * Every fallible call returns a status (0 is success, errors are negative),
 * hands its result out through its first argument, and fills the optional
 * ig_error with one line a user can act on. The library never exits, prints,
 * or reads the environment, and allocates nothing while decoding.
 *
 * Arguments are checked. A pointer that is needed and NULL, and an option that
 * is out of its range or not a number, is IG_E_ARG; a call without a status
 * answers 0, -1, false, "" or NULL instead. NULL options are the defaults,
 * NULL as an ig_error is allowed everywhere, and so is X_close(NULL).
 *
 * Threads. A context and a model do not change once they are open: any number of
 * threads may use them at the same time. A session, a sampler and an
 * ig_detok_stream are for one thread at a time, for reading too; ig_session_decode()
 * and ig_batch_step() use all sessions of their batch. So threads may open, sync,
 * decode, ask and close at the same time, each its own sessions, also of one model.
 * That changes no result. The arithmetic of one context takes turns, one operation at a time:
 * sessions in one batch are faster than sessions on several threads. A close runs
 * when nothing else uses what is closed. Callbacks run on the thread that made the
 * call, so that the log is called from any of them.
 */
#ifndef INFINIGEN_H
#define INFINIGEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define IG_API __attribute__((visibility("default")))
#else
#define IG_API
#endif

/* ---- status and errors ------------------------------------------------ */

/* X(name, value, text) */
#define IG_STATUS_LIST(X)                          \
    X(OK, 0, "success")                            \
    X(E_ARG, -1, "invalid argument")               \
    X(E_MEMORY, -2, "out of memory")               \
    X(E_IO, -3, "input/output error")              \
    X(E_FORMAT, -4, "malformed file")              \
    X(E_UNSUPPORTED, -5, "not supported")          \
    X(E_NOT_FOUND, -6, "not found")                \
    X(E_LIMIT, -7, "limit exceeded")               \
    X(E_INTERRUPTED, -8, "interrupted")            \
    X(E_NUMBER, -9, "numbers that are not finite") \
    X(E_CHANGED, -10, "file changed while in use") \
    X(E_DEVICE, -11, "the device failed")

typedef enum ig_status {
#define IG_STATUS_ENUM(name, value, text) IG_##name = value,
    IG_STATUS_LIST(IG_STATUS_ENUM)
#undef IG_STATUS_ENUM
} ig_status;

/* Filled once, at the place that knows the cause. `text` is one line without
 * a newline; it names the file, field or flag concerned. */
typedef struct ig_error {
    ig_status status;
    char text[512];
} ig_error;

IG_API const char *ig_status_text(ig_status status);
IG_API const char *ig_version(void); /* "0.1.0" */

/* ---- context ----------------------------------------------------------- */

typedef struct ig_context ig_context;

typedef enum ig_log_level { IG_LOG_ERROR, IG_LOG_WARN, IG_LOG_INFO, IG_LOG_DEBUG } ig_log_level;
typedef void (*ig_log_fn)(void *user, ig_log_level level, const char *text);

/* CPU levels, each including those before it of the same kind of processor: x86-64, then aarch64. */
typedef enum ig_cpu_level {
    IG_CPU_SCALAR,
    IG_CPU_AVX2,
    IG_CPU_AVXVNNI, /* AVX2 with dot products of bytes (Alder Lake and later, Sierra Forest) */
    IG_CPU_AVX512,  /* F, BW, DQ, VL and VNNI (Cascade Lake, Ice Lake, Zen 4 and later) */
    IG_CPU_AMX,     /* AVX-512 with BF16, and with tiles of bfloat16 and of bytes (Sapphire Rapids and later) */
    IG_CPU_NEON,
    IG_CPU_DOTPROD, /* NEON with dot products of bytes (ARMv8.2 with ASIMDDP: Cortex-A76, Graviton 2 and later) */
    IG_CPU_I8MM,    /* and with products of byte matrices (ARMv8.6 with I8MM: Cortex-A710, Graviton 3 and later) */
    IG_CPU_BEST = 99
} ig_cpu_level;

enum { IG_THREADS_MAX = 1024 };

typedef struct ig_context_options {
    int n_threads;          /* at most IG_THREADS_MAX; 0 (default): as many as this process may run on */
    ig_cpu_level cpu_level; /* IG_CPU_BEST (default): the best this CPU has */
    ig_log_fn log;          /* NULL (default): no log */
    void *log_user;
    const char *device; /* where models are computed: NULL or "cpu" (default); a GPU, "cuda:0", "cuda" being the first;
                           "auto": the first GPU, or without one the CPU. IG_E_UNSUPPORTED if the library was built
                           without CUDA or not for this GPU, IG_E_NOT_FOUND if there is no such GPU, or a driver is
                           missing or too old. With a GPU the weights lie in its memory, and keys and values in
                           page-locked memory of the host, all of which is taken when a cache or session is opened;
                           results differ from the CPU's by rounding. */
    bool plan_only; /* with a GPU nothing is computed and none need be there, nor be built for: models and plans tell
                       what they would take. To open a cache or a session is IG_E_UNSUPPORTED then. Default false */
} ig_context_options;

typedef struct ig_device_info {
    char device[16];       /* as ig_context_options.device wants it */
    char name[256];        /* "NVIDIA H200"; of the CPU its best level */
    uint64_t memory_bytes; /* its own; of the CPU all RAM */
    uint64_t free_bytes;   /* what can be had of it now; UINT64_MAX: the system does not tell */
} ig_device_info;

IG_API ig_context_options ig_context_defaults(void);
IG_API ig_status ig_context_open(ig_context **out, const ig_context_options *options, ig_error *err);
IG_API void ig_context_close(ig_context *ctx);
IG_API int ig_context_threads(const ig_context *ctx);
/* "scalar", "avx2", "avxvnni", "avx512", "amx", "neon", "dotprod" or "i8mm" */
IG_API const char *ig_context_cpu(const ig_context *ctx);
IG_API const char *ig_context_device(const ig_context *ctx); /* "cpu", "cuda:0" */
/* Device number i, the CPU first; false if there is none. */
IG_API bool ig_device_at(size_t i, ig_device_info *info);
IG_API bool ig_has_cuda(void); /* whether the library was built with it */
/* How fast all threads, or the GPU, read the device's memory: the best of some passes over 256 MB that are taken for
 * the time, which is what bounds the steps of a generation. IG_E_MEMORY; IG_E_DEVICE; IG_E_UNSUPPORTED with plan_only.
 */
IG_API ig_status ig_context_read_speed(double *bytes_per_second, ig_context *ctx, ig_error *err);

/* ---- model ------------------------------------------------------------- */

typedef struct ig_model ig_model;

/* Called while loading or prefilling; `done` of `total` units. Returning true
 * stops the call with IG_E_INTERRUPTED. */
typedef bool (*ig_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Of a model, and how much of one a session may take. */
enum { IG_ADAPTERS_MAX = 64, IG_ADAPTER_SCALE_MAX = 1000 };

/* A low-rank adapter (LoRA) and what it is multiplied by: a directory, as PEFT writes it, or for GGUF models a GGUF
 * file, as llama.cpp converts it. */
typedef struct ig_adapter {
    const char *path;
    double scale;     /* of sessions that say nothing else, beside the adapter's own; 1: as it was trained */
    const char *name; /* what it is called; NULL: by the last part of its path, without ".gguf" */
} ig_adapter;

typedef struct ig_model_options {
    bool tokenizer_only;   /* load no weights: only tokenize, detokenize and metadata work */
    bool metadata_only;    /* only list: ig_model_get_info(), ig_model_meta() and ig_model_tensor() work, of any
                              well-formed file, also if it is of an architecture or of types that cannot be computed */
    bool no_mmap;          /* copy the weights into memory instead of mapping their files; of no use with those above */
    uint64_t weights_ram;  /* most RAM for weights; 0: they are mapped. Embedding, output layer and the layers that fit
                              are copied into memory; the others, spread evenly, are read from the model's files, past
                              the system's page cache, in every step, while layers before compute. Of mixtures of
                              experts as many experts as fit are in memory, and others are read when they are chosen.
                              Bits are the same. Too little is IG_E_LIMIT, with the least that would do. Not with the
                              three above */
    uint64_t weights_vram; /* most memory of a GPU for weights; 0: no limit. Embedding, output layer and the layers that
                              fit are copied there; the others, spread evenly, to page-locked memory, from where they
                              are copied in every step, while layers before compute. Of mixtures of experts as many
                              experts as fit are there, and others are copied when they are chosen; the page-locked
                              memory holds all experts then. Bits are the same. Too little is
                              IG_E_LIMIT, with the least that would do; so is too little RAM for the others. On the CPU
                              IG_E_ARG */
    bool no_repack; /* use mapped weights where they lie in every case, so that processes share the memory. Else those
                       that products read faster in an order of their own, which depends on type and processor,
                       are copied into it, unless that takes more than 3/4 of the memory that is available. Bits
                       are the same */
    const char *chat_template;  /* Jinja in place of the model's own; copied. NULL: that one */
    const ig_adapter *adapters; /* [n_adapters] that are added to the weights in every step; copied, so that their files
                                   may change. The model has another identity then. Not with the first two above */
    int n_adapters;             /* at most IG_ADAPTERS_MAX */
    ig_progress_fn progress;
    void *progress_user;
} ig_model_options;

/* How the states of a text's tokens become one vector, its embedding: that of the last token, or the mean of all. Other
 * ways, and what some models do behind it, are not known here. */
typedef enum ig_pooling { IG_POOLING_LAST, IG_POOLING_MEAN, IG_POOLING_OTHER } ig_pooling;

typedef struct ig_model_info {
    const char *path;         /* as given */
    const char *architecture; /* "llama", "qwen2", "opt", ... ; "" without weights */
    const char *name;         /* the model's own name, "" if it states none */
    int n_layers, n_heads, n_kv_heads, head_dim, d_model, d_ff, n_vocab;
    int n_attention_layers; /* that have keys and values of their own, numbered by themselves where a layer is named */
    int n_sharing_layers;   /* the last ones, if they read keys and values of these. What other layers there are carry a
                               state from token to token */
    uint64_t state_bytes;   /* of all of these, a sequence's */
    int n_experts, n_experts_used;      /* of a layer, d_ff wide; for a token. 0: there are none */
    int n_expert_layers;                /* that have them */
    int d_ff_shared;                    /* width of an expert of all tokens beside them; 0: there is none */
    int n_ctx_train;                    /* context length the model states */
    int sliding_window;                 /* the widest of its layers; 0: no layer has one */
    int local_kv_heads, local_head_dim; /* of layers that have one, where these are others; else 0 */
    uint64_t n_params;
    uint64_t weight_bytes;      /* of all tensors that it uses, as stored */
    const char *weight_type;    /* that most of these bytes are in, such as "Q4_K"; "": no weights are loaded */
    uint64_t decode_bytes;      /* of those that a decode step of one sequence reads: tables of which it takes single
                                   rows, and experts that it does not use, are left out */
    uint64_t private_bytes;     /* of weights copied or repacked at load: not mapped from the file */
    const ig_adapter *adapters; /* [n_adapters] */
    int n_adapters;
    /* Queries, and their width, of an indexer that the model brings along to choose KV entries by (DeepSeek Sparse
     * Attention), and how many it chooses; else 0. */
    int n_index_heads, index_dim, n_index_chosen;
    int index_block;    /* entries that it chooses together (MiniMax M3); 0: each by itself */
    const char *policy; /* of sessions unless told otherwise: "indexer" with such a model, else "infinigen" */
    ig_pooling pooling; /* that a model for embeddings states; IG_POOLING_LAST where nothing is stated */
    bool ranks;         /* texts by a query, see ig_model_rank(), and writes none */
    bool has_tokenizer;
    const char *chat_template; /* Jinja, by which conversations become prompts: the model's, or what the options had;
                                  NULL: there is none */
    const char *chat_error;    /* why it cannot be used; NULL: it can, or there is none */
} ig_model_info;

IG_API ig_model_options ig_model_defaults(void);
/* `path`: a GGUF file, any of several that a model has (NAME-00001-of-00003.gguf), or a Hugging Face directory.
 *
 * Weights are used where they lie in their files, or copied from there, and the files must stay as they are while the
 * model is open; to replace a file, rename another to its name. Every step looks at size and time of the last write of
 * its model's files, before it computes and before its logits are handed out: if one has changed, the call fails with
 * IG_E_CHANGED, as does every later one of this model. Not noticed is what the system does not date: writes through
 * another program's shared mapping (late, in memory file systems never), a second write within the same tick of the
 * clock (some milliseconds), a time that was set back. And a file that is cut short or whose disk fails while a step
 * reads it is a SIGBUS of the thread that does, for which the library sets no handler. no_mmap has none of this: the
 * files are read once, and may then be changed or removed. */
IG_API ig_status ig_model_open(ig_model **out, ig_context *ctx, const char *path, const ig_model_options *options,
                               ig_error *err);
IG_API void ig_model_close(ig_model *model);
IG_API void ig_model_get_info(const ig_model *model, ig_model_info *info);
/* Which model this is, for naming its files: the same for every copy, another for another model, quantisation or
 * window. 0 if it was opened without weights. */
IG_API uint64_t ig_model_identity(const ig_model *model);
/* Of a model that ranks (ig_model_info.ranks): how likely the document in a prompt answers its query, 0 to 1, by the
 * state of the prompt's last token, [d_model] as ig_session_sync_states() hands it out. The prompt must be as the model
 * was trained with. NaN: the model ranks nothing. */
IG_API double ig_model_rank(const ig_model *model, const float *state);

/* Of a model with weights_ram, or on a GPU; else all 0. */
typedef struct ig_weight_stats {
    uint64_t ram_bytes;  /* that weights take: copies, room for two layers, norms and biases; of a GPU's the page-locked
                            copies of layers that are streamed, and of experts */
    uint64_t vram_bytes; /* of a GPU's memory: copies, room for two layers, norms and biases */
    uint64_t step_bytes; /* of weights that a step reads, whatever the number of its sequences; of experts what a token
                            reads if none of those it chooses is there */
    uint64_t read_bytes; /* since it was opened, with what was read ahead */
    double wait_seconds; /* that steps stood still for them */
    int n_streamed_layers;         /* 0: all fit */
    int n_experts, n_held_experts; /* with weights_ram, or with weights_vram if not all fit: of all layers, and how many
                                      of them are in that memory at a time */
    uint64_t slot_bytes;           /* room for two of them, within ram_bytes or a GPU's vram_bytes */
    bool is_direct;                /* past the page cache, which otherwise is told to forget them */
} ig_weight_stats;
IG_API void ig_model_get_weight_stats(const ig_model *model, ig_weight_stats *stats);

/* Metadata as text, in file order. Returns false past the end, and if the file has changed. Arrays are
 * shortened. `key` belongs to the model; `value` is written to the caller's
 * buffer, cut at `cap`. Either may be NULL. */
IG_API bool ig_model_meta(const ig_model *model, size_t i, const char **key, char *value, size_t cap);

typedef struct ig_tensor_info {
    const char *name, *type; /* "blk.0.attn_q.weight", "Q4_K" */
    int n_dims;
    uint64_t dims[4]; /* fastest first */
    uint64_t bytes;
    bool is_used; /* by the model as it was opened: layers that guess tokens ahead and what sees pictures are not */
} ig_tensor_info;
IG_API bool ig_model_tensor(const ig_model *model, size_t i, ig_tensor_info *info);

/* ---- tokens ------------------------------------------------------------ */

enum {
    IG_TOKENIZE_ADD_SPECIAL = 1,   /* add BOS (and EOS) as the model states */
    IG_TOKENIZE_PARSE_SPECIAL = 2, /* "<|im_end|>" in the text is that token, not characters */
    IG_TOKENIZE_CAPPED = 4,        /* more than `cap` tokens are IG_E_LIMIT, as soon as that is clear */
};

/* Tokens of `text` (UTF-8, `n_bytes` long; invalid bytes are tokenised as bytes).
 * Returns through `n_out` the number of tokens; writes at most `cap` of them. Call again with a
 * larger buffer if n_out > cap; n_bytes + 8 is enough for nearly every text.
 * With IG_TOKENIZE_CAPPED a text that needs more than `cap` is not tokenised to its end: n_out is then above `cap`, and
 * at most what the text needs, and `ids` is of no use; any other error gives 0. What no token of the vocabulary stands
 * for becomes its unknown token; where it has none, that is left out, and the context's log says how many bytes that
 * were (IG_LOG_ERROR). */
IG_API ig_status ig_tokenize(size_t *n_out, const ig_model *model, const char *text, size_t n_bytes, int flags,
                             int32_t *ids, size_t cap, ig_error *err);

/* Bytes of the tokens, without a final NUL; snprintf manner: returns the length needed and
 * writes at most `cap`. Special tokens are left out unless `special`; ids that are no tokens stand for nothing. */
IG_API size_t ig_detokenize(const ig_model *model, const int32_t *ids, size_t n_ids, bool special, char *text,
                            size_t cap);

/* Streaming: never splits a character. Zero it to start. */
typedef struct ig_detok_stream {
    char pending[8]; /* bytes of an incomplete UTF-8 character */
    int n_pending;
    bool started; /* false until the first token, where SentencePiece drops a leading blank */
} ig_detok_stream;
/* Appends one token's text; returns the bytes written to `text` (whole characters only),
 * which needs IG_TOKEN_BYTES_MAX bytes at least for any token (longer pieces are cut). */
enum { IG_TOKEN_BYTES_MAX = 1024 };
IG_API size_t ig_detok_push(ig_detok_stream *st, const ig_model *model, int32_t id, bool special, char *text,
                            size_t cap);
/* What is still pending at the end, as U+FFFD if incomplete. */
IG_API size_t ig_detok_flush(ig_detok_stream *st, char *text, size_t cap);

IG_API int32_t ig_token_bos(const ig_model *model);             /* -1: none */
IG_API int32_t ig_token_eos(const ig_model *model);             /* -1: none */
IG_API bool ig_token_is_end(const ig_model *model, int32_t id); /* in the end-of-generation set */
/* True if ig_tokenize(..., IG_TOKENIZE_ADD_SPECIAL) puts a BOS first. */
IG_API bool ig_token_adds_bos(const ig_model *model);

typedef struct ig_chat_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
} ig_chat_message;
/* The prompt text of a conversation as the model's own template makes it (Jinja, as Hugging Face's libraries run it),
 * snprintf manner through `n_out` (bytes needed, without the NUL that is written if there is room). Tokenise it with
 * ADD_SPECIAL | PARSE_SPECIAL: it holds no BOS itself where that adds one.
 * IG_E_UNSUPPORTED if the model has no template or one that cannot be used, or it uses what is not there; IG_E_ARG if
 * it refuses these messages, as some do other roles than user and assistant in turns; IG_E_LIMIT if it takes too long.
 */
IG_API ig_status ig_chat_prompt(size_t *n_out, const ig_model *model, const ig_chat_message *messages,
                                size_t n_messages, bool add_assistant, char *text, size_t cap, ig_error *err);
/* The same with any variables that the template may ask for, a JSON object of n_bytes: "messages", a list of objects
 * with "role", "content" and whatever else; "add_generation_prompt", true if an answer is to begin; "tools", and so on.
 * What the model calls its first and last token is added. */
IG_API ig_status ig_chat_prompt_json(size_t *n_out, const ig_model *model, const char *variables, size_t n_bytes,
                                     char *text, size_t cap, ig_error *err);

/* ---- KV cache ---------------------------------------------------------- */

/* What one layer of one decode step did, for ig_cache_options.trace. Blocks are 4 KiB. */
typedef struct ig_cache_step {
    int step, layer;                /* decode steps of the session and layers, from 0 */
    uint64_t entries, selected;     /* held and used, summed over KV heads */
    uint64_t fetched_bytes;         /* read from the disk tier for this layer, ahead or late */
    uint64_t hits, misses;          /* blocks wanted that a prefetch had ready; that had to be waited for */
    uint64_t ram_bytes, disk_bytes; /* of the whole cache, now */
    double stall_seconds;           /* stood still for the disk */
} ig_cache_step;
/* Within a step: it must not sync or step sessions of the same model. */
typedef void (*ig_cache_trace_fn)(void *user, const ig_cache_step *step);

/* What one query head of one layer of one decode step would have attended to, for ig_cache_options.on_audit: attention
 * over everything that was ever there beside the policy's own. */
typedef struct ig_cache_audit {
    int step, layer, head; /* from 0; head: a query head */
    int seen, used;        /* entries: of all tokens so far; that attention read */
    int needed;            /* the fewest entries that hold 0.9 of full attention's weight */
    double mass;           /* of full attention's weight: what the entries used hold */
    double cosine;         /* of the weights of the entries used, all others 0, to those of full attention */
    double output_cosine;  /* of attention's output to that of full attention */
    const float *weights;  /* [seen] full attention's, in the order of the tokens; valid within the call */
} ig_cache_audit;
/* Within a step, as ig_cache_trace_fn. */
typedef void (*ig_cache_audit_fn)(void *user, const ig_cache_audit *audit);

#define IG_VRAM_AUTO UINT64_MAX

/* Where and how keys and values are kept: by a session that has memory of its own, or by an ig_cache for all its
 * sessions. It stays as it is while they are open. */
typedef struct ig_memory_options {
    const char *type;      /* how keys and values are kept: "f16" (default, NULL), "q8", "q4", "q2", "q1" */
    uint64_t ram_bytes;    /* most RAM for keys, values and their tables, with a disk tier for the rest (disk_bytes,
                              disk_path); 0 (default): what the context needs */
    uint64_t disk_bytes;   /* most bytes of a disk tier for what does not fit; 0 (default): none */
    const char *disk_path; /* its directory */
    uint64_t vram_bytes;   /* most of a GPU's own memory for copies of the blocks that are read most, so that steps need
                              not fetch these from RAM; IG_VRAM_AUTO (default): seven eighths of what is free when it is
                              opened, and no more than everything takes; 0: none. The CPU takes neither more nor less */
    bool map;     /* no disk tier: keys and values lie in a mapped file in disk_path, the system brings the pages
                     that are touched, and ram_bytes is what it may keep: to compare with, as unified memory; on a GPU in
                     managed memory, whose pages its driver moves, without limits */
    double limit; /* entries beyond this share of the context are dropped for ever, the least useful ones first,
                     in layers that are not dense; 0 (default): limit_bytes, or none. A batch of a prompt is
                     attended to as a whole before its overflow goes: what was there before, then the oldest of the
                     prompt. Not together with a disk tier */
    uint64_t limit_bytes; /* the same as bytes of keys and values; 0 (default): `limit` says. Not both */
    const char *evict; /* which block leaves RAM first, or entry is dropped: "counter" (default, NULL), "lru", "fifo" */
    bool no_uring;     /* disk requests by threads instead of io_uring */
    bool whole_windows; /* layers whose attention sees the last tokens only (a sliding window) keep all others as well.
                           By default, without a disk tier and `map`, they keep what their windows see and an eighth of
                           all tokens beside, so that a session may go back less far than it was asked to:
                           ig_session_cut() */
    int n_sessions;     /* of an ig_cache: most sessions at the same time; 0 (default): one. For ig_cache_plan(): 0 is a
                           session without a cache */
    const char *store_path; /* directory of a store of prefixes, for an ig_cache; a session without one gets a cache to
                               itself. Prompts are kept there and need not be computed again, by other processes either;
                               NULL (default): none */
    uint64_t store_bytes;   /* most bytes of it: what has not been used for the longest time leaves; 0 (default): no
                               limit */
    bool share_answers;     /* of an ig_cache: sessions also share, and store, what they have decoded. It stands in for
                               what a prompt of the same tokens gives, from which it differs a little, so that a result
                               may depend on what was asked before */
} ig_memory_options;

/* What a step reads of the keys and values of one session, how that is found out, and their memory. */
typedef struct ig_cache_options {
    const char *policy;    /* one of ig_cache_policy(); NULL (default): what ig_model_info.policy says */
    double budget;         /* entries used per KV head, as a share of those there are: up to 1, which is all of them; 0
                              (default): budget_entries, or the policy's own: 10 %, for "infinigen-osdi24" 20 %; for
                              "infinigen" and "oracle" all of them while they are at most 512 and there is no limit,
                              since reading so few costs no more than choosing among them. Those of n_sinks and
                              n_recent are used whatever it says, but by "infinigen-osdi24"; "h2o" holds at least so
                              many, one half of them the latest; "snapkv" and "pyramidkv" so many of a prompt, and
                              all that is decoded */
    int budget_entries;    /* the same as a number; 0 (default): `budget` says. Not both */
    double mass;           /* stop earlier once this estimated attention mass is covered; 1: never; 0 (default): 0.95,
                              but never where the budget is all there is */
    double locality;       /* 0..1: how much an entry counts for what its block holds, since a slower tier moves whole
                              blocks; 0: entries are chosen one by one; 1: whole blocks. Default 0.5 */
    double inertia;        /* 0..1000: how much more an entry counts if its block was used in the step before, so that
                              a slower tier has less to move: 3: four times; 0: each step chooses anew. Default 8 */
    bool no_rest;          /* attention is over the entries used alone; else what the others would add is estimated,
                              from a sketch of their keys and values. "infinigen" and "oracle" */
    int n_sinks;           /* first entries always used. Default 4 */
    int n_recent;          /* last entries always used, at least 1. Default 32 */
    int n_dense_layers;    /* first layers that use everything; -1 (default): the policy's own, 1; 2 for
                              "infinigen-osdi24", "h2o" and "quest", none for "snapkv" and "pyramidkv", as their
                              papers do */
    double alpha, partial; /* "infinigen-osdi24": threshold below the best score, nats (default 4); share of a key's
                              columns that its partial cache keeps (default 0.3) */
    const char *sketch;    /* file of ig_prepare() for this model; NULL (default): a sketch without calibration, which
                              also serves contexts longer than the one that the file was prepared for */
    const char *speculate; /* what the next layer's entries are guessed from: "late": the state after this layer's
                              attention; "norm": the state before it; "paper": this layer's attention input, and the
                              guess is final ("infinigen-osdi24"'s default); "none"; "auto" (default, NULL): late or
                              none, whichever makes a model's steps faster, which is tried now and then */
    bool no_prefetch;      /* do not read guessed entries ahead */
    ig_memory_options memory;
    bool no_share;    /* the session takes no tokens from others in an ig_cache or from its store, and gives none */
    const char *salt; /* only sessions with the same share what they have in common in an ig_cache; NULL (default):
                         those that have none */
    int audit_every;  /* at every so many decode steps also compute dense attention and note the share of it that the
                         policy's entries hold; 0 (default): never. Where entries are dropped for ever, all of them are
                         kept beside for this, which takes the memory of a cache without a limit */
    ig_cache_audit_fn on_audit; /* called for each query head that is audited; NULL (default): not */
    void *audit_user;
    ig_cache_trace_fn trace; /* called for every layer of every decode step; NULL (default): not */
    void *trace_user;
} ig_cache_options;

IG_API ig_cache_options ig_cache_defaults(void);

/* BALANCED: for "infinigen"; SKEW: for "infinigen-osdi24". */
typedef enum ig_sketch_kind { IG_SKETCH_NONE, IG_SKETCH_BALANCED, IG_SKETCH_SKEW } ig_sketch_kind;

/* Which of ig_cache_options mean something to a policy, and what it asks of prompts. */
typedef struct ig_policy_info {
    const char *name, *help;
    ig_sketch_kind sketch;   /* that it takes */
    bool uses_everything;    /* budget and budget_entries mean nothing to it, nor what follows */
    bool ignores_window;     /* nor do n_sinks and n_recent, but for a limit */
    bool takes_mass;         /* mass, locality, inertia and no_rest mean something */
    bool takes_alpha;        /* alpha and partial do */
    bool chooses_in_prompts; /* as it does in decode steps; others compute prompts with dense attention */
    bool sees_prompts;       /* it has to see them being computed, or drops some of them: nothing is taken over from
                                other sessions or a store, and nothing can be taken back */
} ig_policy_info;

/* Policy number i, the default one first; NULL past the end. */
IG_API const ig_policy_info *ig_cache_policy(size_t i);
/* NULL: there is none of that name. */
IG_API const ig_policy_info *ig_cache_policy_find(const char *name);

/* Most tokens of a context, tokens of a step, tokens drafted ahead, and sessions of a cache. */
enum { IG_CTX_MAX = 1 << 24, IG_BATCH_MAX = 1 << 14, IG_DRAFT_MAX = 15, IG_SESSIONS_MAX = 1 << 12 };

typedef struct ig_cache ig_cache;

typedef struct ig_session_options {
    ig_cache *shared; /* that the session lies in, together with others; NULL (default): memory of its own. Of
                         cache.memory nothing is looked at then but the limit, which must be the cache's */
    int n_ctx;   /* at most IG_CTX_MAX; 0 (default): the model's own, at most 8192; in a cache at most, and by default,
                    the cache's */
    int n_batch; /* most tokens of one prefill step, 1..IG_BATCH_MAX; in a cache at most the cache's. Default 512 */
    int n_draft; /* most tokens that a decode step computes ahead, 0..IG_DRAFT_MAX: those that follow where the text
                    last said the same, or that draft_model guesses, as many as seem worth their time. If they come,
                    their steps take no time; else they are taken back. No result changes by a bit. While they are held
                    they take room. Fewer than n_batch; models whose layers carry states have three at most, and 64 MB
                    for their states. There are none on a GPU, for models whose layers share keys, for policies that
                    drop entries, a KV limit, "infinigen-osdi24", answers that are shared, traces and audits. Default 0
                  */
    ig_model *draft_model; /* a smaller model of the same vocabulary, which guesses what comes where the text has not
                              said it before, as far as that seems worth its time; it gets the tokens of prompts, too,
                              which takes its time. NULL (default): none. It is open for longer than the session, and
                              has no layers that carry states. In a cache it is the cache's. If it fails, a warning is
                              logged, and nothing else */
    const float *adapter_scales; /* [ig_model_info.n_adapters] what each of the model's adapters is multiplied by in
                                    this session, beside what its file says; 0: it adds nothing. Copied. NULL
                                    (default): as the model was opened. Sessions of a cache share what they have in
                                    common if these are the same. Those of an ig_cache's options are nobody's */
    ig_cache_options cache;
    ig_progress_fn progress; /* called between prefill steps; it must not change the session */
    void *progress_user;
} ig_session_options;

IG_API ig_session_options ig_session_defaults(void);

/* What of a plan lies in one place. */
typedef struct ig_plan_place {
    uint64_t weights, slots, kv, sketch, scratch; /* slots: room for layers that are streamed */
    uint64_t total;
} ig_plan_place;

/* What a choice costs before it is taken; bytes. For one session, or an ig_cache for n_sessions of them. */
typedef struct ig_cache_plan_info {
    int n_ctx;        /* of each */
    int n_draft;      /* of each: 0 where there can be none */
    uint64_t weights; /* mapped + private; with weights_ram what they take of it; with a GPU all but the map */
    uint64_t kv;      /* K and V of n_ctx tokens of each, in RAM, and states of layers that have none */
    uint64_t sketch;
    uint64_t scratch;
    uint64_t drafts; /* all of the draft model */
    uint64_t total;
    ig_plan_place gpu; /* of all these, in a GPU's memory; K, V and sketches there are copies, no part of the above, */
    ig_plan_place locked; /* and in page-locked memory of the host; with a GPU only */
} ig_cache_plan_info;
IG_API ig_status ig_cache_plan(ig_cache_plan_info *out, const ig_model *model, const ig_session_options *options,
                               ig_error *err);

/* Memory for options->cache.memory.n_sessions sessions that options describe: one budget of RAM and one of disk for all
 * of them. Sessions are opened in it with ig_session_options.shared.
 *
 * What sessions have in common is there once: a session that is given tokens takes the longest beginning that another
 * one has computed as a prompt, K, V and sketch, in pieces of 16 tokens or more, without copying or computing. That
 * changes no bit of any result. What a closed session has computed is kept while there is room. With a disk tier the
 * blocks of sessions that are not being stepped leave RAM first, and come back by reading. Sessions whose policy drops
 * entries or must see the prompt being computed ("h2o", "snapkv", "pyramidkv", "infinigen-osdi24", a limit) share
 * memory, but no tokens. */
IG_API ig_status ig_cache_open(ig_cache **out, ig_model *model, const ig_session_options *options, ig_error *err);
/* No session lies in it any more. */
IG_API void ig_cache_close(ig_cache *cache);

/* With a store: what prompts have put into it so far is kept whatever happens once this has returned IG_OK. Closing the
 * cache does the same and logs what fails. Another process, or another cache of this one, may hold the store for
 * writing; then nothing new is kept, nor is it for a while after a fault, and the log says so. If this function fails,
 * all that was put since it last succeeded is lost, and nothing is put for 10 seconds: then it has nothing to do, and
 * returns IG_OK.
 * ig_cache_stats.put_tokens is what was kept. */
IG_API ig_status ig_cache_commit(ig_cache *cache, ig_error *err);

/* Notes: bytes under a name in the cache's store, of its model, whatever the type of keys and values: a conversation,
 * say, whose KV is stored too. A name is 1 to 64 of the characters A-Z a-z 0-9 . _ - and does not begin with a dot. A
 * name of another form, and a cache without a store, are IG_E_ARG. Notes never leave by themselves. */
enum { IG_NOTE_MAX = 1 << 24 };

/* Replaces the note as a whole or not at all; once it has returned IG_OK the note is kept whatever happens.
 * IG_E_UNSUPPORTED if another process writes to the store, IG_E_LIMIT for more than IG_NOTE_MAX bytes or store_bytes.
 * After IG_E_IO or IG_E_MEMORY the note is the old one or the new one, and after a loss of power it may be the other.
 */
IG_API ig_status ig_cache_note_put(ig_cache *cache, const char *name, const void *bytes, size_t n, ig_error *err);
/* *bytes is the caller's, to be given to free(), and has a NUL behind it that is not counted. IG_E_NOT_FOUND;
 * IG_E_FORMAT: it is damaged. */
IG_API ig_status ig_cache_note_get(void **bytes, size_t *n, ig_cache *cache, const char *name, ig_error *err);
IG_API ig_status ig_cache_note_remove(ig_cache *cache, const char *name, ig_error *err);

typedef struct ig_cache_note {
    const char *name; /* until the function that got it returns */
    uint64_t n_bytes;
    double written; /* seconds since 1970 */
} ig_cache_note;
/* True stops the call with IG_E_INTERRUPTED. It must not use the same cache. */
typedef bool (*ig_cache_note_fn)(void *user, const ig_cache_note *note);
/* Every note, by name. */
IG_API ig_status ig_cache_note_list(ig_cache *cache, ig_cache_note_fn each, void *user, ig_error *err);

typedef struct ig_cache_stats {
    uint64_t read_tokens, put_tokens;   /* that came from the store; that ig_cache_commit() has kept there */
    int n_sessions;                     /* open now */
    uint64_t tokens, kept_tokens;       /* that sessions hold, each shared one once; that none does, kept while
                                           there is room. Rounded up to whole pieces, of 16 to 512 tokens */
    uint64_t taken_tokens;              /* that sessions took over instead of computing them, so far */
    uint64_t kv_bytes, disk_bytes;      /* in RAM with all tables, and in the disk tier, now */
    uint64_t sketch_bytes;              /* of the tokens above, now, but for what a policy keeps for one session alone
                                           (ig_session_stats) */
    uint64_t read_bytes, written_bytes; /* moved from and to the disk tier */
    uint64_t demoted, recalled;         /* blocks of 4 KiB that left RAM; blocks brought back */
    double stall_seconds;               /* steps stood still for the disk */
    uint64_t vram_bytes;                /* as ig_session_stats has them */
    uint64_t vram_hits, vram_copied, vram_rows, vram_read_bytes;
} ig_cache_stats;
IG_API void ig_cache_get_stats(const ig_cache *cache, ig_cache_stats *out);

/* ---- session ----------------------------------------------------------- */

typedef struct ig_session ig_session;

IG_API ig_status ig_session_open(ig_session **out, ig_model *model, const ig_session_options *options, ig_error *err);
IG_API void ig_session_close(ig_session *s);
IG_API int ig_session_ctx(const ig_session *s);
/* Tokens held at present; `ids` (may be NULL) gets a view that lasts until the next call. */
IG_API int ig_session_tokens(const ig_session *s, const int32_t **ids);

/* Makes the session hold exactly ids[0..n): the common prefix is reused, what
 * follows it is dropped, the rest is computed in batches with dense attention.
 * The logits of the last token are then current. If interrupted or failed, the session
 * holds the tokens computed so far. IG_E_NUMBER: the model made numbers that are not finite (NaN, infinities), or too
 * large to be kept; the error says where they were first seen, and nothing made of them is kept or handed out. A
 * session that has dropped entries for ever ("h2o", "snapkv", "pyramidkv", a limit) reuses its tokens only if ids[]
 * begins with all of them, and is empty after a step that failed. IG_E_LIMIT: more tokens than the context holds. */
IG_API ig_status ig_session_sync(ig_session *s, const int32_t *ids, int n, ig_error *err);

/* The same, handing the logits of every *newly computed* token to `sink`: `logits` is
 * [n_rows][n_vocab] for the tokens at positions first .. first + n_rows - 1. A true return
 * stops with IG_E_INTERRUPTED. It must not sync or step sessions of the same model: that is IG_E_ARG. */
typedef bool (*ig_logits_fn)(void *user, int first, int n_rows, const float *logits);
IG_API ig_status ig_session_sync_logits(ig_session *s, const int32_t *ids, int n, ig_logits_fn sink, void *user,
                                        ig_error *err);

/* The same with states instead of logits, [n_rows][d_model]: what the last layer gives, normed, from which logits are
 * made. The session has no current logits then. */
IG_API ig_status ig_session_sync_states(ig_session *s, const int32_t *ids, int n, ig_logits_fn sink, void *user,
                                        ig_error *err);

/* Makes the session hold the longest beginning of ids[0..n) that it can without computing: its own, or what others in
 * its ig_cache have computed. The last token is left to be computed for its logits, so that *n_held, the tokens held
 * then, is n only if they are held already and have current logits. ig_session_sync() begins with this. */
IG_API ig_status ig_session_reuse(int *n_held, ig_session *s, const int32_t *ids, int n, ig_error *err);

/* Drops the tokens from position n on; nothing happens if there are not so many. Then there are no current logits until
 * the next sync or decode. If entries were dropped for good, or reading fails, fewer than n tokens may be left; or if
 * the model has layers with a window, see whole_windows; or with states (ig_model_info.state_bytes), of which few are
 * kept: where prompts ended, and of the last step. With "infinigen-osdi24" none are left of a prompt behind which
 * nothing was decoded. */
IG_API ig_status ig_session_cut(ig_session *s, int n, ig_error *err);

/* Goes on with another policy and its options: the session keeps its tokens, their keys and values, and its logits.
 * options->memory must be as before; its paths and n_sessions are not looked at. The statistics of decoding start anew.
 * IG_E_UNSUPPORTED if the session holds tokens and the policy must see the prompt being computed, or one of both is
 * "indexer" and the other one's policy or budget is another: ig_session_cut(s, 0) first. If it fails, the session is as
 * it was. Options must be given. */
IG_API ig_status ig_session_set_cache(ig_session *s, const ig_cache_options *options, ig_error *err);

/* Appends ids[i] to sessions[i] for all i in one step, each with its own policy's selection.
 * All sessions must be of one model, and no session may appear twice. A sequence's logits do not depend on its batch
 * mates. If the step fails, with IG_E_NUMBER as above or otherwise, it fails for all of them, and each holds the tokens
 * that it held before; a session that lost some, or whose logits were already replaced, has no current logits. */
IG_API ig_status ig_session_decode(ig_session *const *sessions, const int32_t *ids, int n, ig_error *err);

/* What one session gets in a step: a piece of a prompt, or one token to be decoded. */
typedef struct ig_batch_item {
    ig_session *session;
    const int32_t *ids; /* [n] appended to the session */
    int n;              /* at most the session's n_batch */
    bool prompt;        /* dense attention, any n; else n is 1 and the policy selects (a decode step) */
    int more;           /* tokens of the prompt that come after this piece, in later steps: while there are any, logits
                           are not wanted, which saves time */
    ig_logits_fn on_states; /* of a prompt: gets the states of these tokens, as ig_session_sync_states() hands them out,
                               and there are no logits. A true return fails the item; NULL: nobody wants them */
    void *user;             /* of that */
    ig_status status;       /* out */
    ig_error error;         /* out, if status */
} ig_batch_item;

/* Pieces of prompts and decode steps of several sessions in one step, in any order, of which each succeeds or fails by
 * itself: an item's results do not depend on the others, bitwise, nor on their failure. After an item whose status is
 * IG_OK its session holds the tokens, and the logits of the last one are current; with `more` there are none. After one
 * that failed (a full context, an id that is no token, a disk tier that fails, IG_E_NUMBER) the session holds what it
 * held before, as ig_session_decode() says. Returns IG_OK if each item has its own status; else no session got
 * anything, and every item's status and error are what is returned: the call is wrong (a session twice, sessions of
 * different models, more tokens than the largest n_batch of the sessions) or the model's file has changed. */
IG_API ig_status ig_batch_step(ig_batch_item *items, size_t n, ig_error *err);

/* Logits after the last token, [n_vocab], owned by the session; NULL if there are no current ones. */
IG_API const float *ig_session_logits(const ig_session *s);
/* The log of the sum of exp(x) over n logits, to some 1e-6: a logit less this is the token's log probability. -INFINITY
 * where all are that, or there are none. Uses what the processor can, whatever a context's level is. */
IG_API double ig_log_sum(const float *logits, size_t n);

/* Where the time of a decode step goes. X(NAME, name) */
#define IG_STEP_PART_LIST(X)                                                                                  \
    X(PROJECT, "project") /* queries, keys and values of a layer, and what attention's output goes through */ \
    X(APPEND, "append")   /* keys and values are kept, and the policy is shown them */                        \
    X(GUESS, "guess")     /* the next layer's queries, what they select, requests to read that */             \
    X(SELECT, "select")   /* the policy chooses entries */                                                    \
    X(REST, "rest")       /* it estimates what the others would add */                                        \
    X(WAIT, "wait")       /* entries are brought from a slower tier: what is not there yet is waited for */   \
    X(ATTEND, "attend")   /* attention over the entries */                                                    \
    X(FFN, "ffn")         /* the feed-forward part */                                                         \
    X(HEAD, "head")       /* logits */                                                                        \
    X(OTHER, "other")     /* norms, sums, checks, embeddings, audits, traces, what is dropped */

typedef enum ig_step_part {
#define IG_STEP_PART_ENUM(name, text) IG_STEP_##name,
    IG_STEP_PART_LIST(IG_STEP_PART_ENUM)
#undef IG_STEP_PART_ENUM
        IG_STEP_PARTS /* how many there are */
} ig_step_part;

/* What a part took. */
typedef struct ig_part_work {
    double seconds;      /* by the clock */
    double busy_seconds; /* in which threads were at tasks, summed over threads: what is less than seconds times
                            threads, they waited for each other, or for what one of them did for all */
    double n_tasks;      /* pieces that threads could take */
} ig_part_work;

/* Adds another's, times a share. */
static inline void ig_part_work_add(ig_part_work *sum, const ig_part_work *more, double share) {
    sum->seconds += more->seconds * share;
    sum->busy_seconds += more->busy_seconds * share;
    sum->n_tasks += more->n_tasks * share;
}

/* In an ig_cache: what of it the session's tokens take, shared ones too, and what was moved on its behalf, of what was
 * moved for several at once an even share; `demoted` is that of the whole cache. */
typedef struct ig_session_stats {
    const char *policy;
    const char *kv_type;                            /* "f16", "q8", "q4", "q2", "q1" */
    uint64_t n_prefilled, n_decoded;                /* tokens computed */
    uint64_t n_taken;                               /* tokens of prompts taken over from others in the same ig_cache */
    uint64_t n_drafted, n_draft_hits;               /* tokens computed ahead; of these came, and are among n_decoded */
    uint64_t n_expected, n_expected_hits;           /* of both those that ig_generate_options.expected foretold */
    bool shares;                                    /* it takes tokens from others there, and gives them */
    double prefill_seconds, decode_seconds;         /* of steps with other sessions a share */
    double draft_seconds;                           /* of decode_seconds those of the draft model */
    uint64_t kv_bytes, sketch_bytes, scratch_bytes; /* taken at present; of scratch most is shared by the model's
                                                       sessions and the context's models */
    uint64_t n_entries;                             /* KV entries (token x KV head x layer) held */
    double selected_share;                          /* mean over decode steps, sparse layers and KV heads of
                                                       entries used / tokens seen; 1 if nothing was sparse or
                                                       could be dropped */
    double fetched_share;                           /* the same, each entry counted once that any query head of the
                                                       group uses: what must be in fast memory */
    double block_share;                /* blocks of 4 KiB that hold them / blocks of all tokens: what is moved
                                          if none of it is in fast memory yet */
    uint64_t dropped;                  /* entries dropped for ever */
    ig_part_work parts[IG_STEP_PARTS]; /* of decode_seconds, of which their seconds' sum may be a little less */
    uint64_t used_entries;             /* of decode steps: entries that attention read, summed over steps, layers and KV
                                          heads, each counted once for all query heads of the group */
    uint64_t seen_entries;             /* the same of tokens seen: what dense attention would read */
    uint64_t disk_bytes;               /* in the disk tier at present */
    uint64_t read_bytes, written_bytes;      /* moved from and to it */
    uint64_t demoted, recalled;              /* blocks of 4 KiB that left RAM; blocks brought back */
    uint64_t prefetch_hits, prefetch_misses; /* blocks that a prefetch had ready; blocks that had to be waited for */
    double stall_seconds;                    /* the computation stood still for the disk */
    uint64_t decode_read_bytes;              /* parts of read_bytes and of stall_seconds: of decode steps */
    double decode_stall_seconds;
    uint64_t vram_bytes;             /* taken of a GPU's memory for copies of blocks; in an ig_cache by that */
    uint64_t vram_hits, vram_copied; /* blocks that attention read from their copies; blocks copied */
    uint64_t vram_rows;              /* entries that attention read from RAM in place */
    uint64_t vram_read_bytes;        /* of blocks copied and entries read in place: what came from RAM to the GPU */
    uint64_t decode_vram_read_bytes; /* the part of decode steps */
    uint64_t n_audits;               /* sparse layers x KV heads x steps that were audited */
    double mass_mean, mass_p1;       /* of the attention mass that the entries used hold: mean and 1st percentile */
    double cosine_mean, output_cosine_mean, needed_mean; /* as in ig_cache_audit, over query heads */
} ig_session_stats;
IG_API void ig_session_get_stats(const ig_session *s, ig_session_stats *out);
/* Mean attention mass of one layer's audits; -1 if there were none. */
IG_API double ig_session_audit(const ig_session *s, int layer);

/* ---- sampling ---------------------------------------------------------- */

typedef struct ig_sampler ig_sampler;

enum { IG_DRY_BREAKER_MAX = 128 };

/* A number that is added to a token's logit; -INFINITY: the token never comes. */
typedef struct ig_logit_bias {
    int32_t id;
    float bias;
} ig_logit_bias;

/* Logits pass through these in the order in which they stand here, which is llama.cpp's. Probabilities that a filter
 * looks at are those of the tokens that the filters before it have left, without the temperature.
 * Tokens that the model's files suppress (suppress_tokens of generation_config.json; tokenizer.ggml.suppress_tokens)
 * never come, whatever is chosen here.
 * With a grammar an answer is a text of its rule "root", and a sampler serves one answer of ig_generate() after
 * another. It is in GBNF, as llama.cpp has it, with control tokens by number, <[2]>. What does not go on with the rules
 * never comes, nor does an end token before they are complete; once nothing more can come, the answer ends. */
typedef struct ig_sampler_options {
    const ig_logit_bias *logit_bias; /* [n_logit_bias], copied; a token named twice gets both. NULL (default): none */
    size_t n_logit_bias;
    const char *grammar;     /* GBNF, copied: see above. NULL (default): any text */
    int repeat_last_n;       /* tokens the penalties look back on. Default 64; -1: the whole context */
    float repeat_penalty;    /* logits of these are divided, if negative multiplied, by it. 1 (default): off */
    float frequency_penalty; /* subtracted from their logits, for each time that they occur. 0 (default): off */
    float presence_penalty;  /* subtracted from their logits once. 0 (default): off */
    float dry_multiplier;    /* a token that would go on with a repetition of n tokens is lowered by this times dry_base
                                to the power of n - dry_allowed_length, if n is at least that length. 0 (default): off */
    float dry_base;          /* default 1.75 */
    int dry_allowed_length;  /* default 2 */
    int dry_last_n;          /* tokens among which repetitions are looked for. Default -1: the whole context */
    const char *const *dry_breakers; /* [n_dry_breakers] of 1 to IG_DRY_BREAKER_MAX bytes, copied: repetitions do not
                                        reach over these texts, nor are tokens lowered that have one in them. NULL
                                        (default): a new line, ':', '"' and '*' */
    size_t n_dry_breakers;
    float top_n_sigma; /* logits within so many standard deviations of the highest. 0 (default) or -1: off */
    int top_k;         /* the likeliest k tokens. 0 (default): off */
    float typical_p;   /* tokens of the most ordinary surprise that have this probability together. 1 (default): off */
    float top_p;       /* the likeliest tokens that have this probability together. 1 (default): off */
    float min_p;       /* tokens at least so many times as likely as the likeliest. 0 (default): off */
    float xtc_probability;   /* how often all tokens above a threshold but the least likely of them go. 0 (default) */
    float xtc_threshold;     /* the probability that is this threshold. Default 0.1 */
    float temperature;       /* 0 (default): greedy, the highest logit after bias and penalties; no filter matters */
    float dynatemp_range;    /* the temperature is between this much less and this much more, by the entropy of what the
                                filters have left, as a share of the largest that so many tokens can have. 0 (default) */
    float dynatemp_exponent; /* of that share. Default 1 */
    uint64_t seed;           /* default 0; the same seed gives the same tokens */
} ig_sampler_options;

IG_API ig_sampler_options ig_sampler_defaults(void);
/* Puts into *options what the model's files say of sampling (generation_config.json; GGUF's general.sampling.*), which
 * is often temperature, top_k and top_p; the others stay as they are. */
IG_API void ig_model_get_sampling(const ig_model *model, ig_sampler_options *options);
IG_API ig_status ig_sampler_open(ig_sampler **out, const ig_model *model, const ig_sampler_options *options,
                                 ig_error *err);
IG_API void ig_sampler_close(ig_sampler *sampler);
/* The next token of `s` from its current logits and, for the penalties, its tokens. -1 if there is none: the session
 * has no logits, is of another model than the sampler, or every logit is minus infinity. With a grammar the token is
 * taken as the next one of the answer. */
IG_API int32_t ig_sampler_next(ig_sampler *sampler, const ig_session *s);
/* The grammar's answer begins anew, as it does with each ig_generate(). */
IG_API void ig_sampler_restart(ig_sampler *sampler);
/* Whether ig_sampler_options.grammar can be this text. IG_E_FORMAT: what is wrong, and in which line. IG_E_LIMIT: it is
 * too large. */
IG_API ig_status ig_grammar_check(const char *gbnf, ig_error *err);
/* Grammars of JSON texts that a JSON schema allows; `schema`: a JSON text of n_bytes. *gbnf is the caller's, to be
 * given to free(). IG_E_FORMAT: it is not JSON, or no schema. IG_E_UNSUPPORTED: what it asks for is not supported or
 * allows nothing, with its place ("#/properties/a: 'not' is not supported"). IG_E_LIMIT: it is too large. Every text of
 * a schema's grammar is valid under it, but that `oneOf` is taken as `anyOf`: nothing that would constrain is passed
 * over. The grammar may allow less than the schema:
 *   - members of objects come in the order of `properties`; those that are not required may be left out, and those of
 *     `additionalProperties` come last. Where there are `properties` and nothing is said of others, there are none.
 *     Names of others have no escapes up to where they differ from declared ones;
 *   - `prefixItems` are all there;
 *   - an integer without bounds has at most 16 digits, a number 16 before and behind the point and an exponent of two;
 *     one with bounds has no exponent. Integers are never -0;
 *   - values of `enum` and `const` are written without blanks, and formats are the plain cases of theirs;
 *   - between the parts of an object or array there is at most a blank, or a new line and 20 blanks, but none before
 *     a colon, and nothing follows the whole. */
IG_API ig_status ig_schema_to_gbnf(char **gbnf, const char *schema, size_t n_bytes, ig_error *err);
/* The same of texts that a regular expression matches from their beginning to their end. The expression is one of
 * ECMA-262 without looking around, going back to groups, and properties of Unicode; ^ and $ may stand at the ends of
 * its alternatives. \d and \w are ASCII. Control characters but \t, \n and \r are left out. */
IG_API ig_status ig_regex_to_gbnf(char **gbnf, const char *expression, ig_error *err);

/* ---- generation -------------------------------------------------------- */

typedef enum ig_finish {
    IG_FINISH_LENGTH,
    IG_FINISH_END,
    IG_FINISH_STOP,
    IG_FINISH_CONTEXT,
    IG_FINISH_INTERRUPTED
} ig_finish;

/* Text as it comes, never part of a stop string. Characters come whole; bytes of tokens that are none, as the model
 * makes them, come as they are. It is called at each token, with n_bytes 0 where there is nothing to show. True stops.
 */
typedef bool (*ig_text_fn)(void *user, const char *text, size_t n_bytes);

typedef struct ig_generate_options {
    int n_predict;            /* most tokens to make; -1: up to the context limit (default) */
    bool ignore_end;          /* go on after an end token */
    const char *const *stops; /* stop strings */
    size_t n_stops;           /* of them */
    const int32_t *stop_ids;  /* [n_stop_ids] tokens that end the answer as end tokens do; NULL (default): none */
    size_t n_stop_ids;
    int n_least;             /* before so many tokens nothing ends the answer: neither an end token nor one of stop_ids
                                comes, and stop strings are not looked for. Default 0 */
    const int32_t *expected; /* [n_expected] what the answer may be, or parts of it: with ig_session_options.n_draft
                                an answer that says the same comes sooner. It is the same answer. NULL (default) */
    size_t n_expected;       /* at most IG_CTX_MAX */
    bool shows_stop;         /* a stop string that ends the answer is part of its text */
    bool special;            /* give special tokens as text too */
    ig_text_fn on_text;
    void *user;
} ig_generate_options;

typedef struct ig_generate_result {
    int n_tokens;
    ig_finish finish;
    double first_token_seconds; /* from the call to the first token */
    double seconds;
} ig_generate_result;

IG_API ig_generate_options ig_generate_defaults(void);
/* Continues a session that has current logits. The generated tokens are appended to it, but for the last one where a
 * stop string, the end of a grammar, a full context or on_text ended the answer. */
IG_API ig_status ig_generate(ig_generate_result *out, ig_session *s, ig_sampler *sampler,
                             const ig_generate_options *options, ig_error *err);

#ifdef __cplusplus
}
#endif
#endif
