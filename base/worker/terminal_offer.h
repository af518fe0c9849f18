#ifndef DDP_BASE_WORKER_TERMINAL_OFFER_H
#define DDP_BASE_WORKER_TERMINAL_OFFER_H

#include <stdbool.h>
#include <sys/ioctl.h>
#include <termios.h>

/* The user's terminal as `ddpctl run` finds it. It is the first message on a socket that ddpctl's agent and supervisors
 * inherit. Every supervisor looks at it there without taking it. For each start of the rank that gets the terminal, the
 * supervisor makes a pseudo-terminal like this one and sends the descriptor of its master side back through the socket.
 * ddpctl then writes what the user types to the master and gives it the size of the user's terminal; the supervisor
 * reads what the rank writes, and appends it to the rank's log. */
struct terminal_offer {
    struct termios modes;
    struct winsize size;
    bool standard_error; /* ddpctl's stderr is a terminal, too; else the rank's stderr is its log file */
};

#endif
