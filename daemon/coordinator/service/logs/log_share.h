#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_SHARE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_SHARE_H

#include <stdbool.h>

#include "daemon/coordinator/service/logs/log_stream.h"

/* An agent serves a limited number of reads of logs, which users share. Loop thread. */

struct agent_session;

/* Makes room for one more read of the stream on the session's node. If the node serves as many reads as it can, the user
 * with the most reads there loses the newest stream that has some: it fails with RESOURCE_EXHAUSTED. Returns false if no
 * other user has more reads there than the stream's user would have. */
bool log_share_make_room(const struct log_stream *x, struct agent_session *session);

#endif
