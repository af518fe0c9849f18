#ifndef DDP_DAEMON_COORDINATOR_WEB_WEB_LOGINS_H
#define DDP_DAEMON_COORDINATOR_WEB_WEB_LOGINS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/web/web_access.h"
#include "base/web/web_door.h"

/* The browsers that have logged in to the coordinator's page. A login is found by its secret. Only the browser has the
 * secret; this module keeps its SHA-256. A login ends after WEB_LOGIN_S, by a logout, when its user's token is revoked,
 * and with this process.
 *
 * All logins of a user share an account: what viewers of this user see, and the thread that asks for it. Two users
 * never share one, because they may see different things.
 *
 * Any thread. Times are those of clock_boot_ms. */

#define WEB_USER_TEXT 80

struct web_logins_hooks { /* open and close what an account needs besides its levels */
    void *user;
    MUST_CHECK enum err_code (*open)(void *user, const char *name, struct web_levels *levels, void **out,
                                     struct err *e);
    void (*close)(void *user, void *opened); /* may block */
};

struct web_logins;
struct web_logins *web_logins_create(const struct web_logins_hooks *hooks);
/* Every login that was found must have been given back. NULL is allowed. */
void web_logins_free(struct web_logins *l);

/* Makes a new login of the user, and the secret for the browser. If the user has too many logins, this ends the one that has
 * not been used for longest. If too many users have logged in, it ends all logins of the user whose last use of a login is
 * oldest. RESOURCE_EXHAUSTED: all these users have used a login within a minute. May block. */
MUST_CHECK enum err_code web_logins_add(struct web_logins *l, const char *user, int64_t now_ms,
                                        char secret[WEB_KEY_TEXT], struct err *e);
/* The pointer is valid until it is given back, even if the login ends meanwhile. NULL: no login has this secret. */
struct web_login *web_logins_find(struct web_logins *l, const char *secret, int64_t now_ms);
struct web_login *web_logins_hold(struct web_logins *l, struct web_login *login); /* for another owner */
void web_logins_give_back(struct web_logins *l, struct web_login *login);

void web_logins_end(struct web_logins *l, struct web_login *login);
void web_logins_end_user(struct web_logins *l, const char *user);
/* Also notes which logins are in use. To be called about once a second. */
void web_logins_expire(struct web_logins *l, int64_t now_ms);
void web_logins_wake(struct web_logins *l); /* all viewers */

/* A login's number, which no other login ever has. */
uint64_t web_login_number(const struct web_login *login);
/* The user of a login. False: there is no such login, or it has ended. */
bool web_logins_user(struct web_logins *l, uint64_t number, char user[WEB_USER_TEXT]);
bool web_logins_has_user(struct web_logins *l, const char *user);

#endif
