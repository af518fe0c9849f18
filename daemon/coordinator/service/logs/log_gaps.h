#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_GAPS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_GAPS_H

#include <stdbool.h>
#include <stddef.h>

/* The ranks of a call whose logs their nodes do not have, and the reason. All zeros: none. */
struct log_gaps {
    struct log_gap {
        int rank;
        bool started;
    } * list;
    size_t count, cap;
};

void log_gaps_add(struct log_gaps *g, int rank, bool started); /* a rank has two logs, but is listed once */
/* "rank 3 did not start"; NULL: there are no such ranks. started: name the ranks that were started, or the others. The
 * caller frees the text. */
char *log_gaps_note(const struct log_gaps *g, bool started, bool job_ended);
void log_gaps_release(struct log_gaps *g);

#endif
