#ifndef DDP_DAEMON_COORDINATOR_BACKUP_COMMANDS_H
#define DDP_DAEMON_COORDINATOR_BACKUP_COMMANDS_H

#include "base/buf.h"
#include "base/err.h"
#include "daemon/coordinator/config.h"

/* `ddp-coordinator backup [FILE]`: copies the database, even while the coordinator runs, and prints the
 * copy's path. file NULL: a new file in the backup directory. */
MUST_CHECK enum err_code backup_command(const struct config *c, const char *file, struct err *e);

/* `ddp-coordinator restore FILE`: replaces the database by a backup. FAILED_PRECONDITION while the
 * coordinator runs. */
MUST_CHECK enum err_code restore_command(const struct config *c, const char *file, struct err *e);

/* Appends how to continue after DATA_LOSS: the copies that can be restored, and --accept-loss. Of the automatic
 * backups only the newest are named. */
void restore_put_choices(const struct config *c, struct buf *out);

#endif
