#ifndef DDP_STORE_MARK_H
#define DDP_STORE_MARK_H

#include <stdint.h>

#include "base/crypto/id.h"
#include "base/err.h"

/* Records the last commit of the database in <dir>/ddp.mark. The mark is written and synced after each
 * commit, before the commit is reported to anybody. At start the mark is compared with the database, which
 * detects a damaged write-ahead log (SQLite silently drops the commits after the damage), a deleted file and
 * an older copy.
 *
 * The file has two text slots, each with its checksum, which are written in turn at SLOT_BYTES. If a power
 * cut tears a write, the other slot is intact; it is one commit older. The blocks of the file are allocated
 * when it is made, so a full disk does not prevent writing the mark. Private to store/. */
struct mark {
    char cluster_id[ID_TEXT];
    int64_t epoch;
    int64_t sequence; /* of the newest commit; grows in each */
    int64_t last_job; /* the highest job number assigned */
    int64_t jobs;     /* how many the database holds */
};

enum mark_state { MARK_NONE, MARK_GOOD, MARK_DAMAGED };

struct mark_file {
    int fd;   /* -1: not open */
    int turn; /* the slot that is written next */
};

/* Reads the newest intact slot; *out is zeroed unless MARK_GOOD. An error means that the file could not be
 * read at all. */
MUST_CHECK enum err_code mark_read(const char *dir, struct mark *out, enum mark_state *state, struct err *e);
/* Replaces the file by one with both slots, and opens it. */
MUST_CHECK enum err_code mark_create(struct mark_file *f, const char *dir, const struct mark *mark,
                                     struct err *e);
/* Writes one slot and syncs it: durable after OK. RESOURCE_EXHAUSTED, whatever the cause: may be tried again.
 */
MUST_CHECK enum err_code mark_write(struct mark_file *f, const struct mark *mark, struct err *e);
void mark_close(struct mark_file *f);

#endif
