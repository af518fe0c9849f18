#ifndef DDP_BASE_EXITS_H
#define DDP_BASE_EXITS_H

/* Exit codes that mean something to whoever reads an exit record. */

#define EXIT_USAGE 2
/* A native worker ended because a peer was lost or its generation is over: a consequence, never the cause of
 * a failure. */
#define EXIT_PEER_LOST 75

/* A native worker could not start because its node lacks a resource (open files). The coordinator does not
 * use the node for a while and tries others. */
#define EXIT_NODE_TROUBLE 71
/* The same, because the node cannot resolve the coordinator's name: the name is unknown there, or the name
 * server does not answer. */
#define EXIT_NO_ADDRESS 68

/* A native worker failed in a way that a restart would only repeat: wrong input, a loss that became nan. */
#define EXIT_NO_RESTART 78

#endif
