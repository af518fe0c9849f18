#include "client/run/log_tail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cut_file.h"
#include "base/mem.h"

void log_tail_init(struct log_tail *t)
{
    *t = (struct log_tail){0};
    output_merge_init(&t->merge);
}

static void log_tail_close_files(struct log_tail_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        close_fd(&files->items[i].fd);
    free(files->items);
    *files = (struct log_tail_files){0};
}

static void log_tail_forget_place(struct log_tail *t)
{
    free(t->base);
    free(t->node);
    free(t->dir);
}

void log_tail_open(struct log_tail *t, const char *logs, int64_t job, int64_t generation, const char *node)
{
    log_tail_close_files(&t->former);
    t->former = t->files;
    t->files = (struct log_tail_files){0};
    log_tail_forget_place(t);
    t->base = xasprintf("%s/%lld", logs, (long long)job);
    t->node = xstrdup(node);
    t->dir = xasprintf("%s/generation_%lld/%s", t->base, (long long)generation, node);
}

/* The same file of the last generation, which passes to the new one: its worker has gone on. Else a new one. */
static struct log_tail_file log_tail_take_former(struct log_tail *t, struct log_tail_place place,
                                                 bool standard_error)
{
    for (size_t i = 0; i < t->former.count; i++) {
        struct log_tail_file *f = &t->former.items[i], found = *f;
        if (f->place.generation != place.generation || f->place.local_rank != place.local_rank ||
            f->standard_error != standard_error)
            continue;
        *f = t->former.items[--t->former.count];
        return found;
    }
    return (struct log_tail_file){.place = place, .fd = -1, .standard_error = standard_error};
}

void log_tail_add(struct log_tail *t, int rank, struct log_tail_place place, bool standard_error,
                  const char *label)
{
    struct log_tail_file file = log_tail_take_former(t, place, standard_error);

    file.rank = rank;
    t->files.items = array_grow(t->files.items, t->files.count, &t->files.cap, sizeof(*t->files.items));
    t->files.items[t->files.count++] = file;
    output_merge_label(&t->merge, rank, standard_error, label);
}

/* Reports the first file that cannot be opened: the missing output would not be noticed. Later files most likely have
 * the same reason. */
static void log_tail_warn_unread(struct log_tail *t, const char *path, int reason)
{
    CLEANUP(buf_release) struct buf line = {0};
    if (t->warned)
        return;
    t->warned = true;
    buf_printf(&line, "ddpctl: warning: output is missing here: %s: %s%s\n", path, strerror(reason),
               reason == EMFILE ? "; raise the hard limit (ulimit -Hn)" : "");
    output_merge_say(&t->merge, true, &line);
}

static void log_tail_open_file(struct log_tail *t, struct log_tail_file *f)
{
    CLEANUP(free_text)
    char *path = xasprintf("%s/generation_%lld/%s/%d/%s.log", t->base, (long long)f->place.generation,
                           t->node, f->place.local_rank, f->standard_error ? "stderr" : "stdout");
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 && errno != ENOENT) /* ENOENT: the worker has not started yet */
        log_tail_warn_unread(t, path, errno);
}

/* Reads at most 1 MiB of one file, so that a rank that writes much does not hold up the others. */
static bool log_tail_read_file(struct log_tail *t, struct log_tail_file *f, int64_t now_ms)
{
    char data[65536];
    ssize_t n;
    for (int rounds = 0; rounds < 16; rounds++) {
        if (output_merge_is_held(&t->merge, f->rank, f->standard_error, now_ms))
            return true;
        n = cut_file_read(f->fd, data, sizeof(data), f->at, &f->at);
        if (n <= 0)
            return rounds > 0;
        output_merge_add(&t->merge, f->rank, f->standard_error, data, (size_t)n, now_ms);
    }
    return true;
}

bool log_tail_read(struct log_tail *t, int64_t now_ms)
{
    bool any = false;
    /* Before files are opened: together they could exceed the limit of open files. */
    log_tail_close_files(&t->former);
    for (size_t i = 0; i < t->files.count; i++) {
        struct log_tail_file *f = &t->files.items[i];
        if (f->fd < 0)
            log_tail_open_file(t, f);
        if (f->fd >= 0 && log_tail_read_file(t, f, now_ms))
            any = true;
    }
    output_merge_tick(&t->merge, now_ms);
    return any;
}

void log_tail_release(struct log_tail *t)
{
    log_tail_close_files(&t->files);
    log_tail_close_files(&t->former);
    log_tail_forget_place(t);
    output_merge_release(&t->merge);
}
