#ifndef DDP_STORE_NOTICES_H
#define DDP_STORE_NOTICES_H

#include "store/store.h"

/* Notices are events that hooks have not got yet. CHANGE_NOTICE writes them; this module reads and deletes them. A deletion is a
 * transaction of its own. If it is lost, the hook gets the notice again. */

/* A hook that has notices. */
struct notice_queue {
    char *hook;
    int64_t waiting;
};
/* All of them, by hook. Release with store_notice_queues_free. */
MUST_CHECK enum err_code store_notice_queues(struct store *s, struct notice_queue **out, size_t *count,
                                             struct err *e);
void store_notice_queues_free(struct notice_queue *queues, size_t count);

/* The hook's oldest notice with an id > after; out->id 0: there is none. Release *out with
 * notice_record_release, whatever the result. */
MUST_CHECK enum err_code store_notice_next(struct store *s, const char *hook, int64_t after,
                                           struct notice_record *out, struct err *e);

/* How many the hook has with an id > after. */
MUST_CHECK enum err_code store_notices_count(struct store *s, const char *hook, int64_t after, int64_t *count,
                                             struct err *e);
/* Deletes the hook's notices up to this id. */
MUST_CHECK enum err_code store_notices_delete(struct store *s, const char *hook, int64_t last,
                                              int64_t *deleted, struct err *e);
/* The same of several hooks, in one transaction: all or, on an error, none. */
struct notice_mark {
    const char *hook;
    int64_t last;
};
MUST_CHECK enum err_code store_notices_delete_each(struct store *s, const struct notice_mark *marks,
                                                   size_t count, struct err *e);
/* The id of the newest notice that must go so that the hook keeps its newest `keep` ones, none of them older
 * than since_ms; 0: none must go. */
MUST_CHECK enum err_code store_notices_excess(struct store *s, const char *hook, int64_t keep,
                                              int64_t since_ms, int64_t *last, struct err *e);

#endif
