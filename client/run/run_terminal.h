#ifndef DDP_CLIENT_RUN_RUN_TERMINAL_H
#define DDP_CLIENT_RUN_RUN_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "base/buf.h"
#include "client/run/run_request.h"

/* The user's terminal while one rank of the run has it.
 *
 * The run's supervisor makes a pseudo-terminal for the rank and sends its master side here (base/worker/terminal_offer.h). From
 * then on the user's terminal passes each key (raw mode), and the keys go to the master. The pseudo-terminal treats them
 * as the program wants it: it echoes, edits lines, and makes signals of ^C and ^\. The rank's output comes through
 * its log file, as that of other ranks.
 *
 *   ^C     is SIGINT for the program. If the program ends before anything else is typed, the run ends with it, without a
 *          restart. Three within two seconds kill the job. The rest of the process group gets SIGINT, as from any terminal.
 *   ^Z     stops ddpctl, not the job; a program whose terminal does not make signals of keys gets it as a key, and so does a
 *          job of a shell that runs as the rank.
 *   other  keys go to the program: ^D ends its input, ^\ is SIGQUIT.
 *
 * The terminal gets its own modes back when the rank has ended, on ^Z, and when ddpctl ends, also by a signal (but not by
 * SIGKILL). In the background, and while another ddpctl reads the keys, the terminal is neither read nor changed. Without a
 * terminal the rank inherits ddpctl's stdin. */
struct run_terminal {
    const char *attach;   /* which rank, for the agent: "only" or its number; NULL: none */
    int theirs;           /* the agent's end of the socket; -1: no terminal */
    bool interrupted_end; /* the rank has ended after a ^C; interrupts_count() counts it */
    /* private */
    int ours;
    int master;               /* of the rank's pseudo-terminal; -1: no rank has it now */
    int lock;                 /* held while this ddpctl reads the keys; -1: not held */
    bool raw;                 /* the user's terminal passes each key */
    bool interrupted;         /* the last key was ^C */
    int64_t interrupts_ms[2]; /* when the last two ^C were typed */
    struct buf typed;         /* keys that the pseudo-terminal has not taken yet */
    char number[24];
};

/* Finds out what the rank gets: the terminal if stdin and stdout are one, else stdin if it is not a terminal. */
void run_terminal_open(struct run_terminal *t, const struct run_request *request);
/* Passes on keys and the size of the terminal, and notices a rank that begins or ends. */
void run_terminal_turn(struct run_terminal *t, int64_t now);
bool run_terminal_is_used(const struct run_terminal *t);
void run_terminal_close(struct run_terminal *t); /* may be called twice */

#endif
