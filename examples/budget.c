/* SPDX-License-Identifier: Apache-2.0
 *
 * A KV cache with a budget: a long text is continued with a quarter of its keys and values in RAM, the rest on disk.
 * What a choice takes is asked before it is made, and what it did is printed at the end. generate.c is the smallest
 * program; what this one adds stands in plan() and report().
 *
 *     cc budget.c $(pkg-config --cflags --libs infinigen) -o budget
 *     ./budget "$(infinigen fetch smollm2-135m)" "$(infinigen fetch --text grimm)" 4000
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infinigen.h>

enum { N_NEW = 32, N_BYTES_MAX = 1 << 20 };

static double mb(uint64_t bytes) { return (double)bytes / 1e6; }

static bool print(void *user, const char *text, size_t n_bytes) {
    fwrite(text, 1, n_bytes, user);
    return false;
}

/* Asks what the context takes with everything in RAM, and sets a quarter of its keys and values as the limit. */
static int plan(ig_session_options *o, const ig_model *model, int n_ids, ig_error *err) {
    ig_cache_plan_info in_ram, with_disk;
    o->n_ctx = n_ids + N_NEW;
    if (ig_cache_plan(&in_ram, model, o, err)) return 1;
    o->cache.memory.ram_bytes = in_ram.kv / 4;
    o->cache.memory.disk_bytes = 2 * in_ram.kv; /* the most it may become */
    o->cache.memory.disk_path = ".";
    if (ig_cache_plan(&with_disk, model, o, err)) return 1; /* says so if the quarter is too little to work with */
    printf("plan for %d tokens, MB of RAM: keys and values %.1f instead of %.1f, sketch %.1f\n", o->n_ctx,
           mb(with_disk.kv), mb(in_ram.kv), mb(with_disk.sketch));
    return 0;
}

static void report(const ig_session *session) {
    ig_session_stats s;
    ig_session_get_stats(session, &s);
    printf("\n\nprompt: %.1f tokens/s; generation: %.1f tokens/s with policy %s\n",
           (double)s.n_prefilled / s.prefill_seconds, (double)s.n_decoded / s.decode_seconds, s.policy);
    printf("taken: %.1f MB of RAM for keys and values, %.1f MB for the sketch, %.1f MB of disk\n", mb(s.kv_bytes),
           mb(s.sketch_bytes), mb(s.disk_bytes));
    printf("a step used %.1f %% of the entries, read %.2f MB and waited %.1f ms for the disk\n", 100 * s.selected_share,
           mb(s.decode_read_bytes) / (double)s.n_decoded, 1e3 * s.decode_stall_seconds / (double)s.n_decoded);
}

/* The first `most` tokens of a file; their number, or -1. */
static int read_tokens(int32_t **ids, const ig_model *model, const char *path, int most, ig_error *err) {
    FILE *file = fopen(path, "rb");
    char *text = malloc(N_BYTES_MAX);
    size_t n = 0, n_bytes = file && text ? fread(text, 1, N_BYTES_MAX, file) : 0;
    *ids = malloc((size_t)most * sizeof **ids);
    bool ok = n_bytes && *ids && !ig_tokenize(&n, model, text, n_bytes, 0, *ids, (size_t)most, err);
    if (file) fclose(file);
    free(text);
    return ok ? (int)(n < (size_t)most ? n : (size_t)most) : -1;
}

int main(int argc, char **argv) {
    int most = argc == 4 ? atoi(argv[3]) : 0;
    if (most < 1) {
        fprintf(stderr, "usage: %s MODEL FILE TOKENS\n", argv[0]);
        return 2;
    }
    ig_error err = {0};
    ig_context *ctx = NULL;
    ig_model *model = NULL;
    ig_session *session = NULL;
    ig_sampler *sampler = NULL;
    ig_context_options context_options = ig_context_defaults();
    ig_model_options model_options = ig_model_defaults();
    ig_session_options session_options = ig_session_defaults();
    ig_sampler_options sampler_options = ig_sampler_defaults();
    ig_generate_options generate_options = ig_generate_defaults();
    ig_generate_result result;
    int32_t *ids = NULL;
    int n_ids = -1;

    generate_options.n_predict = N_NEW;
    generate_options.on_text = print;
    generate_options.user = stdout;
    int failed =
        ig_context_open(&ctx, &context_options, &err) || ig_model_open(&model, ctx, argv[1], &model_options, &err) ||
        (n_ids = read_tokens(&ids, model, argv[2], most, &err)) < 0 || plan(&session_options, model, n_ids, &err) ||
        ig_session_open(&session, model, &session_options, &err) || ig_session_sync(session, ids, n_ids, &err) ||
        ig_sampler_open(&sampler, model, &sampler_options, &err) ||
        ig_generate(&result, session, sampler, &generate_options, &err);
    if (failed)
        fprintf(stderr, "budget: %s\n", err.text[0] ? err.text : "the file cannot be read, or out of memory");
    else
        report(session);

    ig_sampler_close(sampler);
    ig_session_close(session);
    ig_model_close(model);
    ig_context_close(ctx);
    free(ids);
    return failed;
}
