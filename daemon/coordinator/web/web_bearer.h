#ifndef DDP_DAEMON_COORDINATOR_WEB_WEB_BEARER_H
#define DDP_DAEMON_COORDINATOR_WEB_WEB_BEARER_H

#include <stdbool.h>
#include <stddef.h>

/* The page's server calls the coordinator over its unix socket, as users who have logged in. In place of a token, each
 * call carries the key, which only this process knows, and the user for whom it is made. Without this the call would
 * have the rights of the coordinator's account. No state; any thread. */

enum web_bearer_kind {
    BEARER_TOKEN = 't', /* somebody logs in with this token */
    BEARER_LOGIN = 'l', /* a login, by its number */
    BEARER_USER = 'u',  /* what all logins of this user see */
};
struct web_bearer {
    enum web_bearer_kind kind;
    char address[64];  /* of the browser; "" for BEARER_USER */
    const char *value; /* borrowed; not ended by NUL */
    size_t len;
};

/* "KEY,l,10.0.0.7,17"; the caller frees. */
char *web_bearer_print(const char *key, enum web_bearer_kind kind, const char *address, const char *value);
/* False: the text does not begin with this key. If only the rest of the text is wrong, the kind is 0. */
bool web_bearer_parse(const char *key, const char *text, size_t len, struct web_bearer *out);

#endif
