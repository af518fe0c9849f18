#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELLER_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/coordinator/service/tell/tell_attempt.h"

/* Delivers the notices in the database to their hooks: each hook gets its own in order and at least once. A hook that
 * fails delays no other and never the loop. See teller.c. Loop thread. */
struct service;
struct change;
struct hook;
struct notice_record;
struct teller;

struct teller *teller_open(struct service *s);
/* These changes were committed. */
void teller_committed(struct teller *t, const struct change *changes, size_t count);
/* Runs the loop until all that waits has been tried, at most this long: for a cluster that ends with this process. */
void teller_finish(struct teller *t, int64_t ms);
/* Ends all attempts, and deletes what was delivered. The memory goes with teller_free, after the loop has closed its
 * handles. */
void teller_stop(struct teller *t);
void teller_free(struct teller *t);

/* How a hook of the configuration is doing. Texts are borrowed until the next turn of the loop. */
struct teller_state {
    const char *name;
    const char *url;                  /* secret: web_url_shown; NULL: none */
    const char *program;              /* NULL: none */
    int64_t waiting, ok_ms, error_ms; /* wall; 0: never since the start */
    const char *error;                /* of the newest failure; NULL: none */
    uint64_t delivered, failed, dropped;
};
size_t teller_count(const struct teller *t);
/* i == teller_count: all `tell` of jobs together, with the name "jobs". */
void teller_describe(const struct teller *t, size_t i, struct teller_state *out);

/* Sends a test message through hook i, beside its queue. `done` is called, by teller_free at the latest. */
void teller_test(struct teller *t, size_t i, tell_done_fn done, void *user);

#endif
