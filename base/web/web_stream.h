#ifndef DDP_BASE_WEB_WEB_STREAM_H
#define DDP_BASE_WEB_WEB_STREAM_H

#include <microhttpd.h>

#include "base/web/web_door.h"
#include "base/web/web_levels.h"
#include "base/web/web_request.h"

/* Answers GET /api/watch with server-sent events. The connection is suspended while its viewer has all newest frames,
 * and resumed by the next change. A client that reads nothing for WEB_STREAM_IDLE_S seconds is disconnected. */

#define WEB_STREAM_IDLE_S 60

/* A stream ends as soon as the server or its login has ended and its viewer is woken. */
struct web_stream_end {
    const bool *server; /* borrowed */
    /* NULL: there are no logins. Else the stream holds the login until it ends (door->hold). */
    const struct web_door *door;
    struct web_login *login;
};

/* INVALID_ARGUMENT: the parameters are wrong. The response enters the viewer into the levels until it is destroyed. */
MUST_CHECK enum err_code web_stream_create(struct MHD_Response **out, struct MHD_Connection *connection,
                                           const struct web_request *request, struct web_levels *levels,
                                           const struct web_stream_end *end, struct err *e);

#endif
