#include "daemon/agent/accounts.h"

#include <errno.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#define MOST 64            /* users in the list; one more replaces the last */
#define LOOK_EVERY_MS 5000 /* the account database may be on a server */

struct accounts {
    const char *node;
    Ddp__V1__AccountProblem problems[MOST], *list[MOST];
    size_t count;
    int64_t looked_ms; /* BOOTTIME: when the list was last checked against the account database */
};

static bool errno_is_transient(int errnum)
{
    return errnum == EIO || errnum == EMFILE || errnum == ENFILE || errnum == EINTR || errnum == ENOMEM ||
           errnum == EAGAIN;
}

enum err_code account_check(const char *user, const char *node, struct err *e)
{
    const struct passwd *account;

    if (!user || !*user)
        return err_set(e, ERR_NOT_FOUND,
                       "%s runs each job as its user (run_as: submitter), and this job has no user", node);
    errno = 0;
    account = getpwnam(user);
    /* a database that cannot be read says nothing about the user: the job is tried again, not refused */
    if (!account && errno_is_transient(errno))
        return err_set(e, ERR_UNAVAILABLE, "account %s: %s", user, strerror(errno));
    if (!account)
        return err_set(e, ERR_NOT_FOUND, "no account %s on %s", user, node);
    if (account->pw_uid < ACCOUNTS_FIRST_UID)
        return err_set(
            e, ERR_PERMISSION_DENIED,
            "jobs of %s are not run on %s: the uid %u of this account is below %d; submit under an ordinary account",
            user, node, (unsigned)account->pw_uid, ACCOUNTS_FIRST_UID);
    return ERR_OK;
}

struct accounts *accounts_create(const char *node)
{
    struct accounts *a = xcalloc(1, sizeof(*a));

    a->node = node;
    return a;
}

static void problem_release(Ddp__V1__AccountProblem *problem)
{
    free(problem->user);
    free(problem->why);
}

void accounts_free(struct accounts *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->count; i++)
        problem_release(&a->problems[i]);
    free(a);
}

void accounts_refused(struct accounts *a, const char *user, const char *why)
{
    Ddp__V1__AccountProblem *problem;

    for (size_t i = 0; i < a->count; i++)
        if (!strcmp(a->problems[i].user, user))
            return;
    if (a->count == MOST)
        problem_release(&a->problems[--a->count]);
    problem = &a->problems[a->count++];
    ddp__v1__account_problem__init(problem);
    problem->user = xstrdup(user);
    problem->why = xstrdup(why);
    a->looked_ms = clock_boot_ms();
}

static void problems_recheck(struct accounts *a)
{
    struct err e;

    for (size_t i = 0; i < a->count;) {
        if (account_check(a->problems[i].user, a->node, &e)) {
            i++;
            continue;
        }
        log_info("account_found", "user=%s", LOG_Q(a->problems[i].user));
        problem_release(&a->problems[i]);
        a->problems[i] = a->problems[--a->count];
    }
}

Ddp__V1__AccountProblem **accounts_messages(struct accounts *a, size_t *count)
{
    int64_t now = clock_boot_ms();

    if (a->count && now >= a->looked_ms + LOOK_EVERY_MS) {
        problems_recheck(a);
        a->looked_ms = now;
    }
    for (size_t i = 0; i < a->count; i++)
        a->list[i] = &a->problems[i];
    *count = a->count;
    return a->list;
}
