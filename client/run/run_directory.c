#include "client/run/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

#define PREFIX "ddp-run-"
#define TRIES 20 /* each one fails only if another run starts at the same moment */

/* False also if the lock file was removed: the run has ended, and what is left there are logs that are kept. */
static bool run_directory_take_abandoned(int lock)
{
    struct stat st;
    return fstat(lock, &st) == 0 && st.st_uid == geteuid() && flock(lock, LOCK_EX | LOCK_NB) == 0 &&
           fstat(lock, &st) == 0 && st.st_nlink > 0;
}

static void run_directory_sweep(const char *tmp)
{
    DIR *dir = opendir(tmp);
    const struct dirent *entry;
    struct err ignored;
    while (dir && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        CLEANUP(free_text) char *path = paths_join(tmp, entry->d_name);
        CLEANUP(free_text) char *lock = paths_join(path, "lock");
        CLEANUP(close_fd) int fd = open(lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && run_directory_take_abandoned(fd) && file_remove_tree(path, &ignored) != ERR_OK)
            break;
    }
    if (dir)
        closedir(dir);
}

/* FAILED_PRECONDITION: between the creation of the lock file and its lock, the sweep of another run took it for that of
 * a killed run. It holds the lock while it removes the directory, so afterwards this process can lock only a file
 * without a name. */
static enum err_code run_directory_lock(const char *dir, const char *path, int *lock, struct err *e)
{
    CLEANUP(close_fd) int fd = -1;
    struct stat st;
    if (file_lock(path, &fd, e) != ERR_OK)
        return e->code;
    if (fstat(fd, &st) != 0 || !st.st_nlink)
        return err_set(e, ERR_FAILED_PRECONDITION, "another run has removed %s", dir);
    *lock = fd;
    fd = -1;
    return ERR_OK;
}

enum err_code run_directory_make(const char *tmp, char **dir, int *lock, struct err *e)
{
    run_directory_sweep(tmp);
    for (int n = 1;; n++) {
        CLEANUP(free_text) char *made = xasprintf("%s/" PREFIX "XXXXXX", tmp);
        if (!mkdtemp(made))
            return err_sys(e, errno, "%s", made);
        CLEANUP(free_text) char *path = paths_join(made, "lock");
        const enum err_code code = run_directory_lock(made, path, lock, e);
        if (code == ERR_OK) {
            *dir = steal(made);
            return ERR_OK;
        }
        if (code == ERR_FAILED_PRECONDITION && n < TRIES)
            continue;
        unlink(path);
        rmdir(made);
        return code;
    }
}
