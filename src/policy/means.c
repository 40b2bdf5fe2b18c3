/* SPDX-License-Identifier: Apache-2.0
 *
 * Means of blocks of values: see means.h.
 */
#include "policy/means.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

enum { BLOCK = IG_POLICY_UNIT };

/* Of so many values of each head. */
static size_t bytes_of(size_t n_heads, size_t n, int head_dim) {
    return n_heads * n * (size_t)head_dim * sizeof(uint16_t);
}

uint64_t ig_means_bytes(size_t n_heads, int n, int head_dim) {
    return (uint64_t)bytes_of(n_heads, (size_t)(n / BLOCK) + BLOCK, head_dim);
}

ig_status ig_means_open(ig_means *m, const ig_kernels *kernels, size_t n_heads, int n, int head_dim, ig_error *err) {
    *m = (ig_means){kernels, head_dim, n_heads, (size_t)(n / BLOCK), NULL, NULL};
    m->last = ig_pages_reserve(bytes_of(n_heads, BLOCK, head_dim));
    if (m->n_blocks) m->mean = ig_pages_reserve(bytes_of(n_heads, m->n_blocks, head_dim));
    if (m->last && (m->mean || !m->n_blocks)) return IG_OK;
    ig_means_close(m);
    return ig_fail_memory(err, "means of values", ig_means_bytes(n_heads, n, head_dim));
}

void ig_means_close(ig_means *m) {
    ig_pages_release(m->mean, bytes_of(m->n_heads, m->n_blocks, m->head_dim));
    ig_pages_release(m->last, bytes_of(m->n_heads, BLOCK, m->head_dim));
    *m = (ig_means){0};
}

void ig_means_append(ig_means *m, size_t head, int entry, const uint16_t *value) {
    size_t d = (size_t)m->head_dim, b = (size_t)entry / BLOCK;
    int at = entry % BLOCK;
    uint16_t *last = m->last + head * BLOCK * d;
    const uint16_t *row[BLOCK];
    float share[BLOCK], mean[IG_KV_DIMS], none = 0;
    memcpy(last + (size_t)at * d, value, d * sizeof *last);
    if (at < BLOCK - 1 || b >= m->n_blocks) return;
    for (int i = 0; i < BLOCK; i++) {
        row[i] = last + (size_t)i * d;
        share[i] = 1.0F / BLOCK;
    }
    m->kernels->attn_values(mean, &none, share, BLOCK, 1, m->head_dim, row, BLOCK);
    m->kernels->f32_to_f16(m->mean + (head * m->n_blocks + b) * d, mean, m->head_dim);
}

/* value = the blocks' weights, p [group][stride], times their means. */
static void add_up(const ig_means *m, size_t head, const float *p, size_t stride, int group, int n_blocks,
                   float *value) {
    enum { PIECE = 64, QUERIES = 64 }; /* of one call of the kernel */
    const uint16_t *mean = m->mean + head * m->n_blocks * (size_t)m->head_dim, *row[PIECE];
    float keep[QUERIES];
    for (int first = 0; first < n_blocks; first += PIECE) {
        int n = n_blocks - first < PIECE ? n_blocks - first : PIECE;
        for (int i = 0; i < n; i++) row[i] = mean + (size_t)(first + i) * (size_t)m->head_dim;
        for (int g = 0; g < group; g += QUERIES) {
            int n_q = group - g < QUERIES ? group - g : QUERIES;
            for (int i = 0; i < n_q; i++) keep[i] = first > 0;
            m->kernels->attn_values(value + (size_t)g * (size_t)m->head_dim, keep,
                                    p + (size_t)g * stride + (size_t)first, stride, n_q, m->head_dim, row, n);
        }
    }
}

void ig_means_estimate(const ig_means *m, size_t head, int n, float *p, size_t stride, const float *r, int group,
                       const int32_t *index, int n_used, const ig_rest *out) {
    int n_blocks = n / BLOCK;
    for (int g = 0; g < group; g++) {
        float *row = p + (size_t)g * stride;
        for (int i = 0; i < n_used; i++) row[index[i]] = 0;
        m->kernels->block_sums(row, row, n_blocks, BLOCK, r[g]);
        m->kernels->count_above(row, n_blocks, 0, &out->share[g]);
    }
    add_up(m, head, p, stride, group, n_blocks, out->value);
}
