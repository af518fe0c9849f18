#ifndef DDP_CLIENT_RUN_LAUNCH_LAUNCH_MESSAGE_H
#define DDP_CLIENT_RUN_LAUNCH_LAUNCH_MESSAGE_H

#include "client/run/run_request.h"

/* What a launching ddpctl (client/run/launch/remote_launch.h) tells the `ddpctl run` that it starts on
 * another host. The place in the run is one word on the command line. Secrets and the environment come
 * through a pipe to its stdin, or in a file that only the user can read.
 *
 * The pipe is a lifeline too. Each later byte is the number of a signal that the launching ddpctl passes on.
 * The pipe closes when the launching ddpctl dies or wants the run to end, and then the started ddpctl gets
 * SIGTERM. Older versions take any byte for SIGTERM. */

struct launch_message {
    int64_t rank;  /* of the node; -1: the batch system's variables tell it */
    int64_t count; /* of nodes */
    int64_t port;  /* of the endpoint */
    char *id;      /* of the run, without commas; "": the arguments have it */
    char *host;    /* of the endpoint, "": the batch system's variables tell it */
    char *env;     /* where the environment comes from: "-" stdin, "" nowhere, else a file */
};

char *launch_message_text(const struct launch_message *at); /* the option's value; the caller frees */
MUST_CHECK enum err_code launch_message_parse(const char *text, struct launch_message *at, struct err *e);
void launch_message_release(struct launch_message *at); /* for CLEANUP too */

/* Fills the request. What the arguments set stays, since they are the user's. */
void launch_message_apply(const struct launch_message *at, struct run_request *r);

/* The environment as it is sent: "NAME=value" texts, each ended by NUL, then an empty text. The caller frees.
 */
char *launch_message_pack(char *const *environment, size_t *size);
/* Receives the environment and sets it in this process. From then on the lifeline raises signals in
 * this process. */
MUST_CHECK enum err_code launch_message_receive(const struct launch_message *at, struct err *e);

#endif
