#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELLER_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/coordinator/service/tell/tell_attempt.h"

/* Delivers the notices in the database to their hooks. Each hook gets its own notices in order, each at least once. A
 * hook that fails delays neither the other hooks nor the loop. See teller.c. Loop thread. */
struct service;
struct change;
struct hook;
struct notice_record;
struct teller;

struct teller *teller_open(struct service *s);
/* To be called after these changes were committed. May add an event, which belongs to the next commit. */
void teller_committed(struct teller *t, const struct change *changes, size_t count);
/* Runs the loop until every waiting notice has been tried, but at most this long. Used under `ddpctl run`, whose
 * cluster ends with this process. */
void teller_finish(struct teller *t, int64_t ms);
/* Ends all attempts, and deletes the delivered notices. teller_free frees the memory, after the loop has closed its
 * handles. */
void teller_stop(struct teller *t);
void teller_free(struct teller *t);

/* The state of one hook of the configuration. Texts are borrowed until the next turn of the loop. */
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

/* Sends a test message through hook i, without its queue. `done` is called in any case, by teller_free at the
 * latest. */
void teller_test(struct teller *t, size_t i, tell_done_fn done, void *user);

#endif
