/* SPDX-License-Identifier: Apache-2.0
 *
 * infinigen devices: what can compute models here.
 */
#include "cli/app.h"

#include <string.h>

/* Why a program that knows GPUs finds none. */
static void print_missing(void) {
    ig_context_options o = ig_context_defaults();
    ig_context *ctx;
    ig_error err = {0};
    o.device = "cuda";
    if (ig_context_open(&ctx, &o, &err) == IG_OK)
        ig_context_close(ctx);
    else
        fprintf(stderr, "infinigen devices: %s\n", err.text);
}

int ig_cli_devices(const ig_cli_options *o) {
    json_t *list = json_array();
    ig_device_info d;
    for (size_t i = 0; ig_device_at(i, &d); i++) {
        char size[32], left[32];
        bool is_told = d.free_bytes != UINT64_MAX;
        json_t *free_bytes = is_told ? json_integer((json_int_t)d.free_bytes) : json_null();
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:I, s:o}", "device", d.device, "name", ig_text_string(d.name), "memory",
                            (json_int_t)d.memory_bytes, "free", free_bytes));
        if (!o->json)
            printf("%-8s %8s, %8s free  %s\n", d.device, ig_cli_size(size, d.memory_bytes),
                   is_told ? ig_cli_size(left, d.free_bytes) : "unknown", d.name);
    }
    if (o->json) return ig_cli_print_json(json_pack("{s:o, s:b}", "devices", list, "cuda", ig_has_cuda()));
    if (!ig_has_cuda())
        fprintf(stderr, "infinigen devices: this program was built without CUDA\n");
    else if (json_array_size(list) == 1)
        print_missing();
    json_decref(list);
    return IG_EXIT_OK;
}
