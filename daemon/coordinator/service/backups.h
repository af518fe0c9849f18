#ifndef DDP_DAEMON_COORDINATOR_SERVICE_BACKUPS_H
#define DDP_DAEMON_COORDINATOR_SERVICE_BACKUPS_H

#include <uv.h>

#include "base/err.h"

/* The database's backups on their schedule, made by a worker thread of libuv from a connection of its own, so
 * that the loop waits for none. Functions belong to the loop's thread. */
struct backups;

struct backups_options {
    const char *state, *dir;                     /* dir: where they are kept */
    int64_t every_ms, keep;                      /* every_ms 0: none are made */
    void (*failed)(void *user, const char *why); /* the first of some that failed in a row; why: one line */
    void *user;
};

void backups_open(struct backups **out, uv_loop_t *loop, const struct backups_options *options);
int64_t backups_age_ms(const struct backups *b); /* of the newest, -1: there is none */
uint64_t backups_failures(const struct backups *b);
const char *backups_problem(const struct backups *b); /* why the last one failed; NULL: it did not */
/* Waits for the one in progress; NULL is fine. Its loop handles need one more turn of the loop. */
void backups_close(struct backups *b);

#endif
