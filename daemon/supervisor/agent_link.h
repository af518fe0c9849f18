#ifndef DDP_DAEMON_SUPERVISOR_AGENT_LINK_H
#define DDP_DAEMON_SUPERVISOR_AGENT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/supervisor/outbox.h"
#include "daemon/supervisor/spawn.h"

/* Sends the supervisor's messages to its agent (protocol/control.h): hello, facts, reports, synced. Nothing here
 * blocks. While the agent's queue is full, facts wait without a limit, and reports wait within the outbox's limits. */
struct agent_link {
    int fd;           /* -1: there is no agent */
    bool blocked;     /* its queue is full: wait until the socket is writable */
    bool greet, sync; /* hello and synced are still to be sent */
    struct outbox outbox;
};

void agent_link_attach(struct agent_link *t, int fd); /* takes fd; the caller marks all spawns dirty */
void agent_link_detach(struct agent_link *t);
void agent_link_release(struct agent_link *t);

/* Sends the messages that are due. False: the agent has gone, so detach it. */
MUST_CHECK bool agent_link_tell(struct agent_link *t, const struct spawn_site *site,
                                struct spawn *const *spawns, size_t count);
/* Reads the spawn's reports, at most `limit` bytes of its pipe, and keeps them for the next agent_link_tell.
 */
void agent_link_take_reports(struct agent_link *t, struct spawn *s, size_t limit);
/* The same for the lines of the spawn's capture_child. */
void agent_link_take_captured(struct agent_link *t, struct spawn *s, size_t limit);

#endif
