#ifndef DDP_CLIENT_WEB_WEB_ORDERS_H
#define DDP_CLIENT_WEB_WEB_ORDERS_H

#include "base/web/web_request.h"
#include "client/link.h"

/* The requests that change something: submit, cancel, resize, restart and resume. Any number of threads. */
MUST_CHECK enum err_code web_order(struct link *link, const struct web_request *request, struct buf *out,
                                   struct err *e);

#endif
