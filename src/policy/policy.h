/* SPDX-License-Identifier: Apache-2.0
 *
 * A KV policy turns queries and what it keeps of the keys into *indices* of entries to use. It is shown each key
 * and value once, when it comes; it never reads K or V rows again and does not know where they are. One policy object
 * serves one sequence.
 *
 * A new policy is one file that fills an ig_policy_ops and one line in policy.c.
 */
#ifndef IG_POLICY_POLICY_H
#define IG_POLICY_POLICY_H

#include "device/device.h"
#include "format/sketch.h"
#include "kernel/kernel.h"
#include "kv/entries.h"
#include "kv/head_table.h"
#include "kv/table.h"

typedef struct ig_policy_shape {
    int n_layers, n_heads, n_kv_heads, head_dim, n_ctx;
    int n_slots;         /* most slots of a KV head in layers that are not dense; 0: n_ctx */
    float scale, cap;    /* of the scores, before softmax; cap as in ig_attention */
    int n_ahead;         /* decode steps that may be taken back at once, beside one that fails */
    int n_query_in;      /* width of the layer's input that queries are a linear map of; 0: of none (RoPE) */
    int block_tokens;    /* consecutive slots that the store moves together, a power of two */
    const int *window;   /* [n_layers] sliding window of a layer, 0: none; borrowed */
    ig_head_shape local; /* heads of layers that have one, which never select, if they are others (ig_layer_heads) */
    const float *const *sink_scores; /* [n_layers][n_heads] as in ig_attention; NULL: none; borrowed */
    ig_index_shape index;            /* of models that bring along what to choose by */
    const uint16_t *index_layer;     /* [n_layers] as in ig_layer_heads; borrowed */
    const ig_kernels *kernels;
    ig_device *device;            /* of the model; outlives the policy; NULL: none */
    const ig_sketch_file *sketch; /* maps of this model's shape, or NULL; borrowed */
    ig_kv_home home;              /* of the sequence, for tables of units */
} ig_policy_shape;

typedef struct ig_policy ig_policy;
enum { IG_POLICY_TABLES = 2 };

/* What the entries that a list leaves out would add to its queries' attention: the result becomes
 * (1 - share) * attention over the list + value. */
typedef struct ig_rest {
    float *value; /* [queries][head_dim]; anything where the share is 0 */
    float *share; /* [queries] of the attention over all entries */
} ig_rest;

/* A list of entries that is being chosen. */
typedef struct ig_choosing {
    int layer, list;
    const float *q;                       /* [group][head_dim] of a KV head, or [head_dim] of a query head */
    const float *dev_q, *dev_k;           /* the same, and the key of the step's own entry, where the device has them */
    const float *index_q, *index_weights; /* [index.n_heads][index.dim], [index.n_heads] (goes_by_index), the latter
                                             without blocks */
    ig_entries e;                         /* to choose from */
    int32_t *index; /* [e.n] gets the slots of those that the queries should attend to, in order of position, unless all
                       are chosen */
    int n;          /* gets their number */
    const ig_rest *rest; /* shares of 0; gets what the others would add if the policy can estimate that, or NULL */
    void *scratch; /* scratch_bytes(); the list's own from the first stage to the last, but see ig_policy_ops.meet */
} ig_choosing;

/* Lists are chosen in stages, each of which begins when the one before has ended for the list. Lists may come from
 * several threads, and so may the parts of a list in a stage that is made for that: slots [part * IG_POLICY_PART, ...)
 * of e.n_slots. Thereby a few long lists give many threads something to do. The size of a part is fixed, since sums are
 * made part by part: results must not depend on the number of threads. */
enum { IG_POLICY_PART = 1024, IG_POLICY_STAGES = 4 };

typedef struct ig_policy_stage {
    void (*run)(ig_policy *p, ig_choosing *x, int part);
    bool by_part;  /* else once a list, with part 0 */
    bool for_rest; /* it is there for ig_choosing.rest alone */
} ig_policy_stage;

/* What attention did with the entries of a KV head of a layer that is not dense. */
typedef struct ig_observation {
    int layer, head;
    ig_entries e;
    const float *weights; /* [e.n] in order of position, summed over the queries and the query heads of the group */
    int first, n;         /* the queries, those of tokens [first, first + n) */
    int end;              /* of the prompt that they are of; without one, first + n */
} ig_observation;

/* Entries are named by the slot they lie in (ig_entries of kv/entries.h): the token's number, unless entries were
 * dropped. A policy makes one list of entries per KV head, for all query heads of its group, or one per query head.
 * Members that say "optional" may be NULL. */
typedef struct ig_policy_ops {
    ig_policy_info info; /* sees_prompts: it has see_queries() or observe() */
    bool per_query_head; /* a list per query head */
    bool takes_limit;    /* works when slots are used again (ig_memory_options.limit) */
    bool sums_up;        /* it keeps sums of IG_UNIT_SLOTS consecutive tokens: where a text is cut within such a unit,
                            those that are left of it come to append() once more */
    bool observes_ends;  /* observe() is for the last n_recent queries of prompts alone */
    bool goes_by_index;  /* for models that bring along what to choose by alone (ig_policy_shape.index) */
    bool meet;           /* a stage begins when the one before has ended for all lists of the layer; then scratch is the
                            thread's, and keeps nothing from stage to stage */
    bool guess_is_final; /* its own ig_cache_options.speculate is "paper" */
    double budget;       /* its own, where the options leave it open; 0: IG_POLICY_BUDGET */
    int n_whole;         /* its own budget is everything while a KV head has at most so many entries */
    int n_dense_layers;  /* its own likewise; 0: IG_POLICY_DENSE_LAYERS; -1: none */

    /* ---- memory ---- */

    /* Bytes that n tokens take on top of K and V. Optional: none. */
    uint64_t (*plan)(const ig_policy_shape *shape, const ig_cache_options *options, int n);
    /* Bytes kept at present for n tokens. Optional: what plan() says. */
    uint64_t (*bytes)(const ig_policy *p, int n);
    size_t size; /* of its object, which begins with an ig_policy and is zero behind that */
    /* Takes what it needs; what a failure leaves goes to close(). Optional, both: nothing. */
    ig_status (*open)(ig_policy *p, ig_error *err);
    void (*close)(ig_policy *p);

    /* ---- what it is shown ---- */

    /* A slot of a layer that is not dense has got this post-RoPE key and value, [head_dim] 16-bit floats. Without
     * dropped entries slots are tokens, and later tokens, if there were any, are gone. Tokens of one head come in
     * order; heads may come from several threads. Optional. */
    void (*append)(ig_policy *p, int layer, int head, int slot, const uint16_t *key, const uint16_t *value);
    /* The same of the model's own key to choose the slot by, of a layer that has some: the head's share of it,
     * [index.dim / n_kv_heads]. Optional. */
    void (*append_index)(ig_policy *p, int layer, int head, int slot, const uint16_t *share);
    /* A prompt's queries at a layer that is not dense, post-RoPE: query head `head`'s of n tokens from position `first`
     * on, `stride` floats apart, before the keys of these tokens are appended. Heads may come from several threads.
     * Optional. */
    void (*see_queries)(ig_policy *p, int layer, int head, const float *q, size_t stride, int first, int n);
    /* What attention did with the entries of a KV head, of a prompt as well as of decode steps. Optional. */
    void (*observe)(ig_policy *p, const ig_observation *x);

    /* ---- the timeline: what it was shown is not all true any more ---- */

    /* A step has failed, or up to n_ahead steps are taken back: the sequence holds n_tokens, as before. True: all their
     * keys have to be shown again. Optional. */
    bool (*undo)(ig_policy *p, int n_tokens);
    /* The sequence was cut back to n_tokens, without a step that failed: of what came before, undo() takes nothing back
     * any more. Returns how many it can go on from: all, or 0 where it can't take back what it saw. Optional. */
    int (*cut)(ig_policy *p, int n_tokens);
    /* The sequence holds other tokens than before, which are in the tables: as if they had just been appended, as a
     * prompt. Optional. */
    void (*resume)(ig_policy *p, int n_tokens);
    /* The tables of units that it keeps, if they are all that it knows of a prompt: then a sequence may begin with
     * pieces that another has computed. Their number. Optional: there is none. */
    int (*tables)(const ig_policy *p, const ig_unit_table *tables[IG_POLICY_TABLES]);

    /* ---- choosing a list ---- */

    /* Of those that choose in prompts, each token as if it were decoded, but where it takes_all(), whatever was chosen
     * for those before it: entries that a list of n has at most. */
    int (*most)(const ig_policy *p, int n);
    /* Whether a step over n entries uses all of them, and chooses them without a look at anything: no queries, nothing
     * that append() was told. Optional: never. */
    bool (*takes_all)(const ig_policy *p, int n);
    /* The partial query weights of a layer that is not dense: a matrix that stands in for `whole`, the model's own, in
     * a guess, [n_heads * m][n_query_in] for any m <= head_dim. The stages then get m numbers of a head for its query,
     * and ig_entries.narrow. NULL: whole queries are wanted, as always if n_query_in is 0. Optional. */
    const ig_matrix *(*narrow)(ig_policy *p, int layer, const ig_matrix *whole);
    /* How a list is chosen; a stage without run() ends them. */
    ig_policy_stage stages[IG_POLICY_STAGES + 1];
    size_t (*scratch_bytes)(const ig_policy_shape *shape); /* optional: 0 */

    /* ---- a device that chooses ---- */

    /* For devices that choose by sketches (ig_device_ops.choose), in the place of the stages: all of the list but its
     * scratch and where results go, as it is now. The step's own entry need not have been shown by append(). False: the
     * stages have to do it. Lists may come from several threads. Optional. */
    bool (*describe)(ig_policy *p, const ig_choosing *x, ig_scan_list *out);
    /* Whether it needs no keys or queries of the host's. Optional: it never does. */
    bool (*is_ready)(const ig_policy *p);
    /* The device has chosen index [n]. */
    void (*take)(ig_policy *p, const ig_choosing *x);
    /* Bytes that a device has copies of, with n tokens' sketches. */
    uint64_t (*plan_copies)(const ig_policy_shape *shape, const ig_cache_options *options, int n);

    /* ---- a limit: entries are dropped for ever ---- */

    /* Most entries that a KV head of a layer may hold once n_tokens were seen and decoding has begun, 2 or more; those
     * beyond are dropped. Optional: no limit of its own. */
    int (*limit)(const ig_policy *p, int layer, int n_tokens);
    /* Before a step's entry is added, when n_kept of the entries can stay: how much each is worth keeping,
     * value [e->n] >= 0, and how many of the last ones must stay. Heads may come from several threads. */
    int (*value)(ig_policy *p, int layer, int head, const ig_entries *e, int n_kept, float *value);
    /* What is known of slot `from` belongs to slot `to` now. */
    void (*move)(ig_policy *p, int layer, int head, int from, int to);
} ig_policy_ops;

/* Whether it wants what is kept of tokens. */
static inline bool ig_policy_sees_rows(const ig_policy_ops *ops) { return ops->append || ops->append_index; }

/* Where neither the options nor the policy say: a share of the context, of the attention, and the first layers that
 * use everything. */
#define IG_POLICY_BUDGET 0.10
#define IG_POLICY_MASS 0.95
enum { IG_POLICY_DENSE_LAYERS = 1 };

struct ig_policy {
    const ig_policy_ops *ops;
    ig_policy_shape shape;
    ig_cache_options options;
};

/* IG_E_ARG with the list of names if there is none of that name. Fills in the dense layers if they were left open. */
ig_status ig_policy_find(const ig_policy_ops **out, ig_cache_options *options, ig_error *err);

extern const ig_policy_ops ig_policy_full, ig_policy_window, ig_policy_h2o, ig_policy_snapkv, ig_policy_pyramidkv,
    ig_policy_quest, ig_policy_infinigen_osdi24, ig_policy_infinigen, ig_policy_oracle, ig_policy_indexer;
ig_status ig_policy_open(ig_policy **out, const ig_policy_ops *ops, const ig_policy_shape *shape,
                         const ig_cache_options *options, ig_error *err);
/* NULL is fine. */
void ig_policy_close(ig_policy *p);

/* True if every step uses all entries of this layer: no selection, nothing kept. */
bool ig_policy_is_dense(const ig_policy *p, int layer);
/* ig_policy_ops.takes_all, dense layers or not. */
static inline bool ig_policy_takes_all(const ig_policy *p, int n) {
    return p->ops->info.uses_everything || (p->ops->takes_all && p->ops->takes_all(p, n));
}
/* Whether the policy goes by what the model brings along, and that is nothing for this layer. */
static inline bool ig_policy_lacks_index(const ig_policy *p, int layer) {
    return p->ops->goes_by_index && p->shape.index_layer[layer] == IG_NO_INDEX;
}
/* Whether a layer uses what the one before it has chosen. */
static inline bool ig_policy_keeps_choice(const ig_policy *p, int layer) {
    return p->ops->goes_by_index && p->shape.index_layer[layer] < layer;
}
/* Whether any of its stages estimates what a list leaves out. */
bool ig_policy_has_rest(const ig_policy *p);
/* Lists that it makes of a layer. */
static inline int ig_policy_lists(const ig_policy_ops *ops, const ig_policy_shape *s) {
    return ops->per_query_head ? s->n_heads : s->n_kv_heads;
}
/* Bytes that it keeps at present for n tokens on top of K and V. */
uint64_t ig_policy_bytes(const ig_policy *p, int n);
/* The stages of a list, where the policy's lists do not meet: those that choose, and then those for the rest. */
void ig_policy_choose(ig_policy *p, ig_choosing *x);
void ig_policy_estimate(ig_policy *p, ig_choosing *x);
/* Tasks of a stage for this list: 1 or more. */
static inline int ig_policy_tasks(const ig_policy_stage *s, const ig_choosing *x) {
    return s->by_part && x->e.n_slots > IG_POLICY_PART ? (x->e.n_slots + IG_POLICY_PART - 1) / IG_POLICY_PART : 1;
}

/* ---- what sparse policies share ---- */

static inline int ig_policy_slots(const ig_policy_shape *s) { return s->n_slots ? s->n_slots : s->n_ctx; }

/* The first layers as the options say, and sliding-window layers, which are bounded anyway, or have other heads. */
bool ig_policy_layer_is_dense(const ig_policy_shape *shape, const ig_cache_options *options, int layer);
/* Layers that are not. */
int ig_policy_sparse_layers(const ig_policy_shape *shape, const ig_cache_options *options);

/* What is kept of the KV heads lies in the order of their numbers over all layers: dense layers have their room too,
 * address space that is never touched. */
static inline size_t ig_policy_heads(const ig_policy_shape *s) { return (size_t)s->n_layers * (size_t)s->n_kv_heads; }
static inline size_t ig_policy_head(const ig_policy *p, int layer, int head) {
    return (size_t)layer * (size_t)p->shape.n_kv_heads + (size_t)head;
}
/* Whether lists are chosen with the help of the device. */
static inline bool ig_policy_is_helped(const ig_policy_ops *ops, const ig_device *d) {
    return ops->describe && d && !d->ops->is_host;
}
/* Heads of sparse layers, for which memory is needed. */
static inline size_t ig_policy_sparse_heads(const ig_policy_shape *s, const ig_cache_options *o) {
    return (size_t)ig_policy_sparse_layers(s, o) * (size_t)s->n_kv_heads;
}

/* A table of units for all heads, open as the policy's own. `of` tells its kind from others of this policy: 0 unless
 * what it holds depends on more than the model, the policy's name and which layers are dense. */
ig_status ig_policy_open_table(ig_unit_table *t, const ig_policy *p, const char *what, uint64_t of, size_t unit_bytes,
                               ig_error *err);

/* What a table has of a list that a policy describes. */
ig_units ig_policy_units(const ig_policy *p, const ig_unit_table *t, const ig_choosing *x);

/* Makes the chosen numbers of entries, in order of position, the slots they lie in. */
static inline void ig_policy_name_slots(ig_choosing *x) {
    for (int i = 0; x->e.slot && i < x->n; i++) x->index[i] = x->e.slot[x->index[i]];
}
/* A stage that chooses all entries. */
void ig_policy_choose_all(ig_policy *p, ig_choosing *x, int part);
/* Entries that the budget is of n, 1..n. */
int ig_policy_budget(const ig_policy *p, int n);
/* Entries that a step may use of n: the budget, but the sinks and the recent ones at least. */
int ig_policy_count(const ig_policy *p, int n);
/* Whether that is all of them. */
bool ig_policy_has_room(const ig_policy *p, int n);

/* ---- choosing entries (pick.c) ---- */

/* How many of n entries a share is: rounded up, 1..n. */
int ig_pick_share(double share, int n);

/* Chooses from weights w[n] >= 0: what the rule says must be, then the heaviest others within its limits. Of equal
 * weights the lower index. Writes the ascending list to index [n] and returns its length. */
int ig_pick(const ig_kernels *k, int32_t *index, const float *w, int n, const ig_pick_rule *rule);

#endif
