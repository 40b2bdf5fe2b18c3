/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel checks share. One program runs every check_<family> function once per CPU
 * level, from scalar to the best this CPU has. A check compares the level's kernels with a
 * reference in double precision (or with the scalar table) on shaped inputs, and looks for
 * writes outside the outputs and reads outside the inputs (buffers that end at a page that
 * cannot be touched). With --bench the same kernels are timed instead.
 */
#ifndef IG_TESTS_KERNEL_CHECK_H
#define IG_TESTS_KERNEL_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/random.h"
#include "kernel/kernel.h"

typedef struct check {
    const ig_kernels *k;    /* the level under test */
    const ig_kernels *ref;  /* the scalar table */
    const ig_kernels *twin; /* of a level whose sums of bytes are these, bit by bit; NULL: none */
    ig_random rng;          /* starts from the printed seed at every level */
    bool is_bench;          /* time instead of compare */
    const char *only;       /* substring of the names to run; NULL: all */
    const char *name;       /* of the check under way */
    int n_checked, n_failed;
} check;

/* The families of kernels; each is called once per level. */
void check_matmul(check *c);
void check_vector(check *c);
void check_attention(check *c);
void check_prompt(check *c);
void check_sketch(check *c);
void check_value_sketch(check *c);
void check_packed(check *c);
void check_choice(check *c);
void check_recurrence(check *c);

/* Begins the check NAME; false if it is not wanted (--only). */
bool check_begin(check *c, const char *name);
/* Counts one comparison; prints the message (at most a few per check) when ok is false. Returns ok. */
bool check_that(check *c, bool ok, const char *format, ...) IG_PRINTF(3, 4);

/* A buffer with 64 guard bytes before and after, shifted by `shift` bytes (0..63) from 64-byte alignment. */
void *check_buffer(size_t bytes, size_t shift);
/* True while the guards are whole. */
bool check_guards(const void *buffer);
void check_buffer_free(void *buffer);

/* A buffer whose last byte is followed, and whose first page is preceded, by an untouchable page. */
void *check_fenced(size_t bytes);
void check_fenced_free(void *buffer, size_t bytes);

/* Shapes of input. */
typedef enum check_shape {
    CHECK_NORMAL,  /* about standard normal */
    CHECK_LARGE,   /* normal times 1e4 */
    CHECK_SMALL,   /* normal times 1e-6 */
    CHECK_OUTLIER, /* normal with a few 100 times larger, as activations of language models are */
    CHECK_ZERO,
    CHECK_ONE, /* all the same */
    CHECK_SHAPES,
} check_shape;
void check_fill(check *c, float *x, int n, check_shape shape);
double check_normal(check *c);
/* Uniform in [low, high]. */
int check_int(check *c, int low, int high);

/* Sum (a - b)^2 / sum b^2; 0 if both are zero; infinite when one has a NaN. */
double check_nmse(const float *a, const double *b, int n);

/* Time per call in seconds: runs fn(arg) for about a fifth of a second, best of the rounds. */
double check_time(void (*fn)(void *arg), void *arg);
/* Prints one line of --bench: name, level, microseconds, GB/s and, if not zero, Gmul-add/s. */
void check_report(check *c, const char *what, double seconds, double bytes, double macs);

#endif
