/* Tests connections of processes without the generation's key: they get 32 random bytes and a closed
 * connection, and they delay no rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/crypto/id.h"
#include "tests/unit/trainer/member/ranks.h"

/* 100 for each of three listeners: more than may be in their handshake at the same time. */
#define STRANGERS 300

/* The format of listener.c: version, port, host, path. */
static uint16_t port_of(const uint8_t *address)
{
    return (uint16_t)(address[1] << 8 | address[2]);
}

static int dial_tcp(const uint8_t *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_port = htons(port_of(address));
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static int dial_unix(const uint8_t *address)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t host = address[3], size = (size_t)address[4 + host] << 8 | address[5 + host];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_in_range(size, 1, sizeof(to.sun_path) - 1);
    memcpy(to.sun_path, address + 6 + host, size);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* One third sends nothing, one third sends random bytes of a hello's length, one third sends single bytes
 * slowly. */
static void stranger_talk(int fd, int i)
{
    char noise[92];

    id_random(noise, sizeof(noise));
    if (i % 3 == 1)
        assert_int_equal(send(fd, noise, sizeof(noise), MSG_NOSIGNAL), sizeof(noise));
    if (i % 3 == 2)
        assert_int_equal(send(fd, noise, 1, MSG_NOSIGNAL), 1);
}

/* Reads until the other side closes the connection. Returns the number of bytes. */
static size_t listen_to(int fd)
{
    char data[4096];
    size_t total = 0;
    ssize_t n;

    while ((n = recv(fd, data, sizeof(data), 0)) > 0)
        total += (size_t)n;
    return total;
}

static void form_and_sum(struct ranks *r, int rank)
{
    struct coll_group *g = ranks_open(r, rank);
    struct err e = {0};
    float *data;

    RANK_OK(coll_alloc(g, 100000, &data, &e), &e);
    data[99999] = 1;
    RANK_OK(coll_allreduce(g, data, 100000, &e), &e);
    RANK_CHECK(data[99999] == (float)r->world);
    coll_close(g);
}

static void strangers_besiege(struct ranks r, int (*dial)(const uint8_t *))
{
    int fds[STRANGERS];

    ranks_prepare(&r);
    for (int i = 0; i < STRANGERS; i++) {
        fds[i] = dial(r.addresses[i % r.world]);
        stranger_talk(fds[i], i);
    }
    ranks_start(&r, form_and_sum);
    /* Closes the listeners, and with them the connections that were never accepted. */
    assert_true(ranks_finish(&r, -1));
    for (int i = 0; i < STRANGERS; i++) {
        size_t heard = listen_to(fds[i]);

        assert_true(heard == 0 || heard == 32);
        close(fds[i]);
    }
    ranks_release(&r);
}

static void strangers_delay_no_ring_and_learn_nothing(void **state)
{
    (void)state;
    strangers_besiege((struct ranks){.world = 3, .node_of = {0, 1, 2}, .timeout_ms = 20000}, dial_tcp);
}

static void strangers_delay_no_pairs_and_learn_nothing(void **state)
{
    struct ranks r = {.world = 3, .node_of = {0, 1, 2}, .pairs = true, .timeout_ms = 20000};

    (void)state;
    strangers_besiege(r, dial_tcp);
}

static void strangers_delay_no_node_and_learn_nothing(void **state)
{
    (void)state;
    strangers_besiege((struct ranks){.world = 3, .timeout_ms = 20000}, dial_unix);
}

/* ---- members of something else */

static void with_another(struct ranks *r, int rank)
{
    const char *what = r->arg;
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};

    ranks_config(r, rank, &config);
    if (rank == 1 && !strcmp(what, "key"))
        config.key[31] ^= 1;
    if (rank == 1 && !strcmp(what, "generation"))
        config.generation++;
    if (rank == 1 && !strcmp(what, "job"))
        config.job++;
    RANK_CHECK(coll_open(&g, r->listeners[rank], &config, &e) == ERR_DEADLINE_EXCEEDED);
    RANK_CHECK(strstr(e.msg, "rank"));
}

static void a_peer_with_another_key_generation_or_job_is_refused(void **state)
{
    static const char *const whats[] = {"key", "generation", "job"};

    (void)state;
    for (int node = 0; node < 2; node++)
        for (size_t i = 0; i < 3; i++) {
            struct ranks r = {.world = 2, .node_of = {0, node}, .timeout_ms = 300, .arg = whats[i]};

            assert_true(ranks_run(&r, with_another));
            ranks_release(&r);
        }
}

/* ---- an acceptor that does not know the key */

struct impostor {
    int listener;
    atomic_bool done;
    size_t most; /* most bytes that it received on one connection */
};

static void *play_acceptor(void *arg)
{
    struct impostor *im = arg;
    char noise[32], heard[4096];

    while (!atomic_load(&im->done)) {
        int fd = accept(im->listener, NULL, NULL);
        size_t total = 0;
        ssize_t n;

        if (fd < 0)
            return NULL;
        id_random(noise, sizeof(noise));
        (void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL); /* a challenge */
        n = recv(fd, heard, 92, MSG_WAITALL);                /* the connector's hello */
        total += n > 0 ? (size_t)n : 0;
        (void)!send(fd, noise, sizeof(noise), MSG_NOSIGNAL); /* a false proof */
        while ((n = recv(fd, heard, sizeof(heard), 0)) > 0)
            total += (size_t)n;
        im->most = total > im->most ? total : im->most;
        close(fd);
    }
    return NULL;
}

static void a_false_acceptor_is_detected(void **state)
{
    struct impostor im = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct ranks r = {.world = 2, .node_of = {0, 1}, .timeout_ms = 400};
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(name);
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};
    pthread_t thread;

    (void)state;
    assert_int_equal(bind(im.listener, (struct sockaddr *)&name, sizeof(name)), 0);
    assert_int_equal(listen(im.listener, 16), 0);
    assert_int_equal(getsockname(im.listener, (struct sockaddr *)&name, &size), 0);
    assert_int_equal(pthread_create(&thread, NULL, play_acceptor, &im), 0);
    ranks_prepare(&r);
    r.addresses[0][1] = (uint8_t)(ntohs(name.sin_port) >> 8);
    r.addresses[0][2] = (uint8_t)ntohs(name.sin_port);
    ranks_config(&r, 1, &config);
    assert_int_equal(coll_open(&g, r.listeners[1], &config, &e), ERR_DEADLINE_EXCEEDED);
    assert_non_null(strstr(e.msg, "key"));
    atomic_store(&im.done, true);
    shutdown(im.listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(im.listener);
    assert_int_equal(im.most, 92);
    assert_true(ranks_finish(&r, -1));
    ranks_release(&r);
}

/* ---- forming that is called off */

struct caller {
    struct ranks *ranks;
    int rank;
};

static void *call_off(void *arg)
{
    struct caller *c = arg;

    while (!atomic_load(&c->ranks->shared->flag))
        poll(NULL, 0, 1);
    coll_listener_abort(c->ranks->listeners[c->rank], 3);
    return NULL;
}

/* Rank 0 never connects. */
static void wait_for_the_missing(struct ranks *r, int rank)
{
    struct caller c = {r, rank};
    struct coll_config config;
    struct coll_group *g;
    struct err e = {0};
    pthread_t thread;

    if (rank == 0)
        return;
    RANK_CHECK(pthread_create(&thread, NULL, call_off, &c) == 0);
    ranks_config(r, rank, &config);
    atomic_fetch_add(&r->shared->counter, 1);
    RANK_CHECK(coll_open(&g, r->listeners[rank], &config, &e) == ERR_ABORTED);
    pthread_join(thread, NULL);
    /* A second attempt fails, too. */
    RANK_CHECK(coll_open(&g, r->listeners[rank], &config, &e) == ERR_ABORTED);
}

static void an_abort_ends_forming(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        struct ranks r = {.world = 3, .node_of = {0, wide, 2 * wide}};

        ranks_prepare(&r);
        ranks_start(&r, wait_for_the_missing);
        while (atomic_load(&r.shared->counter) < 2)
            poll(NULL, 0, 1);
        atomic_store(&r.shared->flag, 1);
        assert_true(ranks_finish(&r, -1));
        ranks_release(&r);
    }
}

/* ---- the same abort reaches a group that has formed */

static void reduce_until_called_off(struct ranks *r, int rank)
{
    struct caller c = {r, rank};
    struct coll_group *g = ranks_open(r, rank);
    struct err e = {0};
    pthread_t thread;

    RANK_CHECK(pthread_create(&thread, NULL, call_off, &c) == 0);
    atomic_fetch_add(&r->shared->counter, 1);
    while (!coll_barrier(g, &e))
        ;
    RANK_CHECK(e.code == ERR_ABORTED && atomic_load(&r->shared->flag));
    coll_close(g);
    pthread_join(thread, NULL); /* an abort after the close must be harmless */
}

static void an_abort_by_the_listener_reaches_a_group_until_it_is_closed(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        struct ranks r = {.world = 3, .node_of = {0, wide, 2 * wide}};

        ranks_prepare(&r);
        ranks_start(&r, reduce_until_called_off);
        while (atomic_load(&r.shared->counter) < 3)
            poll(NULL, 0, 1);
        atomic_store(&r.shared->flag, 1);
        assert_true(ranks_finish(&r, -1));
        ranks_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_delay_no_ring_and_learn_nothing),
        cmocka_unit_test(strangers_delay_no_pairs_and_learn_nothing),
        cmocka_unit_test(strangers_delay_no_node_and_learn_nothing),
        cmocka_unit_test(a_peer_with_another_key_generation_or_job_is_refused),
        cmocka_unit_test(a_false_acceptor_is_detected),
        cmocka_unit_test(an_abort_ends_forming),
        cmocka_unit_test(an_abort_by_the_listener_reaches_a_group_until_it_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
