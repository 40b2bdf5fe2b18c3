/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that keeps pieces is killed, at a random moment or right after a random call on its files, and what it had
 * reported as kept must be there: bit by bit, with the index and without, also for a reader that comes first. What it
 * had not reported is there as it should be or not at all, and nothing torn is left behind.
 *
 *     test_prefix_kills [ROUNDS [SEED]]
 *
 * Every so many rounds a new store begins. Every other one has a limit of its size: there pieces leave, and only those
 * of the last commit must be there. Its chains are so short that two of them and a note fit: that of the last commit,
 * as young as its youngest piece, and that of the next one, which keeps what its pieces build on.
 */
#define _GNU_SOURCE
#include "prefix_rig.h"
#include "infinigen_tools.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

enum { ROUNDS = 20, ROUNDS_OF_A_STORE = 10, CHAINS = 6, LONGEST = 40, LIMIT = 30, LONGEST_OF_LIMITED = LIMIT / 2 - 1 };

static int n_rounds = ROUNDS;
static uint64_t seed;

/* What the child reports, in one write. */
typedef struct report {
    int chain, first, last; /* pieces kept by a commit; first > last: none */
    int note;               /* the note's text is this number now; 0: it is not about the note */
} report;

/* What must be there. */
typedef struct kept {
    int n_of[CHAINS]; /* pieces of each chain, from its first one on */
    report last;      /* of this round */
    int note;
} kept;

/* ---- the child ----------------------------------------------------------------- */

typedef struct fate {
    int n_left; /* calls until the end; negative: none */
} fate;

static int live_on(void *user, ig_prefix_call call, int result) {
    fate *f = user;
    (void)call;
    if (f->n_left-- == 0) raise(SIGKILL);
    return result;
}

static void tell(int pipe_end, report r) {
    if (write(pipe_end, &r, sizeof r) != sizeof r) _exit(9);
}

static void keep_until_killed(prefix_rig *r, kept k, ig_random dice, int pipe_end) {
    fate f = {ig_random_u64(&dice) % 2 ? (int)(ig_random_u64(&dice) % 80) : -1};
    r->o.fault = live_on;
    r->o.fault_user = &f;
    if (ig_prefix_store_open(&r->store, &r->o, &r->err) != IG_OK) _exit(3);
    if (ig_prefix_store_why_read_only(r->store)) _exit(4);
    int longest = r->o.max_bytes ? LONGEST_OF_LIMITED : LONGEST;
    for (;;) {
        int chain = (int)(ig_random_u64(&dice) % CHAINS), first = k.n_of[chain];
        int last = first + (int)(ig_random_u64(&dice) % 4);
        if (last >= longest) first = 0, last = -1;
        if (last < first && ig_random_u64(&dice) % 50 == 0) _exit(0); /* the store has all of them */
        for (int i = first; i <= last; i++)
            if (rig_put(r, (uint64_t)chain, i) != IG_OK) _exit(5);
        if (ig_prefix_store_commit(r->store, &r->err) != IG_OK) _exit(6);
        if (first <= last) {
            k.n_of[chain] = last + 1;
            tell(pipe_end, (report){chain, first, last, 0});
        }
        if (ig_random_u64(&dice) % 4) continue;
        char text[16];
        int n = snprintf(text, sizeof text, "%d", ++k.note);
        if (ig_prefix_store_note_put(r->store, "count", text, (size_t)n, &r->err) != IG_OK) _exit(7);
        tell(pipe_end, (report){0, 0, -1, k.note});
    }
}

/* ---- the parent ------------------------------------------------------------------ */

static void take_report(kept *k, const report *r) {
    if (r->note) k->note = r->note;
    if (r->first > r->last) return;
    k->n_of[r->chain] = r->last + 1;
    k->last = *r;
}

static void run_child(prefix_rig *r, kept *k, ig_random *dice) {
    int ends[2], status;
    report got;
    ig_random own = {ig_random_u64(dice)};
    uint64_t moment = ig_random_u64(dice) % 60;
    k->last = (report){.last = -1};
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ends[0]);
        keep_until_killed(r, *k, own, ends[1]);
    }
    close(ends[1]);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (bool is_killed = false;;) {
        struct pollfd p = {ends[0], POLLIN, 0};
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t left = (int64_t)moment - (now.tv_sec - start.tv_sec) * 1000 - (now.tv_nsec - start.tv_nsec) / 1000000;
        if (!is_killed && left <= 0) is_killed = kill(child, SIGKILL) == 0;
        if (poll(&p, 1, is_killed ? -1 : (int)left) <= 0) continue;
        if (read(ends[0], &got, sizeof got) != sizeof got) break;
        take_report(k, &got);
    }
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status) && WEXITSTATUS(status)) fail_msg("the child ended with %d", WEXITSTATUS(status));
}

static void check_note(prefix_rig *r, kept *k) {
    void *text;
    size_t n;
    ig_status status = ig_prefix_store_note_get(r->store, "count", &text, &n, &r->err);
    if (status == IG_E_NOT_FOUND && !k->note) return;
    if (status) fail_msg("%s", r->err.text);
    int number = atoi(text);
    free(text);
    if (number != k->note && number != k->note + 1) fail_msg("the note says %d after %d", number, k->note);
    k->note = number;
}

/* Everything that might be there; k then knows what is. */
static void check_pieces(prefix_rig *r, kept *k) {
    for (int chain = 0; chain < CHAINS; chain++) {
        int n = 0;
        bool whole = true;
        for (int i = 0; i < LONGEST; i++) {
            ig_status status = rig_read(r, (uint64_t)chain, i); /* compares the bytes */
            if (status != IG_OK && status != IG_E_NOT_FOUND) fail_msg("%d of %d: %s", i, chain, r->err.text);
            bool must =
                r->o.max_bytes ? chain == k->last.chain && i >= k->last.first && i <= k->last.last : i < k->n_of[chain];
            if (must && status) fail_msg("%d of %d was kept and is not there: %s", i, chain, r->err.text);
            whole = whole && !status;
            n += whole;
        }
        k->n_of[chain] = n; /* a chain goes on where it ends now */
    }
}

static bool print_damaged(void *user, const ig_stored_item *item) {
    (void)user;
    printf("%s %s%s: %s\n", item->file, item->id, item->note, item->damage);
    return false;
}

static void check_directory(prefix_rig *r) {
    ig_stored *s;
    ig_stored_health h;
    ig_prefix_store_stats stats;
    assert_int_equal(rig_count_files(r, "", ".tmp"), 0);
    ig_prefix_store_get_stats(r->store, &stats);
    assert_int_equal(stats.n_damaged, 0);
    if (r->o.max_bytes) assert_true(stats.bytes <= r->o.max_bytes);
    RIG_OK(r, ig_stored_open(&s, r->dir.path, false, &r->err));
    RIG_OK(r, ig_stored_verify(&h, s, print_damaged, NULL, NULL, &r->err));
    ig_stored_close(s);
    assert_int_equal(h.n_damaged + h.n_foreign, 0);
    assert_int_equal(h.n_pieces, stats.n_pieces);
}

/* The note counts, so that a record of what may be one ahead is taken once. */
static void check_all(prefix_rig *r, kept *k, ig_random *dice) {
    kept before = *k;
    if (ig_random_u64(dice) % 3 == 0) { /* a reader comes first */
        r->o.read_only = true;
        rig_open(r);
        check_pieces(r, &before);
        check_note(r, &before);
        rig_close_store(r);
        r->o.read_only = false;
    }
    if (ig_random_u64(dice) % 4 == 0) rig_remove_index(r);
    rig_open(r);
    check_pieces(r, k);
    check_note(r, k);
    check_directory(r);
    rig_close_store(r);
}

static void what_was_kept_is_there(void **state) {
    (void)state;
    ig_random dice = {seed};
    prefix_rig r = {0};
    kept k = {0};
    for (int round = 0; round < n_rounds; round++) {
        if (round % ROUNDS_OF_A_STORE == 0) {
            if (round) temp_dir_close(&r.dir);
            rig_init(&r);
            k = (kept){.note = 0};
            r.o.max_bytes = round / ROUNDS_OF_A_STORE % 2 ? LIMIT * RIG_RECORD : 0;
        }
        r.o.no_punch = r.o.max_bytes && ig_random_u64(&dice) % 2;
        r.o.fault = NULL;
        run_child(&r, &k, &dice);
        check_all(&r, &k, &dice);
        if (n_rounds > 100 && (round + 1) % 50 == 0) printf("%d rounds\n", round + 1);
    }
    temp_dir_close(&r.dir);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_kept_is_there)};
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    if (argc > 1) n_rounds = atoi(argv[1]);
    printf("seed %llu\n", (unsigned long long)seed);
    return n_rounds < 1 ? 2 : cmocka_run_group_tests(tests, NULL, NULL);
}
