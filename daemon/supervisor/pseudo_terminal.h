#ifndef DDP_DAEMON_SUPERVISOR_PSEUDO_TERMINAL_H
#define DDP_DAEMON_SUPERVISOR_PSEUDO_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/worker/terminal_offer.h"

/* The pseudo-terminal of the rank that has the user's terminal (base/worker/terminal_offer.h). The supervisor appends
 * the rank's output to its stdout.log, so a slow or stopped ddpctl never delays the rank. A terminal turns each \n into
 * \r\n; the log gets \n again. */

struct terminal_link { /* the connection to ddpctl */
    int socket;        /* -1: there is no terminal */
    struct terminal_offer offer;
};

struct pseudo_terminal {
    int master, log; /* -1: there is none */
    bool held;       /* a \r was read; it is written unless \n follows */
    int64_t held_at;
    bool failed; /* the log could not be written, and this was reported */
};

/* socket: -1 for none. UNAVAILABLE: there is no offer on the socket. */
MUST_CHECK enum err_code terminal_link_open(struct terminal_link *link, int socket, struct err *e);

/* *slave is the side that becomes the rank's stdin and stdout; it belongs to the user. *t has no log yet. */
MUST_CHECK enum err_code pseudo_terminal_open(struct pseudo_terminal *t, const struct terminal_offer *offer,
                                              uid_t user, int *slave, struct err *e);
/* Gives ddpctl the master. */
MUST_CHECK enum err_code pseudo_terminal_show(const struct pseudo_terminal *t,
                                              const struct terminal_link *link, struct err *e);
/* Copies at most about `limit` bytes to the log. Closes the terminal when no process has it open any more. */
void pseudo_terminal_copy(struct pseudo_terminal *t, size_t limit, int64_t now);
/* Writes a \r that no \n has followed in time. Returns when to call again; INT64_MAX: after the next copy. */
int64_t pseudo_terminal_tick(struct pseudo_terminal *t, int64_t now);
/* Copies the rest of the output, and closes. Does not wait for a process that still writes. */
void pseudo_terminal_end(struct pseudo_terminal *t, int64_t now);

#endif
