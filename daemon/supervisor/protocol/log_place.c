#include "daemon/supervisor/protocol/log_place.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_at.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/log_note.h"

#define LEVELS 4 /* directories below log_dir: job, generation, node, local rank */

char *log_place_path(const char *log_dir, int64_t job, int64_t first_generation, const char *node,
                     int first_local_rank)
{
    return xasprintf("%s%s%" PRId64 "/generation_%" PRId64 "/%s/%d", log_dir ? log_dir : "",
                     log_dir ? "/" : "", job, first_generation, node, first_local_rank);
}

/* "/var/log/ddp/7/generation_1/box1/0" -> "/var/log/ddp" and "7/generation_1/box1/0". */
static char *path_split(const char *dir, const char **below)
{
    const char *at = dir + strlen(dir);
    char *base;

    for (int i = 0; i < LEVELS && at > dir; i++)
        for (at--; at > dir && *at != '/';)
            at--;
    base = xstrdup(at > dir ? dir : "/");
    if (at > dir)
        base[at - dir] = '\0';
    *below = at;
    return base;
}

enum err_code log_place_open(const char *dir, int *fd, struct err *e)
{
    const char *below;
    CLEANUP(free_text) char *base = path_split(dir, &below);
    CLEANUP(close_fd) int at = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (at < 0)
        return err_sys(e, errno, "%s", base);
    return file_at_open_dir(at, below, fd, e);
}

static enum err_code last_dir_make(const char *dir, bool own, int *fd, struct err *e)
{
    const char *below;
    CLEANUP(free_text) char *base = path_split(dir, &below);
    CLEANUP(free_text) char *above = xstrdup(below);
    CLEANUP(close_fd) int top = -1;
    CLEANUP(close_fd) int at = -1;
    char *last = strrchr(above, '/');

    BUG_ON(!last); /* an absolute path */
    *last++ = '\0';
    if (file_mkdirs(base, LOG_PLACE_DIR_MODE, e))
        return e->code;
    top = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(e, errno, "%s", base);
    if (file_at_make_dirs(top, above, LOG_PLACE_DIR_MODE, own, &at, e) ||
        file_at_make_dirs(at, last, LOG_PLACE_LAST_MODE, false, fd, e))
        return err_wrap(e, "make directory %s", dir);
    return ERR_OK;
}

void log_files_close(struct log_files *files)
{
    close_fd(&files->out);
    close_fd(&files->err);
    close_fd(&files->times);
    *files = LOG_FILES_NONE;
}

static int64_t opened_size(int fd)
{
    struct stat st;

    return fstat(fd, &st) ? 0 : st.st_size;
}

enum err_code log_place_make(const char *dir, uid_t user, gid_t group, struct log_files *out, struct err *e)
{
    CLEANUP(close_fd) int fd = -1;
    CLEANUP(log_files_close) struct log_files files = LOG_FILES_NONE;
    struct err no_times;

    if (last_dir_make(dir, user != geteuid(), &fd, e))
        return e->code;
    /* the files are made before the directory is given away: until then the user can put nothing in their
     * places */
    if (file_at_open_append(fd, "stdout.log", LOG_PLACE_FILE_MODE, user, group, &files.out, e) ||
        file_at_open_append(fd, "stderr.log", LOG_PLACE_FILE_MODE, user, group, &files.err, e))
        return err_wrap(e, "%s", dir);
    if (file_at_open_append(fd, LOG_NOTE_FILE, LOG_PLACE_FILE_MODE, user, group, &files.times, &no_times))
        log_warn("log_times_off", "why=%s", LOG_Q(no_times.msg));
    if (user != geteuid() && fchown(fd, user, group))
        return err_sys(e, errno, "%s", dir);
    files.sizes[0] = opened_size(files.out);
    files.sizes[1] = opened_size(files.err);
    *out = files;
    files = LOG_FILES_NONE;
    return ERR_OK;
}
