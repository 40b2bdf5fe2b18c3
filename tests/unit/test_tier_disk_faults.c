/* SPDX-License-Identifier: Apache-2.0
 *
 * The disk tier when things go wrong: broken devices, full disks, files that others change, directories that vanish,
 * processes that are killed. Always one clear error for the transfers concerned, never other bytes than were
 * written, and nothing left behind.
 */
#define _GNU_SOURCE
#include "tier_disk_rig.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const bool uring = false, threads = true;

/* What the device does to requests of one kind that reach into [first, last] bytes of the file. */
typedef struct trouble {
    bool on_writes;
    uint64_t first, last;
    int result; /* comes back in place of the true one; with is_short no more than these bytes are moved */
    bool is_short;
    uint32_t n_left; /* times that it happens */
} trouble;

static int make_trouble(void *user, bool is_write, uint64_t offset, size_t n_bytes, int result) {
    trouble *t = user;
    if (is_write != t->on_writes || offset > t->last || offset + n_bytes <= t->first || !t->n_left) return result;
    t->n_left--;
    if (t->is_short) return result < t->result ? result : t->result;
    return t->result;
}

static void open_with(rig *r, bool no_uring, trouble *t) {
    rig_init(r, no_uring);
    r->options.fault = make_trouble;
    r->options.fault_user = t;
    rig_open_tier(r);
}

static void assert_says(const rig *r, const char *what) {
    if (!strstr(r->err.text, what)) fail_msg("'%s' does not say '%s'", r->err.text, what);
}

static void a_read_error_fails_one_transfer(void **state) {
    rig r;
    ig_ticket t[3];
    trouble io = {.first = 150 * IG_FRAME_BYTES, .last = 150 * IG_FRAME_BYTES, .result = -EIO, .n_left = UINT32_MAX};
    open_with(&r, *(const bool *)*state, &io);
    assert_int_equal(rig_write(&r, 0, 300), IG_OK);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(r.ops->read(r.tier, &t[i], r.slots + i * 100, r.in + i * 100, 100, false, &r.err), IG_OK);
    assert_int_equal(r.ops->wait(r.tier, t[0], &r.err), IG_OK);
    assert_int_equal(r.ops->wait(r.tier, t[1], &r.err), IG_E_IO);
    assert_says(&r, "cannot read block 1");
    assert_says(&r, strerror(EIO));
    assert_says(&r, r.dir.path);
    assert_int_equal(r.ops->wait(r.tier, t[2], &r.err), IG_OK);
    rig_check(&r, 0, 100, 0);
    rig_check(&r, 200, 100, 0);
    io.n_left = 0; /* the device has recovered */
    assert_int_equal(rig_read(&r, 0, 300), IG_OK);
    rig_check(&r, 0, 300, 0);
    rig_close(&r);
}

static void a_write_error_fails_one_transfer(void **state) {
    static const int errors[] = {EIO, ENOSPC};
    for (size_t k = 0; k < sizeof errors / sizeof *errors; k++) {
        rig r;
        ig_ticket t[3];
        trouble io = {.on_writes = true, .first = 150 * IG_FRAME_BYTES, .last = 150 * IG_FRAME_BYTES};
        io.result = -errors[k];
        io.n_left = UINT32_MAX;
        open_with(&r, *(const bool *)*state, &io);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(
                r.ops->write(r.tier, &t[i], r.slots + i * 100, (const uint8_t *const *)r.out + i * 100, 100, &r.err),
                IG_OK);
        assert_int_equal(r.ops->wait(r.tier, t[2], &r.err), IG_OK);
        assert_int_equal(r.ops->wait(r.tier, t[1], &r.err), IG_E_IO);
        assert_says(&r, "cannot write block 1");
        assert_says(&r, strerror(errors[k]));
        assert_int_equal(r.ops->wait(r.tier, t[0], &r.err), IG_OK);
        assert_int_equal(rig_read(&r, 150, 1), IG_E_IO);
        assert_says(&r, "block 150 was not written");
        assert_int_equal(rig_read(&r, 0, 100), IG_OK);
        rig_check(&r, 0, 100, 0);
        /* The caller kept the frames and gives the slots back; the device recovers. */
        io.n_left = 0;
        r.ops->free_slots(r.tier, r.slots + 100, 100);
        assert_int_equal(rig_write(&r, 100, 100), IG_OK);
        assert_int_equal(rig_read(&r, 0, 300), IG_OK);
        rig_check(&r, 0, 300, 0);
        rig_close(&r);
    }
}

/* The hook says that less was moved than was: what is left must be moved again, and to the right place. */
static void short_transfers_are_continued(void **state) {
    static const int bytes[] = {1, 512, 4095, 4096, 4097, 3 * 4096, 12 * 4096 + 100, -EINTR, -EAGAIN};
    for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
        for (int on_writes = 0; on_writes < 2; on_writes++) {
            rig r;
            trouble io = {.on_writes = on_writes, .last = UINT64_MAX, .result = bytes[k], .is_short = bytes[k] > 0};
            io.n_left = 40;
            open_with(&r, *(const bool *)*state, &io);
            assert_int_equal(rig_write(&r, 0, 200), IG_OK);
            assert_int_equal(rig_read(&r, 0, 200), IG_OK);
            rig_check(&r, 0, 200, 0);
            assert_true(rig_stats(&r).n_retries > 0);
            assert_true(rig_stats(&r).n_retries <= 40);
            rig_close(&r);
        }
}

static void transfers_that_never_move_fail(void **state) {
    static const int results[] = {0, 100, -EAGAIN};
    for (size_t k = 0; k < sizeof results / sizeof *results; k++)
        for (int on_writes = 0; on_writes < 2; on_writes++) {
            rig r;
            trouble io = {.on_writes = on_writes, .first = 10 * IG_FRAME_BYTES, .last = 10 * IG_FRAME_BYTES};
            io.result = results[k];
            io.is_short = results[k] >= 0;
            io.n_left = UINT32_MAX;
            open_with(&r, *(const bool *)*state, &io);
            assert_int_equal(rig_write(&r, 0, 20), on_writes ? IG_E_IO : IG_OK);
            assert_int_equal(rig_read(&r, 0, 20), IG_E_IO);
            rig_close(&r);
        }
}

static void flipped_bits_are_found(void **state) {
    rig r;
    rig_open(&r, *(const bool *)*state);
    assert_int_equal(rig_write(&r, 0, 200), IG_OK);
    int fd = rig_reopen_file(&r);
    static const uint32_t where[] = {0, 1, 2047, 4095}; /* bytes of a block */
    for (uint32_t k = 0; k < 4; k++) {
        uint32_t block = 40 + 33 * k;
        char says[64];
        uint8_t byte;
        off_t at = (off_t)block * IG_FRAME_BYTES + where[k];
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1u << k);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(rig_read(&r, 30, 120), IG_E_IO);
        snprintf(says, sizeof says, "block %u at byte %u is corrupt", block, block * IG_FRAME_BYTES);
        assert_says(&r, says);
        assert_int_equal(rig_read(&r, block, 1), IG_E_IO);
        assert_int_equal(rig_read(&r, block - 10, 10), IG_OK);
        rig_check(&r, block - 10, 10, 0);
        byte ^= (uint8_t)(1u << k);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    /* Two blocks whose places were swapped. */
    uint8_t a[IG_FRAME_BYTES], b[IG_FRAME_BYTES];
    assert_int_equal(pread(fd, a, sizeof a, 0), sizeof a);
    assert_int_equal(pread(fd, b, sizeof b, IG_FRAME_BYTES), sizeof b);
    assert_int_equal(pwrite(fd, b, sizeof b, 0), sizeof b);
    assert_int_equal(rig_read(&r, 0, 1), IG_E_IO);
    assert_int_equal(pwrite(fd, a, sizeof a, 0), sizeof a);
    assert_int_equal(rig_read(&r, 0, 200), IG_OK);
    rig_check(&r, 0, 200, 0);
    assert_int_equal(rig_stats(&r).n_failed_blocks, 9);
    close(fd);
    rig_close(&r);
}

static void a_file_cut_short_is_found(void **state) {
    static const off_t sizes[] = {0, 1, 4096, 50 * 4096, 50 * 4096 + 512, 50 * 4096 + 77};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        rig r;
        rig_open(&r, *(const bool *)*state);
        uint32_t n_whole = (uint32_t)(sizes[k] / IG_FRAME_BYTES);
        assert_int_equal(rig_write(&r, 0, 200), IG_OK);
        int fd = rig_reopen_file(&r);
        assert_int_equal(ftruncate(fd, sizes[k]), 0);
        assert_int_equal(rig_read(&r, 0, 200), IG_E_IO);
        assert_int_equal(rig_read(&r, n_whole, 1), IG_E_IO);
        assert_says(&r, "cut short");
        assert_int_equal(rig_read(&r, 0, n_whole), IG_OK);
        rig_check(&r, 0, n_whole, 0);
        /* Longer again: zeros are not what was written. */
        assert_int_equal(ftruncate(fd, 1 << 20), 0);
        assert_int_equal(rig_read(&r, 100, 1), IG_E_IO);
        assert_says(&r, "corrupt");
        close(fd);
        rig_close(&r);
    }
}

static void directories_that_are_not_there(void **state) {
    rig r;
    ig_tier *t;
    rig_open(&r, *(const bool *)*state);
    assert_int_equal(rig_write(&r, 0, 100), IG_OK);
    assert_int_equal(rmdir(r.dir.path), 0); /* in use, yet nothing lies in it */
    assert_int_equal(rig_write(&r, 100, 100), IG_OK);
    assert_int_equal(rig_read(&r, 0, 200), IG_OK);
    rig_check(&r, 0, 200, 0);
    for (int named = 0; named < 2; named++) {
        r.options.no_tmpfile = named;
        assert_int_equal(ig_tier_disk_open(&t, &r.options, &r.err), IG_E_NOT_FOUND);
        assert_null(t);
        assert_says(&r, r.dir.path);
        r.options.directory = "/proc/self/status";
        assert_int_equal(ig_tier_disk_open(&t, &r.options, &r.err), IG_E_NOT_FOUND);
        r.options.directory = "/proc/self"; /* no files can be made there */
        assert_true(ig_tier_disk_open(&t, &r.options, &r.err) != IG_OK);
        assert_null(t);
        r.options.directory = r.dir.path;
    }
    rig_close(&r);
}

/* ---- in a process of its own ------------------------------------------------ */

/* Exit status of run(r) in a child. */
static int in_child(rig *r, int (*run)(rig *r)) {
    int status;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(run(r));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status)) fail_msg("ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* Fills the tier until it refuses, and a little of it is still readable: 0, or the line that failed. */
static int fill_up(rig *r, const char *reason) {
    uint32_t n = 0;
    if (ig_tier_disk_open(&r->tier, &r->options, &r->err)) return __LINE__ % 200;
    r->ops = r->tier->ops;
    while (n < RIG_BLOCKS && rig_write(r, n, 10) == IG_OK) n += 10;
    if (n == 0 || n == RIG_BLOCKS || r->err.status != IG_E_IO || !strstr(r->err.text, reason)) return __LINE__ % 200;
    if (rig_read(r, 0, n)) return __LINE__ % 200;
    for (uint32_t i = 0; i < n; i++)
        if (!rig_holds(r->in[i], i, 0)) return __LINE__ % 200;
    /* Holes are still used. */
    for (uint32_t i = 0; i < 10; i++) r->ops->free_slots(r->tier, r->slots + i * 2, 1);
    if (rig_write(r, n, 10) || rig_read(r, n, 10)) return __LINE__ % 200;
    for (uint32_t i = n; i < n + 10; i++)
        if (!rig_holds(r->in[i], i, 0)) return __LINE__ % 200;
    r->ops->close(r->tier);
    return 0;
}

static int fill_small_file_system(rig *r) {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", r->dir.path, "tmpfs", 0, "size=1m") != 0)
        return 201;
    return fill_up(r, strerror(ENOSPC));
}

static void full_disk(void **state) {
    rig r;
    rig_init(&r, *(const bool *)*state);
    int status = in_child(&r, fill_small_file_system);
    rig_close(&r);
    if (status == 201) skip(); /* may not mount */
    assert_int_equal(status, 0);
}

static int fill_to_file_limit(rig *r) {
    struct rlimit limit = {1 << 20, 1 << 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 201;
    return fill_up(r, strerror(EFBIG));
}

static void limit_on_file_sizes(void **state) {
    rig r;
    rig_init(&r, *(const bool *)*state);
    int status = in_child(&r, fill_to_file_limit);
    rig_close(&r);
    assert_int_equal(status, 0);
}

static int run_without_uring(rig *r) {
    struct sock_filter refuse[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof refuse / sizeof *refuse, refuse};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 201;
    if (ig_tier_disk_open(&r->tier, &r->options, &r->err)) return 1;
    r->ops = r->tier->ops;
    if (rig_info(r).has_ring) return 2;
    if (rig_write(r, 0, 200) || rig_read(r, 0, 200) || !rig_holds(r->in[150], 150, 0)) return 3;
    r->ops->close(r->tier);
    return 0;
}

static void threads_step_in_for_uring(void **state) {
    rig r;
    (void)state;
    rig_init(&r, false);
    int status = in_child(&r, run_without_uring);
    rig_close(&r);
    if (status == 201) skip();
    assert_int_equal(status, 0);
}

/* Descriptors of rings are closed behind their back, as many as n_rings of the latest: an error for all that needs
 * them, here the reading of so many blocks, then closing. */
static int break_rings(rig *r, int n_rings, size_t n_blocks) {
    ig_ticket t;
    if (ig_tier_disk_open(&r->tier, &r->options, &r->err)) return 1;
    r->ops = r->tier->ops;
    if (rig_write(r, 0, 500)) return 2;
    for (int i = 0; i < n_rings; i++) {
        int fd = rig_find_fd("anon_inode:[io_uring]");
        if (fd < 0) return 201;
        close(fd);
    }
    if (r->ops->read(r->tier, &t, r->slots, r->in, n_blocks, false, &r->err)) return 3;
    if (r->ops->wait(r->tier, t, &r->err) != IG_E_IO || !strstr(r->err.text, strerror(EBADF))) return 4;
    if (r->ops->write(r->tier, &t, r->slots + 500, (const uint8_t *const *)r->out, 5, &r->err) != IG_E_IO) return 5;
    r->ops->free_slots(r->tier, r->slots, 500);
    if (rig_stats(r).requests_in_flight) return 6;
    r->ops->close(r->tier);
    return 0;
}

static int break_own_ring(rig *r) { return break_rings(r, 1, 8); }
static int break_both_rings(rig *r) { return break_rings(r, 2, 500); }

/* One ring breaks while the other one reads: what that was reading comes to nobody's frames later. */
static int break_one_while_the_other_reads(rig *r) {
    ig_ticket many, few;
    uint8_t *frames = r->memory + (size_t)RIG_BLOCKS * IG_FRAME_BYTES;
    if (ig_tier_disk_open(&r->tier, &r->options, &r->err)) return 1;
    r->ops = r->tier->ops;
    if (rig_write(r, 0, RIG_BLOCKS)) return 2;
    int fd = rig_find_fd("anon_inode:[io_uring]"); /* that of the second ring, which the caller's thread drives */
    if (fd < 0) return 201;
    close(fd);
    if (r->ops->read(r->tier, &many, r->slots + 8, r->in + 8, RIG_BLOCKS - 8, false, &r->err)) return 3;
    if (r->ops->read(r->tier, &few, r->slots, r->in, 4, false, &r->err)) return 4;
    if (r->ops->wait(r->tier, few, &r->err) != IG_E_IO) return 5;
    r->ops->wait(r->tier, many, &r->err);
    memset(frames, 0x55, (size_t)RIG_BLOCKS * IG_FRAME_BYTES);
    usleep(300000);
    for (size_t i = 0; i < (size_t)RIG_BLOCKS * IG_FRAME_BYTES; i++)
        if (frames[i] != 0x55) return 6;
    r->ops->close(r->tier);
    return 0;
}

static void a_broken_ring_is_an_error(void **state) {
    (void)state;
    int (*const ways[])(rig *) = {break_own_ring, break_both_rings, break_one_while_the_other_reads};
    for (int i = 0; i < 3; i++) {
        rig r;
        rig_init(&r, false);
        int status = in_child(&r, ways[i]);
        rig_close(&r);
        if (status == 201) skip();
        assert_int_equal(status, 0);
    }
}

/* ---- nothing left behind ---------------------------------------------------- */

/* Spills until it is killed; says through the pipe when it is at it. */
static void spill_for_ever(rig *r, int pipe_end) {
    ig_ticket t[2] = {0};
    rig_open_tier(r);
    for (uint32_t i = 0;; i++) {
        uint32_t half = i % 2 * 500;
        r->ops->wait(r->tier, t[i % 2], NULL);
        if (i >= 2) r->ops->free_slots(r->tier, r->slots + half, 500);
        r->ops->write(r->tier, &t[i % 2], r->slots + half, (const uint8_t *const *)r->out + half, 500, NULL);
        if (i == 4 && write(pipe_end, "x", 1) != 1) _exit(1);
    }
}

static void killed_while_spilling(void **state) {
    for (int named = 0; named < 2; named++) {
        rig r;
        int ends[2], status;
        char c;
        rig_init(&r, *(const bool *)*state);
        r.options.no_tmpfile = named;
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) spill_for_ever(&r, ends[1]);
        assert_int_equal(read(ends[0], &c, 1), 1);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(rig_files_left(r.dir.path), 0);
        close(ends[0]);
        close(ends[1]);
        rig_close(&r);
    }
}

static void files_of_the_dead_are_removed(void **state) {
    rig r;
    char dead[64], dead2[64], own[64], path[512];
    int status;
    (void)state;
    rig_init(&r, false);
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    snprintf(dead, sizeof dead, "infinigen-%d-0.kv", (int)pid);
    snprintf(dead2, sizeof dead2, "infinigen-%d-12.kv", (int)pid);
    snprintf(own, sizeof own, "infinigen-%d-0.kv", (int)getpid());
    const char *kept[] = {own,          "infinigen-1-0.kv",       "infinigen-x-0.kv",      "infinigen-999999-0.kvx",
                          "model.gguf", "infinigen- 999999-0.kv", "infinigen-0999999-0.kv"};
    temp_dir_write(&r.dir, dead, "x", 1);
    temp_dir_write(&r.dir, dead2, "x", 1);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) temp_dir_write(&r.dir, kept[i], "x", 1);
    r.options.no_tmpfile = true;
    rig_open_tier(&r);
    assert_int_equal(rig_write(&r, 0, 10), IG_OK);
    assert_int_equal(rig_files_left(r.dir.path), sizeof kept / sizeof *kept);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        temp_dir_path(&r.dir, kept[i], path, sizeof path);
        assert_int_equal(access(path, F_OK), 0);
    }
    rig_close(&r);
}

#define ON_BOTH(test)                                                     \
    {#test " (io_uring)", test, NULL, NULL, (void *)(uintptr_t)&uring}, { \
#test " (threads)", test, NULL, NULL, (void *)(uintptr_t)&threads \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BOTH(a_read_error_fails_one_transfer),
        ON_BOTH(a_write_error_fails_one_transfer),
        ON_BOTH(short_transfers_are_continued),
        ON_BOTH(transfers_that_never_move_fail),
        ON_BOTH(flipped_bits_are_found),
        ON_BOTH(a_file_cut_short_is_found),
        ON_BOTH(directories_that_are_not_there),
        ON_BOTH(full_disk),
        ON_BOTH(limit_on_file_sizes),
        cmocka_unit_test(threads_step_in_for_uring),
        cmocka_unit_test(a_broken_ring_is_an_error),
        ON_BOTH(killed_while_spilling),
        cmocka_unit_test(files_of_the_dead_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
