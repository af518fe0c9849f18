/* The relay on loopback: what it joins, what it refuses, and what it costs. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "daemon/relay/relay_server.h"
#include "tests/unit/base/check.h"
#include "tests/unit/relay/relay_client.h"

#define PIECE (64 * 1024)

static struct relay_server *server;
static const uint8_t key[RELAY_KEY] = "the key of this relay";

static uint16_t relay_begin(struct relay_options options)
{
    struct err e = {0};

    options.address = "127.0.0.1:0";
    memcpy(options.key, key, sizeof(key));
    assert_ok(relay_server_open(&server, &options, &e), &e);
    return relay_server_port(server);
}

static struct relay_traffic traffic_now(void)
{
    struct relay_traffic t;

    relay_server_count(server, &t);
    return t;
}

/* Waits until the counter at this offset of struct relay_traffic has the value. */
static void traffic_wait(size_t offset, uint64_t wanted)
{
    int64_t end = clock_boot_ms() + 30000 * test_slow();
    struct relay_traffic t = traffic_now();

    while (*(uint64_t *)((char *)&t + offset) != wanted) {
        if (clock_boot_ms() > end)
            fail_msg("counter at %zu is %llu, not %llu", offset,
                     (unsigned long long)*(uint64_t *)((char *)&t + offset), (unsigned long long)wanted);
        poll(NULL, 0, 5);
        t = traffic_now();
    }
}
#define WAIT_TRAFFIC(member, wanted) traffic_wait(offsetof(struct relay_traffic, member), wanted)

static void pair_open(uint16_t port, int pair, int ends[2])
{
    ends[0] = relay_client_ask(port, key, 1, pair, RELAY_CONNECTOR);
    ends[1] = relay_client_ask(port, key, 1, pair, RELAY_ACCEPTOR);
    assert_true(relay_client_paired(ends[0]));
    assert_true(relay_client_paired(ends[1]));
}

static void pair_works(const int ends[2])
{
    char in[6] = "";

    for (int i = 0; i < 2; i++) {
        assert_int_equal(send(ends[i], "hello", 6, MSG_NOSIGNAL), 6);
        assert_int_equal(recv(ends[1 - i], in, 6, MSG_WAITALL), 6);
        assert_string_equal(in, "hello");
    }
}

static void pair_close(const int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

static int relay_end_all(void **state)
{
    (void)state;
    relay_server_close(steal(server));
    return 0;
}

static void copies_both_ways_and_counts(void **state)
{
    uint16_t port = relay_begin((struct relay_options){0});
    int one[2], other[2];

    (void)state;
    pair_open(port, 1, one);
    pair_open(port, 2, other);
    pair_works(one);
    pair_works(other);
    WAIT_TRAFFIC(bytes, 24);
    assert_int_equal(traffic_now().links, 2);
    assert_int_equal(traffic_now().links_now, 2);
    pair_close(one);
    pair_close(other);
    WAIT_TRAFFIC(links_now, 0);
    assert_int_equal(traffic_now().refused, 0);
}

/* Equal names, but another job's generation, or the same end: they do not belong together. */
static void joins_only_what_belongs_together(void **state)
{
    uint16_t port = relay_begin((struct relay_options){0});
    int ends[2], strange = relay_client_ask(port, key, 2, 1, RELAY_ACCEPTOR);
    int given_up = relay_client_ask(port, key, 1, 1, RELAY_CONNECTOR);
    int again = relay_client_ask(port, key, 1, 1, RELAY_CONNECTOR);

    (void)state;
    assert_true(relay_client_closed(given_up)); /* the newer one has taken its place */
    ends[0] = again;
    ends[1] = relay_client_ask(port, key, 1, 1, RELAY_ACCEPTOR);
    assert_true(relay_client_paired(ends[0]) && relay_client_paired(ends[1]));
    pair_works(ends);
    assert_int_equal(traffic_now().links, 1);
    close(given_up);
    close(strange);
    pair_close(ends);
}

static void refuses_wrong_tickets(void **state)
{
    static const uint8_t wrong[RELAY_KEY] = "the key of another relay";
    uint16_t port = relay_begin((struct relay_options){0});
    struct relay_hello hello = {.job = 7, .generation = 1};
    uint8_t nonce[RELAY_NONCE], ticket[RELAY_TICKET], out[RELAY_HELLO];
    int fd = relay_client_ask(port, wrong, 1, 1, RELAY_CONNECTOR), ends[2];

    (void)state;
    assert_true(relay_client_closed(fd));
    close(fd);
    /* a hello that was recorded from another connection */
    fd = relay_client_knock(port, nonce);
    relay_make_ticket(ticket, key, 7, 1);
    nonce[0] ^= 1;
    relay_write_hello(out, &hello, ticket, nonce);
    assert_int_equal(send(fd, out, sizeof(out), MSG_NOSIGNAL), sizeof(out));
    assert_true(relay_client_closed(fd));
    close(fd);
    /* the ticket of generation 1 for generation 2 */
    fd = relay_client_knock(port, nonce);
    hello.generation = 2;
    relay_write_hello(out, &hello, ticket, nonce);
    assert_int_equal(send(fd, out, sizeof(out), MSG_NOSIGNAL), sizeof(out));
    assert_true(relay_client_closed(fd));
    close(fd);
    WAIT_TRAFFIC(refused, 3);
    assert_int_equal(traffic_now().links, 0);
    pair_open(port, 1, ends);
    pair_works(ends);
    pair_close(ends);
}

/* Bytes that are no hello, of every length up to twice a hello, and connections that end in the middle. */
static void survives_garbage(void **state)
{
    uint16_t port = relay_begin((struct relay_options){0});
    struct random r = random_stream(1, 2);
    uint8_t nonce[RELAY_NONCE], bytes[2 * RELAY_HELLO];
    int ends[2];

    (void)state;
    for (size_t size = 0; size < sizeof(bytes); size++) {
        int fd = relay_client_knock(port, nonce);

        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)random_u64(&r);
        (void)!send(fd, bytes, size, MSG_NOSIGNAL);
        if (size >= RELAY_HELLO)
            assert_true(relay_client_closed(fd));
        close(fd);
    }
    WAIT_TRAFFIC(refused, sizeof(bytes));
    WAIT_TRAFFIC(strangers_now, 0);
    /* garbage in place of the wait for the peer */
    int fd = relay_client_ask(port, key, 1, 5, RELAY_CONNECTOR);
    assert_int_equal(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL), sizeof(bytes));
    assert_true(relay_client_closed(fd));
    close(fd);
    pair_open(port, 1, ends);
    pair_works(ends);
    pair_close(ends);
}

static void ends_silent_connections(void **state)
{
    uint16_t port = relay_begin((struct relay_options){.hello_ms = 200, .wait_ms = 400});
    uint8_t nonce[RELAY_NONCE];
    int silent = relay_client_knock(port, nonce), half = relay_client_knock(port, nonce);
    int alone = relay_client_ask(port, key, 1, 1, RELAY_CONNECTOR);

    (void)state;
    assert_int_equal(send(half, nonce, 20, MSG_NOSIGNAL), 20);
    assert_true(relay_client_closed(silent));
    assert_true(relay_client_closed(half));
    assert_true(relay_client_closed(alone)); /* no peer came */
    WAIT_TRAFFIC(refused, 2);
    close(silent);
    close(half);
    close(alone);
}

/* Strangers take each other's places, and never those of ranks. */
static void strangers_keep_no_rank_out(void **state)
{
    uint16_t port = relay_begin((struct relay_options){.strangers = 8});
    uint8_t nonce[RELAY_NONCE];
    int fds[64], ends[2], waiting = relay_client_ask(port, key, 1, 9, RELAY_CONNECTOR);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = relay_client_knock(port, nonce);
    assert_true(traffic_now().strangers_now <= 8);
    pair_open(port, 1, ends);
    pair_works(ends);
    assert_true(relay_client_closed(fds[0]));
    int late = relay_client_ask(port, key, 1, 9, RELAY_ACCEPTOR);
    assert_true(relay_client_paired(waiting) && relay_client_paired(late));
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    close(waiting);
    close(late);
    pair_close(ends);
}

static void has_a_limit_of_links(void **state)
{
    uint16_t port = relay_begin((struct relay_options){.links = 2});
    int one[2], two[2], three[2];

    (void)state;
    pair_open(port, 1, one);
    pair_open(port, 2, two);
    three[0] = relay_client_ask(port, key, 1, 3, RELAY_CONNECTOR);
    three[1] = relay_client_ask(port, key, 1, 3, RELAY_ACCEPTOR);
    WAIT_TRAFFIC(refused, 1);
    pair_works(one);
    pair_works(two);
    pair_close(one);
    WAIT_TRAFFIC(links_now, 1);
    close(three[1]);
    three[1] = relay_client_ask(port, key, 1, 3, RELAY_ACCEPTOR);
    assert_true(relay_client_paired(three[0]) && relay_client_paired(three[1]));
    pair_works(three);
    pair_close(two);
    pair_close(three);
}

/* A link uses two open files. The relay takes at most a quarter of what its daemon may open. */
static void the_limit_of_open_files_limits_the_links(void **state)
{
    struct rlimit before, few;
    int waiting[9], late;
    uint16_t port;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 4 * ARRAY_LEN(waiting) + 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    port = relay_begin((struct relay_options){0});
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0); /* the limit at the start counts */
    for (size_t i = 0; i < ARRAY_LEN(waiting); i++)
        waiting[i] = relay_client_ask(port, key, 1, (int)i, RELAY_CONNECTOR);
    WAIT_TRAFFIC(strangers_now, 0);
    assert_int_equal(traffic_now().refused, 0);
    late = relay_client_ask(port, key, 1, 100, RELAY_CONNECTOR);
    WAIT_TRAFFIC(refused, 1);
    for (size_t i = 0; i < ARRAY_LEN(waiting); i++)
        close(waiting[i]);
    close(late);
}

static atomic_int accept_errno, accepts;
int __real_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
    atomic_fetch_add(&accepts, 1);
    if (!atomic_load(&accept_errno))
        return __real_accept4(fd, address, size, flags);
    errno = atomic_load(&accept_errno);
    return -1;
}

static int dial_port(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Such as a kernel without memory. The connection waits meanwhile. */
static void a_failed_accept_is_tried_again_later(void **state)
{
    static const int errors[] = {ENOMEM, ENOBUFS, EMFILE};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
        uint16_t port;
        int ends[2];

        atomic_store(&accepts, 0);
        atomic_store(&accept_errno, errors[i]);
        port = relay_begin((struct relay_options){0});
        ends[0] = dial_port(port);
        poll(NULL, 0, 500); /* without a pause there were thousands by now */
        assert_in_range(atomic_load(&accepts), 1, 20);
        atomic_store(&accept_errno, 0);
        close(ends[0]);
        pair_open(port, 1, ends);
        pair_close(ends);
        relay_end_all(state);
    }
}

static size_t send_until_blocked(int fd)
{
    static char bytes[PIECE];
    size_t sent = 0;
    ssize_t n;

    fcntl(fd, F_SETFL, O_NONBLOCK);
    /* Blocked means: for a while there is no room, although the relay had time to make some. */
    for (struct pollfd p = {.fd = fd, .events = POLLOUT}; poll(&p, 1, 300) > 0;) {
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (char)((sent + i) * 31 >> 3);
        n = send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
        assert_true(n > 0);
        sent += (size_t)n;
    }
    return sent;
}

static void receive_exactly(int fd, size_t size)
{
    static char bytes[PIECE];

    for (size_t at = 0; at < size;) {
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

        assert_true(n > 0);
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i] != (char)((at + (size_t)i) * 31 >> 3))
                fail_msg("byte %zu differs", at + (size_t)i);
        at += (size_t)n;
    }
}

/* An end that does not read stops its peer, not the other direction, and no other pair. */
static void slow_readers_stop_their_peers_only(void **state)
{
    uint16_t port = relay_begin((struct relay_options){0});
    int slow[2], other[2];
    char in[6];

    (void)state;
    pair_open(port, 1, slow);
    pair_open(port, 2, other);
    size_t sent = send_until_blocked(slow[0]);
    assert_true(traffic_now().buffered_now > 0 && traffic_now().buffered_now <= PIECE);
    pair_works(other);
    assert_int_equal(send(slow[1], "hello", 6, MSG_NOSIGNAL), 6);
    fcntl(slow[0], F_SETFL, 0);
    assert_int_equal(recv(slow[0], in, 6, MSG_WAITALL), 6);
    receive_exactly(slow[1], sent);
    WAIT_TRAFFIC(buffered_now, 0);
    pair_works(slow);
    pair_close(slow);
    pair_close(other);
}

/* What was sent before the end arrives; then the peer sees the end. */
static void delivers_the_last_bytes(void **state)
{
    uint16_t port = relay_begin((struct relay_options){0});
    int ends[2];

    (void)state;
    pair_open(port, 1, ends);
    size_t sent = send_until_blocked(ends[0]);
    close(ends[0]);
    receive_exactly(ends[1], sent);
    assert_true(relay_client_closed(ends[1]));
    WAIT_TRAFFIC(links_now, 0);
    close(ends[1]);
}

/* The last bytes do not keep a place for ever. */
static void gives_up_an_end_that_never_reads(void **state)
{
    uint16_t port = relay_begin((struct relay_options){.flush_ms = 300});
    struct linger at_once = {.l_onoff = 1};
    int ends[2];

    (void)state;
    pair_open(port, 1, ends);
    send_until_blocked(ends[0]);
    setsockopt(ends[0], SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(ends[0]); /* a reset */
    WAIT_TRAFFIC(links_now, 0);
    WAIT_TRAFFIC(buffered_now, 0);
    assert_true(relay_client_closed(ends[1]));
    close(ends[1]);
}

static void many_pairs(void **state)
{
    enum { PAIRS = 200 };
    uint16_t port = relay_begin((struct relay_options){0});
    int(*ends)[2] = xcalloc(PAIRS, sizeof(*ends));

    (void)state;
    for (int i = 0; i < PAIRS; i++)
        ends[i][0] = relay_client_ask(port, key, 1, i, RELAY_CONNECTOR);
    for (int i = PAIRS - 1; i >= 0; i--)
        ends[i][1] = relay_client_ask(port, key, 1, i, RELAY_ACCEPTOR);
    for (int i = 0; i < PAIRS; i++)
        assert_true(relay_client_paired(ends[i][0]) && relay_client_paired(ends[i][1]));
    for (int i = 0; i < PAIRS; i++)
        pair_works(ends[i]);
    WAIT_TRAFFIC(bytes, PAIRS * 12);
    for (int i = 0; i < PAIRS; i++)
        pair_close(ends[i]);
    WAIT_TRAFFIC(links_now, 0);
    free(ends);
}

#define MEASURED ((size_t)256 << 20)

static void *send_measured(void *arg)
{
    static const char bytes[4 * PIECE];
    size_t left = MEASURED;

    while (left) {
        ssize_t n = send(*(int *)arg, bytes, left < sizeof(bytes) ? left : sizeof(bytes), MSG_NOSIGNAL);

        if (n <= 0)
            break;
        left -= (size_t)n;
    }
    return NULL;
}

/* Prints the figure; nothing depends on it. */
static void measure_throughput(void **state)
{
    uint16_t port = relay_begin((struct relay_options){0});
    static char bytes[4 * PIECE];
    size_t got = 0;
    pthread_t sender;
    int ends[2];

    (void)state;
    pair_open(port, 1, ends);
    int64_t start = clock_mono_ns();
    assert_int_equal(pthread_create(&sender, NULL, send_measured, &ends[0]), 0);
    while (got < MEASURED) {
        ssize_t n = recv(ends[1], bytes, sizeof(bytes), 0);

        assert_true(n > 0);
        got += (size_t)n;
    }
    double seconds = (double)(clock_mono_ns() - start) / 1e9;
    pthread_join(sender, NULL);
    printf("one pair over loopback: %.0f MB/s\n", (double)MEASURED / 1e6 / seconds);
    assert_int_equal(traffic_now().bytes, MEASURED);
    pair_close(ends);
}

static void needs_an_address(void **state)
{
    static const char *const wrong[] = {NULL,      "",     "box3",      "box3:",  ":7070", "box3:70000",
                                        "box3:7x", "[]:1", "0.0.0.0:7", "[::]:7", "*:7"};
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_int_equal(relay_server_open(&server, &(struct relay_options){.address = wrong[i]}, &e),
                         ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "HOST:PORT"));
    }
    assert_null(server);
}

static void says_that_its_port_is_taken(void **state)
{
    uint16_t port = relay_begin((struct relay_options){0});
    CLEANUP(free_text) char *address = xasprintf("127.0.0.1:%u", port);
    struct relay_server *second = NULL;
    struct err e = {0};

    (void)state;
    assert_int_not_equal(relay_server_open(&second, &(struct relay_options){.address = address}, &e), ERR_OK);
    assert_non_null(strstr(e.msg, address));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(copies_both_ways_and_counts, relay_end_all),
        cmocka_unit_test_teardown(joins_only_what_belongs_together, relay_end_all),
        cmocka_unit_test_teardown(refuses_wrong_tickets, relay_end_all),
        cmocka_unit_test_teardown(survives_garbage, relay_end_all),
        cmocka_unit_test_teardown(ends_silent_connections, relay_end_all),
        cmocka_unit_test_teardown(strangers_keep_no_rank_out, relay_end_all),
        cmocka_unit_test_teardown(has_a_limit_of_links, relay_end_all),
        cmocka_unit_test_teardown(the_limit_of_open_files_limits_the_links, relay_end_all),
        cmocka_unit_test_teardown(a_failed_accept_is_tried_again_later, relay_end_all),
        cmocka_unit_test_teardown(slow_readers_stop_their_peers_only, relay_end_all),
        cmocka_unit_test_teardown(delivers_the_last_bytes, relay_end_all),
        cmocka_unit_test_teardown(gives_up_an_end_that_never_reads, relay_end_all),
        cmocka_unit_test_teardown(many_pairs, relay_end_all),
        cmocka_unit_test_teardown(measure_throughput, relay_end_all),
        cmocka_unit_test_teardown(needs_an_address, relay_end_all),
        cmocka_unit_test_teardown(says_that_its_port_is_taken, relay_end_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
