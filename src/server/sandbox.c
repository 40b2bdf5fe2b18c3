/* SPDX-License-Identifier: Apache-2.0
 *
 * Two walls of the kernel's. Landlock decides by path which files may be opened. It holds for a thread and those it
 * starts, so that it comes first, before the model is opened. seccomp allows the calls of a list, for all threads at
 * once; others fail with EPERM. It comes when all is open. A ring of io_uring that is there by then does reads and
 * writes only (kv/tier_disk_uring.c), and no other can be made.
 */
#define _GNU_SOURCE
#include "server/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/state.h"

/* ---- Landlock: files ------------------------------------------------------------------------ */

/* Rights over files that later versions of Landlock add; the build's headers may be older than the kernel that runs. */
enum {
    FILES_1 = (1 << 13) - 1, /* execute, write, read, read folders, remove and make */
    REFER = 1 << 13,         /* version 2: move between folders */
    TRUNCATE = 1 << 14,      /* 3 */
    IOCTL_DEVICE = 1 << 15   /* 5 */
};
static const uint64_t to_read = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
static const uint64_t to_own = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                               LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                               LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                               LANDLOCK_ACCESS_FS_MAKE_REG | REFER | TRUNCATE;
static const uint64_t to_listen = LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE;

static uint64_t all_rights(long version) {
    return FILES_1 | (version >= 2 ? REFER : 0) | (version >= 3 ? TRUNCATE : 0) | (version >= 5 ? IOCTL_DEVICE : 0);
}

static ig_status allow(int rules, const char *path, uint64_t rights, ig_error *err) {
    struct stat st;
    struct landlock_path_beneath_attr below = {.parent_fd = open(path, O_PATH | O_CLOEXEC)};
    if (below.parent_fd < 0) return ig_text_fail(err, IG_E_IO, "--sandbox: %s: %s", path, strerror(errno));
    bool is_file = fstat(below.parent_fd, &st) == 0 && !S_ISDIR(st.st_mode);
    below.allowed_access = is_file ? rights & LANDLOCK_ACCESS_FS_READ_FILE : rights;
    long failed = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &below, 0);
    int why = errno;
    close(below.parent_fd);
    return failed ? ig_text_fail(err, IG_E_IO, "--sandbox: %s: %s", path, strerror(why)) : IG_OK;
}

static ig_status allow_all(int rules, const ig_sandbox *s, uint64_t known, ig_error *err) {
    ig_status status = IG_OK;
    for (size_t i = 0; !status && s->own[i]; i++) status = allow(rules, s->own[i], to_own & known, err);
    for (size_t i = 0; !status && s->read[i]; i++)
        if (access(s->read[i], F_OK) == 0) status = allow(rules, s->read[i], to_read, err);
    if (!status && s->socket) status = allow(rules, s->socket, to_listen, err);
    return status;
}

ig_status ig_sandbox_files(const ig_sandbox *s, ig_error *err) {
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1)
        return ig_text_fail(err, IG_E_UNSUPPORTED, "--sandbox needs Landlock, which this kernel does not offer: %s",
                            strerror(errno));
    uint64_t known = all_rights(version);
    int rules = (int)syscall(SYS_landlock_create_ruleset, &known, sizeof known, 0);
    if (rules < 0) return ig_text_fail(err, IG_E_UNSUPPORTED, "--sandbox: Landlock: %s", strerror(errno));
    ig_status status = allow_all(rules, s, known, err);
    if (!status && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_landlock_restrict_self, rules, 0) != 0))
        status = ig_text_fail(err, IG_E_UNSUPPORTED, "--sandbox: Landlock: %s", strerror(errno));
    close(rules);
    return status;
}

/* ---- seccomp: calls -------------------------------------------------------------------------------- */

/* What the server, glibc and SQLite use once all is open. */
static const int allowed[] = {
    /* memory */
    SCMP_SYS(brk), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(membarrier),
    /* threads and signals */
    SCMP_SYS(clone), SCMP_SYS(clone3), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(futex), SCMP_SYS(set_robust_list),
    SCMP_SYS(rseq), SCMP_SYS(gettid), SCMP_SYS(getpid), SCMP_SYS(prctl), SCMP_SYS(sched_yield),
    SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_getparam), SCMP_SYS(sched_getscheduler), SCMP_SYS(sched_setscheduler),
    SCMP_SYS(sched_setattr), SCMP_SYS(setpriority), SCMP_SYS(getpriority), SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigtimedwait), SCMP_SYS(rt_sigpending),
    SCMP_SYS(sigaltstack), SCMP_SYS(restart_syscall),
    /* time and the machine */
    SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(clock_nanosleep), SCMP_SYS(nanosleep),
    SCMP_SYS(gettimeofday), SCMP_SYS(time), SCMP_SYS(getrandom), SCMP_SYS(sysinfo), SCMP_SYS(getrusage),
    SCMP_SYS(getrlimit), SCMP_SYS(uname), SCMP_SYS(getuid), SCMP_SYS(geteuid), SCMP_SYS(getgid), SCMP_SYS(getegid),
    /* files */
    SCMP_SYS(open), SCMP_SYS(openat), SCMP_SYS(close), SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv),
    SCMP_SYS(writev), SCMP_SYS(pread64), SCMP_SYS(pwrite64), SCMP_SYS(preadv), SCMP_SYS(pwritev), SCMP_SYS(preadv2),
    SCMP_SYS(pwritev2), SCMP_SYS(stat), SCMP_SYS(lstat), SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(statx),
    SCMP_SYS(statfs), SCMP_SYS(fstatfs), SCMP_SYS(lseek), SCMP_SYS(fsync), SCMP_SYS(fdatasync),
    SCMP_SYS(sync_file_range), SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(fadvise64), SCMP_SYS(fcntl),
    SCMP_SYS(flock), SCMP_SYS(rename), SCMP_SYS(renameat), SCMP_SYS(renameat2), SCMP_SYS(link), SCMP_SYS(linkat),
    SCMP_SYS(unlink), SCMP_SYS(unlinkat), SCMP_SYS(mkdir), SCMP_SYS(mkdirat), SCMP_SYS(rmdir), SCMP_SYS(getdents64),
    SCMP_SYS(access), SCMP_SYS(faccessat), SCMP_SYS(faccessat2), SCMP_SYS(readlink), SCMP_SYS(readlinkat),
    SCMP_SYS(getcwd), SCMP_SYS(umask), SCMP_SYS(fchmod), SCMP_SYS(fchown), SCMP_SYS(utimensat), SCMP_SYS(dup),
    SCMP_SYS(copy_file_range), SCMP_SYS(io_uring_enter),
    /* connections that come */
    SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(recvfrom), SCMP_SYS(recvmsg), SCMP_SYS(sendto), SCMP_SYS(sendmsg),
    SCMP_SYS(sendfile), SCMP_SYS(shutdown), SCMP_SYS(getsockopt), SCMP_SYS(setsockopt), SCMP_SYS(getsockname),
    SCMP_SYS(getpeername), SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(select), SCMP_SYS(pselect6),
    SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl), SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(eventfd2),
    SCMP_SYS(pipe2)};

static int add_calls(scmp_filter_ctx filter) {
    int failed = 0;
    for (size_t i = 0; !failed && i < sizeof allowed / sizeof *allowed; i++)
        failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    /* No memory that can be executed, and signals to and limits of this process only. */
    const struct scmp_arg_cmp not_executable = SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0);
    const struct scmp_arg_cmp own = SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0);
    const struct scmp_arg_cmp this_one = SCMP_A0(SCMP_CMP_EQ, 0, 0);
    if (!failed) failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1, this_one);
    if (!failed) failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 1, not_executable);
    if (!failed) failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1, not_executable);
    if (!failed) failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1, own);
    return failed;
}

ig_status ig_sandbox_calls(ig_error *err) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!filter) return ig_text_fail(err, IG_E_MEMORY, "--sandbox: out of memory for a filter of calls");
    int failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1); /* of all threads */
    if (!failed) failed = add_calls(filter);
    if (!failed) failed = seccomp_load(filter);
    seccomp_release(filter);
    return failed ? ig_text_fail(err, IG_E_UNSUPPORTED, "--sandbox: the kernel refuses a filter of calls: %s",
                                 strerror(-failed))
                  : IG_OK;
}
