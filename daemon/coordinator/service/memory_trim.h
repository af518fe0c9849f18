#ifndef DDP_DAEMON_COORDINATOR_SERVICE_MEMORY_TRIM_H
#define DDP_DAEMON_COORDINATOR_SERVICE_MEMORY_TRIM_H

struct service;

/* Starts a timer of the loop that returns freed memory to the system when there is much of it. */
void memory_trim_start(struct service *s);

#endif
