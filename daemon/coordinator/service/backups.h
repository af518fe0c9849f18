#ifndef DDP_DAEMON_COORDINATOR_SERVICE_BACKUPS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_BACKUPS_H

#include <uv.h>

#include "base/err.h"

/* Makes backups of the database on a schedule. A worker thread of libuv makes them over a database connection
 * of its own, so the loop never waits. Call the functions on the loop's thread. */
struct backups;

struct backups_options {
    const char *state, *dir; /* the state directory; the directory of the backups */
    int64_t every_ms, keep;  /* every_ms 0: no backups are made */
    /* Called for the first failure in a row; why: one line. */
    void (*failed)(void *user, const char *why);
    void *user;
};

void backups_open(struct backups **out, uv_loop_t *loop, const struct backups_options *options);
int64_t backups_age_ms(const struct backups *b); /* of the newest backup; -1: there is none */
uint64_t backups_failures(const struct backups *b);
const char *backups_problem(const struct backups *b); /* why the last backup failed; NULL: it did not */
/* Gives up a backup in progress; NULL is fine. The timer is closed in the loop's next turn. */
void backups_close(struct backups *b);

#endif
