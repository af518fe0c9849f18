#ifndef DDP_CLIENT_RUN_LAUNCH_REMOTE_CHILDREN_H
#define DDP_CLIENT_RUN_LAUNCH_REMOTE_CHILDREN_H

#include "client/run/launch/remote_launch.h"

/* ssh and pbsdsh: starts a child for each host and waits for all of them. Returns ddpctl's exit code. */
int remote_children_run(const struct remote_launch *launch);

#endif
