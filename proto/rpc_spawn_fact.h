#ifndef DDP_PROTO_RPC_SPAWN_FACT_H
#define DDP_PROTO_RPC_SPAWN_FACT_H

#include <stdbool.h>

#include "base/worker/spawn_fact.h"
#include "proto/ddp.pb-c.h"

/* A fact about a worker (base/worker/spawn_fact.h) as a message between agent and coordinator, both ways. What only
 * the node needs (place of the logs, marks, cgroup) does not travel. Any thread. */

/* Initializes *out. It borrows the fact's texts; with_tail adds the last lines of stderr, which
 * rpc_spawn_fact_release frees. */
void rpc_spawn_fact_pack(const struct spawn_fact *fact, bool with_tail, Ddp__V1__SpawnFact *out);
void rpc_spawn_fact_release(Ddp__V1__SpawnFact *message);

/* An unknown state counts as starting. *out owns its texts: spawn_fact_release. */
void rpc_spawn_fact_unpack(const Ddp__V1__SpawnFact *message, struct spawn_fact *out);

#endif
