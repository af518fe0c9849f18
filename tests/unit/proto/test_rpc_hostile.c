#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "fixture.h"

/* Invalid bytes on the port and on the socket. Whatever they are, a well-behaved client is served meanwhile.
 * */

#define CLUSTER &ddp__v1__cluster__descriptor
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

static struct fixture server;
static struct rpc_channel *channel;
static struct rpc_stream *stream; /* of the well-behaved client, open during all tests */
static char *dir, *path;

static int hostile_setup(void **state)
{
    struct fixture_options options = {.tcp = "127.0.0.1:0"};
    Ddp__V1__WatchJobRequest request = DDP__V1__WATCH_JOB_REQUEST__INIT;
    void *message;
    struct err e;

    (void)state;
    dir = fixture_dir();
    options.unix_path = path = xasprintf("%s/socket", dir);
    fixture_start(&server, &options);
    assert_int_equal(rpc_channel_open(&channel, server.target, NULL, &e), ERR_OK);
    request.job = -2;
    assert_int_equal(rpc_stream_open(&stream, channel, CLUSTER, "WatchJob", &request, 0, 0, &e), ERR_OK);
    assert_int_equal(rpc_stream_next(stream, -1, &message, &e), ERR_OK);
    rpc_free(message);
    return 0;
}

static int hostile_teardown(void **state)
{
    void *message;
    struct err e;

    (void)state;
    assert_int_equal(rpc_stream_next(stream, 0, &message, &e), ERR_DEADLINE_EXCEEDED);
    assert_false(rpc_stream_ended(stream));
    rpc_stream_close(stream);
    rpc_channel_close(channel);
    fixture_stop(&server);
    free(path);
    fixture_dir_remove(dir);
    return 0;
}

static int connect_raw(bool local)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)server.port)};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = 20};
    int fd = socket(local ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    assert_int_equal(local ? connect(fd, (struct sockaddr *)&un, sizeof(un))
                           : connect(fd, (struct sockaddr *)&in, sizeof(in)),
                     0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return fd;
}

static void put_bytes(int fd, const void *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n <= 0)
            return; /* the server has closed the connection, as it should */
        data = (const char *)data + n;
        len -= (size_t)n;
    }
}

static bool hangs_up(int fd)
{
    char rest[4096];
    ssize_t n;

    while ((n = recv(fd, rest, sizeof(rest), 0)) > 0)
        continue;
    return n == 0 || errno == ECONNRESET;
}

static void still_serves(void)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    void *status;
    struct err e;

    request.job = 1;
    assert_int_equal(rpc_channel_call(channel, CLUSTER, "GetJob", &request, &status, 20000, 0, &e), ERR_OK);
    rpc_free(status);
}

static void put_frame_head(struct buf *b, size_t len, int type, int flags, uint32_t id)
{
    uint8_t head[9] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len,
                       (uint8_t)type,        (uint8_t)flags,      (uint8_t)(id >> 24),
                       (uint8_t)(id >> 16),  (uint8_t)(id >> 8),  (uint8_t)id};

    buf_append(b, head, sizeof(head));
}

static void connections_of_other_protocols_are_closed(void **state)
{
    static const char *const bad[] = {
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        PREFACE "not a settings frame, but long enough to be read as one",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        for (int local = 0; local < 2; local++) {
            int fd = connect_raw(local);

            put_bytes(fd, bad[i], strlen(bad[i]));
            assert_true(hangs_up(fd));
            close(fd);
        }
    still_serves();
}

static void oversized_frames_are_refused(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    int fd = connect_raw(false);
    CLEANUP(free_text) char *junk = xcalloc(1 << 20, 1);

    (void)state;
    buf_puts(&b, PREFACE);
    put_frame_head(&b, 0, 4, 0, 0);
    put_frame_head(&b, 0xffffff, 0, 0, 1); /* 16 MiB of data on a stream that was not opened */
    put_bytes(fd, b.data, b.len);
    for (int i = 0; i < 16; i++)
        put_bytes(fd, junk, 1 << 20);
    assert_true(hangs_up(fd));
    close(fd);
    still_serves();
}

static void header_floods_are_refused(void **state)
{
    CLEANUP(buf_release) struct buf b = {0};
    int fd = connect_raw(false);

    (void)state;
    buf_puts(&b, PREFACE);
    put_frame_head(&b, 0, 4, 0, 0);
    put_bytes(fd, b.data, b.len);
    for (int i = 0; i < 2000; i++) { /* one block of headers of 16 MiB, without an end */
        buf_clear(&b);
        put_frame_head(&b, 8192, i ? 9 : 1, 0, 1);
        for (int k = 0; k < 8192 / 16; k++)
            buf_append(&b, "\x00\x04name\x09valuevalue", 16);
        put_bytes(fd, b.data, b.len);
    }
    put_frame_head(&b, 0, 9, 4, 1);
    put_bytes(fd, b.data, b.len);
    shutdown(fd, SHUT_WR);
    assert_true(hangs_up(fd));
    close(fd);
    still_serves();
}

static uint32_t random_next(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Frames of every type with plausible heads and random bodies, on connections with a valid start. */
static void random_frames_disturb_no_other_client(void **state)
{
    uint32_t seed = 20;

    (void)state;
    for (int i = 0; i < 300; i++) {
        CLEANUP(buf_release) struct buf b = {0};
        int fd = connect_raw(i % 2);

        buf_puts(&b, PREFACE);
        put_frame_head(&b, 0, 4, 0, 0);
        for (int k = 0; k < 20; k++) {
            size_t len = random_next(&seed) % 64;

            put_frame_head(&b, len, (int)(random_next(&seed) % 11), (int)(random_next(&seed) % 64),
                           random_next(&seed) % 8);
            for (size_t n = 0; n < len; n++)
                buf_putc(&b, (char)random_next(&seed));
        }
        put_bytes(fd, b.data, b.len);
        shutdown(fd, SHUT_WR);
        assert_true(hangs_up(fd));
        close(fd);
    }
    still_serves();
}

static void unfinished_connections_disturb_no_other_client(void **state)
{
    int fds[200];

    (void)state;
    for (int i = 0; i < 200; i++) {
        fds[i] = connect_raw(i % 2);
        if (i % 3)
            put_bytes(fds[i], PREFACE, (size_t)i % (sizeof(PREFACE) - 1));
    }
    still_serves();
    for (int i = 0; i < 200; i++)
        close(fds[i]);
    still_serves();
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, hostile_setup, hostile_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(connections_of_other_protocols_are_closed),
        TEST(oversized_frames_are_refused),
        TEST(header_floods_are_refused),
        TEST(random_frames_disturb_no_other_client),
        TEST(unfinished_connections_disturb_no_other_client),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
