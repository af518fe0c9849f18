/* The floor of an all-reduce over TCP on the loopback: each process sends to the next one as many bytes as a ring sends, and receives
 * as many, but adds nothing and waits for no order. Measured as bench_allreduce measures ours. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/bench/bench_rounds.h"

#define MAX_RANKS 16
#define PIECE ((size_t)256 * 1024)
#define SEND_BUFFER (512 * 1024)

struct tcp_ring {
    int out, in, rank, ranks;
    char *room;
};

_Noreturn static void tcp_die(const char *what)
{
    fprintf(stderr, "bench_tcp: %s: %s\n", what, strerror(errno));
    exit(1);
}

static size_t at_most(size_t left, size_t most)
{
    return left < most ? left : most;
}

/* Sends `total` bytes of the array of `size` bytes and receives as many, the first half into a small memory. */
static void bytes_exchange(const struct tcp_ring *r, char *data, size_t size, size_t total)
{
    size_t sent = 0, got = 0;

    while (sent < total || got < total) {
        ssize_t out = 0, in = 0;

        if (sent < total) {
            const size_t at = sent % size;

            out = send(r->out, data + at, at_most(at_most(size - at, 2 * PIECE), total - sent),
                       MSG_DONTWAIT | MSG_NOSIGNAL);
            if (out < 0 && errno != EAGAIN)
                tcp_die("send");
            sent += out > 0 ? (size_t)out : 0;
        }
        if (got < total) {
            const size_t at = got % size;
            const bool first = got < total / 2;
            const size_t most = at_most(first ? total / 2 - got : total - got, PIECE);

            in = recv(r->in, first ? r->room : data + at, first ? most : at_most(most, size - at),
                      MSG_DONTWAIT);
            if (in == 0 || (in < 0 && errno != EAGAIN))
                tcp_die("recv");
            got += in > 0 ? (size_t)in : 0;
        }
        if (out <= 0 && in <= 0) {
            struct pollfd ends[2] = {{.fd = got < total ? r->in : -1, .events = POLLIN},
                                     {.fd = sent < total ? r->out : -1, .events = POLLOUT}};

            poll(ends, 2, -1);
        }
    }
}

static void tcp_sum(void *of, float *data, size_t count)
{
    const struct tcp_ring *r = of;
    const size_t size = count * sizeof(*data), ranks = (size_t)r->ranks;

    bytes_exchange(r, (char *)data, size, 2 * (ranks - 1) * (size / ranks));
}

static void tcp_share(void *of, int64_t *number)
{
    const struct tcp_ring *r = of;

    if (r->rank > 0 && recv(r->in, number, sizeof(*number), MSG_WAITALL) != sizeof(*number))
        tcp_die("recv");
    if (r->rank < r->ranks - 1 && send(r->out, number, sizeof(*number), MSG_NOSIGNAL) != sizeof(*number))
        tcp_die("send");
}

static void tcp_connect(int *out, int *in)
{
    const int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, buffer = SEND_BUFFER;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(a);

    *out = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&a, size) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&a, &size) || connect(*out, (struct sockaddr *)&a, size))
        tcp_die("connect");
    *in = accept(listener, NULL, NULL);
    setsockopt(*out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(*out, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    close(listener);
}

int main(int argc, char **argv)
{
    struct bench_rounds rounds;
    struct tcp_ring ring[MAX_RANKS];
    int failed = 0, status;

    bench_rounds_read(&rounds, argc, argv);
    if (rounds.ranks < 2 || rounds.ranks > MAX_RANKS)
        return 2;
    for (int r = 0; r < rounds.ranks; r++) {
        ring[r].rank = r;
        ring[r].ranks = rounds.ranks;
        ring[r].room = xmalloc(PIECE);
        tcp_connect(&ring[r].out, &ring[(r + 1) % rounds.ranks].in);
    }
    for (int r = 0; r < rounds.ranks; r++)
        if (fork() == 0) {
            const struct bench_peer peer = {&ring[r], tcp_sum, tcp_share};

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            bench_rounds_run(&rounds, &peer, r);
            _exit(0);
        }
    while (wait(&status) > 0)
        failed |= status != 0;
    return failed;
}
