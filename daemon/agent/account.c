#include "daemon/agent/account.h"

#include <errno.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

#define ENTRY_FIRST 1024 /* bytes for the texts of an entry */
#define ENTRY_MOST (1024 * 1024)

void account_release(struct account *a)
{
    free(a->name);
    free(a->home);
    free(a->shell);
    memset(a, 0, sizeof(*a));
}

/* getpwnam(3) lists these for a name that does not exist. Any other means that nobody knows: no descriptors, for
 * example, or a server that does not answer. */
static bool errno_is_missing(int errnum)
{
    return errnum == 0 || errnum == ENOENT || errnum == ESRCH || errnum == EBADF || errnum == EPERM;
}

/* name NULL: by `uid`. Returns an errno. *found may be NULL although it returns 0. */
static int passwd_read(const char *name, uid_t uid, struct passwd *at, char **texts, struct passwd **found)
{
    int rc = ERANGE;

    for (size_t size = ENTRY_FIRST; rc == ERANGE && size <= ENTRY_MOST; size *= 2) {
        free(*texts);
        *texts = xmalloc(size);
        rc = name ? getpwnam_r(name, at, *texts, size, found) : getpwuid_r(uid, at, *texts, size, found);
    }
    return rc;
}

static enum err_code account_read(const char *name, uid_t uid, struct account *out, struct err *e)
{
    CLEANUP(free_text) char *texts = NULL;
    CLEANUP(free_text) char *called = name ? xstrdup(name) : xasprintf("of uid %u", (unsigned)uid);
    struct passwd entry, *found = NULL;
    int rc = passwd_read(name, uid, &entry, &texts, &found);

    if (!found && !errno_is_missing(rc))
        return err_set(e, ERR_UNAVAILABLE, "account %s: %s", called, strerror(rc));
    if (!found)
        return err_set(e, ERR_NOT_FOUND, "no account %s", called);
    *out =
        (struct account){.name = xstrdup(found->pw_name),
                         .home = xstrdup(found->pw_dir),
                         .shell = xstrdup(found->pw_shell && *found->pw_shell ? found->pw_shell : "/bin/sh"),
                         .uid = found->pw_uid,
                         .gid = found->pw_gid};
    return ERR_OK;
}

enum err_code account_look_up(const char *name, struct account *out, struct err *e)
{
    return account_read(name, 0, out, e);
}

enum err_code account_look_up_own(struct account *out, struct err *e)
{
    return account_read(NULL, geteuid(), out, e);
}

enum err_code account_check_submitter(const struct account *found, const char *user, const char *node,
                                      struct err *e)
{
    if (!user || !*user)
        return err_set(e, ERR_NOT_FOUND,
                       "%s runs each job as its user (run_as: submitter), and this job has no user", node);
    if (!found)
        return err_set(e, ERR_NOT_FOUND, "no account %s on %s", user, node);
    if (found->uid < ACCOUNT_FIRST_UID)
        return err_set(
            e, ERR_PERMISSION_DENIED,
            "jobs of %s are not run on %s: the uid %u of this account is below %d; submit under an ordinary account",
            user, node, (unsigned)found->uid, ACCOUNT_FIRST_UID);
    return ERR_OK;
}
