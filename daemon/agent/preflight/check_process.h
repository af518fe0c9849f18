#ifndef DDP_DAEMON_AGENT_PREFLIGHT_CHECK_PROCESS_H
#define DDP_DAEMON_AGENT_PREFLIGHT_CHECK_PROCESS_H

#include <stdbool.h>

#include "base/err.h"
#include "proto/ddp.pb-c.h"

/* Whether this node is fit for a job: what `ddp-agent check` does, a process of its own, started by the agent
 * for each question (checks.h). It becomes the user that jobs run as, so that it sees what a worker would;
 * and a file system that hangs, hangs it and nothing else. The question is a packed CheckAsk on stdin, the
 * answer a packed CheckAnswer on stdout; a listener goes on taking connections after it has answered. */

struct check_ports {
    int first, last; /* the node's range for MASTER_PORT */
};

/* argv: "check" USER|- FIRST LAST COORDINATOR. The program's exit code. */
int check_process_main(int argc, char **argv);

/* check_place.c */
struct check_place; /* what an answer borrows from */
struct check_place *check_place_look(const Ddp__V1__CheckPlace *ask, Ddp__V1__CheckPlaceResult *out);
void check_place_free(struct check_place *p);

/* check_link.c */
#define CHECK_KEY 16
/* Opens two ports; *fds get the sockets, -1 where none could be had. */
void check_listen_open(const struct check_ports *ports, int fds[2], Ddp__V1__CheckListenResult *out);
/* Until `calls` of them have come by the key and gone (0: who knows), a while after the last one, or for
 * hold_ms. True: all have. */
bool check_listen_serve(const int fds[2], const uint8_t key[CHECK_KEY], int64_t hold_ms, int calls);
/* *links: count of them, each with texts that live until check_links_free. */
void check_connect(const Ddp__V1__CheckConnect *ask, Ddp__V1__CheckLink ***links, size_t *count);
void check_links_free(Ddp__V1__CheckLink **links, size_t count);

#endif
