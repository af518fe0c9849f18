#ifndef DDP_TESTS_ATTACK_TARGET_H
#define DDP_TESTS_ATTACK_TARGET_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

/* Whom the attack tools may attack: this machine's loopback, and, in a network namespace other than that of
 * the machine's first process and without a default route, private IPv4 addresses. Every other address is
 * refused. */

struct target {
    struct sockaddr_storage address;
    socklen_t length;
    struct sockaddr_in from; /* the connections' source; sin_family 0: any */
};

/* "ADDRESS:PORT" or "[v6]:PORT", numbers only; from may be NULL. Ends the program with 2 when it is refused.
 */
void target_parse(struct target *t, const char *text, const char *from);
/* A non-blocking connection on its way; -1 with errno. */
int target_connect(const struct target *t);

/* A number of a command line within the bounds; ends the program with 2 when it is not. */
int64_t target_number(const char *name, const char *text, int64_t least, int64_t most);
int64_t target_now_ms(void);
/* As many descriptors as the hard limit allows; ends the program with 2 when they are fewer than wanted. */
void target_descriptors(int64_t wanted);

#endif
