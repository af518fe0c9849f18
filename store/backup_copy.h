#ifndef DDP_STORE_BACKUP_COPY_H
#define DDP_STORE_BACKUP_COPY_H

#include <sqlite3.h>

#include "base/err.h"
#include "store/content.h"

/* Copies of a database, for backup.c, restore.c and loss.c. Inside store/ only.
 *
 * A copy is one file without a log. It is checked, and *content says what is in it. */

MUST_CHECK enum err_code backup_pages(sqlite3 *source, const char *to, struct content *content,
                                      struct err *e);
MUST_CHECK enum err_code backup_copy(const char *from, const char *to, struct content *content,
                                     struct err *e);

#endif
