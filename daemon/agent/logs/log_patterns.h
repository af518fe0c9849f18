#ifndef DDP_DAEMON_AGENT_LOGS_LOG_PATTERNS_H
#define DDP_DAEMON_AGENT_LOGS_LOG_PATTERNS_H

#include <stddef.h>

#include "base/match/pattern.h"

/* The patterns that readers search logs for. A call for a job has two readers for each of its ranks on the node, which share one
 * pattern: one takes up to 4 MB while it searches, so the number of different ones is limited. All zeros: empty. */
#define LOG_PATTERNS_MOST 16

struct log_patterns {
    struct log_pattern {
        char *text;
        struct pattern *pattern;
        int users;
    } list[LOG_PATTERNS_MOST];
};

/* INVALID_ARGUMENT: not an expression. RESOURCE_EXHAUSTED: too many. *out is valid until log_patterns_put. */
MUST_CHECK enum err_code log_patterns_get(struct log_patterns *l, const char *text, struct pattern **out,
                                          struct err *e);
const char *log_patterns_text(const struct log_patterns *l, const struct pattern *pattern);
void log_patterns_put(struct log_patterns *l, const struct pattern *pattern);

#endif
