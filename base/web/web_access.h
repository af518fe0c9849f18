#ifndef DDP_BASE_WEB_WEB_ACCESS_H
#define DDP_BASE_WEB_WEB_ACCESS_H

#include <stdbool.h>

#include "base/err.h"

/* Decides which requests the HTTP interface accepts. A browser also runs pages of strangers, and other users of the
 * machine can reach its loopback addresses. No state; any thread.
 *
 * - Host must name a loopback address, or be a name of this server. A stranger's name that resolves to 127.0.0.1 (DNS
 *   rebinding) is refused.
 * - Origin, which browsers send with requests of pages, must be this server's own.
 * - Paths below /api/ need the key in the header X-DDP-Key. It is not a
 *   cookie, because browsers send cookies to every port of a host.
 *   A server without a key has logins instead (web_door.h).
 * - POST needs the header X-DDP: 1. A page of another origin must ask the server before it sends this header
 *   (CORS), and the server refuses. */

#define WEB_KEY_TEXT 65 /* 256 random bits in hex, and NUL */

struct web_rules {
    const char *key; /* NULL: there are logins */
    bool tls;        /* the server's origin begins with https:// */
    /* Whether the server has this name, given without a port and without brackets; NULL: loopback only. */
    bool (*has_name)(void *user, const char *name);
    void *user;
};
struct web_caller { /* NULL: the request lacks the header */
    const char *method, *path, *host, *origin, *key, *confirm;
};

void web_access_new_key(char key[WEB_KEY_TEXT]);
/* PERMISSION_DENIED: the message says what is missing. */
MUST_CHECK enum err_code web_access_check(const struct web_rules *rules, const struct web_caller *caller,
                                          struct err *e);
/* Whether a Host header names a loopback address: localhost, 127.0.0.1 or [::1], with any port or none. */
bool web_access_is_loopback(const char *host);
/* Finds the value of a cookie; a value has the form of a key. False: the header lacks the cookie, its value has another
 * form, or the header has it twice. It can occur twice when another server of this host has set a cookie of the same
 * name. */
bool web_access_cookie(const char *header, const char *name, char value[WEB_KEY_TEXT]);

#endif
