#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_SHARE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOGS_LOG_SHARE_H

#include <stdbool.h>

#include "daemon/coordinator/service/logs/log_stream.h"

/* An agent serves a limited number of reads of logs, which users share. Loop thread. */

struct agent_session;

enum log_room {
    LOG_ROOM_NOW,
    LOG_ROOM_LATER, /* when data has come that is on its way to the stream */
    LOG_ROOM_NONE,  /* the reads there belong to others, or wait for new output */
};

/* Makes room for one more read of the stream on the session's node. If the node serves as many reads as it can, a read of the
 * same stream gives up its place until its piece was passed on. If there is none, the user with the most reads there loses the
 * newest stream that has some: it fails with RESOURCE_EXHAUSTED. That needs another user who has more reads there than the
 * stream's user would have. */
enum log_room log_share_make_room(const struct log_stream *x, struct agent_session *session);

#endif
