#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_ROLES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_ROLES_H

/* The roles of users, and the access that each method needs. */

enum role { ROLE_NONE, ROLE_VIEW, ROLE_SUBMIT, ROLE_OPERATE }; /* each covers the ones before it */

const char *role_name(enum role role);
enum role role_of(const char *name); /* ROLE_NONE: there is no such role */

enum access {
    ACCESS_VIEW,    /* users with any role */
    ACCESS_SUBMIT,  /* role submit or operate; if the call names a job: its owner, or the role operate */
    ACCESS_OPERATE, /* the role operate */
    ACCESS_SOCKET,  /* callers on the unix socket; nobody over TCP */
    ACCESS_AGENT,   /* the agent token, the shared token, the unix socket */
    ACCESS_WORKER,  /* a worker's own token */
};
struct access_row {
    const char *service, *method;
    enum access access;
    const char *to; /* the user's purpose, for messages: "drain a node" */
};
/* NULL: the method has no row, so nobody may call it. */
const struct access_row *access_find(const char *service, const char *method);

/* The role that a user needs for it; ROLE_NONE: no role is enough. */
enum role access_role(enum access access);

#endif
