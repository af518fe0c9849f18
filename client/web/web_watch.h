#ifndef DDP_CLIENT_WEB_WEB_WATCH_H
#define DDP_CLIENT_WEB_WEB_WATCH_H

#include "base/web/web_levels.h"
#include "client/link.h"

/* A thread that asks the coordinator for what viewers watch, once a second for all of them together, and puts it into the
 * levels. Without viewers it asks nothing. */

struct web_watch;
/* link and levels are borrowed until web_watch_close. */
struct web_watch *web_watch_open(struct link *link, struct web_levels *levels);
/* Waits for the call that is being made; rpc_channel_cancel ends it at once. NULL is allowed. */
void web_watch_close(struct web_watch *w);

#endif
