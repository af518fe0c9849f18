#ifndef DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_ROLES_H
#define DDP_DAEMON_COORDINATOR_SERVICE_ACCESS_ROLES_H

/* The roles of users, and the access that each method needs. */

enum role { ROLE_NONE, ROLE_VIEW, ROLE_SUBMIT, ROLE_OPERATE }; /* each covers the ones before it */

const char *role_name(enum role role);
enum role role_of(const char *name); /* ROLE_NONE if there is no such role */

enum access {
    ACCESS_VIEW,    /* users with any role */
    ACCESS_SUBMIT,  /* the role submit or operate; a job can be changed by its owner and the role operate */
    ACCESS_OPERATE, /* the role operate */
    ACCESS_SOCKET,  /* callers on the unix socket; nobody over TCP */
    ACCESS_AGENT,   /* the agent token, the cluster token, the unix socket */
    ACCESS_WORKER,  /* a worker's own token */
};
struct access_row {
    const char *service, *method;
    enum access access;
    const char *to; /* what the method does, for error messages: "drain a node" */
};
/* Returns NULL if the method has no row; then nobody may call it. */
const struct access_row *access_find(const char *service, const char *method);

/* The lowest role that a user needs for such a method; ROLE_NONE: no role is sufficient. */
enum role access_role(enum access access);

#endif
