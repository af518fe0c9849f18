#ifndef DDP_BASE_NOTIFY_H
#define DDP_BASE_NOTIFY_H

/* Reports the program's state to systemd, or another program that set NOTIFY_SOCKET: "READY=1", "STOPPING=1".
 * Does nothing without this variable, and only logs a failure. */
void notify_send(const char *state);

#endif
