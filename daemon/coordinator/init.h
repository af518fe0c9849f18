#ifndef DDP_DAEMON_COORDINATOR_INIT_H
#define DDP_DAEMON_COORDINATOR_INIT_H

#include <stdbool.h>

#include "base/err.h"
#include "daemon/coordinator/config.h"

/* `ddp-coordinator init`: makes what is missing of state directory, token and config file, and prints the
 * line to paste on each node. Running it again changes nothing. elsewhere: not where a plain
 * `ddp-coordinator` looks, so the commands that it prints name the state directory and the file. */
MUST_CHECK enum err_code init_run(const struct config *config, const char *config_path, bool elsewhere,
                                  struct err *e);

/* The cluster's token, 64 hex digits; made (0600) when missing and `make` says so, else NOT_FOUND. Refused
 * when others may read it. The caller frees. */
MUST_CHECK enum err_code token_read(const char *state, bool make, char **out, struct err *e);

/* Reads the agent token, which only lets a node join and run jobs, from <state>/agent_token, as token_read.
 */
MUST_CHECK enum err_code agent_token_read(const char *state, bool make, char **out, struct err *e);

/* A new random token; its first letters say what it is for. */
#define TOKEN_TEXT 72
enum token_kind { TOKEN_USER, TOKEN_AGENT };
void token_make(char out[TOKEN_TEXT], enum token_kind kind);
bool token_is(const char *text, enum token_kind kind);

#endif
