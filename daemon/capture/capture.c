#include "daemon/capture/capture.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/capture/event_points.h"
#include "daemon/capture/output_points.h"

#define TURN_MS 250
#define TURN_CPU_NS 25000000 /* CPU time of a turn; after a longer turn the pause is longer */
#define SHARE 10             /* a tenth of a core */
#define PAUSE_MOST_MS 30000
#define LAST_CPU_NS 300000000 /* CPU time of the last turn, after the worker's end */
#define SCAN_EVERY_MS 2000    /* how often it looks for new event files */
#define SCAN_SHARE 20    /* these looks take at most 1/20 of the time, because the directory may be large */
#define SCAN_LAST_MS 100 /* after the worker's end, only a look that took less is repeated */
#define CHUNK (4 << 10)  /* bytes that are read at once: a pattern may need some time for each line */
#define EVENT_CHUNK (2 << 20)  /* more than the longest record that is read */
#define BEHIND_MOST (32 << 20) /* if more bytes of output are not read yet, some are skipped */
#define BEHIND_KEPT (8 << 20)  /* the last bytes, which are then read; also the most after the worker's end */

enum { END_FD = 0, OUT_FD = 1, STDOUT_FD = 3, STDERR_FD = 4 };

struct capture {
    struct point_writer writer;
    struct output_points output;
    struct event_points events;
    bool tensorboard, ended;
    int64_t at[2]; /* read of stdout.log and stderr.log */
    int64_t skipped;
    int64_t turn_ns, turn_limit_ns; /* of the thread's CPU time */
    int64_t scan_at, scan_took;     /* CLOCK_BOOTTIME ms */
};

static int64_t cpu_ns(void)
{
    struct timespec t;

    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) ? 0 : (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool turn_goes_on(const struct capture *c)
{
    return cpu_ns() - c->turn_ns < c->turn_limit_ns;
}

/* Returns the size of the file, after skipping what this process cannot catch up with. */
static int64_t stream_catch_up(struct capture *c, int stream)
{
    struct stat st;

    if (fstat(STDOUT_FD + stream, &st))
        return 0;
    if (st.st_size < c->at[stream]) { /* the program or a limit has cut the file */
        c->at[stream] = st.st_size;
        line_cut_drop(&c->output.streams[stream]);
    }
    if (st.st_size - c->at[stream] > (c->ended ? BEHIND_KEPT : BEHIND_MOST)) {
        c->skipped += st.st_size - BEHIND_KEPT - c->at[stream];
        c->at[stream] = st.st_size - BEHIND_KEPT;
        line_cut_drop(&c->output.streams[stream]);
    }
    return st.st_size;
}

static void stream_read(struct capture *c, int stream)
{
    const int64_t size = stream_catch_up(c, stream);
    char chunk[CHUNK];

    while (c->at[stream] < size && turn_goes_on(c)) {
        const ssize_t n = pread(STDOUT_FD + stream, chunk, sizeof(chunk), c->at[stream]);
        if (n <= 0)
            return;
        c->at[stream] += n;
        output_points_feed(&c->output, stream, chunk, (size_t)n, clock_wall_ms());
    }
}

static void events_scan(struct capture *c)
{
    const int64_t now = clock_boot_ms();

    if (c->ended ? c->scan_took > SCAN_LAST_MS : now < c->scan_at)
        return;
    event_points_scan(&c->events);
    c->scan_took = clock_boot_ms() - now;
    c->scan_at =
        now + (c->scan_took * SCAN_SHARE > SCAN_EVERY_MS ? c->scan_took * SCAN_SHARE : SCAN_EVERY_MS);
}

static void turn_read(struct capture *c)
{
    c->turn_ns = cpu_ns();
    c->turn_limit_ns = c->ended ? LAST_CPU_NS : TURN_CPU_NS;
    c->writer.ends = c->ended;
    point_flush(&c->writer, clock_wall_ms());
    if (c->tensorboard) {
        events_scan(c);
        while (event_points_read(&c->events, EVENT_CHUNK, clock_wall_ms()) && turn_goes_on(c))
            ;
        if (c->ended)
            event_points_end(&c->events);
        return;
    }
    stream_read(c, 0);
    stream_read(c, 1);
    output_points_turn(&c->output);
    if (c->ended)
        output_points_end(&c->output);
    if (c->ended && c->skipped)
        point_note(&c->writer, "capture: skipped %s of output that came faster than it could be read",
                   text_bytes(c->skipped).text);
}

/* The pipe is the supervisor's: if it does not read, this process waits, and nobody else does. */
static bool turn_write(struct capture *c)
{
    struct err e;
    const bool written =
        !c->writer.out.len || fd_write_all(OUT_FD, c->writer.out.data, c->writer.out.len, &e) == ERR_OK;

    buf_clear(&c->writer.out);
    return written;
}

static void turn_wait(struct capture *c)
{
    struct pollfd end = {.fd = END_FD, .events = POLLIN};
    const int64_t pause = (cpu_ns() - c->turn_ns) / 1000000 * SHARE;
    const int64_t ms = pause < TURN_MS ? TURN_MS : pause < PAUSE_MOST_MS ? pause : PAUSE_MOST_MS;

    if (poll(&end, 1, (int)ms) > 0)
        c->ended = true;
}

static bool capture_open(struct capture *c, int argc, char **argv)
{
    struct err e;

    c->output.writer = c->events.writer = &c->writer;
    if (argc < 2)
        return false;
    c->events.started_ms = strtoll(argv[1], NULL, 10);
    if (strcmp(argv[0], "shapes") == 0)
        return true;
    if (argc < 3)
        return false;
    c->tensorboard = strcmp(argv[0], "tensorboard") == 0;
    c->events.dir = argv[2];
    if (!c->tensorboard && pattern_compile(argv[2], &c->output.pattern, &e)) {
        point_note(&c->writer, "capture: %s", e.msg);
        turn_write(c);
        return false;
    }
    return true;
}

int capture_main(int argc, char **argv)
{
    struct capture c = {0};
    const bool good = capture_open(&c, argc, argv);

    (void)!nice(10);
    while (good) {
        const bool last = c.ended;

        turn_read(&c);
        if (last)
            point_flush(&c.writer, INT64_MAX);
        if (!turn_write(&c) || last)
            break;
        if (!c.ended)
            turn_wait(&c);
    }
    output_points_release(&c.output);
    event_points_release(&c.events);
    point_writer_release(&c.writer);
    return good ? 0 : 2;
}
