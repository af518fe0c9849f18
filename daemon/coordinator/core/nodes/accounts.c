/* Handles users who have no account on a node with `run_as: submitter`. Their jobs are placed on other nodes,
 * which does not count as a restart, and the job's status says which account is missing on which node. A node
 * reports the missing account when it should start such a job, and in each heartbeat while it is missing. */
#include "daemon/coordinator/core/nodes/accounts.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "daemon/coordinator/core/model.h"

#define MOST 64 /* users of a node */
#define TEXT_BYTES 300

const char *accounts_problem(const struct node *node, const struct job *job)
{
    const char *user = job->r.user ? job->r.user : "";

    for (char **at = node->accounts; at && *at; at += 2)
        if (!strcmp(at[0], user))
            return at[1];
    return NULL;
}

static bool accounts_equal(const struct node *node, const struct core_account *list, size_t count)
{
    size_t had = node->accounts ? strv_len(node->accounts) / 2 : 0;

    if (had != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(node->accounts[2 * i], list[i].user) != 0)
            return false;
    return true;
}

static void accounts_append(struct node *node, const char *user, const char *why)
{
    CLEANUP(free_text) char *text = xasprintf("%.*s", TEXT_BYTES, why);

    node->accounts = strv_append(node->accounts, user);
    node->accounts = strv_append(node->accounts, text);
}

void accounts_set(struct core *core, struct node *node, const struct core_account *list, size_t count)
{
    if (count > MOST)
        count = MOST;
    if (accounts_equal(node, list, count))
        return;
    strv_free(steal(node->accounts));
    for (size_t i = 0; i < count; i++)
        accounts_append(node, list[i].user, list[i].why);
    core_capacity_changed(core);
}

void accounts_refused(struct core *core, struct node *node, const struct job *job, const char *why)
{
    if (accounts_problem(node, job) || !job->r.user || !job->r.user[0])
        return;
    accounts_append(node, job->r.user, why && *why ? why : "no account there");
    core_capacity_changed(core);
}
