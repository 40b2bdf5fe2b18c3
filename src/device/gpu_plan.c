/* SPDX-License-Identifier: Apache-2.0
 *
 * What a GPU would take, told without one.
 */
#include <stdlib.h>

#include "base/memory.h"
#include "device/gpu.h"

ig_gpu_scratch ig_gpu_scratch_of(const ig_device_need *need) {
    size_t heads = (size_t)need->heads.n_heads, d = (size_t)need->heads.head_dim, rows = (size_t)need->max_rows;
    size_t parts = (size_t)ig_attend_parts(need->max_entries) + 512; /* of several sequences */
    size_t of_parts = (rows > IG_GPU_PARTS ? rows : IG_GPU_PARTS) * heads * (d + 2);
    size_t columns = rows < IG_GPU_SHARED_COLUMNS ? rows : IG_GPU_SHARED_COLUMNS;
    size_t of_shares = 2 * (columns > 2 ? columns : 2) * IG_GPU_SHARED_ROWS; /* a column of three matrices at least */
    size_t row = (size_t)need->heads.n_kv_heads * 2 * d, most = IG_GPU_GATHERED / (row * IG_GPU_PART * 2);
    size_t gathered = ((size_t)need->max_entries + IG_GPU_PART - 1) / IG_GPU_PART; /* parts */
    if (gathered > most) gathered = most > 2 ? most : 2;
    return (ig_gpu_scratch){.act = rows * ig_gpu_half_bytes(need->max_in), /* more than ig_gpu_act_bytes() */
                            .parts = parts * heads * (d + 2),
                            .state = rows * heads * (d + 2),
                            .sums = of_parts > of_shares ? of_parts : of_shares,
                            .rows = gathered * IG_GPU_PART * row,
                            .low_rank = ig_device_low_rank_floats(need)};
}

void ig_gpu_plan_scratch(uint64_t bytes[IG_PLACES], const ig_device_need *need) {
    ig_gpu_scratch n = ig_gpu_scratch_of(need);
    ig_arena sum = {0};
    ig_arena_take(&sum, n.act);
    ig_arena_take(&sum, n.parts * sizeof(float));
    ig_arena_take(&sum, n.state * sizeof(float));
    ig_arena_take(&sum, n.sums * sizeof(float));
    ig_arena_take(&sum, n.rows * sizeof(uint16_t));
    ig_arena_take(&sum, n.low_rank * sizeof(float));
    bytes[IG_PLACE_DEVICE] += sum.used + IG_GPU_MAIL + need->mail_bytes;
    bytes[IG_PLACE_HOST] += IG_GPU_MAIL + need->mail_bytes;
}

static void plan_scratch(const ig_device *d, uint64_t bytes[IG_PLACES], const ig_device_need *need) {
    (void)d;
    ig_gpu_plan_scratch(bytes, need);
}

static void plan_close(ig_device *d) { free(d); }

static ig_status plan_bind(ig_device *d, const void *p, size_t n_bytes, ig_error *err) {
    (void)d, (void)p, (void)n_bytes, (void)err;
    return IG_OK;
}

static void plan_unbind(ig_device *d, const void *p) { (void)d, (void)p; }

static const ig_device_ops plan_ops = {.name = "cuda",
                                       .is_plan = true,
                                       .close = plan_close,
                                       .bind = plan_bind,
                                       .unbind = plan_unbind,
                                       .plan = plan_scratch};

ig_status ig_device_open_plan(ig_device **out, ig_error *err) {
    *out = malloc(sizeof **out);
    if (!*out) return ig_fail_memory(err, "device", sizeof **out);
    **out = (ig_device){&plan_ops};
    return IG_OK;
}
