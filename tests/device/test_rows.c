/* SPDX-License-Identifier: Apache-2.0
 *
 * The GPU's attention against the scalar CPU's, over rows of every KV type; and that a query's bits depend neither on
 * what shares the call nor on how rows and prompts are cut. Rows that the GPU writes itself are the host's to the bit.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "two_devices.h"

#include "kernel/kernel.h"
#include "kv/rows.h"

enum { KV_HEADS = 2, SHIFT = 3, MAX_ROWS = 2400, MAX_BLOCKS = MAX_ROWS >> SHIFT, MAX_TOKENS = 70, JOBS = 3 };

/* Keys and values as a store has them, where the GPU reads them: the blocks in another order than the sequence's. */
static struct cache {
    int d;
    ig_kv_type type;
    uint8_t *frames;        /* [KV_HEADS][MAX_BLOCKS][block] */
    const uint8_t **blocks; /* [KV_HEADS][MAX_BLOCKS] */
    uint32_t *number;       /* [MAX_BLOCKS] */
    ig_kv_line *lines;      /* [KV_HEADS][MAX_BLOCKS][2^SHIFT][2][lines of a row] */
    int32_t *index;         /* [MAX_ROWS] every third slot, from 1 on */
    ig_kv_view *views;      /* [JOBS][KV_HEADS] */
    size_t row, block, n_lines;
} cache;

static ig_head_shape shape;

static void *pinned(size_t n_bytes) {
    void *p = ig_device_alloc(devices[GPU], IG_PLACE_HOST, n_bytes);
    assert_non_null(p);
    return p;
}

static void give(void *p) { ig_device_free(devices[GPU], IG_PLACE_HOST, p, 0); }

static void fill_row(int head, int slot) {
    const ig_kernels *k = ig_kernels_get(IG_CPU_SCALAR);
    float x[IG_KV_DIMS];
    size_t number = cache.number[slot >> SHIFT], at = (size_t)head * MAX_BLOCKS + number;
    uint8_t *row = cache.frames + at * cache.block + (size_t)(slot & 7) * cache.row;
    ig_kv_line *lines = cache.lines + ((at << SHIFT) + (size_t)(slot & 7)) * 2 * cache.n_lines;
    for (int value = 0; value < 2; value++) {
        for (int c = 0; c < cache.d; c++) x[c] = (float)(4 * ig_random_unit(&dice) - 2);
        k->kv_pack[cache.type](row + (value ? cache.block / 2 : 0), lines + (value ? cache.n_lines : 0), x, cache.d);
    }
}

static void open_group(int group, int d, ig_kv_type type) {
    cache.d = d, cache.type = type;
    cache.row = ig_kv_row_bytes(type, d), cache.block = cache.row << (SHIFT + 1);
    cache.n_lines = ig_kv_row_lines(type, d);
    cache.frames = pinned(KV_HEADS * MAX_BLOCKS * cache.block);
    cache.blocks = pinned(KV_HEADS * MAX_BLOCKS * sizeof *cache.blocks);
    cache.number = pinned(MAX_BLOCKS * sizeof *cache.number);
    cache.lines = pinned((KV_HEADS * MAX_BLOCKS << SHIFT) * 2 * (cache.n_lines + 1) * sizeof *cache.lines);
    cache.index = pinned(MAX_ROWS * sizeof *cache.index);
    cache.views = pinned(JOBS * KV_HEADS * sizeof *cache.views);
    for (int b = 0; b < MAX_BLOCKS; b++) cache.number[b] = (uint32_t)(b * 7 % MAX_BLOCKS); /* 300 blocks */
    for (int i = 0; i < MAX_ROWS / 3; i++) cache.index[i] = 3 * i + 1;
    for (int h = 0; h < KV_HEADS; h++) {
        for (int b = 0; b < MAX_BLOCKS; b++)
            cache.blocks[h * MAX_BLOCKS + b] = cache.frames + (size_t)(h * MAX_BLOCKS + b) * cache.block;
        for (int s = 0; s < MAX_ROWS; s++) fill_row(h, s);
    }
    shape = (ig_head_shape){group * KV_HEADS, KV_HEADS, d, 0.17f};
    reserve_both(&(ig_device_need){.max_rows = 32, .max_in = 64, .max_entries = MAX_ROWS, .heads = shape});
}

static void open_cache(int d, ig_kv_type type) { open_group(3, d, type); }

/* All bytes of rows and lines, to a copy or, if there is one, to be compared with it. */
static void keep_or_compare(uint8_t **frames, ig_kv_line **lines, const char *what) {
    size_t n_frames = KV_HEADS * MAX_BLOCKS * cache.block;
    size_t n_lines = (KV_HEADS * MAX_BLOCKS << SHIFT) * 2 * cache.n_lines * sizeof **lines;
    if (!*frames) {
        *frames = memcpy(malloc(n_frames), cache.frames, n_frames);
        *lines = memcpy(malloc(n_lines + 1), cache.lines, n_lines);
        return;
    }
    if (memcmp(*frames, cache.frames, n_frames) != 0) fail_msg("%s: other rows", what);
    if (memcmp(*lines, cache.lines, n_lines) != 0) fail_msg("%s: other lines", what);
    free(*frames), free(*lines);
}

static void close_cache(void) {
    give(cache.frames), give(cache.blocks), give(cache.number), give(cache.lines), give(cache.index), give(cache.views);
}

/* Views of a job: n slots from `first` on, or of the list. */
static const ig_kv_view *see(int job, bool listed, int first, int n) {
    ig_kv_view *views = cache.views + job * KV_HEADS;
    for (int h = 0; h < KV_HEADS; h++)
        views[h] = (ig_kv_view){
            .blocks = cache.blocks + h * MAX_BLOCKS,
            .number = cache.number,
            .shift = SHIFT,
            .row_bytes = cache.row,
            .v_offset = cache.block / 2,
            .index = listed ? cache.index : NULL,
            .first = first,
            .n = n,
            .type = cache.type,
            .slot_lines = 2 * cache.n_lines,
            .lines = cache.n_lines ? cache.lines + ((size_t)(h * MAX_BLOCKS) << SHIFT) * 2 * cache.n_lines : NULL};
    return views;
}

typedef struct arrays {
    both q, scale, out, lse, rest, share, sink_scores;
} arrays;

static arrays make_arrays(int n_tokens) {
    size_t n_heads = (size_t)shape.n_heads, heads = n_heads * (size_t)shape.head_dim, n = (size_t)n_tokens;
    arrays x = {make_both(n * heads, 2), make_both(heads, 2),   make_both(n * heads, 1), make_both(n * n_heads, 1),
                make_both(heads, 1),     make_both(n_heads, 1), make_both(n_heads, 6)};
    for (size_t h = 0; h < n_heads; h++) x.share.host[h] = h % 3 ? (float)h / (float)n_heads : 0;
    put(&x.share);
    return x;
}

static void free_arrays(arrays *x) {
    both *all[] = {&x->q, &x->scale, &x->out, &x->lse, &x->rest, &x->share, &x->sink_scores};
    for (int i = 0; i < 7; i++) free_both(all[i]);
}

static ig_attention job_of(const arrays *x, int d, int token, int n_tokens, bool prompt, const ig_kv_view *views) {
    size_t at = (size_t)token * (size_t)shape.n_heads;
    return (ig_attention){.q = x->q.on[d] + at * (size_t)shape.head_dim,
                          .q_scale = x->scale.on[d],
                          .out = x->out.on[d] + at * (size_t)shape.head_dim,
                          .lse = x->lse.on[d] + at,
                          .rest = prompt ? NULL : x->rest.on[d],
                          .rest_share = x->share.on[d],
                          .n_tokens = n_tokens,
                          .prompt = prompt,
                          .sink_scores = shape.head_dim % 32 ? NULL : x->sink_scores.on[d], /* of some shapes */
                          .views = views};
}

/* Weights of prompts are rounded to 16 bits. */
static void expect_attention(const arrays *x, bool prompt) {
    const char *what = prompt ? "prompt" : "step";
    expect_near(&x->out, prompt ? 2e-3 : 2e-5, what);
    expect_near(&x->lse, 2e-5, what);
}

/* Bits of the GPU's results; compared with later ones. */
static float *copy_result(const both *x) {
    float *copy = malloc(x->n * sizeof *copy);
    memcpy(copy, get(x, GPU), x->n * sizeof *copy);
    return copy;
}

static void expect_same(const both *x, float *before) {
    assert_memory_equal(before, get(x, GPU), x->n * sizeof *before);
    free(before);
}

/* Attention of n rows again, in parts that the caller cuts: the same bits. */
static void expect_parts(const both *out, ig_attention a, int n_tokens, int n) {
    float *before = copy_result(out);
    size_t n_bytes = ig_attend_carry_floats(&shape, n_tokens, n) * sizeof(float);
    a.rows = IG_ROWS_IN_ORDER;
    a.carry = ig_device_alloc(devices[GPU], IG_PLACE_DEVICE, n_bytes);
    for (a.begin = 0; a.begin < n; a.begin = a.end) {
        a.end = a.begin + IG_ATTEND_UNIT < n ? a.begin + IG_ATTEND_UNIT : n;
        devices[GPU]->ops->attend(devices[GPU], &shape, &a, 1);
    }
    expect_same(out, before);
    ig_device_free(devices[GPU], IG_PLACE_DEVICE, a.carry, n_bytes);
}

/* One step, and in parts that the caller cuts. */
static void run_step(bool listed, int first, int n) {
    arrays x = make_arrays(1);
    const ig_kv_view *views = see(0, listed, first, n);
    for (int d = 0; d < DEVICES; d++) {
        ig_attention a = job_of(&x, d, 0, 1, false, views);
        devices[d]->ops->attend(devices[d], &shape, &a, 1);
        finish(d);
    }
    expect_attention(&x, false);
    if (!listed && first == 0) expect_parts(&x.out, job_of(&x, GPU, 0, 1, false, views), 0, n);
    free_arrays(&x);
}

static void steps(void **state) {
    (void)state;
    static const int dims[] = {8, 32, 80, 128};
    for (int t = 0; t < IG_KV_TYPES; t++) {
        open_cache(dims[t % 4], (ig_kv_type)t);
        run_step(false, 0, 1);
        run_step(false, 0, 513);
        run_step(false, 5, 200);
        run_step(true, 0, t ? 129 : 799);
        close_cache();
    }
    open_cache(32, IG_KV_F16);
    run_step(false, 0, 2100);
    close_cache();
}

/* So many rows that a part has more of them than are in shared memory at a time; some are listed several times. */
static void long_lists(void **state) {
    (void)state;
    enum { LONG = IG_ATTEND_LEAST * IG_ATTEND_PARTS + 100 };
    open_cache(16, IG_KV_F16);
    give(cache.index);
    cache.index = pinned(LONG * sizeof *cache.index);
    for (int i = 0; i < LONG; i++) cache.index[i] = i * 7 % MAX_ROWS;
    reserve_both(&(ig_device_need){.max_rows = 32, .max_in = 64, .max_entries = LONG, .heads = shape});
    run_step(true, 0, LONG);
    close_cache();
}

/* Several together give the bits of each alone. */
static void steps_together(void **state) {
    (void)state;
    static const int lengths[JOBS] = {700, 3, 1025};
    open_cache(16, IG_KV_F16);
    arrays x = make_arrays(JOBS);
    float *before = NULL;
    for (int round = 0; round < 2; round++) {
        ig_attention jobs[JOBS];
        for (int i = 0; i < JOBS; i++) jobs[i] = job_of(&x, GPU, i, 1, false, see(i, false, 0, lengths[i]));
        if (round)
            devices[GPU]->ops->attend(devices[GPU], &shape, jobs, JOBS);
        else
            for (int i = 0; i < JOBS; i++) devices[GPU]->ops->attend(devices[GPU], &shape, &jobs[i], 1);
        if (round)
            expect_same(&x.out, before);
        else
            before = copy_result(&x.out);
    }
    free_arrays(&x);
    close_cache();
}

/* Steps whose results a product of quantised weights takes: codes made along the way are those made of the results. */
static void steps_and_a_product(void **state) {
    (void)state;
    enum { OUT = 5 };
    static const int dims[] = {32, 288}, lengths[JOBS] = {700, 3, 65};
    for (int i = 0; i < 2; i++) {
        open_cache(dims[i], IG_KV_F16);
        size_t width = (size_t)(shape.n_heads * shape.head_dim);
        size_t row = ig_type_row_bytes(ig_type_get(IG_TYPE_Q8_0), width), n_bytes = row * OUT;
        uint8_t *codes = malloc(n_bytes);
        for (size_t k = 0; k < n_bytes; k++) codes[k] = k % 34 == 1 ? 0x20 : (uint8_t)ig_random_u64(&dice);
        ig_error err = {0};
        if (devices[GPU]->ops->bind(devices[GPU], codes, n_bytes, &err)) fail_msg("%s", err.text);
        const ig_matrix w = {.w = codes, .n_out = OUT, .n_in = (int)width, .type = IG_TYPE_Q8_0, .row_bytes = row},
                        *m = &w;
        reserve_both(&(ig_device_need){.max_rows = 32, .max_in = (int)width, .max_entries = MAX_ROWS, .heads = shape});
        arrays x = make_arrays(JOBS);
        both y = make_both(JOBS * OUT, 1);
        float *before = NULL;
        for (int together = 0; together < 2; together++) {
            ig_attention jobs[JOBS];
            for (int k = 0; k < JOBS; k++) jobs[k] = job_of(&x, GPU, k, 1, false, see(k, false, 0, lengths[k]));
            devices[GPU]->ops->attend(devices[GPU], &shape, jobs, JOBS);
            if (!together) finish(GPU);
            uint64_t n = cuda_on_cpu_count ? cuda_on_cpu_count("cudaLaunchKernel") : 0;
            devices[GPU]->ops->matmul(devices[GPU], &y.on[GPU], &m, 1, x.out.on[GPU], NULL, JOBS, true);
            finish(GPU);
            if (cuda_on_cpu_count) assert_int_equal(cuda_on_cpu_count("cudaLaunchKernel") - n, together ? 3 : 2);
            if (together)
                expect_same(&y, before);
            else
                before = copy_result(&y);
        }
        devices[GPU]->ops->unbind(devices[GPU], codes);
        free(codes);
        free_arrays(&x);
        free_both(&y);
        close_cache();
    }
}

static const ig_window no_window = {0, false};

/* A prompt of n_tokens at the end of n rows: at once; by the caller's parts; a few queries at a time. */
static void run_prompt(int n_tokens, int n, ig_window window, int piece) {
    arrays x = make_arrays(n_tokens);
    for (int d = 0; d < DEVICES; d++) {
        ig_attention a = job_of(&x, d, 0, n_tokens, true, see(0, false, 0, n));
        a.window = window;
        devices[d]->ops->attend(devices[d], &shape, &a, 1);
        finish(d);
    }
    expect_attention(&x, true);
    float *before = copy_result(&x.out);
    ig_attention a = job_of(&x, GPU, 0, n_tokens, true, cache.views);
    a.window = window;
    expect_parts(&x.out, a, n_tokens, n);
    for (int t = 0; t < n_tokens; t += piece) {
        int now = n_tokens - t < piece ? n_tokens - t : piece;
        a = job_of(&x, GPU, t, now, true, see(0, false, 0, n - n_tokens + t + now));
        a.window = window;
        devices[GPU]->ops->attend(devices[GPU], &shape, &a, 1);
        finish(GPU);
    }
    expect_same(&x.out, before);
    free_arrays(&x);
}

static void prompts(void **state) {
    (void)state;
    open_cache(32, IG_KV_F16);
    run_prompt(2, 2, no_window, 1);
    run_prompt(50, 700, no_window, 17);
    run_prompt(33, 33, (ig_window){16, false}, 5);
    run_prompt(9, 2300, no_window, 4); /* more rows than are gathered at a time */
    run_prompt(40, 1500, (ig_window){100, false}, 13);
    run_prompt(33, 33, (ig_window){16, true}, 5);
    run_prompt(40, 1500, (ig_window){100, true}, 13);
    run_prompt(40, 1500, (ig_window){740, true}, 13); /* the last queries see few rows, the first many */
    close_cache();
    open_cache(80, IG_KV_Q4);
    run_prompt(20, 100, no_window, 7);
    close_cache();
    open_cache(256, IG_KV_F16);
    run_prompt(40, 1500, no_window, 13); /* more queries than there is room for at a time, over two parts */
    close_cache();
    static const int wide[] = {136, 256, 512, 576}; /* other tiles, and results in several launches */
    for (int i = 0; i < 4; i++) {
        open_cache(wide[i], IG_KV_Q8);
        run_prompt(i ? 5 : 40, i ? 40 : 600, no_window, i ? 2 : 21);
        close_cache();
    }
}

/* Groups that are cut into slices, by their size or that of their queries, or that share a tile with nothing. */
static void groups(void **state) {
    (void)state;
    static const int sizes[][2] = {{1, 64},  {16, 72},  {17, 64},  {33, 16},
                                   {7, 256}, {11, 384}, {20, 576}, {70, 8}}; /* of d */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        open_group(sizes[i][0], sizes[i][1], (ig_kv_type)(i % IG_KV_TYPES));
        run_step(false, 0, 1);
        run_step(true, 0, 150);
        run_prompt(1, 1, no_window, 1);
        run_prompt(5, 40, (ig_window){i % 2 ? 17 : 0, false}, 2);
        close_cache();
    }
}

/* Queries of any size that keys can meet, and NaN, which spoils its own alone. */
static void prompts_of_strange_queries(void **state) {
    (void)state;
    static const float sizes[] = {1e6f, 1e25f, 1e-6f, 1e-35f, 0, 1, NAN};
    enum { TOKENS = sizeof sizes / sizeof *sizes };
    for (int wide = 0; wide < 2; wide++) {
        open_cache(wide ? 136 : 64, IG_KV_Q8);
        arrays x = make_arrays(TOKENS);
        size_t each = x.q.n / TOKENS;
        for (size_t i = 0; i < x.q.n; i++) x.q.host[i] *= sizes[i / each];
        put(&x.q);
        for (int d = 0; d < DEVICES; d++) {
            ig_attention a = job_of(&x, d, 0, TOKENS, true, see(0, false, 0, 100));
            devices[d]->ops->attend(devices[d], &shape, &a, 1);
            finish(d);
        }
        expect_near(&x.out, 2e-3, "strange");
        free_arrays(&x);
        close_cache();
    }
}

static void weights(void **state) {
    (void)state;
    enum { STRIDE = 700 };
    open_cache(24, IG_KV_Q8);
    for (int prompt = 0; prompt < 2; prompt++) {
        int n_tokens = prompt ? 20 : 1;
        arrays x = make_arrays(n_tokens);
        both w = {.host = malloc(KV_HEADS * STRIDE * sizeof(float)), .n = KV_HEADS * STRIDE};
        for (int d = 0; d < DEVICES; d++) {
            w.on[d] = pinned(w.n * sizeof(float));
            ig_attention a = job_of(&x, d, 0, n_tokens, prompt, see(0, false, 0, 600));
            a.window = (ig_window){prompt ? 590 : 0, false};
            devices[d]->ops->attend(devices[d], &shape, &a, 1);
            devices[d]->ops->weigh(devices[d], &shape, &a, 0, 512, w.on[d], STRIDE);
            devices[d]->ops->weigh(devices[d], &shape, &a, 512, 600, w.on[d], STRIDE);
            finish(d);
        }
        expect_near(&w, 1e-4, "weights");
        double sum = 0;
        for (size_t i = 0; i < w.n; i++) sum += (double)w.host[i];
        assert_true(fabs(sum - n_tokens * shape.n_heads) < 1e-3 * n_tokens * shape.n_heads);
        for (int d = 0; d < DEVICES; d++) give(w.on[d]);
        free(w.host);
        free_arrays(&x);
    }
    close_cache();
}

/* New rows of two sequences. Numbers that no row can hold, and rows of a single number, are among them. */
static void run_append(bool framed) {
    enum { TOKENS = 21 };
    static const int first[] = {3, 700}, n[] = {TOKENS - 1, 1};
    size_t width = (size_t)KV_HEADS * (size_t)cache.d, heads = (size_t)shape.n_heads * (size_t)cache.d;
    both k = make_both(TOKENS * width, 3), v = make_both(TOKENS * width, 0.01), frame = make_both(width + heads, 2);
    ig_key_frame f = {frame.host, frame.host + width};
    ig_kv_codec codec = {ig_kernels_get(IG_CPU_SCALAR), framed ? &f : NULL, {.all = shape}, cache.type};
    static const float odd[] = {INFINITY, -INFINITY, 1e9f, -0.0f, 65519, -65281, 3e-8f, NAN};
    size_t n_odd = sizeof odd / sizeof *odd - (cache.type == IG_KV_F16); /* NaNs as 16-bit floats are many */
    for (size_t i = 0; i < n_odd; i++) k.host[i * 11] = odd[i];
    for (size_t i = 0; i < width; i++) v.host[2 * width + i] = i / (size_t)cache.d ? 0 : -0.7f;
    for (size_t i = 0; i < heads; i++)
        frame.host[width + i] = (float)(1 << i / (size_t)cache.d / (size_t)(shape.n_heads / KV_HEADS));
    put(&k), put(&v), put(&frame);
    ig_append jobs[2];
    for (int i = 0; i < 2; i++) {
        size_t at = i ? (TOKENS - 1) * width : 0;
        jobs[i] = (ig_append){.k = k.on[GPU] + at,
                              .v = v.on[GPU] + at,
                              .origin = framed ? frame.on[GPU] : NULL,
                              .scale = framed ? frame.on[GPU] + width : NULL,
                              .views = see(i, false, first[i], n[i]),
                              .n = n[i]};
    }
    uint8_t *frames = NULL;
    ig_kv_line *lines = NULL;
    for (int i = 0, token = 0; i < 2; i++)
        for (int t = 0; t < n[i]; t++, token++)
            for (int h = 0; h < KV_HEADS; h++) {
                ig_kv_row row = ig_kv_view_at(&cache.views[i * KV_HEADS + h], first[i] + t);
                size_t at = (size_t)token * width + (size_t)h * (size_t)cache.d;
                ig_kv_write(&codec, &row, 0, h, k.host + at, v.host + at);
            }
    keep_or_compare(&frames, &lines, NULL);
    for (int i = 0; i < 2; i++)
        for (int h = 0; h < KV_HEADS; h++)
            for (int t = 0; t < n[i]; t++) fill_row(h, first[i] + t);
    devices[GPU]->ops->append(devices[GPU], &shape, jobs, 2);
    finish(GPU);
    keep_or_compare(&frames, &lines, ig_kv_type_name(cache.type));
    free_both(&k), free_both(&v), free_both(&frame);
}

static void appends(void **state) {
    (void)state;
    static const int dims[] = {64, 80, 24, 128};
    for (int t = 0; t < IG_KV_TYPES; t++)
        for (int i = 0; i < 4; i++) {
            open_cache(dims[i], (ig_kv_type)t);
            run_append(false);
            if (t) run_append(true);
            close_cache();
        }
}

/* Bytes that go over the bus for steps of so many layers that wait together. */
static uint64_t bytes_of_layers(int n_layers, bool listed, int n) {
    arrays x = make_arrays(1);
    ig_kv_view *views = (ig_kv_view *)see(0, listed, 0, n);
    int32_t *n_listed = pinned(sizeof *n_listed);
    *n_listed = 1;
    for (int h = 0; listed && h < KV_HEADS; h++) views[h].n_listed = n_listed, views[h].n_slots = n;
    uint64_t before = cuda_on_cpu_copied();
    for (int l = 0; l < n_layers; l++) {
        ig_attention a = job_of(&x, GPU, 0, 1, false, views);
        devices[GPU]->ops->attend(devices[GPU], &shape, &a, 1);
    }
    finish(GPU);
    uint64_t bytes = cuda_on_cpu_copied() - before;
    give(n_listed);
    free_arrays(&x);
    return bytes;
}

/* Numbers of blocks go once for all layers: one more brings the same bytes, however many there are. */
static void numbers_go_once(void **state) {
    enum { FEW = 40, MANY = MAX_ROWS, LAYERS = 5 };
    (void)state;
    if (!cuda_on_cpu_copied) skip();
    open_cache(16, IG_KV_F16);
    for (int listed = 0; listed < 2; listed++) {
        uint64_t few = bytes_of_layers(1, listed, FEW), many = bytes_of_layers(1, listed, MANY);
        assert_true(many >= few + (MANY - FEW) / (1 << SHIFT) * sizeof *cache.number / 2);
        assert_int_equal(bytes_of_layers(LAYERS, listed, MANY) - many, bytes_of_layers(LAYERS, listed, FEW) - few);
    }
    close_cache();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps),
                                       cmocka_unit_test(long_lists),
                                       cmocka_unit_test(steps_together),
                                       cmocka_unit_test(steps_and_a_product),
                                       cmocka_unit_test(prompts),
                                       cmocka_unit_test(groups),
                                       cmocka_unit_test(prompts_of_strange_queries),
                                       cmocka_unit_test(weights),
                                       cmocka_unit_test(numbers_go_once),
                                       cmocka_unit_test(appends)};
    int missing = missing_gpu();
    return missing ? missing : cmocka_run_group_tests(tests, open_devices, close_devices);
}
