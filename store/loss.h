#ifndef DDP_STORE_LOSS_H
#define DDP_STORE_LOSS_H

#include "store/content.h"
#include "store/store_state.h"

/* Detects that a database lacks acknowledged commits, and records a loss. Inside store/ only. */

struct finding {
    struct mark mark; /* as the file has it, zero: none */
    enum mark_state mark_state;
    struct content content; /* of the database, schema 0: there is none */
};
/* DATA_LOSS: the database lacks commits that the mark has recorded; the message says which. */
MUST_CHECK enum err_code loss_check(const char *path, const struct finding *found, struct err *e);
/* DATA_LOSS: the file was deleted or replaced while in use, so further writes would be lost when this process
 * ends. All acknowledged commits are saved in a file that the message names. */
MUST_CHECK enum err_code loss_check_moved(struct store *s, struct err *e);
/* Moves the database and its log out of the way: path.why-TIME, path.why-TIME-wal. Missing files are fine. */
MUST_CHECK enum err_code loss_set_aside(const char *path, const char *why, struct err *e);
/* Records the loss inside the transaction that starts the epoch, so that job numbers are not assigned twice.
 */
MUST_CHECK enum err_code loss_record(struct store *s, const struct finding *found, int64_t epoch,
                                     const char *what, const char *text, struct err *e);

/* A number in the table meta. */
MUST_CHECK enum err_code loss_put(struct store *s, const char *key, int64_t value, struct err *e);

#endif
