#ifndef DDP_DAEMON_CAPTURE_POINT_WRITER_H
#define DDP_DAEMON_CAPTURE_POINT_WRITER_H

#include "base/buf.h"
#include "base/worker/metric.h"

/* What is found in a program's output, as lines for the supervisor (base/worker/metric.h): {"step": 10, "loss": 1.4}, and, for people,
 * {"note": "..."}. At most POINT_LINES_MOST lines a second are written; those above are left out, since no curve shows them,
 * but for the last one, which has the present values. One thread. */
#define POINT_LINES_MOST 200
/* When the worker has ended; the supervisor keeps 1,024 that the agent has not taken. */
#define POINT_LINES_LAST 1000
#define POINT_NOTES_MOST 8

struct point_writer {
    struct buf out;
    int64_t second; /* in which `lines` were written */
    int lines;
    struct buf held;               /* the newest line that was left out; the next second begins with it */
    bool ends;                     /* the worker has ended: POINT_LINES_LAST counts */
    char *notes[POINT_NOTES_MOST]; /* each is written once */
    int note_count;
};

/* False: left out. */
bool point_put(struct point_writer *w, const struct metric_line *line, int64_t now_ms);
/* Whether a line more would be written, with some room to spare. */
bool point_has_room(const struct point_writer *w, int64_t now_ms);
/* Writes the line that is held if its second is over. INT64_MAX: in any case. */
void point_flush(struct point_writer *w, int64_t now_ms);
void point_note(struct point_writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void point_writer_release(struct point_writer *w);

#endif
