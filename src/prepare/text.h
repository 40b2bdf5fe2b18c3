/* SPDX-License-Identifier: Apache-2.0
 *
 * The built-in calibration text.
 */
#ifndef IG_PREPARE_TEXT_H
#define IG_PREPARE_TEXT_H

/* About 2,500 tokens of prose, dialogue, code, lists and numbers. */
extern const char ig_prepare_text[];

#endif
