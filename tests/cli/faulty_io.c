/* SPDX-License-Identifier: Apache-2.0
 *
 * A library to preload that stands for a failing device under the spill file: what it does to the calls that the disk
 * tier's threads make is said by the environment variable FAULTY_IO, "CALL:FAULT:AFTER:COUNT", for example
 * "read:eio:20:1" for one error after 20 good reads. A count of -1 means for ever. At its end the program leaves the
 * number of calls of this kind in the file that FAULTY_IO_CALLS names, if there is one.
 *
 *   none                  calls are only counted
 *   eio, enospc, eintr    the call fails with this error
 *   zero                  nothing is moved, as at the end of a file
 *   short                 only half of the bytes are moved; every other call is left alone
 *   flip                  one bit in each 4 KiB of what was read is wrong
 *   slow                  100 ms longer
 *   kill                  the process is killed
 *   exist                 no error at all, but the call "open" refuses files without a name, as some file systems do;
 *                         the call "unlink" then comes right after the file was made
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef ssize_t vector_fn(int, const struct iovec *, int, off_t);
typedef int open_fn(const char *, int, ...);
typedef int unlinkat_fn(int, const char *, int);

static atomic_int n_calls;

__attribute__((destructor)) static void leave_count(void) {
    const char *path = getenv("FAULTY_IO_CALLS");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%d", n_calls);
    fclose(f);
}

/* The fault for the next call of this kind; "" for none. */
static const char *next_fault(const char *call) {
    static __thread char fault[16];
    char wanted[16];
    int after, count;
    const char *plan = getenv("FAULTY_IO");
    if (!plan || sscanf(plan, "%15[^:]:%15[^:]:%d:%d", wanted, fault, &after, &count) != 4) return "";
    if (strcmp(call, wanted) != 0) return "";
    int n = atomic_fetch_add(&n_calls, 1) - after;
    if (strcmp(fault, "short") == 0 && n % 2) return "";
    return n >= 0 && (count < 0 || n < count) ? fault : "";
}

/* What comes back at once in place of the call's own result; -2: the call is to be made. */
static ssize_t before(const char *fault) {
    errno = strcmp(fault, "eio") == 0      ? EIO
            : strcmp(fault, "enospc") == 0 ? ENOSPC
            : strcmp(fault, "eintr") == 0  ? EINTR
                                           : 0;
    if (errno) return -1;
    if (strcmp(fault, "zero") == 0) return 0;
    if (strcmp(fault, "kill") == 0) raise(SIGKILL);
    if (strcmp(fault, "slow") == 0) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return -2;
}

static ssize_t move(const char *call, int fd, const struct iovec *iov, int n_iov, off_t at) {
    vector_fn *real = (vector_fn *)dlsym(RTLD_NEXT, *call == 'r' ? "preadv" : "pwritev");
    const char *fault = next_fault(call);
    ssize_t n = before(fault);
    if (n != -2) return n;
    n = real(fd, iov, n_iov, at);
    for (int i = 0; n > 0 && i < n_iov && strcmp(fault, "flip") == 0; i++)
        for (size_t k = 1234; k < iov[i].iov_len; k += 4096) ((char *)iov[i].iov_base)[k] ^= 4;
    return strcmp(fault, "short") == 0 && n > 0 ? n / 2 : n;
}

ssize_t preadv(int fd, const struct iovec *iov, int n_iov, off_t at) { return move("read", fd, iov, n_iov, at); }
ssize_t pwritev(int fd, const struct iovec *iov, int n_iov, off_t at) { return move("write", fd, iov, n_iov, at); }
ssize_t preadv64(int fd, const struct iovec *iov, int n_iov, off_t at) { return move("read", fd, iov, n_iov, at); }
ssize_t pwritev64(int fd, const struct iovec *iov, int n_iov, off_t at) { return move("write", fd, iov, n_iov, at); }
ssize_t pread(int fd, void *to, size_t n, off_t at) { return move("read", fd, &(struct iovec){to, n}, 1, at); }
ssize_t pread64(int fd, void *to, size_t n, off_t at) { return move("read", fd, &(struct iovec){to, n}, 1, at); }

static bool refuses(int flags) {
    const char *plan = getenv("FAULTY_IO");
    return (flags & O_TMPFILE) == O_TMPFILE && plan && (plan[0] == 'o' || plan[0] == 'u');
}

static int open_file(const char *name, const char *path, int flags, mode_t mode) {
    if (refuses(flags)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return ((open_fn *)dlsym(RTLD_NEXT, name))(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_file("open", path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_file("open64", path, flags, mode);
}

int unlinkat(int folder, const char *path, int flags) {
    if (strcmp(next_fault("unlink"), "kill") == 0) raise(SIGKILL);
    return ((unlinkat_fn *)dlsym(RTLD_NEXT, "unlinkat"))(folder, path, flags);
}
