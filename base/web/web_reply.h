#ifndef DDP_BASE_WEB_WEB_REPLY_H
#define DDP_BASE_WEB_WEB_REPLY_H

#include "base/buf.h"
#include "base/err.h"

/* The answer to a request: JSON, and the status that goes with it. Zeroed, it is 200 with an empty body. */
struct web_reply {
    enum err_code code;
    struct buf body;
    /* a new cookie for the browser; "": the browser removes its cookie; NULL: the browser keeps it */
    char *secret;
};

/* The body becomes {"error":"...","code":"NOT_FOUND"}. */
void web_reply_fail(struct web_reply *reply, const struct err *e);
unsigned web_reply_status(enum err_code code); /* of HTTP: 404 for NOT_FOUND */
void web_reply_release(struct web_reply *reply);

#endif
