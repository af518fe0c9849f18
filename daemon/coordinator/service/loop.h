#ifndef DDP_DAEMON_COORDINATOR_SERVICE_LOOP_H
#define DDP_DAEMON_COORDINATOR_SERVICE_LOOP_H

/* The turns of the coordinator's libuv loop: at the end of each one the commit, then what is due on
 * streams. */

struct service;

/* Initialises the loop and all handles of struct service; it may be closed from then on. */
void loop_open(struct service *s);
/* From now on each turn ends with a commit. */
void loop_start(struct service *s);
/* Renews the page of metrics if it is older than a second. */
void loop_publish_stats(struct service *s);

#endif
