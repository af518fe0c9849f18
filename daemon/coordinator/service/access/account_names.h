#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_ACCOUNT_NAMES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_ACCOUNT_NAMES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The names of the accounts that may use the unix socket: root and our own. The lookup may ask a directory server that does not answer (LDAP,
 * SSSD), and meanwhile the loop would serve nobody. So a name is looked up once, those of root and of our own account before the loop runs. A
 * name that was not found is looked up again, at most once a minute. Loop thread. */
struct account_names {
    struct account_name {
        uid_t uid;
        char name[80]; /* empty: not found */
        int64_t asked_ms;
    } entries[4];
    size_t count;
};

void account_names_open(struct account_names *names, int64_t boot_ms); /* looks up root and our own account */
/* Returns NULL if the account has no name. The name is valid until the next call. */
const char *account_names_find(struct account_names *names, uid_t uid, int64_t boot_ms);

#endif
