#ifndef DDP_STORE_OPEN_H
#define DDP_STORE_OPEN_H

#include "store/store_state.h"

/* Opening the database of a store whose directory is locked. Inside store/ only. */

MUST_CHECK enum err_code open_database(struct store *s, struct err *e);
void open_release(struct store *s);
MUST_CHECK enum err_code open_read_loss(struct store *s, struct err *e);
/* Writes cluster id, epoch and sequence as s->mark has them, inside of a transaction. */
MUST_CHECK enum err_code open_put_epoch(struct store *s, struct err *e);

#endif
