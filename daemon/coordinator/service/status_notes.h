#ifndef DDP_DAEMON_COORDINATOR_SERVICE_STATUS_NOTES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_STATUS_NOTES_H

struct service;

/* The NOTE lines of `ddpctl status`: conditions that an administrator should know. The caller frees them with
 * strv_free. Loop thread. */
char **status_notes(struct service *s);

#endif
