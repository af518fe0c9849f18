#ifndef DDP_STORE_CARD_KEY_H
#define DDP_STORE_CARD_KEY_H

#include "store/store_state.h"

/* The key that seals the cards on the nodes. Inside store/ only. */

/* Reads the key into *s, or makes it. Writes nothing while the store is deferred. */
MUST_CHECK enum err_code card_key_settle(struct store *s, struct err *e);

#endif
