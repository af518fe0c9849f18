#ifndef DDP_DAEMON_CAPTURE_EVENT_POINTS_H
#define DDP_DAEMON_CAPTURE_EVENT_POINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/capture/point_writer.h"

/* Follows the event files below a directory, which a program writes for TensorBoard. Files of earlier runs may lie there, too: only
 * events that were written after `started_ms` count. Damaged records are left out and counted. At most EVENT_FILES_MOST files, not
 * deeper than EVENT_DEPTH_MOST directories. A program writes its events in batches, so what point_writer.h has no room for waits in
 * the file, unless it is more than EVENT_BACKLOG bytes. One thread. */
#define EVENT_FILES_MOST 64
#define EVENT_DEPTH_MOST 4
#define EVENT_BACKLOG (1 << 20)

struct event_source {
    char *path;
    int fd;
    uint64_t at; /* of the next record */
    int64_t damaged;
};

struct event_points {
    struct point_writer *writer;
    const char *dir; /* borrowed */
    int64_t started_ms, now_ms;
    struct event_source files[EVENT_FILES_MOST];
    int count;
    struct buf bytes; /* of the file that is being read */
    bool waits;       /* what has no room is read later */
};

/* Looks for new files. */
void event_points_scan(struct event_points *p);
/* Reads at most `limit` bytes of each file. Returns how many were read. */
size_t event_points_read(struct event_points *p, size_t limit, int64_t now_ms);
void event_points_end(struct event_points *p); /* says what has been damaged or cut */
void event_points_release(struct event_points *p);

#endif
