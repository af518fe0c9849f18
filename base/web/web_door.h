#ifndef DDP_BASE_WEB_WEB_DOOR_H
#define DDP_BASE_WEB_WEB_DOOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/web/web_levels.h"

/* The functions by which the server asks about logins, which its owner keeps. Any thread may call them; they must not
 * block. */

struct web_login {             /* a browser that has logged in */
    struct web_levels *levels; /* what its user sees */
    /* The same for all logins of the user, also after a logout, and never that of another user. Not 0. */
    uint64_t owner;
    bool ended; /* atomic. Whoever sets it must then wake the viewers of the levels */
};
struct web_door {
    void *user;
    /* The login with this secret, which is valid until it is returned; NULL: there is none. */
    struct web_login *(*find)(void *user, const char *secret);
    struct web_login *(*hold)(void *user, struct web_login *login); /* for another owner */
    void (*give_back)(void *user, struct web_login *login);
    void (*wake)(void *user); /* all viewers */
};

#define WEB_LOGIN_S (12 * 3600)

#endif
