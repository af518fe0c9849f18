#ifndef DDP_BASE_PATHS_H
#define DDP_BASE_PATHS_H

#include <stdbool.h>

#include "base/err.h"

/* ddp's directories if no flag names others. As root: /var/lib/ddp, /var/log/ddp, /etc/ddp. As a
 * user: $XDG_STATE_HOME/ddp (~/.local/state/ddp), logs below it, $XDG_CONFIG_HOME/ddp (~/.config/ddp). The
 * caller frees. */
char *paths_state(void);
char *paths_log(void);
char *paths_config(const char *file); /* "agent.yaml" -> "/etc/ddp/agent.yaml" */
/* The file of a user's configuration, for root in root's home, too: "token" -> "/root/.config/ddp/token". */
char *paths_user_config(const char *file);

/* dir/name, or name alone if it is absolute. Does not expand "~", which shells do. */
char *paths_join(const char *dir, const char *name);
bool paths_finds_program(const char *name); /* a directory of PATH has it */
/* A program installed in the same directory as the running one: "ddp-supervisor" ->
 * "/usr/bin/ddp-supervisor". */
MUST_CHECK enum err_code paths_program(const char *name, char **out, struct err *e);

#endif
