/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process cannot do any more within the sandbox, from threads that were there before and from new ones. Each
 * test is a child process, since there is no way back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/sandbox.h"
#include "unit/temp_dir.h"

enum { SKIPPED = 77 };

typedef struct scene {
    char inside[512], key[512], outside[512];
    int before; /* a socket made before */
} scene;

/* ---- what is tried: 0 if it is as it should be, else the line of the check ----------------- */

#define EXPECT(x) \
    if (!(x)) return __LINE__

static int try_files(const scene *s) {
    char path[600];
    EXPECT(open("/etc/passwd", O_RDONLY) < 0 && errno == EACCES);
    EXPECT(open("/proc/self/environ", O_RDONLY) < 0);
    EXPECT(open(s->outside, O_RDONLY) < 0 && errno == EACCES);
    EXPECT(open(s->outside, O_WRONLY | O_TRUNC) < 0);
    EXPECT(open("/tmp", O_RDWR | O_TMPFILE, 0600) < 0);
    EXPECT(unlink(s->outside) != 0);
    snprintf(path, sizeof path, "%s/../outside", s->inside);
    EXPECT(open(path, O_RDONLY) < 0);

    int fd = open(s->key, O_RDONLY);
    EXPECT(fd >= 0);
    close(fd);
    EXPECT(open(s->key, O_WRONLY) < 0);

    snprintf(path, sizeof path, "%s/new", s->inside);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT(fd >= 0 && write(fd, "x", 1) == 1 && ftruncate(fd, 0) == 0 && unlink(path) == 0);
    close(fd);
    EXPECT(symlink("/etc/passwd", path) != 0);
    return 0;
}

static int try_others(const scene *s) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    EXPECT(connect(s->before, (struct sockaddr *)&at, sizeof at) != 0 && errno == EPERM);
    EXPECT(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
    char *const args[] = {"true", NULL}, *const none[] = {NULL};
    EXPECT(execve("/bin/true", args, none) != 0 && errno == EPERM);
    EXPECT(syscall(SYS_execveat, AT_FDCWD, "/bin/true", args, none, 0) != 0 && errno == EPERM);
    EXPECT(syscall(SYS_io_uring_setup, 4, NULL) < 0 && errno == EPERM);
    EXPECT(syscall(SYS_ptrace, 0, 0, 0, 0) < 0 && errno == EPERM);
    EXPECT(kill(getppid(), 0) != 0 && errno == EPERM);
    EXPECT(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(page != MAP_FAILED && mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0 && munmap(page, 4096) == 0);
    return 0;
}

static int try_all(const scene *s) {
    int failed = try_files(s);
    return failed ? failed : try_others(s);
}

/* ---- the child --------------------------------------------------------------------------------- */

typedef struct worker {
    const scene *scene;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool may_try;
    int failed;
} worker;

static void *work(void *arg) {
    worker *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->may_try) pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    w->failed = try_all(w->scene);
    return NULL;
}

static int enter(const scene *s, bool is_first) {
    const char *folders[] = {s->inside, NULL}, *files[] = {s->key, "/not/there", NULL};
    const ig_sandbox wanted = {.own = folders, .read = files};
    ig_error err = {0};
    if (!(is_first ? ig_sandbox_files(&wanted, &err) : ig_sandbox_calls(&err))) return 0;
    fprintf(stderr, "%s\n", err.text);
    return strstr(err.text, "needs Landlock") ? SKIPPED : 1;
}

/* From the thread that enters, from one that was there before calls were filtered, and from one that is started later.
 */
static int live(const scene *s) {
    static worker early = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
                  late = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .may_try = true};
    pthread_t a, b;
    early.scene = late.scene = s;
    int status = enter(s, true);
    if (pthread_create(&a, NULL, work, &early)) return 1;
    if (!status) status = enter(s, false);
    if (status) return status;
    pthread_mutex_lock(&early.lock);
    early.may_try = true;
    pthread_cond_broadcast(&early.changed);
    pthread_mutex_unlock(&early.lock);
    pthread_join(a, NULL); /* one after the other: they make the same file */
    if (pthread_create(&b, NULL, work, &late)) return 1;
    pthread_join(b, NULL);
    int here = try_all(s);
    fprintf(stderr, "checks that fail: line %d here, %d in an earlier thread, %d in a later one\n", here, early.failed,
            late.failed);
    return here || early.failed || late.failed;
}

static void test_what_is_denied(void **state) {
    (void)state;
    scene s;
    temp_dir d = temp_dir_open();
    temp_dir_path(&d, "store", s.inside, sizeof s.inside);
    temp_dir_path(&d, "key", s.key, sizeof s.key);
    temp_dir_path(&d, "outside", s.outside, sizeof s.outside);
    assert_int_equal(mkdir(s.inside, 0700), 0);
    temp_dir_write(&d, "key", "key", 3);
    temp_dir_write(&d, "outside", "outside", 7);
    s.before = socket(AF_INET, SOCK_STREAM, 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(live(&s));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(s.before);
    rmdir(s.inside);
    temp_dir_close(&d);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_folder_that_is_not_there(void **state) {
    (void)state;
    const char *folders[] = {"/not/there", NULL}, *files[] = {NULL};
    ig_error err = {0};
    assert_int_not_equal(ig_sandbox_files(&(ig_sandbox){.own = folders, .read = files}, &err), IG_OK);
    assert_non_null(strstr(err.text, "--sandbox"));
    int fd = open("/etc/passwd", O_RDONLY); /* nothing was given up */
    assert_true(fd >= 0);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_is_denied),
                                       cmocka_unit_test(test_folder_that_is_not_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
