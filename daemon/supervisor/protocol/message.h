#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_MESSAGE_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_MESSAGE_H

#include "base/json.h"
#include "daemon/supervisor/protocol/control.h"

/* The JSON members of a fact, shared by the socket (control.c) and the record files (record.c). Own folder
 * only. */

void fact_put(struct jout *o, const struct spawn_fact *f);
MUST_CHECK enum err_code fact_get(struct spawn_fact *f, const json_t *obj, struct err *e);
char *text_member(const json_t *obj, const char *key); /* a copy, or NULL */

#endif
