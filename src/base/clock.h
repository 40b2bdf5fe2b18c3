/* SPDX-License-Identifier: Apache-2.0
 *
 * Monotonic seconds.
 */
#ifndef IG_BASE_CLOCK_H
#define IG_BASE_CLOCK_H

double ig_clock_seconds(void);

#endif
