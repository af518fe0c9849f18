#include "daemon/agent/logs/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_at.h"
#include "base/mem.h"
#include "daemon/supervisor/protocol/log_note.h"
#include "daemon/supervisor/protocol/log_place.h"

/* Where jobs have users of their own, the supervisor makes the files before it gives their directory away. */
static bool log_files_are_being_made(int dir)
{
    struct stat st;

    return !geteuid() && !fstat(dir, &st) && !st.st_uid;
}

enum err_code log_file_open(const struct log_file_place *place, bool notes, struct log_file *out,
                            struct err *e)
{
    CLEANUP(free_text)
    char *path = log_place_path(place->log_dir, place->job, place->first_generation, place->node,
                                place->first_local_rank);
    CLEANUP(close_fd) int dir = -1;
    struct stat st;
    struct err ignored;
    enum err_code code;

    *out = LOG_FILE_NONE;
    if (log_place_open(path, &dir, e))
        return e->code;
    if (notes && file_at_open_plain(dir, LOG_NOTE_FILE, O_RDONLY, &out->notes, &st, &ignored))
        out->notes = -1; /* an older supervisor made none: the log's own time takes their place */
    code = file_at_open_plain(dir, place->standard_error ? "stderr.log" : "stdout.log", O_RDONLY, &out->fd,
                              &out->st, e);
    if (code == ERR_PERMISSION_DENIED && log_files_are_being_made(dir))
        return err_set(e, ERR_NOT_FOUND, "%s is being made", path);
    return code;
}

void log_file_close(struct log_file *file)
{
    close_fd(&file->fd);
    close_fd(&file->notes);
}
