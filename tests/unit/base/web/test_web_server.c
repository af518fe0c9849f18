/* Connections of the HTTP server: those of broken-off requests end at once, and strangers do not keep out who has the key. */
#include "tests/unit/base/check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/web/web_guests.h"
#include "base/web/web_server.h"

#define WAIT_MS 20000
#define STRANGERS 300 /* more than the server takes connections */
#define BROKEN 40

static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct fixture {
    struct web_levels *levels;
    struct web_server *server;
};

static void fixture_answer(void *user, const struct web_asker *asker, const struct web_request *request,
                           struct web_reply *reply)
{
    (void)user;
    (void)asker;
    (void)request;
    buf_puts(&reply->body, "{}\n");
}

static void fixture_open(struct fixture *f)
{
    struct err e;
    f->levels = web_levels_create();
    const struct web_options options = {.key = key,
                                        .page = "<html></html>",
                                        .page_size = strlen("<html></html>"),
                                        .levels = f->levels,
                                        .answer = fixture_answer};
    assert_ok(web_server_open(&f->server, &options, &e), &e);
}

static void fixture_close(struct fixture *f)
{
    web_server_close(f->server);
    web_levels_free(f->levels);
}

static int fixture_connect(const struct fixture *f)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons(web_server_port(f->server)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval limit = {.tv_sec = WAIT_MS / 1000 * test_slow()};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    return fd;
}

static void socket_send(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void send_request(int fd, const char *method, const char *rest)
{
    CLEANUP(free_text)
    char *text = xasprintf("%s /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-DDP: 1\r\nX-DDP-Key: %s\r\n%s",
                           method, key, rest);
    socket_send(fd, text);
}

/* Asks for something on this connection and reads the answer. */
static void assert_answered(int fd)
{
    char reply[4096];
    size_t size = 0;
    send_request(fd, "GET", "\r\n");
    do {
        const ssize_t n = recv(fd, reply + size, sizeof(reply) - 1 - size, 0);
        if (n <= 0)
            fail_msg("no answer: %s", n ? strerror(errno) : "the server has closed the connection");
        size += (size_t)n;
        reply[size] = '\0';
    } while (!strstr(reply, "{}\n"));
    assert_memory_equal(reply, "HTTP/1.1 200", 12);
}

/* Whether the server has left the connection open. */
static bool socket_is_open(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* The sockets of this process: both ends of each connection belong to it. */
static size_t open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t count = 0;
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static void wait_turn(void)
{
    const struct timespec turn = {.tv_nsec = 5000000};
    nanosleep(&turn, NULL);
}

/* Sends a request whose body does not end. It is older than the other connections of a test. So a server that waits until it
 * may close the others for their age has closed this one before. */
static int witness_open(const struct fixture *f)
{
    const int witness = fixture_connect(f), other = fixture_connect(f);
    send_request(witness, "POST", "Content-Length: 100\r\n\r\nname: ");
    assert_answered(other); /* the server has the witness by now */
    close(other);
    return witness;
}

/* A body that ends early: the end of the stream arrives together with the data. */
static void broken_off_requests_end_at_once(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f);
    const int witness = witness_open(&f), other = fixture_connect(&f);
    assert_answered(other);
    const size_t before = open_files();
    for (int i = 0; i < BROKEN; i++) {
        const int fd = fixture_connect(&f);
        send_request(fd, "POST",
                     i % 2 ? "Content-Length: 100\r\n\r\nname: "
                           : "Transfer-Encoding: chunked\r\n\r\n500\r\nname: ");
        close(fd);
    }
    while (open_files() > before && socket_is_open(witness))
        wait_turn();
    assert_true(socket_is_open(witness));
    assert_true(open_files() <= before);
    close(witness);
    close(other);
    fixture_close(&f);
}

static void strangers_do_not_keep_out_who_has_the_key(void **state)
{
    struct fixture f;
    int strangers[STRANGERS];
    size_t open = 0;
    (void)state;
    fixture_open(&f);
    const int witness = witness_open(&f), early = fixture_connect(&f);
    assert_answered(early);
    for (size_t i = 0; i < STRANGERS; i++) {
        strangers[i] = fixture_connect(&f);
        socket_send(strangers[i], "GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-");
    }
    const int late = fixture_connect(&f);
    assert_answered(late);
    assert_true(socket_is_open(witness));
    assert_answered(early); /* and keeps the connection that has shown the key */
    for (size_t i = 0; i < STRANGERS; i++)
        open += socket_is_open(strangers[i]);
    assert_true(open > 0 && open <= 64);
    for (size_t i = 0; i < STRANGERS; i++)
        close(strangers[i]);
    close(witness);
    close(early);
    close(late);
    fixture_close(&f);
}

static void the_oldest_guest_makes_room(void **state)
{
    struct web_guests list = {.most = 2};
    struct web_guest guests[4] = {0};
    int ends[4][2];
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends[i]), 0);
        guests[i].fd = ends[i][0];
    }
    web_guests_add(&list, &guests[0]);
    web_guests_add(&list, &guests[1]);
    web_guests_remove(&list, &guests[0]); /* has shown the key: it does not count, and is not ended */
    web_guests_add(&list, &guests[2]);
    assert_true(socket_is_open(ends[1][1]));
    web_guests_add(&list, &guests[3]);
    assert_true(socket_is_open(ends[0][1]));
    assert_false(socket_is_open(ends[1][1]));
    assert_true(socket_is_open(ends[2][1]));
    assert_int_equal(list.count, 2);
    web_guests_remove(&list, &guests[1]); /* when its owner closes it */
    web_guests_remove(&list, &guests[3]);
    web_guests_remove(&list, &guests[2]);
    assert_int_equal(list.count, 0);
    assert_null(list.oldest);
    assert_null(list.newest);
    for (size_t i = 0; i < 4; i++) {
        close(ends[i][0]);
        close(ends[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_off_requests_end_at_once),
        cmocka_unit_test(strangers_do_not_keep_out_who_has_the_key),
        cmocka_unit_test(the_oldest_guest_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
