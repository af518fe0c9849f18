#ifndef DDP_DAEMON_COORDINATOR_WEB_WEB_SITE_H
#define DDP_DAEMON_COORDINATOR_WEB_WEB_SITE_H

#include <stdint.h>

#include "base/err.h"
#include "base/web/web_tls.h"
#include "daemon/coordinator/web/web_logins.h"

/* The web page and the HTTP interface at the coordinator's own port (`web`), for people who log in with their token.
 *
 * The site is a client of this coordinator: its threads make the calls that ddpctl makes, on the coordinator's unix
 * socket, as the user of the login (web_bearer.h). So the coordinator's event loop does not handle HTTP, rights are
 * checked in one place, and a slow browser delays nobody. */

struct web_site_options {
    const char *address;             /* "host:port" */
    const char *socket;              /* of this coordinator: "unix:/path" */
    const struct web_tls_files *tls; /* NULL: plain text, at a loopback address */
};

struct web_site;
/* FAILED_PRECONDITION: there is no TLS, and the address is not a loopback address. The options are borrowed during the
 * call. */
MUST_CHECK enum err_code web_site_open(struct web_site **out, const struct web_site_options *options,
                                       struct err *e);
const char *web_site_key(const struct web_site *site); /* for web_bearer_parse */
struct web_logins *web_site_logins(struct web_site *site);
/* Ends the logins that have expired, and requests that take too long. Call it about once a second. */
void web_site_tick(struct web_site *site, int64_t now_ms);
void web_site_close(struct web_site *site); /* ends its calls first; NULL is allowed */

#endif
