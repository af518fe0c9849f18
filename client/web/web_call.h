#ifndef DDP_CLIENT_WEB_WEB_CALL_H
#define DDP_CLIENT_WEB_WEB_CALL_H

#include "base/buf.h"
#include "client/link.h"

/* Makes a call to the coordinator and prints its reply as JSON, without changes. Any thread. */
MUST_CHECK enum err_code web_call_print(struct link *link, const char *method, const void *request,
                                        struct buf *out, struct err *e);

#endif
