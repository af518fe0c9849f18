#ifndef DDP_BASE_DESCRIPTOR_PASS_H
#define DDP_BASE_DESCRIPTOR_PASS_H

#include <stddef.h>

#include "base/err.h"

/* Messages with open descriptors, over a unix socket that keeps messages apart (SCM_RIGHTS). The receiver gets
 * descriptors of its own for the same open files. */
#define DESCRIPTORS_MOST 8

struct descriptor_message {
    void *data;
    size_t len; /* receive: the room; then what came */
    int fds[DESCRIPTORS_MOST];
    size_t count;
};

/* Does not wait. UNAVAILABLE: the receiver's queue is full. ABORTED: nobody receives any more. */
MUST_CHECK enum err_code descriptors_send(int socket, const struct descriptor_message *m, struct err *e);
/* Does not wait. The descriptors are close-on-exec, and the caller's. UNAVAILABLE: no message waits. ABORTED: the sender
 * has closed the socket. */
MUST_CHECK enum err_code descriptors_receive(int socket, struct descriptor_message *m, struct err *e);

#endif
