/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixtures of experts: which of a layer's feed-forward layers the rows of a step go to, and with which shares what
 * these give is added up. The router's scores come to the host, which sorts the rows by expert, so that an expert's
 * weights are read once for all rows that chose it.
 */
#ifndef IG_MODEL_ROUTE_H
#define IG_MODEL_ROUTE_H

#include "device/space.h"
#include "model/config.h"

typedef struct ig_routes {
    ig_twin scores; /* [max_rows][n_experts] the router's, of each row */
    float *beside;  /* [max_rows][d_model] the device's: what is for all tokens, where it has norms of its own */
    /* [max_rows][experts.width] the device's: what experts read, and the sum of what they give, where that is not the
     * state
     */
    float *in, *sum;
    float *x, *y; /* [ffn_rows][d_model or experts.width] the device's: rows that an expert takes, and what it gives */
    float *adapter_shares; /* [ffn_rows][n_adapters] the device's: what those rows take of adapters */
    ig_twin shared;        /* [max_rows] of each row the share of what is for all tokens, where it is gated */
    int32_t *all;          /* [max_rows] 0, 1, 2, ... */
    float *hidden;         /* [2][n_experts_used][d_ff] the device's, of one row: gate and up of its experts */
    int32_t *chosen;       /* [max_rows][n_experts_used] experts of each row */
    float *weights;        /* the same shape */
    int32_t *rows;         /* [max_rows * n_experts_used] rows, ascending, of expert 0, then of expert 1, and so on */
    float *shares;         /* [max_rows * n_experts_used] that belong to them */
    int32_t *begin;        /* [n_experts + 1] in both lists, of each expert */
} ig_routes;

/* For a model without experts there is nothing. */
void ig_routes_lay_out(ig_space *s, ig_routes *r, const ig_config *c, int max_rows, int ffn_rows);
/* Shares of what is for all tokens, from the products of the rows [first, n_rows), which are on the host. */
void ig_routes_share(ig_routes *r, int first, int n_rows);
/* Chooses experts for the rows [first, n_rows) by their scores, which are on the host: the n_experts_used best, the
 * first of equal ones; `bias` [n_experts] (NULL: none) is added for that, and `scales` (likewise) multiply their
 * shares. A score that is not finite makes NaN of the
 * row's shares. */
void ig_routes_choose(ig_routes *r, ig_device *d, const ig_config *c, const float *bias, const float *scales, int first,
                      int n_rows);

#endif
