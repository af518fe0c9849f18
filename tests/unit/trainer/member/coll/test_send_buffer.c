#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <linux/tcp.h> /* glibc's struct tcp_info lacks tcpi_min_rtt */
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "tests/unit/trainer/member/ranks.h"
#include "trainer/member/coll/group.h"
#include "trainer/member/coll/ring.h"
#include "trainer/member/coll/send_buffer.h"

#define FLOATS ((size_t)8 << 20) /* the kernel's own buffer grows to megabytes meanwhile */
#define MOST (1024 * 1024)       /* the kernel doubles what it is asked for */

/* The shortest round trip that the kernel reports. The linker passes all calls of getsockopt on to here, because the real
 * time depends on what else runs on this machine. */
static uint32_t rtt_us = 5;
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    const int rc = __real_getsockopt(fd, level, name, value, size);

    if (!rc && level == IPPROTO_TCP && name == TCP_INFO)
        ((struct tcp_info *)value)->tcpi_min_rtt = rtt_us;
    return rc;
}

static int buffer_of(int fd)
{
    int bytes = 0;
    socklen_t size = sizeof(bytes);

    return getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size) < 0 ? -1 : bytes;
}

static void a_short_path_gets_a_small_buffer(void **state)
{
    (void)state;
    assert_int_equal(send_buffer_for_path(5), 512 * 1024);
    assert_int_equal(send_buffer_for_path(50), 512 * 1024);
    assert_int_equal(send_buffer_for_path(51), 0);
    assert_int_equal(send_buffer_for_path(30000), 0);
    assert_int_equal(send_buffer_for_path(UINT32_MAX), 0); /* not measured */
}

static void a_socket_without_a_path_stays_as_it_is(void **state)
{
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const int before = buffer_of(pair[0]);
    send_buffer_limit(pair[0]);
    assert_int_equal(buffer_of(pair[0]), before);
    close_fd(&pair[0]);
    close_fd(&pair[1]);
}

/* Two connected sockets of this machine. */
static void tcp_pair(int ends[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0 && ends[0] >= 0);
    assert_return_code(bind(listener, (struct sockaddr *)&address, size), errno);
    assert_return_code(listen(listener, 1), errno);
    assert_return_code(getsockname(listener, (struct sockaddr *)&address, &size), errno);
    assert_return_code(connect(ends[0], (struct sockaddr *)&address, size), errno);
    ends[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(ends[1] >= 0);
    close_fd(&listener);
}

static void only_a_short_path_is_limited(void **state)
{
    int ends[2];

    (void)state;
    tcp_pair(ends);
    const int before = buffer_of(ends[0]);
    rtt_us = 51;
    assert_false(send_buffer_limit(ends[0]));
    assert_int_equal(buffer_of(ends[0]), before);
    rtt_us = 50;
    assert_true(send_buffer_limit(ends[0]));
    assert_int_not_equal(buffer_of(ends[0]), before);
    close_fd(&ends[0]);
    close_fd(&ends[1]);
}

static void sum_much(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct err e = {0};
    float *data;
    int ends[2];

    RANK_OK(coll_alloc(g, FLOATS, &data, &e), &e);
    RANK_OK(coll_allreduce(g, data, FLOATS, &e), &e);
    RANK_CHECK(ring_ends(g, ends) == 2);
    RANK_CHECK(buffer_of(ends[0]) <= MOST);
    coll_close(g);
}

static void a_ring_on_this_machine_holds_little(void **state)
{
    struct ranks r = {.world = 2, .node_of = {0, 1}};

    (void)state;
    assert_true(ranks_run(&r, sum_much));
    ranks_release(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_short_path_gets_a_small_buffer),
        cmocka_unit_test(a_socket_without_a_path_stays_as_it_is),
        cmocka_unit_test(only_a_short_path_is_limited),
        cmocka_unit_test(a_ring_on_this_machine_holds_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
