#ifndef DDP_CLIENT_WEB_WEB_SESSION_H
#define DDP_CLIENT_WEB_WEB_SESSION_H

#include <stdint.h>

#include "client/link.h"

/* The web page and its HTTP interface on 127.0.0.1, for as long as the session is open. Its threads use the given
 * connection, which belongs to the session from then on. */

#define WEB_SESSION_PORT 8629

struct web_session;
/* port 0: the usual one, or a free one if that is in use. On an error the link is closed, too. */
MUST_CHECK enum err_code web_session_open(struct web_session **out, struct link *link, uint16_t port,
                                          struct err *e);
const char *web_session_url(const struct web_session *s); /* with the key: only the user may see it */
void web_session_close(struct web_session *s);            /* NULL is allowed */

#endif
