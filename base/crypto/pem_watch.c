#include "base/crypto/pem_watch.h"

#include <sys/stat.h>

#include "base/err.h"

static bool time_is_same(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

bool pem_watch_look(struct pem_watch *w, const char *const *paths, size_t count)
{
    bool changed = false;

    BUG_ON(count > PEM_WATCH_MOST);
    for (size_t i = 0; i < count; i++) {
        struct pem_stamp *old = &w->stamps[i], now = {0};
        struct stat st;

        if (stat(paths[i], &st) == 0)
            now = (struct pem_stamp){st.st_mtim, st.st_ctim, st.st_size, st.st_ino};
        if (!time_is_same(&now.modified, &old->modified) || !time_is_same(&now.changed, &old->changed) ||
            now.size != old->size || now.inode != old->inode)
            changed = true;
        *old = now;
    }
    return changed;
}
