#ifndef DDP_DAEMON_AGENT_NOTIFY_H
#define DDP_DAEMON_AGENT_NOTIFY_H

/* Tells the service manager, where NOTIFY_SOCKET names one: "READY=1". */
void notify(const char *state);

#endif
