#ifndef DDP_CLIENT_SCREEN_SCREEN_NODES_H
#define DDP_CLIENT_SCREEN_SCREEN_NODES_H

#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl nodes`. */
void screen_nodes(const Ddp__V1__ListNodesReply *reply, const struct term *term, struct buf *out);

#endif
