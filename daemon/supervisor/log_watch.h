#ifndef DDP_DAEMON_SUPERVISOR_LOG_WATCH_H
#define DDP_DAEMON_SUPERVISOR_LOG_WATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Tells which log files of a supervisor's workers have grown. One inotify instance serves all of them, because a user
 * may have only few instances (128, which root shares with the system). A file is watched for one event only. So a
 * worker wakes the supervisor once, however much it writes, until the file is watched again. */

struct log_watch_file {
    int number; /* of inotify */
    void *owner;
    bool standard_error;
};

struct log_watch {
    int fd;                       /* readable: files have grown; -1: inotify is not available */
    struct log_watch_file *files; /* by number */
    size_t count, cap;
};

typedef void (*log_watch_fn)(void *owner, bool standard_error, void *user);

void log_watch_open(struct log_watch *w);
void log_watch_close(struct log_watch *w);
/* Watches an open file. Returns whether it is watched; if not, errno says why. */
bool log_watch_add(struct log_watch *w, int fd, void *owner, bool standard_error);
void log_watch_drop(struct log_watch *w, const void *owner); /* all files of this owner */
/* Calls fn for each file that has grown, in the order of the first write to each. The file is then no longer watched.
 * fn may add and drop files. */
void log_watch_hear(struct log_watch *w, log_watch_fn fn, void *user);

#endif
