#ifndef DDP_DAEMON_COORDINATOR_SERVICE_NOTES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_NOTES_H

struct service;

/* The NOTE lines of `ddpctl status`. The caller frees with strv_free. */
char **service_notes(struct service *s);

#endif
