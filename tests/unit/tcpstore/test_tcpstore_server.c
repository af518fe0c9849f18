#include "tests/unit/base/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "daemon/tcpstore/conversation.h"
#include "daemon/tcpstore/server.h"
#include "tests/unit/tcpstore/request_bytes.h"

/* A server in a thread, and clients that speak the plain dialect over sockets. */
struct running {
    struct tcpstore_options options;
    struct sockaddr_in at;
    int owner_write;
    enum err_code code;
    pthread_t thread;
};

static void *running_main(void *arg)
{
    struct running *r = arg;
    struct err e = {0};

    r->code = tcpstore_serve(&r->options, &e);
    return NULL;
}

static void running_start(struct running *r, struct tcpstore_options options)
{
    socklen_t size = sizeof(r->at);
    int fds[2];

    *r = (struct running){.options = options, .at = {.sin_family = AF_INET}};
    r->at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->options.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(r->options.listener, (struct sockaddr *)&r->at, sizeof(r->at)), 0);
    assert_int_equal(listen(r->options.listener, 64), 0);
    assert_int_equal(getsockname(r->options.listener, (struct sockaddr *)&r->at, &size), 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    r->options.owner = fds[0];
    r->owner_write = fds[1];
    assert_int_equal(pthread_create(&r->thread, NULL, running_main, r), 0);
}

static void running_leave(struct running *r)
{
    close_fd(&r->owner_write);
    r->owner_write = -1;
}

static void running_join(struct running *r)
{
    assert_int_equal(pthread_join(r->thread, NULL), 0);
    assert_int_equal(r->code, ERR_OK);
    close(r->options.owner);
}

static int client_open(const struct running *r)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 20 * test_slow()};

    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&r->at, sizeof(r->at)), 0);
    return fd;
}

static void client_say(int fd, const struct buf *b)
{
    size_t done = 0;

    while (done < b->len) {
        ssize_t n = send(fd, b->data + done, b->len - done, MSG_NOSIGNAL);

        if (n < 0) /* the server may have closed it */
            return;
        done += (size_t)n;
    }
}

static void client_request(int fd, int command, const char *const *texts)
{
    CLEANUP(buf_release) struct buf b = {0};

    put_request(&b, command, texts);
    client_say(fd, &b);
}

static void client_hear(int fd, const void *bytes, size_t size)
{
    char heard[64];
    size_t done = 0;

    assert_true(size <= sizeof(heard));
    while (done < size) {
        ssize_t n = recv(fd, heard + done, size - done, 0);

        assert_true(n > 0);
        done += (size_t)n;
    }
    assert_memory_equal(heard, bytes, size);
}

static void client_hear_end(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);

    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    close(fd);
}

static void put_validate(struct buf *b)
{
    uint32_t magic = 0x3C85F7CEu;

    buf_putc(b, 0);
    buf_append(b, &magic, sizeof(magic));
}

/* The number of keys: the request and its answer show that the client is served. */
static void client_expect_keys(int fd, int64_t keys)
{
    client_request(fd, 6, TEXTS(NULL));
    client_hear(fd, &keys, sizeof(keys));
}

static void one_client_waits_for_another(void **state)
{
    struct running r;
    CLEANUP(buf_release) struct buf wait = {0};

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30});
    int a = client_open(&r), b = client_open(&r);
    buf_putc(&wait, 5);
    put_u64(&wait, 1);
    put_piece(&wait, "k");
    client_say(a, &wait);
    client_request(b, 0, TEXTS("k", "v"));
    client_hear(a, "\0", 1);
    client_request(a, 2, TEXTS("k"));
    client_hear(a, "\1\0\0\0\0\0\0\0v", 9);
    running_leave(&r);
    client_expect_keys(b, 1); /* clients are served until they go */
    close(a);
    close(b);
    running_join(&r);
}

static void large_values_pass(void **state)
{
    struct running r;
    CLEANUP(buf_release) struct buf set = {0}, heard = {0};
    CLEANUP(free_text) char *value = xmalloc(TCPSTORE_VALUE_MAX);
    char chunk[65536];

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30});
    int a = client_open(&r);
    for (size_t i = 0; i < TCPSTORE_VALUE_MAX; i++)
        value[i] = (char)(i * 7 + i / 251);
    buf_putc(&set, 0);
    put_piece(&set, "k");
    put_u64(&set, TCPSTORE_VALUE_MAX);
    buf_append(&set, value, TCPSTORE_VALUE_MAX);
    client_say(a, &set);
    client_request(a, 2, TEXTS("k"));
    while (heard.len < TCPSTORE_VALUE_MAX + 8) {
        ssize_t n = recv(a, chunk, sizeof(chunk), 0);

        assert_true(n > 0);
        buf_append(&heard, chunk, (size_t)n);
    }
    assert_memory_equal(heard.data + 8, value, TCPSTORE_VALUE_MAX);
    client_expect_keys(a, 1);
    close(a);
    running_leave(&r);
    running_join(&r);
}

/* The value of one rank for all others: they ask at once, and more than the limit of traffic would be on its way. */
static void many_clients_get_one_large_value(void **state)
{
    enum { CLIENTS = 16, REPLY = TCPSTORE_VALUE_MAX + 8 };
    static char chunk[1 << 16];
    struct running r;
    struct pollfd readers[CLIENTS];
    size_t heard[CLIENTS] = {0};
    CLEANUP(buf_release) struct buf set = {0};
    CLEANUP(free_text) char *value = xcalloc(1, TCPSTORE_VALUE_MAX);

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30, .stall_ms = 1 << 30});
    int worker = client_open(&r);
    buf_putc(&set, 0);
    put_piece(&set, "k");
    put_u64(&set, TCPSTORE_VALUE_MAX);
    buf_append(&set, value, TCPSTORE_VALUE_MAX);
    client_say(worker, &set);
    client_expect_keys(worker, 1);
    for (int i = 0; i < CLIENTS; i++) {
        readers[i] = (struct pollfd){.fd = client_open(&r), .events = POLLIN};
        client_request(readers[i].fd, 2, TEXTS("k"));
    }
    client_expect_keys(worker, 1);
    for (int unfinished = CLIENTS; unfinished;) {
        assert_true(poll(readers, CLIENTS, 20000 * test_slow()) > 0);
        for (int i = 0; i < CLIENTS; i++) {
            if (!readers[i].revents)
                continue;
            ssize_t n = recv(readers[i].fd, chunk, sizeof(chunk), 0);

            assert_true(n > 0); /* none is closed */
            heard[i] += (size_t)n;
            if (heard[i] < REPLY)
                continue;
            assert_int_equal(heard[i], REPLY);
            readers[i].events = 0;
            unfinished--;
        }
    }
    client_expect_keys(worker, 1);
    for (int i = 0; i < CLIENTS; i++)
        close(readers[i].fd);
    close(worker);
    running_leave(&r);
    running_join(&r);
}

static void strangers_are_closed_and_others_go_on(void **state)
{
    struct running r;
    CLEANUP(buf_release) struct buf http = {0};

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30, .store_limit = 2000});
    int worker = client_open(&r), scanner = client_open(&r), greedy = client_open(&r);
    CLEANUP(free_text) char *value = xcalloc(1, 3001);
    memset(value, 'x', 3000);
    client_request(worker, 0, TEXTS("k", "v"));
    buf_puts(&http, "GET / HTTP/1.1\r\n\r\n");
    client_say(scanner, &http);
    client_hear_end(scanner);
    client_request(greedy, 0, TEXTS("l", value)); /* the store is full */
    client_hear_end(greedy);
    client_expect_keys(worker, 1);
    close(worker);
    running_leave(&r);
    running_join(&r);
}

/* Bytes that are no request come behind a request whose reply is so large that the server reads on only when it has
 * been sent. Each such connection is closed once, and a worker is served. */
static void a_fault_behind_a_large_reply_closes_once(void **state)
{
    struct running r;
    CLEANUP(buf_release) struct buf get = {0};
    CLEANUP(free_text)
    char *value = xcalloc(1, TCPSTORE_OUT_PAUSE + 1), *heard = xmalloc(TCPSTORE_OUT_PAUSE + 8);

    (void)state;
    memset(value, 'x', TCPSTORE_OUT_PAUSE);
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30});
    int worker = client_open(&r);
    client_request(worker, 0, TEXTS("k", value));
    client_expect_keys(worker, 1);
    put_request(&get, 2, TEXTS("k"));
    buf_puts(&get, "\xff\xff\xff\xff\xff\xff\xff\xff");
    for (int i = 0; i < 5; i++) {
        int stranger = client_open(&r);

        client_say(stranger, &get);
        assert_int_equal(recv(stranger, heard, TCPSTORE_OUT_PAUSE + 8, MSG_WAITALL), TCPSTORE_OUT_PAUSE + 8);
        client_hear_end(stranger);
        client_expect_keys(worker, 1);
    }
    close(worker);
    running_leave(&r);
    running_join(&r);
}

/* The oldest connection that has said nothing makes room; those that have spoken stay. */
static void silent_connections_make_room(void **state)
{
    struct running r;

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30, .clients_limit = 3});
    int worker = client_open(&r);
    client_expect_keys(worker, 0);
    int first = client_open(&r), second = client_open(&r), third = client_open(&r);
    client_hear_end(first);
    client_expect_keys(third, 0);
    client_expect_keys(second, 0);
    client_hear_end(client_open(&r)); /* all have spoken: the new one is closed */
    client_expect_keys(worker, 0);
    close(second);
    close(third);
    close(worker);
    running_leave(&r);
    running_join(&r);
}

/* VALIDATE and PING, as PyTorch's clients of 2.1 and later begin. */
static int client_greet(const struct running *r)
{
    CLEANUP(buf_release) struct buf b = {0};
    const int fd = client_open(r);

    put_validate(&b);
    buf_puts(&b, "\x0d"
                 "1234");
    client_say(fd, &b);
    client_hear(fd, "1234", 4);
    return fd;
}

/* Connections that have only greeted stay while there is room, and make room for a late rank. */
static void clients_that_only_greet_make_room(void **state)
{
    const char ask = TCPSTORE_GETNUMKEYS;
    const int64_t none = 0;
    struct running r;

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30, .clients_limit = 3});
    int worker = client_open(&r);
    client_expect_keys(worker, 0);
    int first = client_greet(&r), slow = client_greet(&r);
    int late = client_greet(&r);
    client_hear_end(first);
    assert_int_equal(send(slow, &ask, 1, 0), 1);
    client_hear(slow, &none, sizeof(none));
    assert_int_equal(send(late, &ask, 1, 0), 1);
    client_hear(late, &none, sizeof(none));
    client_expect_keys(worker, 0);
    close(slow);
    close(late);
    close(worker);
    running_leave(&r);
    running_join(&r);
}

/* The server ends when the last real client leaves. A stranger that has only greeted and stays connected does not keep it. */
static void a_greeting_does_not_keep_the_server(void **state)
{
    struct running r;

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30});
    int worker = client_open(&r), stranger = client_greet(&r);
    client_expect_keys(worker, 0);
    running_leave(&r);
    client_expect_keys(worker, 0);
    close(worker);
    client_hear_end(stranger);
    running_join(&r);
}

/* Requests that do not end fill the room for them; the oldest is closed, and a worker is served. */
static void unfinished_requests_make_room(void **state)
{
    struct running r;
    CLEANUP(buf_release) struct buf half = {0};
    CLEANUP(free_text) char *bytes = xcalloc(1, 60000);

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30, .traffic_limit = 100000});
    int first = client_open(&r), second = client_open(&r), worker = client_open(&r);
    buf_putc(&half, 0);
    put_piece(&half, "k");
    put_u64(&half, 1 << 20);
    buf_append(&half, bytes, 60000);
    client_say(first, &half);
    client_expect_keys(worker, 0);
    client_say(second, &half);
    client_hear_end(first);
    client_expect_keys(worker, 0);
    close(second);
    close(worker);
    running_leave(&r);
    running_join(&r);
}

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN
#elif defined(__has_feature) /* clang */
#if __has_feature(address_sanitizer)
#define UNDER_ASAN
#endif
#endif

static int held_write, release_read;

/* Keeps the server's thread until a byte comes. */
static void server_hold(int signo)
{
    char byte = 0;

    (void)signo;
    if (write(held_write, &byte, 1) != 1 || read(release_read, &byte, 1) != 1)
        abort();
}

static size_t memory_peak_kb(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    size_t kb = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        if (!strncmp(line, "VmHWM:", 6))
            kb = strtoul(line + 6, NULL, 10);
    fclose(f);
    return kb;
}

/* Twelve clients ask in one turn of the server for 30 MB each, and do not read. The replies that are over the limit
 * are not all built first: the memory stays near the limit. */
static void large_replies_of_one_turn_stay_within_the_limit(void **state)
{
    enum { CLIENTS = 12, VALUE = 30000, TIMES = 1000, MOST_KB = 140 << 10 };
    struct sigaction hold = {.sa_handler = server_hold}, old;
    struct running r;
    CLEANUP(buf_release) struct buf get = {0};
    CLEANUP(free_text) char *value = NULL;
    int held[2], release[2], clients[CLIENTS];
    char byte = 0;

    (void)state;
#ifdef UNDER_ASAN
    skip(); /* it keeps freed memory */
#endif
    value = xcalloc(1, VALUE + 1);
    memset(value, 'x', VALUE);
    assert_int_equal(pipe2(held, O_CLOEXEC), 0);
    assert_int_equal(pipe2(release, O_CLOEXEC), 0);
    held_write = held[1];
    release_read = release[0];
    assert_int_equal(sigaction(SIGUSR1, &hold, &old), 0);
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30});
    int worker = client_open(&r);
    client_request(worker, 0, TEXTS("k", value));
    client_expect_keys(worker, 1);
    put_validate(&get);
    buf_putc(&get, TCPSTORE_MULTI_GET);
    put_u64(&get, TIMES);
    for (int i = 0; i < TIMES; i++)
        put_piece(&get, "k");
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = client_open(&r);
    client_expect_keys(worker, 1); /* all have been accepted */
    size_t before = memory_peak_kb();
    assert_int_equal(pthread_kill(r.thread, SIGUSR1), 0);
    assert_int_equal(read(held[0], &byte, 1), 1);
    for (int i = 0; i < CLIENTS; i++)
        client_say(clients[i], &get);
    assert_int_equal(write(release[1], &byte, 1), 1);
    client_expect_keys(worker, 1); /* in this turn or a later one ... */
    client_expect_keys(worker, 1); /* ... but now that turn is over */
    assert_true(memory_peak_kb() - before < MOST_KB);
    for (int i = 0; i < CLIENTS; i++)
        close(clients[i]);
    close(worker);
    running_leave(&r);
    running_join(&r);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
    for (int i = 0; i < 2; i++) {
        close(held[i]);
        close(release[i]);
    }
}

/* The bytes until the end, or at most `most`. */
static size_t client_drain(int fd, size_t most)
{
    static char chunk[1 << 16];
    size_t heard = 0;

    while (heard < most) {
        ssize_t n = recv(fd, chunk, most - heard < sizeof(chunk) ? most - heard : sizeof(chunk), 0);

        if (n <= 0)
            break;
        heard += (size_t)n;
    }
    close(fd);
    return heard;
}

/* Clients that ask for large replies and do not read them are closed when another one's reply waits for them. */
static void readers_that_stall_make_room(void **state)
{
    enum { STALLED = 3, VALUE = 30000, TIMES = 1000, REPLY = TIMES * (VALUE + 8) };
    struct running r;
    CLEANUP(buf_release) struct buf get = {0};
    CLEANUP(free_text) char *value = xcalloc(1, VALUE + 1);
    int stalled[STALLED];

    (void)state;
    memset(value, 'x', VALUE);
    running_start(&r, (struct tcpstore_options){.linger_ms = 1 << 30, .stall_ms = 50});
    int worker = client_open(&r), reader = client_open(&r);
    client_request(worker, 0, TEXTS("k", value));
    client_expect_keys(worker, 1);
    put_validate(&get);
    buf_putc(&get, TCPSTORE_MULTI_GET);
    put_u64(&get, TIMES);
    for (int i = 0; i < TIMES; i++)
        put_piece(&get, "k");
    for (int i = 0; i < STALLED; i++) {
        stalled[i] = client_open(&r);
        client_say(stalled[i], &get);
    }
    client_expect_keys(worker, 1);
    client_expect_keys(worker, 1); /* the stalled clients' requests have been read */
    client_say(reader, &get);
    assert_int_equal(client_drain(reader, REPLY), REPLY);
    for (int i = 0; i < STALLED; i++)
        assert_true(client_drain(stalled[i], REPLY) < REPLY);
    client_expect_keys(worker, 1);
    close(worker);
    running_leave(&r);
    running_join(&r);
}

/* A client that does not go away cannot hold the server for ever. */
static void the_server_ends_in_time(void **state)
{
    struct running r;

    (void)state;
    running_start(&r, (struct tcpstore_options){.linger_ms = 200});
    int worker = client_open(&r);
    client_expect_keys(worker, 0);
    running_leave(&r);
    running_join(&r);
    client_hear_end(worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_client_waits_for_another),
        cmocka_unit_test(large_values_pass),
        cmocka_unit_test(many_clients_get_one_large_value),
        cmocka_unit_test(strangers_are_closed_and_others_go_on),
        cmocka_unit_test(a_fault_behind_a_large_reply_closes_once),
        cmocka_unit_test(silent_connections_make_room),
        cmocka_unit_test(clients_that_only_greet_make_room),
        cmocka_unit_test(a_greeting_does_not_keep_the_server),
        cmocka_unit_test(unfinished_requests_make_room),
        cmocka_unit_test(large_replies_of_one_turn_stay_within_the_limit),
        cmocka_unit_test(readers_that_stall_make_room),
        cmocka_unit_test(the_server_ends_in_time),
    };
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
