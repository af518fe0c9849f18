#ifndef DDP_TRAINER_MEMBER_COLL_SEND_BUFFER_H
#define DDP_TRAINER_MEMBER_COLL_SEND_BUFFER_H

#include <stdint.h>

/* How much a TCP connection may hold that its peer has not acknowledged. The kernel lets the buffer grow to megabytes. On
 * a short path that is far more than the path needs, and so much that the bytes have left the CPU's cache when they are
 * copied out again. */

/* Bytes for SO_SNDBUF; 0: the kernel decides. rtt_us: the shortest round trip of the path. */
int send_buffer_for_path(uint32_t rtt_us);
/* Sets the buffer of a connected socket. Leaves a socket that is not TCP as it is. */
void send_buffer_limit(int fd);

#endif
