#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <unistd.h>

#include "trainer/member/coll/busy_poll.h"

static void a_wait_asks_again_as_long_as_it_pays_off(void **state)
{
    struct busy_poll b = {.on = true};

    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_true(busy_poll_asks(&b));
        busy_poll_learn(&b, true);
    }
}

static int waits_until_it_asks(struct busy_poll *b)
{
    int waits = 0;

    while (!busy_poll_asks(b))
        waits++;
    return waits;
}

static void waits_in_vain_make_it_ask_less_and_less_often(void **state)
{
    static const int waits[] = {1, 3, 7, 15, 31, 63, 63};
    struct busy_poll b = {.on = true};

    (void)state;
    assert_true(busy_poll_asks(&b));
    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        busy_poll_learn(&b, false);
        assert_int_equal(waits_until_it_asks(&b), waits[i]);
    }
    busy_poll_learn(&b, true);
    assert_true(busy_poll_asks(&b));
}

static void a_long_path_never_asks(void **state)
{
    struct busy_poll b = {0};

    (void)state;
    for (int i = 0; i < 100; i++)
        assert_false(busy_poll_asks(&b));
}

static void it_sleeps_until_data_comes(void **state)
{
    int pipes[2][2], status;
    char byte = 0;

    (void)state;
    for (int on = 0; on < 2; on++) {
        struct busy_poll b = {.on = on};

        assert_int_equal(pipe(pipes[0]) | pipe(pipes[1]), 0);
        /* The child answers to a byte that this process sends before it waits. */
        const pid_t child = fork();
        if (child == 0)
            _exit(read(pipes[0][0], &byte, 1) == 1 && write(pipes[1][1], &byte, 1) == 1 ? 0 : 1);
        struct pollfd fd = {.fd = pipes[1][0], .events = POLLIN};
        assert_int_equal(write(pipes[0][1], &byte, 1), 1);
        assert_int_equal(busy_poll(&b, &fd, 1), 1);
        assert_int_equal(fd.revents, POLLIN);
        assert_int_equal(busy_poll(&b, &fd, 1), 1);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        for (int i = 0; i < 4; i++)
            close(pipes[i / 2][i % 2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_asks_again_as_long_as_it_pays_off),
        cmocka_unit_test(waits_in_vain_make_it_ask_less_and_less_often),
        cmocka_unit_test(a_long_path_never_asks),
        cmocka_unit_test(it_sleeps_until_data_comes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
