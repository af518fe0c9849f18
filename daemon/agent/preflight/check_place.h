#ifndef DDP_DAEMON_AGENT_PREFLIGHT_CHECK_PLACE_H
#define DDP_DAEMON_AGENT_PREFLIGHT_CHECK_PLACE_H

#include "proto/ddp.pb-c.h"

/* What a worker would find on this node: its working directory, its data, its interpreter, memory and disk
 * space. Runs in the check process (check_process.h) under the account that jobs run under, and may block for
 * as long as a file system does. Changes the working directory and the environment of the process. */

struct check_place; /* owns the texts of the answer */
struct check_place *check_place_look(const Ddp__V1__CheckPlace *ask, Ddp__V1__CheckPlaceResult *out);
void check_place_free(struct check_place *p); /* NULL is fine */

#endif
