#ifndef DDP_BASE_CRYPTO_PEM_WATCH_H
#define DDP_BASE_CRYPTO_PEM_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

/* Says when PEM files must be read again. Starts zeroed. Any thread, one at a time. */

#define PEM_WATCH_MOST 3

struct pem_stamp {
    struct timespec modified;
    struct timespec changed; /* the mode and the owner, too */
    off_t size;
    ino_t inode;
};
struct pem_watch {
    struct pem_stamp stamps[PEM_WATCH_MOST];
    bool
        failed; /* the caller sets it: the last read failed, so the files must be read again although they are the same */
};

/* Whether a file has changed since the last look. Call it before the files are read: a change during the read is then
 * seen at the next look. */
bool pem_watch_look(struct pem_watch *w, const char *const *paths, size_t count);

#endif
