#ifndef DDP_TRAINER_MEMBER_COLL_SEND_BUFFER_H
#define DDP_TRAINER_MEMBER_COLL_SEND_BUFFER_H

#include <stdbool.h>
#include <stdint.h>

/* Limits how many bytes a TCP connection holds until its peer acknowledges them. The kernel lets this send buffer grow to
 * megabytes. A short path needs far less. The bytes of a large buffer have left the CPU's cache by the time the kernel
 * copies them out again. */

/* Bytes for SO_SNDBUF; 0: the kernel decides. rtt_us: the shortest round trip of the path. */
int send_buffer_for_path(uint32_t rtt_us);
/* Sets the buffer of a connected socket, and returns whether its path is short. Leaves a socket that is not TCP as it is. */
bool send_buffer_limit(int fd);

#endif
