#ifndef DDP_BASE_EXITS_H
#define DDP_BASE_EXITS_H

/* Exit codes that mean something to whoever reads an exit record. */

#define EXIT_USAGE 2
/* A native worker ended because a peer was lost or its generation is over: a consequence, never the cause of
 * a failure. */
#define EXIT_PEER_LOST 75

/* A native worker failed in a way that a restart would only repeat: wrong input, a loss that became nan. */
#define EXIT_NO_RESTART 78

#endif
