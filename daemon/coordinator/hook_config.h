#ifndef DDP_DAEMON_COORDINATOR_HOOK_CONFIG_H
#define DDP_DAEMON_COORDINATOR_HOOK_CONFIG_H

#include "base/conf/conf.h"

/* Reads the key `hooks` of coordinator.yaml into a struct hook_list. */
MUST_CHECK enum err_code hook_config_read(const struct conf_node *node, void *at, struct err *e);
/* The key `tell`, into the same struct. */
MUST_CHECK enum err_code hook_config_read_tell(const struct conf_node *node, void *at, struct err *e);

struct hook_list;
void hook_list_release(struct hook_list *list);

#endif
