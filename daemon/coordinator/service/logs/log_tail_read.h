#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_TAIL_READ_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_TAIL_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/match/pattern.h"
#include "daemon/coordinator/service/logs/log_piece.h"
#include "daemon/coordinator/service/logs/log_tails.h"

/* Answers a user's read of a log from the coordinator's copy of its end. */

struct log_tail_choice {
    int64_t offset; /* output before this offset was sent already; 0: nothing was sent */
    int64_t tail_bytes, tail_lines, since_ms; /* 0: not given */
    struct pattern *pattern;                  /* only lines that match; NULL: all */
};

/* Adds the chosen part of the copy to *out. *whole: nothing that was chosen is older than the copy. A search subtracts its time
 * from *left_ns. It ends and returns false when no time is left, or when the expression needs too much time or memory for a line
 * (base/match/pattern.h). */
bool log_tail_read(const struct log_tail *tail, const struct log_tail_choice *choice, struct log_piece *out,
                   bool *whole, int64_t *left_ns);

/* The copies that a call got for a node that cannot be reached. All zeros: none. */
struct log_absence {
    size_t logs, copies;
    size_t most;    /* bytes of the largest copy */
    bool cut;       /* a copy lacks the start of its log */
    int64_t age_ms; /* of the oldest copy, when the node sent its last message */
};

void log_absence_add(struct log_absence *a, const struct log_tail *tail, int64_t age_ms);
/* "node box2 is lost: the last 64 KiB of its log come from the coordinator's copy, made 2 s before the node's last message".
 * why: "is lost". The caller frees the text. */
char *log_absence_note(const struct log_absence *a, const char *node, const char *why);

#endif
