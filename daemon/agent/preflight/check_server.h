#ifndef DDP_DAEMON_AGENT_PREFLIGHT_CHECK_SERVER_H
#define DDP_DAEMON_AGENT_PREFLIGHT_CHECK_SERVER_H

#include "base/err.h"
#include "daemon/agent/account.h"
#include "daemon/agent/settings.h"
#include "proto/ddp.pb-c.h"

/* Answers the coordinator's questions about this node (CheckAsk). A process of its own answers each
 * question (check_process.h), so that a slow file system, peer or account database cannot block the agent. The process has the account
 * and the environment of a worker (environment_base), because it may start a program of the user. If it does not answer within 15 s, it
 * is killed, and the answer is an error. Loop thread. */

struct uv_loop_s;
struct check_server;

struct check_server_options {
    const struct settings *settings;
    char *const *inherited;    /* the agent's environment under `ddpctl run`; NULL: checks get none of it */
    const char *user;          /* the account that jobs run under; NULL: the agent's own */
    const struct account *own; /* the agent's own account; NULL: it has no entry */
    const char *submitter_on;  /* this node's name, if jobs run under their submitters' accounts; else NULL */
    const char *address;
    const char *coordinator; /* the address that workers dial */
    int port_first, port_last;
    MUST_CHECK enum err_code (*send)(void *ctx, const Ddp__V1__AgentUp *up, struct err *e);
    void *ctx;
};

struct check_server *check_server_create(struct uv_loop_s *loop, const struct check_server_options *options);
void check_server_ask(struct check_server *c, const Ddp__V1__CheckAsk *ask);
void check_server_close(struct check_server *c); /* kills running checks; the loop frees it */

#endif
