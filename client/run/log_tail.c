#include "client/run/log_tail.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cut_file.h"
#include "base/mem.h"

void log_tail_init(struct log_tail *t)
{
    *t = (struct log_tail){0};
}

static void log_tail_close_files(struct log_tail *t)
{
    for (size_t i = 0; i < t->count; i++)
        close_fd(&t->files[i].fd);
    free(t->files);
    free(t->dir);
    t->files = NULL;
    t->dir = NULL;
    t->count = t->cap = 0;
}

void log_tail_open(struct log_tail *t, const char *logs, int64_t job, int64_t generation, const char *node)
{
    log_tail_close_files(t);
    t->dir = xasprintf("%s/%lld/generation_%lld/%s", logs, (long long)job, (long long)generation, node);
}

void log_tail_add(struct log_tail *t, int rank, int local_rank, bool standard_error, const char *label)
{
    t->files = array_grow(t->files, t->count, &t->cap, sizeof(*t->files));
    t->files[t->count++] = (struct log_tail_file){
        .rank = rank, .local_rank = local_rank, .fd = -1, .standard_error = standard_error};
    output_merge_label(&t->merge, rank, standard_error, label);
}

static void log_tail_open_file(const struct log_tail *t, struct log_tail_file *f)
{
    CLEANUP(free_text)
    char *path = xasprintf("%s/%d/%s.log", t->dir, f->local_rank, f->standard_error ? "stderr" : "stdout");
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
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
    for (size_t i = 0; i < t->count; i++) {
        struct log_tail_file *f = &t->files[i];
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
    log_tail_close_files(t);
    output_merge_release(&t->merge);
}
