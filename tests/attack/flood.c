/* flood TARGET COUNT SECONDS [--say silent|preface|half] [--hold SECONDS] [--close] [--from ADDRESS]
 *
 * Opens COUNT connections at an even rate within SECONDS, none with a token, and holds them open for --hold
 * seconds (default 5) after the last one. --say: what each connection sends: nothing, HTTP/2's preface with
 * SETTINGS, or half of the preface. --close: closes each connection after it has sent that. --from: the
 * source address.
 *
 * Prints the counts as one JSON line a second and one at the end. Limits: 20,000 connections at a time, half
 * an hour, only the targets that target.h allows. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/attack/target.h"

#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define SETTINGS "\0\0\0\4\0\0\0\0\0"

struct flood {
    struct target target;
    int64_t count, open_ms, hold_ms;
    const char *say;
    size_t say_size;
    bool close;
    int poll;
    int64_t tried, connected, refused;
    int64_t ended; /* closed by the coordinator */
    int64_t open;
};

static void flood_report(const struct flood *f, int64_t ms)
{
    printf("{\"ms\": %lld, \"tried\": %lld, \"connected\": %lld, \"refused\": %lld, \"ended_by_peer\": %lld, "
           "\"open\": %lld}\n",
           (long long)ms, (long long)f->tried, (long long)f->connected, (long long)f->refused,
           (long long)f->ended, (long long)f->open);
    fflush(stdout);
}

static void flood_open(struct flood *f)
{
    struct epoll_event event = {.events = EPOLLOUT};
    int fd = target_connect(&f->target);

    f->tried++;
    if (fd < 0) {
        f->refused++;
        return;
    }
    event.data.fd = fd;
    if (epoll_ctl(f->poll, EPOLL_CTL_ADD, fd, &event)) {
        perror("epoll_ctl");
        exit(1);
    }
    f->open++;
}

static void flood_drop(struct flood *f, int fd)
{
    close(fd);
    f->open--;
}

static void flood_connected(struct flood *f, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    int error = 0;
    socklen_t size = sizeof(error);

    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error) {
        f->refused++;
        flood_drop(f, fd);
        return;
    }
    f->connected++;
    /* These few bytes fit into the empty socket buffer, so a failure means that the peer has closed. */
    if (f->say_size && send(fd, f->say, f->say_size, MSG_NOSIGNAL) < 0) {
        f->ended++;
        flood_drop(f, fd);
    } else if (f->close) {
        flood_drop(f, fd);
    } else {
        epoll_ctl(f->poll, EPOLL_CTL_MOD, fd, &event);
    }
}

static void flood_receive(struct flood *f, int fd)
{
    char bytes[4096];
    ssize_t got = recv(fd, bytes, sizeof(bytes), 0);

    if (got > 0 || (got < 0 && errno == EAGAIN))
        return; /* the server's SETTINGS and pings are read, but not answered */
    f->ended++;
    flood_drop(f, fd);
}

static void flood_run(struct flood *f)
{
    int64_t began = target_now_ms(), end = began + f->open_ms + f->hold_ms, next_line = began + 1000, now;
    struct epoll_event events[256];

    while ((now = target_now_ms()) < end) {
        /* How many connections should be open by now. At most 256 are opened before events are handled. */
        int64_t due = f->open_ms ? f->count * (now - began) / f->open_ms : f->count;
        int ready;

        for (int i = 0; f->tried < f->count && f->tried < due && i < 256; i++)
            flood_open(f);
        ready = epoll_wait(f->poll, events, 256, f->tried < f->count ? 1 : 100);
        for (int i = 0; i < ready; i++) {
            if (events[i].events & EPOLLOUT)
                flood_connected(f, events[i].data.fd);
            else
                flood_receive(f, events[i].data.fd);
        }
        if (now >= next_line) {
            flood_report(f, now - began);
            next_line += 1000;
        }
    }
    flood_report(f, now - began);
}

static void flood_usage(void)
{
    fprintf(stderr, "usage: flood ADDRESS:PORT COUNT SECONDS [--say silent|preface|half] [--hold SECONDS] "
                    "[--close] [--from ADDRESS]\n");
    exit(2);
}

static void flood_set_say(struct flood *f, const char *what)
{
    f->say = PREFACE SETTINGS;
    if (strcmp(what, "preface") == 0)
        f->say_size = sizeof(PREFACE SETTINGS) - 1;
    else if (strcmp(what, "half") == 0)
        f->say_size = (sizeof(PREFACE) - 1) / 2;
    else if (strcmp(what, "silent") != 0)
        flood_usage();
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"say", required_argument, NULL, 's'},
                                            {"hold", required_argument, NULL, 'h'},
                                            {"close", no_argument, NULL, 'c'},
                                            {"from", required_argument, NULL, 'f'},
                                            {0}};
    struct flood f = {.hold_ms = 5000};
    const char *from = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's')
            flood_set_say(&f, optarg);
        else if (option == 'h')
            f.hold_ms = 1000 * target_number("--hold", optarg, 0, 1500);
        else if (option == 'c')
            f.close = true;
        else if (option == 'f')
            from = optarg;
        else
            flood_usage();
    }
    if (argc - optind != 3)
        flood_usage();
    target_parse(&f.target, argv[optind], from);
    f.count = target_number("COUNT", argv[optind + 1], 1, 20000);
    f.open_ms = 1000 * target_number("SECONDS", argv[optind + 2], 0, 300);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    target_descriptors(f.close ? 1000 : f.count + 16); /* with --close few connections are open at a time */
    f.poll = epoll_create1(EPOLL_CLOEXEC);
    flood_run(&f);
    return 0;
}
