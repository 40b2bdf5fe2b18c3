/* SPDX-License-Identifier: Apache-2.0
 *
 * Runner of the kernel checks: check [--seed N] [--only NAME] [--level LEVEL] [--bench].
 * Exit status 0 if every comparison held, 1 otherwise. The seed is printed; giving it back
 * repeats the run.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpu.h"
#include "check.h"

enum { GUARD = 64, MESSAGES_PER_CHECK = 5 };

static int n_messages;

bool check_begin(check *c, const char *name) {
    c->name = name;
    n_messages = 0;
    return !c->only || strstr(name, c->only);
}

bool check_that(check *c, bool ok, const char *format, ...) {
    c->n_checked++;
    if (ok) return true;
    c->n_failed++;
    if (n_messages++ >= MESSAGES_PER_CHECK) return false;
    printf("FAIL %s %s: ", ig_cpu_level_name(c->k->level), c->name);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    return false;
}

static void *need(void *p) {
    if (p) return p;
    fprintf(stderr, "check: out of memory\n");
    exit(1);
}

/* Before the guard stand the size and the start of the allocation. */
typedef struct header {
    size_t bytes;
    void *start;
} header;

void *check_buffer(size_t bytes, size_t shift) {
    size_t front = 64 + GUARD + 64;
    char *start = need(aligned_alloc(64, (front + bytes + GUARD + 127) / 64 * 64));
    char *p = start + front + shift;
    memset(p - GUARD, 0xa5, bytes + 2 * GUARD);
    memset(p, 0x5a, bytes);
    header h = {bytes, start};
    memcpy(p - GUARD - sizeof h, &h, sizeof h);
    return p;
}

bool check_guards(const void *buffer) {
    const unsigned char *p = buffer;
    header h;
    memcpy(&h, p - GUARD - sizeof h, sizeof h);
    for (size_t i = 0; i < GUARD; i++)
        if (p[i - GUARD] != 0xa5 || p[h.bytes + i] != 0xa5) return false;
    return true;
}

void check_buffer_free(void *buffer) {
    if (!buffer) return;
    header h;
    memcpy(&h, (char *)buffer - GUARD - sizeof h, sizeof h);
    free(h.start);
}

static size_t fenced_bytes(size_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

void *check_fenced(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = fenced_bytes(bytes, page);
    char *p = mmap(NULL, inner + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) need(NULL);
    if (mprotect(p, page, PROT_NONE) || mprotect(p + page + inner, page, PROT_NONE)) need(NULL);
    return p + page + inner - bytes;
}

void check_fenced_free(void *buffer, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = fenced_bytes(bytes, page);
    munmap((char *)buffer + bytes - inner - page, inner + 2 * page);
}

double check_normal(check *c) {
    double u = 1.0 - ig_random_unit(&c->rng), v = ig_random_unit(&c->rng);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

int check_int(check *c, int low, int high) { return low + (int)(ig_random_u64(&c->rng) % (uint64_t)(high - low + 1)); }

void check_fill(check *c, float *x, int n, check_shape shape) {
    for (int i = 0; i < n; i++) {
        double v = check_normal(c);
        switch (shape) {
            case CHECK_LARGE:
                v *= 1e4;
                break;
            case CHECK_SMALL:
                v *= 1e-6;
                break;
            case CHECK_OUTLIER:
                if (check_int(c, 0, 63) == 0) v *= 100;
                break;
            case CHECK_ZERO:
                v = 0;
                break;
            case CHECK_ONE:
                v = 0.7;
                break;
            default:
                break;
        }
        x[i] = (float)v;
    }
}

double check_nmse(const float *a, const double *b, int n) {
    double err = 0, sum = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)a[i] - b[i];
        err += d * d;
        sum += b[i] * b[i];
    }
    if (err == 0) return 0;
    double r = err / sum;
    return r == r ? r : INFINITY;
}

double check_time(void (*fn)(void *arg), void *arg) {
    double best = INFINITY;
    fn(arg);
    for (double end = ig_clock_seconds() + 0.2; ig_clock_seconds() < end;) {
        int n = 0;
        double t0 = ig_clock_seconds(), t;
        do {
            fn(arg);
            n++;
            t = ig_clock_seconds() - t0;
        } while (t < 1e-3);
        if (t / n < best) best = t / n;
    }
    return best;
}

void check_report(check *c, const char *what, double seconds, double bytes, double macs) {
    printf("%-7s %-14s %-30s %10.2f us %8.2f GB/s", ig_cpu_level_name(c->k->level), c->name, what, seconds * 1e6,
           bytes / seconds * 1e-9);
    if (macs > 0) printf(" %8.2f Gmul-add/s", macs / seconds * 1e-9);
    putchar('\n');
    fflush(stdout);
}

static void (*const families[])(check *) = {
    check_matmul,       check_vector, check_attention, check_prompt,     check_sketch,
    check_value_sketch, check_packed, check_choice,    check_recurrence,
};

static int usage(void) {
    fprintf(stderr, "usage: check [--seed N] [--only NAME] [--level LEVEL] [--bench]\n");
    return 1;
}

int main(int argc, char **argv) {
    uint64_t seed = (uint64_t)time(NULL);
    const char *only_level = NULL;
    check c = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--bench")) {
            c.is_bench = true;
            continue;
        }
        if (i + 1 == argc) return usage();
        if (!strcmp(argv[i], "--seed"))
            seed = strtoull(argv[++i], NULL, 0);
        else if (!strcmp(argv[i], "--only"))
            c.only = argv[++i];
        else if (!strcmp(argv[i], "--level"))
            only_level = argv[++i];
        else
            return usage();
    }
    printf("seed %llu\n", (unsigned long long)seed);
    c.ref = ig_kernels_get(IG_CPU_SCALAR);
    for (ig_cpu_level level = IG_CPU_SCALAR; level <= ig_cpu_detect(); level++) {
        if (!ig_cpu_has(level) || (only_level && strcmp(only_level, ig_cpu_level_name(level)))) continue;
        int checked = c.n_checked, failed = c.n_failed;
        c.k = ig_kernels_get(level);
        c.twin = level == IG_CPU_AVXVNNI ? ig_kernels_get(IG_CPU_AVX2) : NULL;
        c.rng.state = seed;
        for (size_t f = 0; f < IG_COUNT(families); f++) families[f](&c);
        if (!c.is_bench)
            printf("%-7s %d comparisons, %d failed\n", ig_cpu_level_name(level), c.n_checked - checked,
                   c.n_failed - failed);
    }
    if (!c.is_bench && !c.n_checked) return 77; /* the CPU has no such level */
    return c.n_failed ? 1 : 0;
}
