/* SPDX-License-Identifier: Apache-2.0
 *
 * The time, for what stands on the library, whose own clock is behind the wall.
 */
#ifndef IG_TEXT_CLOCK_H
#define IG_TEXT_CLOCK_H

/* Since some beginning; nothing sets it back. */
double ig_text_seconds(void);

#endif
