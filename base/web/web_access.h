#ifndef DDP_BASE_WEB_WEB_ACCESS_H
#define DDP_BASE_WEB_WEB_ACCESS_H

#include <stdbool.h>

#include "base/err.h"

/* Who may use the HTTP interface: whoever knows the key, from this machine, and no page of another origin. A browser runs
 * pages of strangers, and other users of the machine reach its loopback addresses too. No state; any thread.
 *
 * - Host must name a loopback address. So a stranger's name that resolves to 127.0.0.1 (DNS rebinding) is refused.
 * - Origin, which browsers send with requests of pages, must be this server's own.
 * - Paths below /api/ need the key, as the header X-DDP-Key. A header, because browsers send cookies to every port of a host.
 * - POST needs the header X-DDP: 1. A page of another origin cannot send it without asking first, which is refused. */

#define WEB_KEY_TEXT 65 /* 256 random bits in hex, and NUL */

struct web_caller { /* NULL: the request lacks the header */
    const char *method, *path, *host, *origin, *key, *confirm;
};

void web_access_new_key(char key[WEB_KEY_TEXT]);
/* PERMISSION_DENIED: the message says what is missing. */
MUST_CHECK enum err_code web_access_check(const char *key, const struct web_caller *caller, struct err *e);
/* Whether a Host header names a loopback address: localhost, 127.0.0.1 or [::1], with any port or none. */
bool web_access_is_loopback(const char *host);

#endif
