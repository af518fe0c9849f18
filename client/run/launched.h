#ifndef DDP_CLIENT_RUN_LAUNCHED_H
#define DDP_CLIENT_RUN_LAUNCHED_H

#include "client/run/launch.h"

/* What a launcher (client/run/launcher.h) tells the `ddpctl run` that it starts on another host: its place, in
 * one word on the command line; secrets and the environment by a pipe to its stdin or a file of the user's
 * alone. That pipe is a lifeline too: when it closes, the launcher is gone or wants the end, and SIGTERM
 * comes. */

struct launched {
    int64_t rank;  /* of this node; -1: it finds out by itself */
    int64_t count; /* of nodes */
    int64_t port;
    char *id;   /* of the run; no comma in it; "": the arguments say it */
    char *host; /* where they meet, "": it finds out by itself */
    char *env;  /* "-": stdin, "": nothing is sent, else a file */
};

char *launched_text(const struct launched *at); /* the option's value; the caller frees */
MUST_CHECK enum err_code launched_parse(const char *text, struct launched *at, struct err *e);
void launched_release(struct launched *at); /* for CLEANUP too */

/* Leaves alone what the arguments, which are the user's own, say already. */
void launched_fill(const struct launched *at, struct launch *l);

/* "NAME=value" texts, each ended by a NUL, and an empty one at the end. */
char *launched_pack(char *const *environment, size_t *size);
/* Reads them into this process's environment, and follows the lifeline from then on. */
MUST_CHECK enum err_code launched_receive(const struct launched *at, struct err *e);

#endif
