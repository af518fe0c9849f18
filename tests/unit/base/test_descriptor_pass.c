#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/descriptor_pass.h"
#include "tests/unit/base/check.h"

static void descriptors_arrive_with_their_message(void **state)
{
    char text[] = "two", got[16], byte;
    struct descriptor_message out = {.data = text, .len = 3, .count = 2};
    struct descriptor_message in = {.data = got, .len = sizeof(got)};
    int pair[2], pipes[2];
    struct err e;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(descriptors_receive(pair[1], &in, &e), ERR_UNAVAILABLE);
    memcpy(out.fds, pipes, sizeof(pipes));
    assert_ok(descriptors_send(pair[0], &out, &e), &e);
    in.len = sizeof(got);
    assert_ok(descriptors_receive(pair[1], &in, &e), &e);
    assert_int_equal(in.len, 3);
    assert_memory_equal(got, "two", 3);
    assert_int_equal(in.count, 2);
    assert_true(fcntl(in.fds[0], F_GETFD) & FD_CLOEXEC);
    assert_int_equal(write(in.fds[1], "x", 1), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 1);

    out.count = 0; /* a message without any */
    in.len = sizeof(got);
    assert_ok(descriptors_send(pair[0], &out, &e), &e);
    assert_ok(descriptors_receive(pair[1], &in, &e), &e);
    assert_int_equal(in.count, 0);
    close(pair[0]);
    in.len = sizeof(got);
    assert_int_equal(descriptors_receive(pair[1], &in, &e), ERR_ABORTED);
    assert_int_equal(descriptors_send(pair[1], &out, &e), ERR_ABORTED);
    close(pair[1]);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_arrive_with_their_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
