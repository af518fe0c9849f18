#ifndef DDP_DAEMON_SUPERVISOR_PROTOCOL_RECORD_H
#define DDP_DAEMON_SUPERVISOR_PROTOCOL_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/worker/spawn_fact.h"

/* The record of a spawn on disk: <run>/<job>/<spawn>.json. The supervisor writes it before it forks (state "starting")
 * and again when the worker has ended. It is removed once the coordinator has committed the end. So if a record does
 * not say "exited" and its supervisor is dead, nobody knows how the spawn ended. */

/* durable: the record also survives a power cut; otherwise it survives only the end of this process. */
MUST_CHECK enum err_code record_write(const char *dir, const struct spawn_fact *fact, bool durable,
                                      struct err *e);
MUST_CHECK enum err_code record_remove(const char *dir, int64_t spawn, struct err *e); /* missing is fine */

struct record_list {
    struct spawn_fact *items;
    size_t count, cap;
};
/* All records of the directory, ordered by spawn number. A damaged record is listed as exited and lost. A
 * missing directory has no records. */
MUST_CHECK enum err_code record_list(const char *dir, struct record_list *out, struct err *e);
void record_list_release(struct record_list *list); /* for CLEANUP too */

#endif
