/* SPDX-License-Identifier: Apache-2.0
 *
 * The library in one page: load a model, tokenise a prompt, continue it, print the text as it comes.
 *
 *     cc generate.c $(pkg-config --cflags --libs infinigen) -o generate
 *     ./generate "$(infinigen fetch smollm2-135m)" "The capital of France is"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infinigen.h>

static bool print(void *user, const char *text, size_t n_bytes) {
    fwrite(text, 1, n_bytes, user);
    return false;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]);
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
    size_t n_ids = 0, n_bytes = strlen(argv[2]);
    int32_t *ids = NULL;

    generate_options.n_predict = 32;
    generate_options.on_text = print;
    generate_options.user = stdout;
    int failed =
        ig_context_open(&ctx, &context_options, &err) || ig_model_open(&model, ctx, argv[1], &model_options, &err) ||
        ig_tokenize(&n_ids, model, argv[2], n_bytes, IG_TOKENIZE_ADD_SPECIAL, NULL, 0, &err) ||
        !(ids = malloc((n_ids + 1) * sizeof *ids)) ||
        ig_tokenize(&n_ids, model, argv[2], n_bytes, IG_TOKENIZE_ADD_SPECIAL, ids, n_ids, &err) ||
        ig_session_open(&session, model, &session_options, &err) || ig_session_sync(session, ids, (int)n_ids, &err) ||
        ig_sampler_open(&sampler, model, &sampler_options, &err) ||
        ig_generate(&result, session, sampler, &generate_options, &err);
    if (failed)
        fprintf(stderr, "generate: %s\n", err.text[0] ? err.text : "out of memory");
    else
        putchar('\n');

    ig_sampler_close(sampler);
    ig_session_close(session);
    ig_model_close(model);
    ig_context_close(ctx);
    free(ids);
    return failed;
}
