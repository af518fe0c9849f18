#ifndef DDP_STORE_COMMIT_H
#define DDP_STORE_COMMIT_H

#include "store/store_state.h"

/* Transactions on the database; store_commit is in store.h. Inside store/ only. */

MUST_CHECK enum err_code commit_prepare(struct store *s, struct err *e); /* fills statements */
MUST_CHECK enum err_code commit_event(struct store *s, const struct event_record *event, struct err *e);
/* Counts one more commit; call it inside each transaction. */
MUST_CHECK enum err_code commit_sequence(struct store *s, int64_t sequence, struct err *e);

#endif
