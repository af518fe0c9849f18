#include "daemon/supervisor/log_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

void log_watch_open(struct log_watch *w)
{
    *w = (struct log_watch){.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
    if (w->fd < 0)
        log_warn("log_times_off", "why=%s", LOG_Q(strerror(errno)));
}

void log_watch_close(struct log_watch *w)
{
    close_fd(&w->fd);
    free(w->files);
    *w = (struct log_watch){.fd = -1};
}

/* The place of the first file whose number is not below this one. */
static size_t watched_place(const struct log_watch *w, int number)
{
    size_t low = 0, high = w->count;

    while (low < high) {
        const size_t middle = (low + high) / 2;

        if (w->files[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void watched_remove(struct log_watch *w, size_t at)
{
    memmove(&w->files[at], &w->files[at + 1], (--w->count - at) * sizeof(*w->files));
}

bool log_watch_add(struct log_watch *w, int fd, void *owner, bool standard_error)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int number = inotify_add_watch(w->fd, path, IN_MODIFY | IN_ONESHOT);
    if (number < 0)
        return false;
    const size_t at = watched_place(w, number);
    w->files = array_grow(w->files, w->count, &w->cap, sizeof(*w->files));
    memmove(&w->files[at + 1], &w->files[at], (w->count - at) * sizeof(*w->files));
    w->files[at] = (struct log_watch_file){number, owner, standard_error};
    w->count++;
    return true;
}

void log_watch_drop(struct log_watch *w, const void *owner)
{
    for (size_t i = w->count; i-- > 0;)
        if (w->files[i].owner == owner) {
            (void)inotify_rm_watch(w->fd, w->files[i].number);
            watched_remove(w, i);
        }
}

static void watched_grew(struct log_watch *w, int number, log_watch_fn fn, void *user)
{
    const size_t at = watched_place(w, number);

    if (at == w->count || w->files[at].number != number)
        return; /* dropped meanwhile */
    const struct log_watch_file file = w->files[at];
    watched_remove(w, at);
    fn(file.owner, file.standard_error, user);
}

/* Events were lost, so any file may have grown. */
static void watched_all_grew(struct log_watch *w, log_watch_fn fn, void *user)
{
    const size_t count = w->count;
    struct log_watch_file *all = xmemdup(w->files, count * sizeof(*all));

    for (size_t i = 0; i < count; i++)
        (void)inotify_rm_watch(w->fd, all[i].number);
    w->count = 0;
    for (size_t i = 0; i < count; i++)
        fn(all[i].owner, all[i].standard_error, user);
    free(all);
}

void log_watch_hear(struct log_watch *w, log_watch_fn fn, void *user)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n;

    if (w->fd < 0 || (n = read(w->fd, events, sizeof(events))) <= 0)
        return; /* the remaining events make the descriptor readable again */
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(events + at);

        if (event->mask & IN_Q_OVERFLOW)
            watched_all_grew(w, fn, user);
        else if (event->mask & IN_MODIFY) /* otherwise it is IN_IGNORED, which follows a file's only event */
            watched_grew(w, event->wd, fn, user);
        at += (ssize_t)(sizeof(*event) + event->len);
    }
}
