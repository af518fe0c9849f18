#ifndef DDP_DAEMON_COORDINATOR_TOKEN_H
#define DDP_DAEMON_COORDINATOR_TOKEN_H

#include <stdbool.h>

#include "base/err.h"

/* Tokens: 32 random bytes as 64 hex digits. Agent and user tokens start with a prefix that tells what they
 * are for, so that a leaked one can be recognised. */
enum token_kind {
    TOKEN_CLUSTER, /* allows everything; no prefix; <state>/token */
    TOKEN_AGENT,   /* lets a node join and run jobs; ddpa_; <state>/agent_token */
    TOKEN_USER,    /* one user's, with a role; ddpu_; only its hash is stored, in the database */
};

#define TOKEN_TEXT 72 /* bytes that hold any token and its NUL */

/* A new random token. */
void token_make(char out[TOKEN_TEXT], enum token_kind kind);

/* Reads the cluster token or the agent token of a state directory; the caller frees *out. If the file is
 * missing, `create` makes it (mode 0600); otherwise NOT_FOUND. PERMISSION_DENIED if other accounts may read
 * the file, INVALID_ARGUMENT if it holds no token. */
MUST_CHECK enum err_code token_read(const char *state, enum token_kind kind, bool create, char **out,
                                    struct err *e);

#endif
