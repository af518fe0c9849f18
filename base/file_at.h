#ifndef DDP_BASE_FILE_AT_H
#define DDP_BASE_FILE_AT_H

#include <stdbool.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"

/* Access to files below a directory that another user may write to, for a process with more rights than that
 * user. The caller opens a directory that it trusts. Below it, each component is opened relative to its
 * parent's descriptor, and no link is followed. Messages contain the names as given. Any thread. */

/* Opens the directory `path`, relative to `at`, with O_RDONLY. */
MUST_CHECK enum err_code file_at_open_dir(int at, const char *path, int *fd, struct err *e);
/* The same, but makes missing directories, with `mode` less the umask. own: refuses a directory on the way
 * that belongs to another user (PERMISSION_DENIED), because that user could replace its entries. The last
 * directory may belong to another user. */
MUST_CHECK enum err_code file_at_make_dirs(int at, const char *path, mode_t mode, bool own, int *fd,
                                           struct err *e);

/* Opens a regular file in the directory with O_RDONLY or O_RDWR, and O_NONBLOCK because of FIFOs. The file's
 * owner must be the directory's owner: a hard link to another user's file is refused (PERMISSION_DENIED).
 * Files of other types are refused too (INVALID_ARGUMENT). */
MUST_CHECK enum err_code file_at_open_plain(int dir, const char *name, int flags, int *fd, struct stat *st,
                                            struct err *e);
/* Opens a file to append to and gives it to the user. Makes a missing file with `mode`, whatever the umask.
 * The directory may belong to the user, so an existing file must be a regular file with one link that belongs
 * to the user, or to us where the directory is ours too. */
MUST_CHECK enum err_code file_at_open_append(int dir, const char *name, mode_t mode, uid_t user, gid_t group,
                                             int *fd, struct err *e);

#endif
