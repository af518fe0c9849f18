#ifndef DDP_DAEMON_AGENT_PREFLIGHT_CHECK_SERVER_H
#define DDP_DAEMON_AGENT_PREFLIGHT_CHECK_SERVER_H

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* The coordinator's questions about this node (CheckAsk), each answered by a process of its own that runs as
 * the user jobs run as (check.h): nothing that a file system or a peer does can hold up the agent. One that
 * does not answer in time is killed, and that is the answer. Loop thread. */

struct uv_loop_s;
struct check_server;

struct check_server_options {
    const char *user;         /* whom jobs run as; NULL: as this process */
    const char *submitter_on; /* this node's name, where jobs run as their submitters; else NULL */
    const char *address;
    const char *coordinator; /* as workers dial it */
    int port_first, port_last;
    MUST_CHECK enum err_code (*send)(void *ctx, const Ddp__V1__AgentUp *up, struct err *e);
    void *ctx;
};

struct check_server *check_server_create(struct uv_loop_s *loop, const struct check_server_options *options);
void check_server_ask(struct check_server *c, const Ddp__V1__CheckAsk *ask);
void check_server_close(
    struct check_server *c); /* kills what runs; freed when the loop has closed its handles */

#endif
