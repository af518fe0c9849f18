#ifndef DDP_STORE_BACKUP_COPY_H
#define DDP_STORE_BACKUP_COPY_H

#include <sqlite3.h>
#include <stdatomic.h>

#include "base/err.h"
#include "store/content.h"

/* Copies of a database, for backup.c, restore.c and loss.c. Inside store/ only.
 *
 * A copy is one file without a log. It is checked, and *content says what is in it. CANCELLED: *stop is true; stop may be NULL. If it is
 * not NULL, `source` must have no transaction open. */

MUST_CHECK enum err_code backup_pages(sqlite3 *source, const char *to, const atomic_bool *stop,
                                      struct content *content, struct err *e);
MUST_CHECK enum err_code backup_copy(const char *from, const char *to, const atomic_bool *stop,
                                     struct content *content, struct err *e);

#endif
