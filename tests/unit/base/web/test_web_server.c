/* Connections of the HTTP server: a broken-off request ends its connection at once, strangers do not keep out a user who has
 * the key, and no user or request takes everything that the server has. */
#include "tests/unit/base/check.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
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
#define LARGE (4 << 20) /* an answer */

static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/* The secret of user n of a server with logins is that letter, 64 times. */
#define USERS 2
struct fixture {
    struct web_levels *levels;
    struct web_server *server;
    struct web_login logins[USERS];
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool nodes_answer;
};

/* The nodes, which /why asks, answer when the test says so. Events are large. */
static void fixture_answer(void *user, const struct web_asker *asker, const struct web_request *request,
                           struct web_reply *reply)
{
    struct fixture *f = user;
    (void)asker;
    pthread_mutex_lock(&f->lock);
    while (request->route == WEB_WHY && !f->nodes_answer)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    if (request->route == WEB_EVENTS || request->route == WEB_CANCEL) {
        buf_reserve(&reply->body, LARGE);
        memset(reply->body.data, ' ', LARGE);
        reply->body.len = LARGE;
    }
    buf_puts(&reply->body, "{}\n");
}

static struct web_login *fixture_find(void *user, const char *secret)
{
    const size_t n = (size_t)(*secret - 'a');
    return n < USERS ? &((struct fixture *)user)->logins[n] : NULL;
}

static struct web_login *fixture_hold(void *user, struct web_login *login)
{
    (void)user;
    return login;
}

static void fixture_give_back(void *user, struct web_login *login)
{
    (void)user;
    (void)login;
}

static void fixture_wake(void *user)
{
    for (size_t i = 0; i < USERS; i++)
        web_levels_tick(((struct fixture *)user)->logins[i].levels);
}

static void fixture_open(struct fixture *f)
{
    struct err e;
    *f = (struct fixture){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    f->levels = web_levels_create();
    const struct web_options options = {.key = key,
                                        .page = "<html></html>",
                                        .page_size = strlen("<html></html>"),
                                        .levels = f->levels,
                                        .answer = fixture_answer,
                                        .user = f};
    assert_ok(web_server_open(&f->server, &options, &e), &e);
}

/* A server with logins. */
static void fixture_open_site(struct fixture *f, struct web_door *door)
{
    struct err e;
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *f = (struct fixture){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    *door = (struct web_door){f, fixture_find, fixture_hold, fixture_give_back, fixture_wake};
    for (size_t i = 0; i < USERS; i++)
        f->logins[i] = (struct web_login){.levels = web_levels_create(), .owner = i + 1};
    struct web_options options = {.page = "", .answer = fixture_answer, .user = f, .door = door};
    options.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(options.listener, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_ok(web_server_open(&f->server, &options, &e), &e);
}

static void fixture_close(struct fixture *f)
{
    web_server_close(f->server);
    web_levels_free(f->levels);
    for (size_t i = 0; i < USERS; i++)
        web_levels_free(f->logins[i].levels);
}

static int fixture_socket(void)
{
    const struct timeval limit = {.tv_sec = WAIT_MS / 1000 * test_slow()};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

static void fixture_join(const struct fixture *f, int fd)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons(web_server_port(f->server)),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
}

static int fixture_connect(const struct fixture *f)
{
    const int fd = fixture_socket();
    fixture_join(f, fd);
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

/* Asks as a user of a server with logins. */
static void send_as(const struct fixture *f, int fd, char user, const char *path)
{
    CLEANUP(free_text)
    char *text = xasprintf("GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: ddp-%u=%064d\r\n\r\n", path,
                           (unsigned)web_server_port(f->server), 0);
    char *secret = strstr(text, "ddp-");
    secret = strchr(secret, '=') + 1;
    memset(secret, user, 64);
    socket_send(fd, text);
}

/* Reads the beginning of an answer, and returns its status. */
static int read_status(int fd)
{
    char line[12];
    assert_int_equal(recv(fd, line, sizeof(line), MSG_WAITALL), sizeof(line));
    return (line[9] - '0') * 100 + (line[10] - '0') * 10 + line[11] - '0';
}

static void read_answer(int fd)
{
    char reply[4096];
    size_t size = 0;
    do {
        const ssize_t n = recv(fd, reply + size, sizeof(reply) - 1 - size, 0);
        if (n <= 0)
            fail_msg("no answer: %s", n ? strerror(errno) : "the server has closed the connection");
        size += (size_t)n;
        reply[size] = '\0';
    } while (!strstr(reply, "{}\n"));
    assert_memory_equal(reply, "HTTP/1.1 200", 12);
}

static void assert_answered(int fd)
{
    send_request(fd, "GET", "\r\n");
    read_answer(fd);
}

static void assert_answered_as(const struct fixture *f, int fd, char user)
{
    send_as(f, fd, user, "/api/jobs");
    read_answer(fd);
}

/* Whether the server has left the connection open. */
static bool socket_is_open(int fd)
{
    char c;
    return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* The same for a connection from which something may come. */
static bool stream_is_open(int fd)
{
    char text[4096];
    ssize_t n;
    while ((n = recv(fd, text, sizeof(text), MSG_DONTWAIT)) > 0)
        ;
    return n < 0 && errno == EAGAIN;
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

/* Sends parts of a body until the server ends the connection, at most this many bytes; returns how many. */
static size_t send_without_end(int fd, size_t most)
{
    char chunk[4096 + 8] = "1000\r\n";
    size_t sent = 0;
    memset(chunk + 6, 'x', 4096);
    memcpy(chunk + 6 + 4096, "\r\n", 2);
    while (sent < most) {
        const ssize_t n = send(fd, chunk, sizeof(chunk), MSG_NOSIGNAL);
        if (n != sizeof(chunk))
            break;
        sent += (size_t)n;
    }
    return sent;
}

#define LOG_IN "POST /api/login HTTP/1.1\r\nHost: 127.0.0.1\r\nX-DDP: 1\r\n"

static void a_body_without_an_end_is_cut_off(void **state)
{
    struct fixture f;
    struct web_door door;
    (void)state;
    fixture_open_site(&f, &door);
    const int login = fixture_connect(&f);
    socket_send(login, LOG_IN "Transfer-Encoding: chunked\r\n\r\n");
    assert_int_equal(read_status(login), 411); /* before the body */
    assert_true(send_without_end(login, 256 << 20) < 32 << 20);
    close(login);
    fixture_close(&f);
    fixture_open(&f);
    const int submit = fixture_connect(&f), read = fixture_connect(&f);
    send_request(submit, "POST", "Transfer-Encoding: chunked\r\n\r\n");
    assert_true(send_without_end(submit, 256 << 20) < 64 << 20);
    send_request(read, "GET", "Transfer-Encoding: chunked\r\n\r\n");
    assert_true(send_without_end(read, 256 << 20) < 32 << 20);
    close(submit);
    close(read);
    fixture_close(&f);
}

static void a_request_that_takes_too_long_is_ended(void **state)
{
    struct fixture f;
    struct web_door door;
    (void)state;
    fixture_open_site(&f, &door);
    const int silent = fixture_connect(&f), header = fixture_connect(&f), body = fixture_connect(&f),
              stream = fixture_connect(&f), answered = fixture_connect(&f);
    socket_send(header, "POST /api/login HT");
    socket_send(body, LOG_IN "Content-Length: 100\r\n\r\n{");
    send_as(&f, stream, 'a', "/api/watch");
    assert_int_equal(read_status(stream), 200);
    assert_answered_as(&f, answered, 'a');
    const int64_t now = clock_boot_ms();
    socket_send(header, "T"); /* a byte now and then */
    socket_send(body, "x");
    web_server_tick(f.server, now + 20000);
    assert_true(socket_is_open(silent) && socket_is_open(header) && socket_is_open(body));
    web_server_tick(f.server, now + 60000);
    assert_false(socket_is_open(silent) || socket_is_open(header) || socket_is_open(body));
    assert_true(stream_is_open(stream));
    const int other = fixture_connect(&f);
    assert_answered_as(&f, other, 'b');
    const int all[] = {silent, header, body, stream, answered, other};
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        close(all[i]);
    fixture_close(&f);
}

/* What the server takes for the body of a request must not be a request, which a proxy before it has not seen. */
static void an_ambiguous_request_ends_the_connection(void **state)
{
    static const char *const ambiguous[] = {
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n",
        "Content-Length : 1000\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 1000\r\n\r\n",
        "Host: localhost\r\n\r\n",
    };
    struct fixture f;
    (void)state;
    fixture_open(&f);
    for (size_t i = 0; i < ARRAY_LEN(ambiguous); i++) {
        const char next[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        char text[4096];
        size_t size = 0;
        ssize_t n;
        const int fd = fixture_connect(&f);
        send_request(fd, "GET", ambiguous[i]);
        send(fd, next, sizeof(next) - 1, MSG_NOSIGNAL); /* may come too late */
        while (size < sizeof(text) - 1 && (n = recv(fd, text + size, sizeof(text) - 1 - size, 0)) > 0)
            size += (size_t)n;
        text[size] = '\0';
        assert_memory_equal(text, "HTTP/1.1 400", 12);
        assert_null(strstr(text + 1, "HTTP/1.1 "));
        close(fd);
    }
    fixture_close(&f);
}

static void requests_of_one_user_leave_threads_to_others(void **state)
{
    struct fixture f;
    struct web_door door;
    int slow[6];
    (void)state;
    fixture_open_site(&f, &door);
    for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
        slow[i] = fixture_connect(&f);
        send_as(&f, slow[i], 'a', "/api/jobs/1/why");
    }
    const int other = fixture_connect(&f), same = fixture_connect(&f);
    assert_answered_as(&f, other, 'b');
    assert_answered_as(&f, same, 'a');
    pthread_mutex_lock(&f.lock);
    f.nodes_answer = true;
    pthread_cond_broadcast(&f.changed);
    pthread_mutex_unlock(&f.lock);
    for (size_t i = 0; i < ARRAY_LEN(slow); i++) {
        read_answer(slow[i]);
        close(slow[i]);
    }
    close(other);
    close(same);
    fixture_close(&f);
}

static void connections_of_one_user_are_limited(void **state)
{
    struct fixture f;
    struct web_door door;
    int list[96 + 1];
    (void)state;
    fixture_open_site(&f, &door);
    for (size_t i = 0; i < 96; i++) {
        list[i] = fixture_connect(&f);
        send_as(&f, list[i], 'a', "/api/watch");
        assert_int_equal(read_status(list[i]), i < 64 ? 200 : 429);
    }
    list[96] = fixture_connect(&f);
    send_as(&f, list[96], 'a', "/api/jobs");
    assert_int_equal(read_status(list[96]), 429);
    while (stream_is_open(list[96]))
        wait_turn();
    const int other = fixture_connect(&f);
    send_as(&f, other, 'b', "/api/watch");
    assert_int_equal(read_status(other), 200);
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        close(list[i]);
    close(other);
    fixture_close(&f);
}

/* A user logs out, keeps the connections by requests without a login, and logs in again. The connections are guests then. */
static void connections_without_a_login_are_guests(void **state)
{
    struct fixture f;
    struct web_door door;
    int list[96 + 96];
    size_t open = 0;
    (void)state;
    fixture_open_site(&f, &door);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        list[i] = fixture_connect(&f);
        assert_answered_as(&f, list[i], 'a');
        socket_send(list[i], "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); /* the page needs no login */
        assert_int_equal(read_status(list[i]), 200);
    }
    while (open = 0, stream_is_open(list[0]))
        wait_turn();
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        open += stream_is_open(list[i]);
    assert_in_range(open, 1, 64);
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        close(list[i]);
    fixture_close(&f);
}

static void answers_that_one_user_does_not_read_are_limited(void **state)
{
    struct fixture f;
    struct web_door door;
    int list[9];
    (void)state;
    fixture_open_site(&f, &door);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const int small = 4096;
        list[i] = fixture_socket();
        setsockopt(list[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        fixture_join(&f, list[i]);
        send_as(&f, list[i], 'a', "/api/jobs/1/events");
        assert_int_equal(read_status(list[i]), i < 7 ? 200 : 503); /* 32 MB of 4 MB and a line each */
    }
    const int other = fixture_connect(&f), order = fixture_connect(&f);
    send_as(&f, other, 'b', "/api/jobs/1/events");
    assert_int_equal(read_status(other), 200);
    /* An order has been carried out when its answer does not fit: "try again" would be wrong. */
    CLEANUP(free_text) char *cookie = xasprintf("ddp-%u=%064d", (unsigned)web_server_port(f.server), 0);
    memset(strchr(cookie, '=') + 1, 'a', 64);
    CLEANUP(free_text)
    char *cancel = xasprintf("POST /api/jobs/1/cancel HTTP/1.1\r\nHost: 127.0.0.1\r\nX-DDP: 1\r\n"
                             "Content-Length: 0\r\nCookie: %s\r\n\r\n",
                             cookie);
    socket_send(order, cancel);
    assert_int_equal(read_status(order), 200);
    close(order);
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        close(list[i]);
    close(other);
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
        cmocka_unit_test(a_body_without_an_end_is_cut_off),
        cmocka_unit_test(a_request_that_takes_too_long_is_ended),
        cmocka_unit_test(an_ambiguous_request_ends_the_connection),
        cmocka_unit_test(requests_of_one_user_leave_threads_to_others),
        cmocka_unit_test(connections_of_one_user_are_limited),
        cmocka_unit_test(connections_without_a_login_are_guests),
        cmocka_unit_test(answers_that_one_user_does_not_read_are_limited),
        cmocka_unit_test(the_oldest_guest_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
