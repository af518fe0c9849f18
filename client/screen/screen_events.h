#ifndef DDP_CLIENT_SCREEN_SCREEN_EVENTS_H
#define DDP_CLIENT_SCREEN_SCREEN_EVENTS_H

#include "client/text/term.h"
#include "proto/ddp.pb-c.h"

/* `ddpctl events` and `ddpctl audit`: what happened, with local times. */
void screen_events(const Ddp__V1__GetEventsReply *reply, const struct term *term, struct buf *out);
void screen_audit(const Ddp__V1__GetAuditReply *reply, const struct term *term, struct buf *out);

#endif
