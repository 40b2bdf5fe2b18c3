/* SPDX-License-Identifier: Apache-2.0
 *
 * What all measurements need: an order of numbers.
 */
#ifndef IG_EVAL_NUMBERS_H
#define IG_EVAL_NUMBERS_H

/* Two doubles, for qsort(): the smaller one first. */
int ig_eval_compare(const void *a, const void *b);

#endif
