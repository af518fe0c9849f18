#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_SOCKET_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_SOCKET_H

#include "daemon/supervisor/protocol/control.h"

/* The control socket <run>/<job>/control.sock: unix SEQPACKET, reached through /proc/self/fd, so that the
 * length of the state directory's path does not matter. All descriptors are non-blocking and close-on-exec.
 */

MUST_CHECK enum err_code control_listen(const char *dir, int *fd, struct err *e);
/* NOT_FOUND: no socket file; UNAVAILABLE: nobody listens, its supervisor is gone. */
MUST_CHECK enum err_code control_connect(const char *dir, int *fd, struct err *e);
/* A connected pair for a supervisor that is about to be started. */
MUST_CHECK enum err_code control_pair(int fds[2], struct err *e);
/* The next connection; its peer's uid must be ours or root's. UNAVAILABLE: none is waiting. */
MUST_CHECK enum err_code control_accept(int listener, int *fd, struct err *e);

/* UNAVAILABLE: the peer's queue is full, try when writable. ABORTED: the peer is gone. */
MUST_CHECK enum err_code control_send(int fd, const struct control_message *m, struct err *e);
MUST_CHECK enum err_code control_send_text(int fd, const char *text, size_t len, struct err *e);
/* One message. UNAVAILABLE: none is waiting. ABORTED: the peer is gone. INVALID_ARGUMENT: skip it, go on. */
MUST_CHECK enum err_code control_receive(int fd, struct control_message *out, struct err *e);

#endif
