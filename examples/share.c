/* SPDX-License-Identifier: Apache-2.0
 *
 * Several questions about one text, answered side by side in one memory: what the prompts have in common is computed
 * once and there once. Each step takes all sessions together, a piece of a prompt of those that still read and one
 * token of those that already answer; serve() is the loop of a server in small. generate.c is the smallest program.
 *
 *     cc share.c $(pkg-config --cflags --libs infinigen) -o share
 *     ./share "$(infinigen fetch smollm2-135m)" LICENSE "Who may use this?" "What is a Contributor?"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infinigen.h>

enum { N_MOST = 8, N_NEW = 24, PIECE = 64, N_CTX = 4096, N_BYTES_MAX = 8000 };

/* A question on its way to an answer. */
typedef struct asked {
    ig_session *session;
    int32_t *ids; /* [n_ids] the prompt */
    int n_ids, n_given, n_taken, n_made;
    int32_t next; /* token to be decoded once the prompt is there */
    char text[N_NEW * IG_TOKEN_BYTES_MAX];
    size_t n_text;
    bool done;
} asked;

/* The text, the question, and where the answer begins, as tokens. */
static ig_status make_prompt(asked *a, const ig_model *model, const char *text, const char *question, ig_error *err) {
    static char prompt[N_BYTES_MAX + 1000];
    size_t n;
    int n_bytes = snprintf(prompt, sizeof prompt, "%s\n\nQuestion: %.900s\nAnswer:", text, question);
    a->ids = malloc(N_CTX * sizeof *a->ids);
    if (!a->ids) return IG_E_MEMORY;
    ig_status status = ig_tokenize(&n, model, prompt, (size_t)n_bytes, IG_TOKENIZE_ADD_SPECIAL | IG_TOKENIZE_CAPPED,
                                   a->ids, N_CTX - N_NEW, err);
    a->n_ids = (int)n;
    return status;
}

/* What the session gets in the next step: a piece of its prompt, or the token that was chosen last. */
static ig_batch_item next_item(asked *a) {
    int left = a->n_ids - a->n_given;
    if (!left) return (ig_batch_item){.session = a->session, .ids = &a->next, .n = 1};
    return (ig_batch_item){
        .session = a->session, .ids = a->ids + a->n_given, .n = left < PIECE ? left : PIECE, .prompt = true};
}

/* After a step: the next token, if the prompt is there. Each item has a status of its own. */
static void look_at(asked *a, const ig_batch_item *item, const ig_model *model, ig_sampler *sampler) {
    a->done = item->status != IG_OK;
    if (a->done) a->n_text = (size_t)snprintf(a->text, sizeof a->text, "(%s)", item->error.text);
    if (item->prompt) a->n_given += item->n;
    if (a->done || a->n_given < a->n_ids) return;
    a->next = ig_sampler_next(sampler, a->session);
    a->done = a->n_made++ == N_NEW || a->next < 0 || ig_token_is_end(model, a->next);
    if (!a->done)
        a->n_text += ig_detokenize(model, &a->next, 1, false, a->text + a->n_text, sizeof a->text - a->n_text);
}

/* All steps. A session joins when the one before it has read its prompt, while that answers, and begins with what they
 * have in common. */
static ig_status serve(asked *all, int n, const ig_model *model, ig_sampler *sampler, ig_error *err) {
    for (;;) {
        ig_batch_item items[N_MOST];
        asked *of[N_MOST];
        size_t n_items = 0;
        for (int i = 0; i < n; i++) {
            asked *a = &all[i];
            if (a->done || (i && all[i - 1].n_given < all[i - 1].n_ids)) continue;
            if (!a->n_given) {
                int held;
                ig_status status = ig_session_reuse(&held, a->session, a->ids, a->n_ids, err);
                if (status) return status;
                a->n_given = a->n_taken = held;
            }
            of[n_items] = a;
            items[n_items++] = next_item(a);
        }
        if (!n_items) return IG_OK;
        ig_status status = ig_batch_step(items, n_items, err);
        if (status) return status;
        for (size_t i = 0; i < n_items; i++) look_at(of[i], &items[i], model, sampler);
    }
}

static void report(const asked *all, int n, char **questions, const ig_cache *cache) {
    ig_cache_stats s;
    ig_cache_get_stats(cache, &s);
    for (int i = 0; i < n; i++)
        printf("%s (%d tokens, %d of them taken over)\n%.*s\n\n", questions[i], all[i].n_ids, all[i].n_taken,
               (int)all[i].n_text, all[i].text);
    printf("%d sessions hold %llu tokens in %.1f MB; %llu were taken over instead of computed\n", s.n_sessions,
           (unsigned long long)s.tokens, (double)(s.kv_bytes + s.sketch_bytes) / 1e6,
           (unsigned long long)s.taken_tokens);
}

/* The beginning of a file, with a NUL; or NULL. */
static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, N_BYTES_MAX + 1);
    size_t n = file && text ? fread(text, 1, N_BYTES_MAX, file) : 0;
    if (file) fclose(file);
    if (n) return text;
    free(text);
    return NULL;
}

static ig_status answer(asked *all, int n, ig_model *model, const char *text, char **questions, ig_error *err) {
    ig_cache *cache = NULL;
    ig_sampler *sampler = NULL;
    ig_session_options options = ig_session_defaults();
    options.n_ctx = N_CTX;
    options.cache.memory.n_sessions = n;
    ig_status status = ig_cache_open(&cache, model, &options, err);
    options.shared = cache;
    if (!status) status = ig_sampler_open(&sampler, model, NULL, err);
    for (int i = 0; !status && i < n; i++) {
        status = make_prompt(&all[i], model, text, questions[i], err);
        if (!status) status = ig_session_open(&all[i].session, model, &options, err);
    }
    if (!status) status = serve(all, n, model, sampler, err);
    if (!status) report(all, n, questions, cache);
    for (int i = 0; i < n; i++) {
        ig_session_close(all[i].session);
        free(all[i].ids);
    }
    ig_sampler_close(sampler);
    ig_cache_close(cache); /* after its sessions */
    return status;
}

int main(int argc, char **argv) {
    static asked all[N_MOST];
    int n = argc - 3;
    if (n < 1 || n > N_MOST) {
        fprintf(stderr, "usage: %s MODEL FILE QUESTION... (%d at most)\n", argv[0], N_MOST);
        return 2;
    }
    ig_error err = {0};
    ig_context *ctx = NULL;
    ig_model *model = NULL;
    ig_context_options context_options = ig_context_defaults();
    char *text = read_text(argv[2]);
    int failed = !text || ig_context_open(&ctx, &context_options, &err) ||
                 ig_model_open(&model, ctx, argv[1], NULL, &err) || answer(all, n, model, text, argv + 3, &err);
    if (failed) fprintf(stderr, "share: %s\n", err.text[0] ? err.text : "the file cannot be read, or out of memory");
    ig_model_close(model);
    ig_context_close(ctx);
    free(text);
    return failed;
}
