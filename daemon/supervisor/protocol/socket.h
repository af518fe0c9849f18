#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_SOCKET_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_SOCKET_H

#include "daemon/supervisor/protocol/control.h"

/* The control socket <run>/<job>/control.sock: unix SEQPACKET. It is reached through /proc/self/fd, so that
 * the state directory's path may be longer than a socket address. All descriptors are non-blocking and
 * close-on-exec. */

MUST_CHECK enum err_code control_listen(const char *dir, int *fd, struct err *e);
/* NOT_FOUND: there is no socket file. UNAVAILABLE: nothing listens on it, since its supervisor has died. */
MUST_CHECK enum err_code control_connect(const char *dir, int *fd, struct err *e);
/* A connected pair for a supervisor that is about to be started. */
MUST_CHECK enum err_code control_pair(int fds[2], struct err *e);
/* The next connection. UNAVAILABLE: none is waiting. PERMISSION_DENIED: the peer runs neither under this
 * process's account nor as root. */
MUST_CHECK enum err_code control_accept(int listener, int *fd, struct err *e);

/* UNAVAILABLE: the peer's queue is full, try again when it is writable. ABORTED: the peer is gone.
 * RESOURCE_EXHAUSTED: the message is too large to be sent at all. */
MUST_CHECK enum err_code control_send(int fd, const struct control_message *m, struct err *e);
MUST_CHECK enum err_code control_send_text(int fd, const char *text, size_t len, struct err *e);
/* One message. UNAVAILABLE: none is waiting. ABORTED: the peer is gone. INVALID_ARGUMENT: this message is
 * bad, the next one may be good. */
MUST_CHECK enum err_code control_receive(int fd, struct control_message *out, struct err *e);

#endif
