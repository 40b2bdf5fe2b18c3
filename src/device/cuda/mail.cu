/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs on their way to the GPU: see mail.cuh.
 */
#include "device/cuda/mail.cuh"

ig_cuda_letter ig_cuda_mail_take(ig_cuda_mail *m, size_t n_bytes) {
    ig_cuda_letter part = {NULL, NULL};
    if (ig_cuda_mail_bytes(n_bytes) > ig_cuda_mail_room(m)) return part;
    part.host = m->host + m->used;
    part.dev = m->dev + m->used;
    m->used += ig_cuda_mail_bytes(n_bytes);
    return part;
}

/* Blocks of the sequence that a view reads lie before this one. */
static size_t end_block(const ig_kv_view *v) {
    int last = v->n_listed ? v->n_slots - 1 : v->first + v->n - 1;
    if (v->index && !v->n_listed) last = 0;
    for (int i = 0; v->index && !v->n_listed && i < v->n; i++) last = v->index[i] > last ? v->index[i] : last;
    return (size_t)(last >> v->shift) + 1;
}

/* What is in the mail of a list, n bytes or more of it. Layers ask for the same lists in the same order. */
static const uint32_t *find_posted(ig_cuda_mail *m, const uint32_t *list, size_t n_bytes) {
    for (int i = 0; i < m->n_posted; i++) {
        const ig_cuda_posted *x = &m->posted[m->next];
        m->next = (m->next + 1) % m->n_posted;
        if (x->list == list && x->n_bytes >= n_bytes && memcmp(x->letter.host, list, n_bytes) == 0)
            return (const uint32_t *)x->letter.dev;
    }
    return NULL;
}

const uint32_t *ig_cuda_mail_numbers(ig_cuda_mail *m, const uint32_t *list, size_t n) {
    size_t n_bytes = n * sizeof *list;
    if (!n) return list;
    const uint32_t *posted = find_posted(m, list, n_bytes);
    if (posted) return posted;
    ig_cuda_letter part = ig_cuda_mail_take(m, ig_cuda_mail_numbers_bytes(n));
    if (!part.host) return list;
    memcpy(part.host, list, n_bytes);
    if (m->n_posted < IG_CUDA_POSTED) m->posted[m->n_posted++] = ig_cuda_posted{list, n_bytes, part};
    return (const uint32_t *)part.dev;
}

/* Views of a sequence share its numbers of blocks. */
static void put_numbers(ig_cuda_mail *m, ig_kv_view *views, int n) {
    const uint32_t *number = views[0].number;
    size_t n_numbers = 0;
    for (int i = 0; number && i < n; i++) {
        size_t end = views[i].number == number && views[i].n > 0 ? end_block(&views[i]) : 0;
        if (end > n_numbers) n_numbers = end;
    }
    const uint32_t *sent = ig_cuda_mail_numbers(m, number, n_numbers);
    for (int i = 0; i < n; i++)
        if (views[i].number == number) views[i].number = sent;
}

void ig_cuda_mail_views(ig_cuda_mail *m, ig_kv_view *views, int n) {
    put_numbers(m, views, n);
    for (int i = 0; i < n; i++) {
        ig_kv_view *v = &views[i];
        if (v->index && !v->n_listed) v->index = ig_cuda_mail_list(m, v->index, (size_t)v->n);
    }
}

cudaError_t ig_cuda_mail_send(ig_cuda_mail *m, cudaStream_t s) {
    size_t from = m->sent;
    m->sent = m->used;
    if (from == m->used) return cudaSuccess;
    return cudaMemcpyAsync(m->dev + from, m->host + from, m->used - from, cudaMemcpyDefault, s);
}

void ig_cuda_mail_empty(ig_cuda_mail *m) {
    m->used = m->sent = 0;
    m->n_posted = m->next = 0;
}
