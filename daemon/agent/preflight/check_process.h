#ifndef DDP_DAEMON_AGENT_PREFLIGHT_CHECK_PROCESS_H
#define DDP_DAEMON_AGENT_PREFLIGHT_CHECK_PROCESS_H

/* `ddp-agent check`: a process that answers one question about this node. The agent starts it for each
 * question (check_server.h). It runs under the account that jobs run under, so it sees what a worker would
 * see, and when a file system hangs, only this process hangs. The question is a packed CheckAsk on stdin, the
 * answer a packed CheckAnswer on stdout. A process that listens for other nodes goes on serving them after
 * its answer. */

/* argv: "check", USER or "-", NODE or "-", FIRST and LAST port, COORDINATOR. With NODE, USER is the submitter of a check
 * under `run_as: submitter`. Returns the program's exit code. */
int check_process_main(int argc, char **argv);

#endif
