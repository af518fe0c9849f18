#ifndef DDP_TESTS_ATTACK_TARGET_H
#define DDP_TESTS_ATTACK_TARGET_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

/* The targets that the attack tools allow: this machine's loopback, and addresses in 10.0.0.0/8 if this
 * process is in a network namespace of `ip netns` without a default route. Every other target is refused. One
 * thread. */

struct target {
    struct sockaddr_storage address;
    socklen_t length;
    struct sockaddr_in from; /* the source of the connections; sin_family 0: any */
};

/* Parses "ADDRESS:PORT" or "[v6]:PORT", without names. from: the source address, or NULL. Exits with 2 if the
 * target is refused. */
void target_parse(struct target *t, const char *text, const char *from);
/* Starts a non-blocking connect. Returns the descriptor, or -1 and sets errno. */
int target_connect(const struct target *t);

/* Parses a number of the command line; exits with 2 if it is not within the bounds. */
int64_t target_number(const char *name, const char *text, int64_t least, int64_t most);
int64_t target_now_ms(void);
/* Raises the limit of descriptors to the hard limit; exits with 2 if that is below `wanted`. */
void target_descriptors(int64_t wanted);

#endif
