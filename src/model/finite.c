/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers that are not finite end a step of the sequence that has them. They are looked for where they could be lost:
 * in queries, keys and values, which are packed, sketched and weighed by softmax; in the residual stream after each
 * part of a layer, which tells where they came from; and in logits. Between these places the kernels keep what is not
 * finite as it is.
 *
 * Keys and values must lie in the range of every way to keep them, and queries be so small that their products with
 * such keys are finite: a score that overflows to -INFINITY would look like an entry that does not matter.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "model/forward_parts.h"

/* A frame multiplies it by up to 2^16. Then the squares of 576 such numbers still have a sum that is finite, which
 * kernels for prompts make, and no score is beyond 2^100: 1e13 * 65536 * 65280 * 576 is 3e25. */
static const float most_query = 1e13f;

enum {
    HEAD_PLACES = 3, /* that are looked at together: queries, keys and values, */
    MOST_PLACES = 6  /* and an indexer's queries, their weights and its keys */
};

/* The number of the segment that a row is of. */
static int sequence_of(const forward *f, int row) {
    int s = 0;
    while (row < f->b->segments[s].row || row >= f->b->segments[s].row + f->b->segments[s].n) s++;
    return f->b->segments[s].number;
}

/* The first number that is too large, and where it is. */
static ig_status find(float *out, size_t *at, const forward *f, const ig_looked_at *r, ig_error *err) {
    enum { PIECE = 1024 };
    float x[PIECE];
    size_t all = (size_t)r->n * (size_t)r->width;
    for (*at = 0; *at < all; (*at)++) {
        size_t i = *at % PIECE, n = all - *at < PIECE ? all - *at : PIECE;
        if (i == 0) f->dev->ops->copy(f->dev, x, r->x + *at, n * sizeof *x);
        ig_status status = i == 0 ? f->dev->ops->finish(f->dev, err) : IG_OK;
        *out = x[i];
        if (status || !(fabsf(x[i]) <= r->most)) return status;
    }
    return ig_fail(err, IG_E_DEVICE, "the device does not find the number again that was %s", r->where);
}

static ig_status fail(const forward *f, const ig_looked_at *r, ig_error *err) {
    size_t at;
    float x;
    ig_status status = find(&x, &at, f, r, err);
    if (status) return status;
    int row = (int)(at / (size_t)r->width), column = (int)(at % (size_t)r->width);
    int number = r->list ? r->list[row] : r->number == IG_NUMBER_IS_COLUMN ? column : r->number;
    int offset = f->m->weights.positions.w ? f->c->position_offset : 0;
    char which[48] = "";
    int sequence = sequence_of(f, r->first + row);
    if (sequence) snprintf(which, sizeof which, " of sequence %d in the batch", sequence);
    return ig_fail(err, IG_E_NUMBER, "the model's numbers are %s: %g %s %d at position %d%s",
                   isfinite(x) ? "too large" : "not finite", (double)fabsf(x), r->where, number,
                   f->b->positions[r->first + row] - offset, which);
}

/* Looks at once. */
static ig_status check(const forward *f, const ig_looked_at *r, ig_error *err) {
    float *peak = &f->b->peaks[f->b->most_looks];
    f->dev->ops->peak(f->dev, peak, &(ig_floats){r->x, (size_t)r->n * (size_t)r->width}, 1);
    ig_status status = f->dev->ops->finish(f->dev, err);
    return status || *peak <= r->most ? status : fail(f, r, err);
}

/* A segment that failed: its rows go on as zeros. */
static void clear(const forward *f, const ig_segment *seg) {
    size_t d = (size_t)f->c->d_model;
    f->dev->ops->clear(f->dev, f->b->h + (size_t)seg->row * d, (size_t)seg->n * d * sizeof(float));
}

void ig_forward_clear_failed(const forward *f, float *x, int width) {
    size_t w = (size_t)width;
    for (int s = 0; s < f->b->n_segments; s++) {
        const ig_segment *seg = &f->b->segments[s];
        if (seg->status && seg->n) f->dev->ops->clear(f->dev, x + (size_t)seg->row * w, (size_t)seg->n * w * sizeof *x);
    }
}

/* Segments with what must not go on fail, and the others do not see it. */
static void part_segments(const forward *f, const ig_looked_at *r) {
    for (int s = 0; s < f->b->n_segments; s++) {
        ig_segment *seg = &f->b->segments[s];
        int end = seg->row + seg->n;
        if (seg->status || end <= r->first) continue;
        ig_looked_at own = *r;
        own.first = seg->row > r->first ? seg->row : r->first;
        own.x += (size_t)(own.first - r->first) * (size_t)r->width;
        own.n = end - own.first;
        if (r->list) own.list += own.first - r->first;
        seg->status = check(f, &own, seg->err);
        if (seg->status) clear(f, seg);
    }
}

static bool is_fine(const ig_batch *b, int look) { return b->peaks[look] <= b->looks[look].most; }

void ig_forward_settle_checks(const forward *f) {
    ig_batch *b = f->b;
    for (int i = 0; i < b->n_looks; i++)
        if (!is_fine(b, i)) part_segments(f, &b->looks[i]);
    b->n_looks = 0;
}

bool ig_forward_is_finite(const forward *f) {
    const ig_batch *b = f->b;
    int n = 0;
    while (n < b->n_looks && is_fine(b, n)) n++;
    return n == b->n_looks;
}

/* Rows of the batch from one on, in n places: at once, or after the next wait. By then the residual stream may have
 * gone on, but what was not finite in it is not finite still. */
static void check_batch(const forward *f, const ig_looked_at *r, int n) {
    ig_batch *b = f->b;
    ig_floats x[MOST_PLACES];
    for (int i = 0; i < n; i++) {
        x[i] = (ig_floats){r[i].x, (size_t)r[i].n * (size_t)r[i].width};
        b->looks[b->n_looks + i] = r[i];
    }
    f->dev->ops->peak(f->dev, &b->peaks[b->n_looks], x, n);
    b->n_looks += n;
    if (f->dev->ops->is_host) ig_forward_settle_checks(f);
}

/* Rows of x, [n_rows][width], from `first` on. */
static ig_looked_at rows_of(const forward *f, const float *x, int first, int width, float most, const char *where) {
    return (ig_looked_at){
        x + (size_t)first * (size_t)width, first, f->n_rows - first, width, most, where, f->layer, NULL};
}

static ig_looked_at state(const forward *f, const char *where) {
    return rows_of(f, f->b->h, f->step.first_row, f->c->d_model, FLT_MAX, where);
}

void ig_forward_check_embedding(const forward *f) {
    ig_looked_at r = state(f, "in the embedding of token");
    r.list = f->b->ids;
    check_batch(f, &r, 1);
}

/* A late pass asks only whether all is well: what is not finite in one layer still is so in the last one, or in the
 * keys of a layer before. */
void ig_forward_check_state(const forward *f, const char *where) {
    if (f->step.is_late && f->layer < f->c->n_layers - 1) return;
    ig_looked_at r = state(f, where);
    check_batch(f, &r, 1);
}

void ig_forward_check_heads(const forward *f) {
    const ig_head_shape *heads = &f->step.heads;
    const ig_batch *b = f->b;
    int q = heads->n_heads * heads->head_dim, kv = heads->n_kv_heads * heads->head_dim;
    const ig_index_shape *index = &f->c->index;
    const ig_index_rows *own = &b->rows.index[0];
    const ig_indexer *w = &f->m->weights.layers[f->layer].index;
    int n = f->step.is_shared ? 1 : !w->k.w ? HEAD_PLACES : w->weights.w ? MOST_PLACES : MOST_PLACES - 1;
    const ig_looked_at of[MOST_PLACES] = {
        rows_of(f, b->rows.q.dev, f->step.first_row, q, most_query, "in the queries of layer"),
        rows_of(f, b->rows.k.dev, 0, kv, IG_KV_MOST, "in the keys of layer"),
        rows_of(f, b->rows.v.dev, 0, kv, IG_KV_MOST, "in the values of layer"),
        rows_of(f, own->q.dev, f->step.first_row, index->n_heads * index->dim, most_query,
                "in the indexer's queries of layer"),
        rows_of(f, b->rows.index_k.dev, 0, index->dim, IG_KV_MOST, "in the indexer's keys of layer"),
        rows_of(f, own->weights.dev, f->step.first_row, index->n_heads, most_query,
                "in the indexer's weights of layer")};
    check_batch(f, of, n);
}

ig_status ig_forward_check_logits(const forward *f, const ig_segment *seg, int first, int n, int row, ig_error *err) {
    const float *logits = f->b->logits.dev + (size_t)row * (size_t)f->c->n_vocab;
    ig_looked_at r = {logits, seg->row + first, n, f->c->n_vocab, FLT_MAX, "in the logit of token", IG_NUMBER_IS_COLUMN,
                      NULL};
    return check(f, &r, err);
}
