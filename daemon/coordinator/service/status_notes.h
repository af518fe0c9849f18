#ifndef DDP_DAEMON_COORDINATOR_SERVICE_STATUS_NOTES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_STATUS_NOTES_H

struct service;

/* The NOTE lines of `ddpctl status`. The caller frees with strv_free. */
char **status_notes(struct service *s);

#endif
