/* SPDX-License-Identifier: Apache-2.0
 *
 * What a GPU, its memory and its bus give by the operations that the program uses: what no speed on it can exceed.
 *
 *   cmake --preset cuda && cmake --build --preset cuda --target bench-gpu && build/cuda/tests/bench-gpu [MiB]
 *
 * Prints JSON, medians of 5. Bytes per second: of a copy to the GPU, from it and within it; of blocks of keys and
 * values that are foreseen and get copies in its memory (a gather of 4 KiB each), with many KV heads and with few; of
 * attention to rows in the host's memory, in place, and to rows in copies. Operations of floats per second of a
 * prompt's products, with the two matrices that lead into an FFN of Qwen2.5 1.5B and with the one that leads out of it,
 * and of its attention. Seconds: of a wait of the host for one small operation, and of each of many operations that
 * follow each other, one by one when they are new and as a CUDA graph when they are known.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/random.h"
#include "device/gpu.h"
#include "device/space.h"
#include "kv/store.h"

/* Of keys and values: 8 KV heads of 128, as Llama 3.1 8B has, or 2, as Qwen2.5 1.5B, in blocks of 8 tokens. */
enum {
    KV_HEADS = 8,
    FEW_KV_HEADS = 2,
    GROUP = 4,
    HEADS = KV_HEADS * GROUP,
    DIM = 128,
    ROW_BYTES = 2 * DIM * 2,
    BLOCK_BYTES = 8 * ROW_BYTES,
    MOST_MIB = 1024
};
/* A prompt's piece, and the FFN. */
enum { TOKENS = 512, WIDTH = 1536, FFN_WIDTH = 8960, CONTEXT = 8192, PRODUCTS = 8 };
enum { REPEATS = 5, OPERATIONS = 256, SMALL = 256, KNOWN = 3 };

static ig_device *dev;

static void check(ig_status s, const ig_error *err) {
    if (!s) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void *take(ig_place place, size_t n_bytes) {
    void *p = ig_device_alloc(dev, place, n_bytes);
    if (p) return p;
    fprintf(stderr, "no memory for %zu bytes\n", n_bytes);
    exit(1);
}

static int by_value(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

/* Seconds of repetitions 0 .. REPEATS - 1; number -1 goes before and does not count. */
static double median(void (*run)(void *arg, int repeat), void *arg) {
    double t[REPEATS];
    ig_error err = {0};
    for (int r = -1; r < REPEATS; r++) {
        double start = ig_clock_seconds();
        run(arg, r);
        check(dev->ops->finish(dev, &err), &err);
        if (r >= 0) t[r] = ig_clock_seconds() - start;
    }
    qsort(t, REPEATS, sizeof *t, by_value);
    return t[REPEATS / 2];
}

/* ---- copies ------------------------------------------------------------------------------ */

typedef struct transfer {
    void *to;
    const void *from;
    size_t n_bytes;
} transfer;

static void move(void *arg, int repeat) {
    const transfer *x = arg;
    (void)repeat;
    dev->ops->copy(dev, x->to, x->from, x->n_bytes);
}

static void measure_copies(size_t n_bytes) {
    void *host = take(IG_PLACE_HOST, n_bytes), *own = take(IG_PLACE_DEVICE, n_bytes),
         *other = take(IG_PLACE_DEVICE, n_bytes);
    transfer there = {own, host, n_bytes}, back = {host, own, n_bytes}, within = {other, own, n_bytes};
    double n = (double)n_bytes;
    printf("{\"bytes\": %zu,\n \"to_gpu\": %.4g, \"from_gpu\": %.4g, \"within_gpu\": %.4g,\n", n_bytes,
           n / median(move, &there), n / median(move, &back), n / median(move, &within));
    ig_device_free(dev, IG_PLACE_HOST, host, n_bytes);
    ig_device_free(dev, IG_PLACE_DEVICE, own, n_bytes);
    ig_device_free(dev, IG_PLACE_DEVICE, other, n_bytes);
}

/* ---- keys and values ---------------------------------------------------------------------- */

typedef struct reading {
    ig_kv *kv;
    int n_kv_heads;
    int n_tokens; /* of a repetition */
    float *q, *out;
    bool foreseen, anew; /* rows come beside other work; each repetition has other rows */
} reading;

static ig_head_shape heads_of(int n_kv_heads) { return (ig_head_shape){n_kv_heads * GROUP, n_kv_heads, DIM, 0.1f}; }

static void read_rows(void *arg, int repeat) {
    const reading *x = arg;
    ig_kv_view views[KV_HEADS];
    ig_head_shape heads = heads_of(x->n_kv_heads);
    int first = x->anew ? (repeat + 1) * x->n_tokens : 0;
    for (int h = 0; h < x->n_kv_heads; h++) views[h] = ig_kv_fetch(x->kv, 0, h, NULL, first, x->n_tokens);
    ig_attention job = {.q = x->q, .out = x->out, .n_tokens = 1, .views = views};
    (x->foreseen ? dev->ops->prefetch : dev->ops->attend)(dev, &heads, &job, 1);
}

/* Bytes per second. */
static double speed_of(reading *x) { return (double)x->n_tokens * x->n_kv_heads * ROW_BYTES / median(read_rows, x); }

static ig_kv *open_kv(int n_kv_heads, int n_tokens, uint64_t vram_bytes) {
    ig_kv_shape shape = {
        .n_layers = 1, .n_kv_heads = n_kv_heads, .head_dim = DIM, .n_ctx = n_tokens, .n_batch = n_tokens};
    ig_kv_options o = {.device = dev, .type = IG_KV_F16, .vram_bytes = vram_bytes};
    ig_error err = {0};
    ig_kv *kv;
    check(ig_kv_open(&kv, &shape, &o, &err), &err);
    check(ig_kv_extend(kv, 0, n_tokens, &err), &err);
    return kv;
}

/* Tokens of a repetition. */
static int part_of(size_t n_bytes, int n_kv_heads) {
    return (int)(n_bytes / (size_t)n_kv_heads / ROW_BYTES / (REPEATS + 1)) / 8 * 8;
}

static double speed_of_gather(ig_kv *kv, int n_kv_heads, int n_tokens) {
    reading foreseen = {kv, n_kv_heads, n_tokens, NULL, NULL, true, true};
    uint64_t n = (uint64_t)n_tokens * (REPEATS + 1) * (uint64_t)n_kv_heads * ROW_BYTES;
    double speed = speed_of(&foreseen);
    ig_kv_stats st;
    ig_kv_get_stats(kv, &st);
    if (st.bus.copied * BLOCK_BYTES == n) return speed;
    fprintf(stderr, "%llu blocks were copied, which is not all\n", (unsigned long long)st.bus.copied);
    exit(1);
}

static void measure_few_heads(size_t n_bytes) {
    int part = part_of(n_bytes, FEW_KV_HEADS);
    ig_kv *kv = open_kv(FEW_KV_HEADS, part * (REPEATS + 1) + 8, 2 * (uint64_t)n_bytes);
    printf(" \"gather_with_few_heads\": %.4g,\n", speed_of_gather(kv, FEW_KV_HEADS, part));
    ig_kv_close(kv);
}

static void measure_rows(size_t n_bytes) {
    int part = part_of(n_bytes, KV_HEADS), all = part * (REPEATS + 1);
    float *q = take(IG_PLACE_DEVICE, HEADS * DIM * sizeof *q), *out = take(IG_PLACE_DEVICE, HEADS * DIM * sizeof *q);
    ig_error err = {0};
    check(dev->ops->reserve(
              dev,
              &(ig_device_need){.max_rows = 1, .max_in = HEADS * DIM, .max_entries = all, .heads = heads_of(KV_HEADS)},
              &err),
          &err);
    ig_kv *kv = open_kv(KV_HEADS, all + 8, 2 * (uint64_t)n_bytes);
    double gathered = speed_of_gather(kv, KV_HEADS, part);
    reading copies = {kv, KV_HEADS, all, q, out, false, false};
    double from_copies = speed_of(&copies);
    ig_kv_close(kv);
    kv = open_kv(KV_HEADS, all + 8, 0);
    reading in_place = {kv, KV_HEADS, part, q, out, false, true};
    printf(" \"gather\": %.4g, \"in_place\": %.4g, \"from_copies\": %.4g,\n", gathered, speed_of(&in_place),
           from_copies);
    ig_kv_close(kv);
    ig_device_free(dev, IG_PLACE_DEVICE, q, 0);
    ig_device_free(dev, IG_PLACE_DEVICE, out, 0);
}

/* ---- prompts ------------------------------------------------------------------------------ */

typedef struct product {
    const ig_matrix *m[2];
    int n_m, n_tokens, n; /* n times */
    const float *x;
    float *y[2];
} product;

static void multiply(void *arg, int repeat) {
    const product *p = arg;
    (void)repeat;
    for (int i = 0; i < p->n; i++) dev->ops->matmul(dev, p->y, p->m, p->n_m, p->x, NULL, p->n_tokens, false);
}

/* Memory of the GPU with random 16-bit words, of which these bits are set and these by lot. */
static void *take_random(size_t n_bytes, unsigned bits, unsigned by_lot) {
    uint16_t *host = take(IG_PLACE_HOST, n_bytes), *own = take(IG_PLACE_DEVICE, n_bytes);
    ig_random dice = {1};
    ig_error err = {0};
    for (size_t i = 0; i < n_bytes / 2; i++) host[i] = (uint16_t)(bits | (ig_random_u64(&dice) & by_lot));
    dev->ops->copy(dev, own, host, n_bytes);
    check(dev->ops->finish(dev, &err), &err);
    ig_device_free(dev, IG_PLACE_HOST, host, n_bytes);
    return own;
}

/* Numbers of either sign between a hundredth and 1: so words are, as halves of floats, as BF16 and as scales of Q4_K.
 */
static void *take_numbers(size_t n_bytes) { return take_random(n_bytes, 0x3c00, 0x80ff); }

static double flops_of_products(ig_type type, int n_out, int n_in, int n_m, int n_tokens) {
    size_t row = ig_type_row_bytes(ig_type_get(type), (size_t)n_in), bytes = row * (size_t)n_out,
           in = (size_t)n_tokens * (size_t)n_in * sizeof(float), out = (size_t)n_tokens * (size_t)n_out * sizeof(float);
    ig_matrix m[2];
    product p = {.n_m = n_m, .n_tokens = n_tokens, .n = n_tokens < TOKENS ? 1 : PRODUCTS, .x = take_numbers(in)};
    for (int i = 0; i < n_m; i++) {
        m[i] = (ig_matrix){.w = take_numbers(bytes), .n_out = n_out, .n_in = n_in, .type = type, .row_bytes = row};
        p.m[i] = &m[i];
        p.y[i] = take(IG_PLACE_DEVICE, out);
    }
    double seconds = median(multiply, &p);
    for (int i = 0; i < n_m; i++) {
        ig_device_free(dev, IG_PLACE_DEVICE, p.y[i], out);
        ig_device_free(dev, IG_PLACE_DEVICE, (void *)(uintptr_t)m[i].w, bytes);
    }
    ig_device_free(dev, IG_PLACE_DEVICE, (void *)(uintptr_t)p.x, in);
    return 2.0 * n_m * n_out * n_in * n_tokens * p.n / seconds;
}

typedef struct asking {
    ig_kv *kv;
    int n_rows, n_tokens;
    float *q, *out;
} asking;

static void ask(void *arg, int repeat) {
    const asking *a = arg;
    ig_kv_view views[FEW_KV_HEADS];
    ig_head_shape heads = heads_of(FEW_KV_HEADS);
    (void)repeat;
    for (int h = 0; h < FEW_KV_HEADS; h++) views[h] = ig_kv_fetch(a->kv, 0, h, NULL, 0, a->n_rows);
    ig_attention job = {.q = a->q, .out = a->out, .n_tokens = a->n_tokens, .prompt = true, .views = views};
    dev->ops->attend(dev, &heads, &job, 1);
}

/* Of the last n_tokens of n_rows, which are gathered first. */
static double flops_of_attention(int n_rows, int n_tokens) {
    int n_heads = FEW_KV_HEADS * GROUP;
    size_t bytes = (size_t)n_tokens * (size_t)n_heads * DIM * sizeof(float);
    asking a = {open_kv(FEW_KV_HEADS, n_rows, 0), n_rows, n_tokens, take_numbers(bytes), take(IG_PLACE_DEVICE, bytes)};
    double seconds = median(ask, &a);
    ig_kv_close(a.kv);
    ig_device_free(dev, IG_PLACE_DEVICE, a.q, bytes);
    ig_device_free(dev, IG_PLACE_DEVICE, a.out, bytes);
    return 4.0 * n_heads * DIM * n_tokens * (n_rows - n_tokens / 2.0) / seconds;
}

/* Where little memory is to be moved little is computed, too. */
static void measure_prompts(int mib) {
    int less = mib < 16 ? 32 : 1, tokens = TOKENS / less, width = WIDTH / less, ffn_width = FFN_WIDTH / less;
    static const struct {
        ig_type type;
        const char *name;
    } types[] = {{IG_TYPE_BF16, "bf16"}, {IG_TYPE_Q8_0, "q8_0"}, {IG_TYPE_Q4_K, "q4_k"}};
    ig_error err = {0};
    ig_device_need need = {
        .max_rows = tokens, .max_in = FFN_WIDTH, .max_entries = CONTEXT / less, .heads = heads_of(FEW_KV_HEADS)};
    check(dev->ops->reserve(dev, &need, &err), &err);
    printf(" \"prompt_flops\": {");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        printf("\"%s_in\": %.4g, \"%s_out\": %.4g, ", types[i].name,
               flops_of_products(types[i].type, ffn_width, WIDTH, 2, tokens), types[i].name,
               flops_of_products(types[i].type, width, FFN_WIDTH, 1, tokens));
    printf("\"attention\": %.4g},\n", flops_of_attention(CONTEXT / less, tokens));
}

/* ---- operations ----------------------------------------------------------------------------- */

typedef struct adding {
    float *y, *x; /* [SMALL] */
    int n;        /* operations */
    bool anew;    /* never as many as before: nothing is known of them */
} adding;

static void add_often(void *arg, int repeat) {
    const adding *a = arg;
    int n = a->n + (a->anew ? repeat + 1 : 0);
    for (int i = 0; i < n; i++) dev->ops->add(dev, a->y, a->x, SMALL);
}

static void measure_operations(void) {
    float *y = take(IG_PLACE_DEVICE, SMALL * sizeof *y), *x = take(IG_PLACE_DEVICE, SMALL * sizeof *x);
    adding one = {y, x, 1, false}, anew = {y, x, OPERATIONS, true}, known = {y, x, OPERATIONS, false};
    double wait = median(add_often, &one), one_by_one = median(add_often, &anew);
    for (int i = 0; i < KNOWN; i++) median(add_often, &known);
    double graph = median(add_often, &known);
    printf(" \"wait_seconds\": %.3g, \"launch_seconds\": %.3g, \"launch_seconds_in_graph\": %.3g}\n", wait,
           (one_by_one - wait) / OPERATIONS, (graph - wait) / OPERATIONS);
}

int main(int argc, char **argv) {
    int mib = argc > 1 ? atoi(argv[1]) : 256;
    ig_error err = {0};
    if (mib < 1 || mib > MOST_MIB) {
        fprintf(stderr, "%s: MiB to move: 1 to %d\n", argv[1], MOST_MIB);
        return 2;
    }
    if (ig_cuda_count() == 0) {
        printf("skipped: no GPU\n");
        return 77;
    }
    check(ig_device_open_cuda(&dev, 0, 2, &err), &err);
    measure_copies((size_t)mib << 20);
    measure_rows((size_t)mib << 20);
    measure_few_heads((size_t)mib << 20);
    measure_prompts(mib);
    measure_operations();
    ig_device_close(dev);
    return 0;
}
