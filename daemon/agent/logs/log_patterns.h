#ifndef DDP_DAEMON_AGENT_LOGS_LOG_PATTERNS_H
#define DDP_DAEMON_AGENT_LOGS_LOG_PATTERNS_H

#include <stddef.h>

#include "base/match/pattern.h"

/* The patterns of all readers that search logs. A call has two readers for each rank of a job on the node, and they share one
 * pattern. A pattern takes up to 4 MB during a search, so the number of different patterns is limited. All zeros: empty. */
#define LOG_PATTERNS_MOST 16

struct log_patterns {
    struct log_pattern {
        char *text;
        struct pattern *pattern;
        int users;
    } list[LOG_PATTERNS_MOST];
};

/* INVALID_ARGUMENT: not a valid expression. RESOURCE_EXHAUSTED: too many. *out is valid until log_patterns_put. */
MUST_CHECK enum err_code log_patterns_get(struct log_patterns *l, const char *text, struct pattern **out,
                                          struct err *e);
const char *log_patterns_text(const struct log_patterns *l, const struct pattern *pattern);
void log_patterns_put(struct log_patterns *l, const struct pattern *pattern);

#endif
