#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_SPAWN_REPORT_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_SPAWN_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

/* What a worker has reported in one line: a step and metrics. The supervisor checks the line
 * (report_reader.h) and adds whose it is; the agent passes it on to the coordinator. */

#define REPORT_METRICS 48 /* the most that one report carries */
#define REPORT_NAME 48    /* bytes of a metric's name, with its NUL */

struct spawn_report {
    int64_t spawn, time_ms, step;
    bool has_step;
    size_t count;
    struct {
        char name[REPORT_NAME];
        double value; /* NaN is null in JSON */
    } metrics[REPORT_METRICS];
};

/* Adds a metric. One too many is left out, and so is a name that is empty or too long. */
void spawn_report_add(struct spawn_report *r, const char *name, double value);

/* Writes the members of a JSON object that the caller has opened. */
void spawn_report_encode(struct jout *o, const struct spawn_report *r);
/* INVALID_ARGUMENT: no spawn number. *r must be zeroed. */
MUST_CHECK enum err_code spawn_report_decode(struct spawn_report *r, json_t *obj, struct err *e);

#endif
