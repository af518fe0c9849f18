#ifndef DDP_BASE_FILE_H
#define DDP_BASE_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* Reading and durable writing of whole files. Messages contain the paths as given. Any thread. */

/* Appends the whole file to out. RESOURCE_EXHAUSTED: the file has more than limit bytes. */
MUST_CHECK enum err_code file_read(const char *path, size_t limit, struct buf *out, struct err *e);
/* Writes a temporary file in the same directory, syncs and renames it, and syncs the directory: a power cut leaves
 * either the old content or the new content, and after OK the new content. */
MUST_CHECK enum err_code file_write_atomic(const char *path, const void *data, size_t size, mode_t mode,
                                           struct err *e);
/* The same without the syncs if `synced` is false. A process that is killed still leaves the old or the new content; after a
 * power cut the file may be damaged or missing. For the files of `ddpctl run`, which nobody reads after that. */
MUST_CHECK enum err_code file_write_renamed(const char *path, const void *data, size_t size, mode_t mode,
                                            bool synced, struct err *e);
MUST_CHECK enum err_code file_sync_dir(const char *dir, struct err *e);
/* Reads the next entry of an open directory. *out NULL: there are no more. For lists that must not be short: readdir alone does
 * not tell an I/O error or a stale handle of NFS from the end. path: for messages. */
MUST_CHECK enum err_code file_next_entry(DIR *d, const char *path, struct dirent **out, struct err *e);
MUST_CHECK enum err_code file_mkdirs(const char *dir, mode_t mode, struct err *e); /* as mkdir -p */
/* Removes a directory with all its content, a file, or a link. OK if nothing exists there. Follows no links and enters no
 * other file system. As root, empties a directory of another user with that user's rights, because its owner may
 * change it meanwhile. Takes at most 2 s for this (DEADLINE_EXCEEDED: call again). In file_tree.c. */
MUST_CHECK enum err_code file_remove_tree(const char *dir, struct err *e);
/* The same, but with this time limit, also for directories of one's own. */
MUST_CHECK enum err_code file_remove_tree_within(const char *dir, int64_t limit_ms, struct err *e);
bool file_exists(const char *path); /* false also if that cannot be found out */
/* UNKNOWN: an I/O error, a stale handle of NFS, no permission; errno says which. What is removed because another file is
 * missing needs this, not file_exists. */
enum file_presence { FILE_MISSING, FILE_PRESENT, FILE_UNKNOWN };
enum file_presence file_presence(const char *path);
/* Takes an exclusive flock, held until *fd is closed. FAILED_PRECONDITION: another process holds it. */
MUST_CHECK enum err_code file_lock(const char *path, int *fd, struct err *e);
/* Appends the rest of the file, and a NUL that does not count. RESOURCE_EXHAUSTED: more than limit bytes. path:
 * for messages. */
MUST_CHECK enum err_code fd_read_all(int fd, const char *path, size_t limit, struct buf *out, struct err *e);
/* Retries EINTR and short writes. */
MUST_CHECK enum err_code fd_write_all(int fd, const void *data, size_t size, struct err *e);
/* Reads size bytes from byte `at` on; retries EINTR and short reads. DATA_LOSS: the file ends earlier; the message
 * names the first missing byte. */
MUST_CHECK enum err_code fd_read_at(int fd, void *out, size_t size, uint64_t at, struct err *e);

#endif
