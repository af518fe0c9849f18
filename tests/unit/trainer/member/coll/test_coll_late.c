/* The kernel lets a rank wait until the time for a handshake is over. The rank must still use the messages that arrived meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>

#include "base/mem.h"
#include "tests/unit/trainer/member/ranks.h"
#include "trainer/member/coll/shake.h"

/* In this process: it stops when the handshake has come to this state, and the answer has come when it runs again. The linker
 * passes all calls of these functions on to here. */
static int stops_at = -1, stopped_fd = -1;
static int64_t stopped_ms;
int __real_shake_connected(struct shake *s);
int __wrap_shake_connected(struct shake *s);
void __real_shake_expect(struct shake *s, enum shake_state state, size_t want);
void __wrap_shake_expect(struct shake *s, enum shake_state state, size_t want);
void __real_shake_drop(struct shake *s);
void __wrap_shake_drop(struct shake *s);
int64_t __real_clock_boot_ms(void);
int64_t __wrap_clock_boot_ms(void);

int64_t __wrap_clock_boot_ms(void)
{
    return __real_clock_boot_ms() + stopped_ms;
}

static void stop_in(struct shake *s)
{
    if ((int)s->state != stops_at || stopped_fd >= 0)
        return;
    RANK_CHECK(poll(&(struct pollfd){.fd = s->fd, .events = POLLIN}, 1, 20000) == 1);
    stopped_fd = s->fd;
    stopped_ms = SHAKE_MS + 1000;
}

void __wrap_shake_expect(struct shake *s, enum shake_state state, size_t want)
{
    __real_shake_expect(s, state, want);
    stop_in(s);
}

/* It calls shake_expect in its own source file, where the linker passes on only what the compiler has not inlined. */
int __wrap_shake_connected(struct shake *s)
{
    const int why = __real_shake_connected(s);

    if (!why)
        stop_in(s);
    return why;
}

void __wrap_shake_drop(struct shake *s)
{
    RANK_CHECK(s->fd < 0 || s->fd != stopped_fd);
    __real_shake_drop(s);
}

static void stop_in_a_handshake(struct ranks *r, int rank)
{
    struct err e = {0};

    stops_at = rank == 1 ? *(const int *)r->arg : -1;
    struct coll_group *group = ranks_open(r, rank);
    RANK_CHECK(rank != 1 || stopped_fd >= 0);
    RANK_OK(coll_barrier(group, &e), &e);
    coll_close(group);
}

static void an_answer_counts_that_came_while_the_rank_did_not_run(void **state)
{
    static const int stops[] = {SHAKE_HELLO, SHAKE_CHALLENGE, SHAKE_PROOF};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
        struct ranks r = {.world = 2, .node_of = {0, 1}, .arg = &stops[i]};

        assert_true(ranks_run(&r, stop_in_a_handshake));
        ranks_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_counts_that_came_while_the_rank_did_not_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
