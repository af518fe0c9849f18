#ifndef DDP_CLIENT_RUN_LAUNCH_MESSAGE_H
#define DDP_CLIENT_RUN_LAUNCH_MESSAGE_H

#include "client/run/run_request.h"

/* What a launcher (client/run/remote_launch.h) tells the `ddpctl run` that it starts on another host: its place, in
 * one word on the command line; secrets and the environment by a pipe to its stdin or a file of the user's
 * alone. That pipe is a lifeline too: when it closes, the launcher is gone or wants the end, and SIGTERM
 * comes. */

struct launch_message {
    int64_t rank;  /* of this node; -1: it finds out by itself */
    int64_t count; /* of nodes */
    int64_t port;
    char *id;   /* of the run; no comma in it; "": the arguments say it */
    char *host; /* where they meet, "": it finds out by itself */
    char *env;  /* "-": stdin, "": nothing is sent, else a file */
};

char *launch_message_text(const struct launch_message *at); /* the option's value; the caller frees */
MUST_CHECK enum err_code launch_message_parse(const char *text, struct launch_message *at, struct err *e);
void launch_message_release(struct launch_message *at); /* for CLEANUP too */

/* Leaves alone what the arguments, which are the user's own, say already. */
void launch_message_apply(const struct launch_message *at, struct run_request *r);

/* "NAME=value" texts, each ended by a NUL, and an empty one at the end. */
char *launch_message_pack(char *const *environment, size_t *size);
/* Reads them into this process's environment, and follows the lifeline from then on. */
MUST_CHECK enum err_code launch_message_receive(const struct launch_message *at, struct err *e);

#endif
