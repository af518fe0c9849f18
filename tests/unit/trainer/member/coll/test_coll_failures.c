/* Tests deaths, aborts and disagreements: every other member gets an error, and none waits forever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/unit/trainer/member/ranks.h"

static const struct ranks layouts[] = {
    {.world = 2},
    {.world = 4},
    {.world = 2, .node_of = {0, 1}},
    {.world = 5, .node_of = {0, 1, 2, 3, 4}},
    {.world = 4, .node_of = {0, 0, 1, 1}},
    {.world = 6, .node_of = {0, 0, 0, 1, 1, 1}},
    {.world = 4, .node_of = {0, 1, 1, 1}},
};
#define LAYOUTS (sizeof(layouts) / sizeof(layouts[0]))
#define COUNT ((size_t)300000)

/* All-reduces until a call fails. Returns that error. */
static enum err_code reduce_on(struct coll_group *g, float *data, struct err *e)
{
    while (!coll_allreduce(g, data, COUNT, e))
        ;
    return e->code;
}

static int victim_of(const struct ranks *r)
{
    return *(const int *)r->arg;
}

/* ---- kill -9 */

static void until_a_death(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct err e = {0};
    float *data;

    RANK_OK(coll_alloc(g, COUNT, &data, &e), &e);
    for (int i = 0; i < 5; i++)
        RANK_OK(coll_allreduce(g, data, COUNT, &e), &e);
    if (rank == victim_of(r))
        raise(SIGKILL);
    RANK_CHECK(reduce_on(g, data, &e) == ERR_ABORTED);
    RANK_CHECK(coll_barrier(g, &e) == ERR_ABORTED); /* later calls fail, too */
    RANK_CHECK(coll_broadcast(g, data, 100, 0, &e) == ERR_ABORTED);
    coll_close(g);
}

static void a_death_aborts_everyone_else(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++)
        for (int victim = 0; victim < layouts[l].world; victim++) {
            struct ranks r = layouts[l];

            r.arg = &victim;
            ranks_prepare(&r);
            ranks_start(&r, until_a_death);
            assert_true(ranks_finish(&r, victim));
            ranks_release(&r);
        }
}

/* In the middle of a large gather, too. */
static void gather_until_a_death(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    char *all = calloc((size_t)r->world, COUNT);
    struct err e = {0};

    for (int i = 0; i < 3; i++)
        RANK_OK(coll_allgather(g, all + (size_t)rank * COUNT, COUNT, all, &e), &e);
    if (rank == victim_of(r))
        raise(SIGKILL);
    while (!coll_allgather(g, all + (size_t)rank * COUNT, COUNT, all, &e))
        ;
    RANK_CHECK(e.code == ERR_ABORTED);
    free(all);
    coll_close(g);
}

static void a_death_in_a_gather_aborts_everyone_else(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r = layouts[l];
        int victim = r.world / 2;

        r.arg = &victim;
        ranks_prepare(&r);
        ranks_start(&r, gather_until_a_death);
        assert_true(ranks_finish(&r, victim));
        ranks_release(&r);
    }
}

/* ---- in an exchange */

static void offsets_fill(const struct ranks *r, size_t size, size_t *offsets)
{
    for (int k = 0; k <= r->world; k++)
        offsets[k] = size * (size_t)k / (size_t)r->world;
}

static void exchange_until_a_death(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    char *data = calloc(1, COUNT), *got = calloc(1, 2 * COUNT);
    size_t offsets[RANKS_MAX + 1];
    struct err e = {0};

    offsets_fill(r, COUNT, offsets);
    for (int i = 0; i < 3; i++)
        RANK_OK(coll_exchange(g, data, offsets, got, &e), &e);
    if (rank == victim_of(r))
        raise(SIGKILL);
    while (!coll_exchange(g, data, offsets, got, &e))
        ;
    RANK_CHECK(e.code == ERR_ABORTED);
    RANK_CHECK(coll_exchange(g, data, offsets, got, &e) == ERR_ABORTED);
    free(data);
    free(got);
    coll_close(g);
}

static void a_death_in_an_exchange_aborts_everyone_else(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++)
        for (int victim = 0; victim < layouts[l].world; victim++) {
            struct ranks r = layouts[l];

            r.arg = &victim;
            r.pairs = true;
            ranks_prepare(&r);
            ranks_start(&r, exchange_until_a_death);
            assert_true(ranks_finish(&r, victim));
            ranks_release(&r);
        }
}

static void *die_when_called(void *arg)
{
    int fd = accept(*(int *)arg, NULL, NULL);

    RANK_CHECK(fd >= 0);
    raise(SIGKILL);
    return NULL;
}

/* The victim has a false address of the rank two places after it, which it connects to for the pairs only. At that
 * address it learns that it is opening the pairs. */
static void open_pairs_until_a_death(struct ranks *r, int rank)
{
    uint8_t *other = r->addresses[(rank + 2) % r->world];
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};
    pthread_t thread;

    if (rank == victim_of(r)) {
        RANK_CHECK(!bind(listener, (struct sockaddr *)&name, sizeof(name)) && !listen(listener, 1));
        RANK_CHECK(!getsockname(listener, (struct sockaddr *)&name, &size));
        other[1] = (uint8_t)(ntohs(name.sin_port) >> 8);
        other[2] = (uint8_t)ntohs(name.sin_port);
        RANK_CHECK(pthread_create(&thread, NULL, die_when_called, &listener) == 0);
    }
    ranks_config(r, rank, &config);
    if (coll_open(&g, r->listeners[rank], &config, &e) != ERR_ABORTED)
        RANK_OK(true, &e);
    close(listener);
}

static void a_death_while_pairs_are_opened_aborts_everyone_else(void **state)
{
    static const struct ranks groups[] = {
        {.world = 5, .node_of = {0, 1, 2, 3, 4}},
        {.world = 4, .node_of = {0, 1, 1, 1}},
        {.world = 6, .node_of = {0, 0, 0, 1, 1, 1}},
    };

    (void)state;
    for (size_t l = 0; l < sizeof(groups) / sizeof(groups[0]); l++)
        for (int victim = 0; victim < groups[l].world; victim++) {
            struct ranks r = groups[l];

            r.arg = &victim;
            r.pairs = true;
            ranks_prepare(&r);
            ranks_start(&r, open_pairs_until_a_death);
            assert_true(ranks_finish(&r, victim));
            ranks_release(&r);
        }
}

static void exchange_another_size(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    char *data = calloc(1, COUNT), *got = calloc(1, 2 * COUNT);
    size_t offsets[RANKS_MAX + 1];
    struct err e = {0};
    enum err_code rc;

    offsets_fill(r, rank == r->world - 1 ? COUNT - 8 : COUNT, offsets);
    rc = coll_exchange(g, data, offsets, got, &e);
    if (!rc)
        rc = coll_barrier(g, &e);
    RANK_CHECK(rc == ERR_FAILED_PRECONDITION || rc == ERR_ABORTED);
    r->shared->code[rank] = (int)rc;
    free(data);
    free(got);
    coll_close(g);
}

static void ranks_that_disagree_about_an_exchange_get_an_error(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r = layouts[l];
        bool told = false;

        r.pairs = true;
        assert_true(ranks_run(&r, exchange_another_size));
        for (int i = 0; i < r.world; i++)
            told |= r.shared->code[i] == ERR_FAILED_PRECONDITION;
        assert_true(told);
        ranks_release(&r);
    }
}

/* ---- a silent peer, and an abort from another thread */

struct watcher {
    struct ranks *ranks;
    struct coll_group *group;
};

static void *abort_when_told(void *arg)
{
    struct watcher *w = arg;

    while (!atomic_load(&w->ranks->shared->flag))
        poll(NULL, 0, 1);
    coll_abort(w->group, 2); /* an abort of an older generation has no effect */
    coll_abort(w->group, 3);
    return NULL;
}

/* Calls until one fails: all-reduces, or exchanges in a group that has the connections for them. */
static enum err_code call_on(const struct ranks *r, struct coll_group *g, float *data, struct err *e)
{
    char *got = calloc(1, 2 * COUNT);
    size_t offsets[RANKS_MAX + 1];

    offsets_fill(r, COUNT, offsets);
    while (r->pairs && !coll_exchange(g, data, offsets, got, e))
        ;
    free(got);
    return r->pairs ? e->code : reduce_on(g, data, e);
}

static void until_an_abort(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct watcher w = {r, g};
    struct err e = {0};
    pthread_t thread;
    float *data;

    RANK_OK(coll_alloc(g, COUNT, &data, &e), &e);
    coll_abort(g, 2);
    RANK_OK(coll_allreduce(g, data, COUNT, &e), &e);
    if (rank == victim_of(r))
        raise(SIGSTOP);
    atomic_fetch_add(&r->shared->counter, 1);
    RANK_CHECK(pthread_create(&thread, NULL, abort_when_told, &w) == 0);
    RANK_CHECK(call_on(r, g, data, &e) == ERR_ABORTED);
    RANK_CHECK(atomic_load(&r->shared->flag)); /* the call must not fail before the abort */
    pthread_join(thread, NULL);
    coll_close(g);
}

static void an_abort_ends_the_wait_for_a_silent_peer(void **state)
{
    (void)state;
    for (size_t l = 0; l < 2 * LAYOUTS; l++) {
        struct ranks r = layouts[l / 2];
        int victim = r.world - 1, status;

        r.arg = &victim;
        r.pairs = l % 2;
        ranks_prepare(&r);
        ranks_start(&r, until_an_abort);
        assert_int_equal(waitpid(r.pids[victim], &status, WUNTRACED), r.pids[victim]);
        assert_true(WIFSTOPPED(status));
        while (atomic_load(&r.shared->counter) < r.world - 1)
            poll(NULL, 0, 1);
        atomic_store(&r.shared->flag, 1);
        for (int i = 0; i < r.world - 1; i++) {
            siginfo_t info;

            assert_int_equal(waitid(P_PID, (id_t)r.pids[i], &info, WEXITED | WNOWAIT), 0);
        }
        kill(r.pids[victim], SIGKILL);
        assert_true(ranks_finish(&r, victim));
        ranks_release(&r);
    }
}

/* ---- a close that is no death */

static void close_at_once(struct ranks *r, int rank)
{
    for (int i = 0; i < 20; i++) {
        float *data;
        struct err e = {0};
        struct coll_group *g = ranks_open(r, rank);
        unsigned char all[8] = {0}, mine = (unsigned char)rank;

        RANK_OK(coll_alloc(g, 5000, &data, &e), &e);
        data[4999] = 1;
        switch (i % 4) {
        case 0:
            RANK_OK(coll_allreduce(g, data, 5000, &e), &e);
            RANK_CHECK(data[4999] == (float)r->world);
            break;
        case 1:
            RANK_OK(coll_barrier(g, &e), &e);
            break;
        case 2:
            RANK_OK(coll_broadcast(g, data, 20000, r->world - 1, &e), &e);
            break;
        default:
            RANK_OK(coll_allgather(g, &mine, 1, all, &e), &e);
            RANK_CHECK(all[r->world - 1] == r->world - 1);
        }
        coll_close(g);
    }
}

static void leaving_after_the_last_call_is_not_a_failure(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r = layouts[l];

        assert_true(ranks_run(&r, close_at_once));
        ranks_release(&r);
    }
}

/* ---- disagreement */

static void ranks_disagree(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct err e = {0};
    enum err_code rc;
    float *data;

    RANK_OK(coll_alloc(g, COUNT, &data, &e), &e);
    rc = coll_allreduce(g, data, rank == r->world - 1 ? COUNT - 8 : COUNT, &e);
    if (!rc)
        rc = coll_barrier(g, &e);
    RANK_CHECK(rc == ERR_FAILED_PRECONDITION || rc == ERR_ABORTED);
    r->shared->code[rank] = (int)rc;
    coll_close(g);
}

static void ranks_that_disagree_about_a_count_get_an_error(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r = layouts[l];
        bool told = false;

        assert_true(ranks_run(&r, ranks_disagree));
        for (int i = 0; i < r.world; i++)
            told |= r.shared->code[i] == ERR_FAILED_PRECONDITION;
        assert_true(told);
        ranks_release(&r);
    }
}

/* ---- memory that is not to be had */

/* qemu-user keeps the limit to itself, since it needs memory of its own. */
static bool memory_can_be_limited(void)
{
    struct rlimit none, old;
    void *at;

    getrlimit(RLIMIT_AS, &old);
    none = old;
    none.rlim_cur = 1;
    setrlimit(RLIMIT_AS, &none);
    at = mmap(NULL, 1 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    setrlimit(RLIMIT_AS, &old);
    if (at != MAP_FAILED)
        munmap(at, 1 << 20);
    return at == MAP_FAILED;
}

static void run_short(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct rlimit none, old;
    struct err e = {0};
    float *data;

    getrlimit(RLIMIT_AS, &old);
    none = old;
    none.rlim_cur = 1;
    if (rank == 1)
        setrlimit(RLIMIT_AS, &none);
    RANK_CHECK(coll_alloc(g, 3000000, &data, &e) == ERR_RESOURCE_EXHAUSTED);
    if (rank == 1)
        setrlimit(RLIMIT_AS, &old);
    RANK_OK(coll_alloc(g, 5000, &data, &e), &e);
    data[77] = 2;
    RANK_OK(coll_allreduce(g, data, 5000, &e), &e);
    RANK_CHECK(data[77] == 2.0f * (float)r->world);
    coll_close(g);
}

static void all_ranks_fail_if_one_lacks_memory_and_the_group_lives(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they map memory as they go */
#endif
    if (!memory_can_be_limited()) {
        print_message("mmap succeeds above RLIMIT_AS, so memory cannot be made scarce\n");
        skip();
    }
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r = layouts[l];

        assert_true(ranks_run(&r, run_short));
        ranks_release(&r);
    }
}

/* ---- another failure than a lack of memory */

static enum err_code alloc_host(struct device *d, size_t bytes, void **out, struct err *e)
{
    if (d->workspace)
        return err_set(e, ERR_INTERNAL, "the device is broken");
    *out = calloc(1, bytes);
    return *out ? ERR_OK : err_set(e, ERR_RESOURCE_EXHAUSTED, "no memory");
}
static void free_host(struct device *d, void *p)
{
    (void)d;
    free(p);
}
static const struct device_ops breaking_ops = {.name = "breaking", .alloc = alloc_host, .free = free_host};

static void break_down(struct ranks *r, int rank)
{
    struct device device = {.ops = &breaking_ops, .workspace = rank == 1};
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};
    enum err_code rc;
    float *data;

    ranks_config(r, rank, &config);
    config.device = &device;
    RANK_OK(coll_open(&g, r->listeners[rank], &config, &e), &e);
    rc = coll_alloc(g, 5000, &data, &e);
    /* The ranks of its node know only that one of them brings no memory. */
    RANK_CHECK(rc == ERR_INTERNAL || (rc == ERR_RESOURCE_EXHAUSTED && rank != 1));
    device.workspace = 0;
    RANK_OK(coll_alloc(g, 5000, &data, &e), &e);
    RANK_OK(coll_barrier(g, &e), &e);
    coll_close(g);
}

static void all_ranks_fail_if_one_device_is_broken_and_the_group_lives(void **state)
{
    (void)state;
    for (size_t l = 0; l < LAYOUTS; l++) {
        struct ranks r = layouts[l];

        assert_true(ranks_run(&r, break_down));
        ranks_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_death_aborts_everyone_else),
        cmocka_unit_test(a_death_in_a_gather_aborts_everyone_else),
        cmocka_unit_test(a_death_in_an_exchange_aborts_everyone_else),
        cmocka_unit_test(a_death_while_pairs_are_opened_aborts_everyone_else),
        cmocka_unit_test(ranks_that_disagree_about_an_exchange_get_an_error),
        cmocka_unit_test(an_abort_ends_the_wait_for_a_silent_peer),
        cmocka_unit_test(leaving_after_the_last_call_is_not_a_failure),
        cmocka_unit_test(ranks_that_disagree_about_a_count_get_an_error),
        cmocka_unit_test(all_ranks_fail_if_one_lacks_memory_and_the_group_lives),
        cmocka_unit_test(all_ranks_fail_if_one_device_is_broken_and_the_group_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
