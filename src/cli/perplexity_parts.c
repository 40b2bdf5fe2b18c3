/* SPDX-License-Identifier: Apache-2.0
 *
 * `infinigen perplexity --by N`: the figures of each N positions of the chunks,
 * which tell whether a policy loses more the longer a text gets (the paper's
 * Figure 12).
 */
#include <stdlib.h>

#include "cli/perplexity.h"

static int count_parts(const ig_cli_options *o) { return ig_eval_count_parts(o->ctx, o->by); }

ig_eval_score *ig_cli_perplexity_new_parts(const ig_cli_options *o) {
    return o->by ? calloc((size_t)count_parts(o), sizeof(ig_eval_score)) : NULL;
}

void ig_cli_perplexity_add_parts(ig_eval_score *total, const ig_eval_score *parts, const ig_cli_options *o) {
    for (int i = 0; i < count_parts(o); i++) ig_eval_add(&total[i], &parts[i]);
}

/* What stands before the first token that is scored belongs to no part. */
static int first_position(int i, const ig_cli_options *o) {
    int scored = o->dense_prefix ? o->dense_prefix : o->ctx / 2 + 1;
    return i * o->by > scored ? i * o->by : scored;
}

static int last_position(int i, const ig_cli_options *o) {
    return i + 1 < count_parts(o) ? (i + 1) * o->by - 1 : o->ctx - 1;
}

const char *ig_cli_perplexity_positions(char out[32], int i, const ig_cli_options *o) {
    snprintf(out, 32, "%d-%d", first_position(i, o), last_position(i, o));
    return out;
}

void ig_cli_perplexity_parts_json(json_t *json, const ig_eval_score *parts, const ig_cli_options *o) {
    if (!parts) return;
    json_t *list = json_array();
    for (int i = 0; i < count_parts(o); i++) {
        if (!parts[i].n) continue;
        json_t *part = json_pack("{s:i, s:i}", "first", first_position(i, o), "last", last_position(i, o));
        ig_cli_perplexity_fields(part, &parts[i]);
        if (parts[i].n_kl) json_object_set_new(part, "kl", json_real(ig_eval_kl(&parts[i])));
        json_array_append_new(list, part);
    }
    json_object_set_new(json, "positions", list);
}

void ig_cli_perplexity_print_parts(const ig_eval_score *parts, const ig_cli_options *o) {
    char positions[32];
    for (int i = 0; parts && i < count_parts(o); i++)
        if (parts[i].n)
            printf("Positions %s: PPL = %.4f +/- %.5f\n", ig_cli_perplexity_positions(positions, i, o),
                   ig_eval_perplexity(&parts[i]), ig_eval_perplexity_error(&parts[i]));
}
