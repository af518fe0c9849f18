/* Ranks that cannot reach each other connect by a relay; those that can do not. The relay is a process of its own, as on
 * another machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/mem.h"
#include "daemon/relay/relay_server.h"
#include "tests/unit/base/check.h"
#include "tests/unit/trainer/member/ranks.h"
#include "trainer/node_pair.h"

static const uint8_t key[RELAY_KEY] = "the key of this relay";

struct relay_process {
    pid_t pid;
    _Atomic uint16_t port;
    struct relay_traffic traffic;
    _Atomic int counted;
};

/* ---- the relay */

static void relay_serve(struct relay_process *p)
{
    struct relay_options options = {.address = "127.0.0.1:0"};
    struct relay_server *server;
    struct err e = {0};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    memcpy(options.key, key, sizeof(key));
    RANK_OK(relay_server_open(&server, &options, &e), &e);
    for (p->port = relay_server_port(server);; poll(NULL, 0, 5)) {
        relay_server_count(server, &p->traffic);
        p->counted++;
    }
}

static struct relay_process *relay_begin(void)
{
    struct relay_process *p =
        mmap(NULL, sizeof(*p), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid)
        relay_serve(p);
    p->pid = pid;
    while (!p->port)
        poll(NULL, 0, 5);
    return p;
}

static struct relay_traffic relay_finish(struct relay_process *p)
{
    int before = p->counted;
    struct relay_traffic traffic;

    while (p->counted < before + 2)
        poll(NULL, 0, 5);
    traffic = p->traffic;
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    munmap(p, sizeof(*p));
    return traffic;
}

/* ---- ranks */

/* A port of loopback at which nobody listens, or of a machine that is not the peer. */
static void move_address(uint8_t *address, uint16_t port)
{
    address[1] = (uint8_t)(port >> 8);
    address[2] = (uint8_t)port;
}

static int bound_socket(uint16_t *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port = ntohs(at.sin_port);
    return fd;
}

static enum err_code open_by_relay(const struct ranks *r, int rank, bool ticket, struct coll_group **out,
                                   struct err *e)
{
    const struct relay_process *p = r->arg;
    struct coll_relay relay = {.address = {.host = "127.0.0.1", .port = p->port}};
    struct coll_config config;

    ranks_config(r, rank, &config);
    if (ticket)
        relay_make_ticket(relay.ticket, key, config.job, config.generation);
    config.relay = &relay;
    return coll_open(out, r->listeners[rank], &config, e);
}

static void form_and_sum(struct ranks *r, int rank)
{
    struct coll_group *g;
    struct err e = {0};
    float *data;

    RANK_OK(open_by_relay(r, rank, true, &g, &e), &e);
    RANK_OK(coll_alloc(g, 100000, &data, &e), &e);
    data[99999] = (float)rank;
    RANK_OK(coll_allreduce(g, data, 100000, &e), &e);
    RANK_CHECK(data[99999] == (float)(r->world * (r->world - 1) / 2));
    if (r->pairs) {
        uint8_t mine[RANKS_MAX], all[RANKS_MAX];
        size_t offsets[RANKS_MAX + 1];

        for (int i = 0; i <= r->world; i++)
            offsets[i] = (size_t)i;
        memset(mine, rank, sizeof(mine));
        RANK_OK(coll_exchange(g, mine, offsets, all, &e), &e);
        for (int i = 0; i < r->world; i++)
            RANK_CHECK(all[i] == i);
    }
    RANK_OK(coll_barrier(g, &e), &e);
    coll_close(g);
}

static void unreachable_ranks_connect_by_relay(void **state)
{
    struct ranks r = {.world = 4, .node_of = {0, 0, 1, 2}, .pairs = true, .arg = relay_begin()};
    uint16_t port;
    int fd = bound_socket(&port); /* does not listen: refused */

    (void)state;
    ranks_prepare(&r);
    for (int i = 0; i < r.world; i++)
        move_address(r.addresses[i], port);
    ranks_start(&r, form_and_sum);
    assert_true(ranks_finish(&r, -1));
    struct relay_traffic t = relay_finish((void *)(uintptr_t)r.arg);
    /* One ring of three nodes, and a connection from each rank to each other one, also on one node. */
    assert_int_equal(t.links, 3 + 12);
    assert_true(t.bytes > 3 * 100000 * sizeof(float));
    assert_int_equal(t.refused, 0);
    ranks_release(&r);
    close(fd);
}

static void ranks_that_reach_each_other_use_no_relay(void **state)
{
    struct ranks r = {.world = 4, .node_of = {0, 0, 1, 2}, .pairs = true, .arg = relay_begin()};

    (void)state;
    assert_true(ranks_run(&r, form_and_sum));
    assert_int_equal(relay_finish((void *)(uintptr_t)r.arg).links, 0);
    ranks_release(&r);
}

/* Only the last rank is not reached: only its connections are relayed, and those that it makes itself are not. */
static void only_unreachable_ranks_are_relayed(void **state)
{
    struct ranks r = {.world = 3, .node_of = {0, 1, 2}, .arg = relay_begin()};
    uint16_t port;
    int fd = bound_socket(&port);

    (void)state;
    ranks_prepare(&r);
    move_address(r.addresses[2], port);
    ranks_start(&r, form_and_sum);
    assert_true(ranks_finish(&r, -1));
    assert_int_equal(relay_finish((void *)(uintptr_t)r.arg).links, 1);
    ranks_release(&r);
    close(fd);
}

/* Behind NAT another machine may have the peer's address. It accepts, and sends what is no challenge, or nothing. */
static void another_machine_at_the_address_is_not_taken_for_the_peer(void **state)
{
    static const char banner[] = "SSH-2.0-Server_1.0 of another machine\r\n";
    struct ranks r = {.world = 2, .node_of = {0, 1}, .timeout_ms = 50000, .arg = relay_begin()};
    uint16_t talks, silent;
    int talking = bound_socket(&talks), silence = bound_socket(&silent);

    (void)state;
    assert_int_equal(listen(talking, 8) || listen(silence, 8), 0);
    pid_t other = fork();
    if (!other) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            int fd = accept(talking, NULL, NULL);

            (void)!send(fd, banner, sizeof(banner), MSG_NOSIGNAL);
            close(fd);
        }
    }
    ranks_prepare(&r);
    move_address(r.addresses[0], talks);
    move_address(r.addresses[1], silent);
    ranks_start(&r, form_and_sum);
    assert_true(ranks_finish(&r, -1));
    assert_int_equal(relay_finish((void *)(uintptr_t)r.arg).links, 2);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    ranks_release(&r);
    close(talking);
    close(silence);
}

static void fail_without_a_ticket(struct ranks *r, int rank)
{
    struct coll_group *g;
    struct err e = {0};

    RANK_CHECK(open_by_relay(r, rank, false, &g, &e) == ERR_DEADLINE_EXCEEDED);
    RANK_CHECK(strstr(e.msg, "Connection refused") && strstr(e.msg, "; by relay 127.0.0.1:"));
}

static void a_wrong_ticket_is_named(void **state)
{
    struct ranks r = {.world = 2, .node_of = {0, 1}, .timeout_ms = 4000, .arg = relay_begin()};
    uint16_t port;
    int fd = bound_socket(&port);

    (void)state;
    ranks_prepare(&r);
    move_address(r.addresses[0], port);
    move_address(r.addresses[1], port);
    ranks_start(&r, fail_without_a_ticket);
    assert_true(ranks_finish(&r, -1));
    struct relay_traffic t = relay_finish((void *)(uintptr_t)r.arg);
    assert_int_equal(t.links, 0);
    assert_true(t.refused > 0);
    ranks_release(&r);
    close(fd);
}

/* Rank 0 kills the relay in the middle; every rank learns of it in the call that it is in. */
static void lose_the_relay(struct ranks *r, int rank)
{
    const struct relay_process *p = r->arg;
    struct coll_group *g;
    struct err e = {0};
    float *data;
    int calls = 0;

    RANK_OK(open_by_relay(r, rank, true, &g, &e), &e);
    RANK_OK(coll_alloc(g, 1000000, &data, &e), &e);
    while (!coll_allreduce(g, data, 1000000, &e))
        if (++calls == 5 && rank == 0)
            kill(p->pid, SIGKILL);
    RANK_CHECK(e.code == ERR_ABORTED);
    coll_close(g);
}

static void the_death_of_the_relay_ends_the_group(void **state)
{
    struct ranks r = {.world = 3, .node_of = {0, 1, 2}, .arg = relay_begin()};
    uint16_t port;
    int fd = bound_socket(&port);

    (void)state;
    ranks_prepare(&r);
    for (int i = 0; i < r.world; i++)
        move_address(r.addresses[i], port);
    ranks_start(&r, lose_the_relay);
    assert_true(ranks_finish(&r, -1));
    waitpid(((const struct relay_process *)r.arg)->pid, NULL, 0);
    munmap((void *)(uintptr_t)r.arg, sizeof(struct relay_process));
    ranks_release(&r);
    close(fd);
}

/* As the pairs of `train.measure`: of one job and generation, each with ranks 0 and 1. */
static void sum_in_a_pair(struct ranks *r, int rank)
{
    const struct relay_process *p = r->arg;
    struct coll_relay relay = {.address = {.host = "127.0.0.1", .port = p->port}};
    const int half = r->world / 2, first = rank % half, second = first + half;
    const struct coll_peer peers[2] = {{0, 0, 0, r->peers[first].address, r->peers[first].address_size},
                                       {1, 1, 0, r->peers[second].address, r->peers[second].address_size}};
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};
    float *data;

    ranks_config(r, rank, &config);
    relay_make_ticket(relay.ticket, key, config.job, config.generation);
    config.relay = &relay;
    config.rank = rank == second;
    config.world_size = 2;
    config.peers = peers;
    uint8_t generation_key[sizeof(config.key)];
    memcpy(generation_key, config.key, sizeof(generation_key));
    node_pair_make_key(config.key, generation_key, 0, first, second);
    RANK_OK(coll_open(&g, r->listeners[rank], &config, &e), &e);
    RANK_OK(coll_alloc(g, 1000, &data, &e), &e);
    data[999] = (float)(1 << rank);
    RANK_OK(coll_allreduce(g, data, 1000, &e), &e);
    RANK_CHECK(data[999] == (float)((1 << first) + (1 << second)));
    RANK_OK(coll_barrier(g, &e), &e);
    coll_close(g);
}

static void pairs_of_one_generation_are_told_apart(void **state)
{
    struct ranks r = {.world = 12, .no_directory = true, .arg = relay_begin()};
    uint16_t port;
    int fd = bound_socket(&port);

    (void)state;
    ranks_prepare(&r);
    for (int i = 0; i < r.world; i++)
        move_address(r.addresses[i], port);
    ranks_start(&r, sum_in_a_pair);
    assert_true(ranks_finish(&r, -1));
    assert_true(relay_finish((void *)(uintptr_t)r.arg).links >= 6);
    ranks_release(&r);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unreachable_ranks_connect_by_relay),
        cmocka_unit_test(ranks_that_reach_each_other_use_no_relay),
        cmocka_unit_test(pairs_of_one_generation_are_told_apart),
        cmocka_unit_test(only_unreachable_ranks_are_relayed),
        cmocka_unit_test(another_machine_at_the_address_is_not_taken_for_the_peer),
        cmocka_unit_test(a_wrong_ticket_is_named),
        cmocka_unit_test(the_death_of_the_relay_ends_the_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
