#ifndef DDP_BASE_WORKER_EXITS_H
#define DDP_BASE_WORKER_EXITS_H

/* Exit codes with a meaning in exit records. */

#define EXIT_USAGE 2
/* A native worker ended because a peer was lost or because its generation is over. This is a consequence of a
 * failure, never its cause. */
#define EXIT_PEER_LOST 75
/* The same number from a command (EX_TEMPFAIL of sysexits.h): it failed, and asks to be started again. */
#define EXIT_TRY_AGAIN 75

/* A native worker could not start because its node lacks a resource (open files). The coordinator does not
 * use the node for a while and tries others. */
#define EXIT_NODE_TROUBLE 71
/* As EXIT_NODE_TROUBLE, but the node cannot resolve the coordinator's name: the node does not know the name,
 * or the name server does not answer. */
#define EXIT_NO_ADDRESS 68

/* A native worker failed in a way that a restart would repeat: invalid input, a loss that became nan, a disk that
 * stayed full for the last snapshot. */
#define EXIT_NO_RESTART 78

#endif
