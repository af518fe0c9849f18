#ifndef DDP_BASE_WORKER_METRIC_H
#define DDP_BASE_WORKER_METRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"

/* What a worker reports: a line of JSON such as {"step": 10, "loss": 1.4}. The integer `step` is the step,
 * every other number is a metric. null is a metric whose value is not a number; so is a bare NaN or Infinity,
 * which Python writes but JSON does not allow. Members of any other type are left out.
 *
 * The line keeps its bytes from the worker to the coordinator. The supervisor refuses lines that
 * metric_line_parse refuses; it and the agent pass the others on as they are. The coordinator reads them with
 * the same function. Any thread. */

#define METRIC_LINE_MAX (16 << 10) /* bytes of a line without its '\n' */
#define METRIC_LINE_COUNT 48       /* metrics of a line; those that follow are left out */
#define METRIC_NAME 48             /* bytes of a metric's name with its NUL; a longer name is left out */

struct metric {
    char name[METRIC_NAME];
    double value; /* NaN: not a number, or not finite */
};

struct metric_line {
    bool has_step;
    int64_t step;
    size_t count;
    struct metric metrics[METRIC_LINE_COUNT];
};

/* Reads `len` bytes, which a NUL follows. INVALID_ARGUMENT: not a line as described above, or one that names
 * a metric twice; the message says why and where. */
MUST_CHECK enum err_code metric_line_parse(const char *text, size_t len, struct metric_line *out,
                                           struct err *e);
/* False: left out, because the line is full or the name is empty or too long. */
bool metric_line_add(struct metric_line *l, const char *name, double value);
/* Appends the line without '\n'. Values that are not finite are left out. */
void metric_line_encode(const struct metric_line *l, struct buf *out);

/* A worker's line and the worker that wrote it. */
struct metric_report {
    int64_t job, spawn;
    int64_t time_ms;                /* when the supervisor read the line: the node's wall clock */
    const char *text;               /* the line as the worker wrote it; NULL in the coordinator's core */
    const struct metric_line *line; /* the same, read by the coordinator; NULL on the node */
    const char *captured; /* what ddp has read the line from: "its output"; NULL: the worker wrote it */
    const char *note;     /* captured: a problem instead of metrics; only in the coordinator; else NULL */
};

/* The form on the supervisor's socket: the members of a JSON object that the caller has opened, without
 * the job. */
void metric_report_encode(struct jout *o, const struct metric_report *r);
/* INVALID_ARGUMENT: no spawn number or no line. The line is not checked again. Release *r whatever the
 * result; it must be zeroed. */
MUST_CHECK enum err_code metric_report_decode(struct metric_report *r, const json_t *obj, struct err *e);
void metric_report_release(struct metric_report *r); /* of metric_report_decode */

#endif
