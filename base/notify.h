#ifndef DDP_BASE_NOTIFY_H
#define DDP_BASE_NOTIFY_H

/* Tells systemd (or whoever set NOTIFY_SOCKET) how far the program is: "READY=1", "STOPPING=1". Nothing
 * happens without that variable, and a failure is only logged. */
void notify_send(const char *state);

#endif
