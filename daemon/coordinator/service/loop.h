#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOOP_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOOP_H

/* The coordinator's libuv loop. Each turn of the loop ends with a commit; after it, messages that are due are sent on
 * streams. */

struct service;

/* Initialises the loop and all handles of struct service; it may be closed from then on. */
void loop_open(struct service *s);
/* From now on each turn ends with a commit. */
void loop_start(struct service *s);
/* Renews the page of metrics if it is older than a second. */
void loop_publish_stats(struct service *s);

#endif
