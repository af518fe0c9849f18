#include "daemon/agent/wish_apply.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/file_at.h"
#include "base/job/job.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/coordinator_file.h"
#include "daemon/agent/environment.h"
#include "daemon/agent/reconcile.h"
#include "proto/rpc_codec.h"

/* The name of the account that a job runs under; NULL: the agent's own. */
static const char *job_user(const struct agent *a, const char *submitter)
{
    return a->settings->run_as ? submitter : a->settings->user;
}

/* The run directory, for sockets between ranks. It is below <state>/run, which only the agent may enter, unless the
 * workers run under another account. The workers of a train job have one for all generations: by it ranks tell that
 * they share a node, and a generation may have members that were started for different ones. A command has one for
 * each generation, as its processes do not outlive theirs. */
static enum err_code run_dir_make(struct agent *a, const Ddp__V1__GroupWish *group,
                                  const struct account *user, bool native, char **out, struct err *e)
{
    CLEANUP(free_text) char *base = supervisors_run_base(a->supervisors, group->job);
    CLEANUP(free_text) char *name = native ? xstrdup("ranks") : xasprintf("g%" PRId64, group->generation);
    CLEANUP(close_fd) int at = -1;
    CLEANUP(close_fd) int fd = -1;

    if (file_mkdirs(base, user ? 0711 : 0700, e))
        return e->code;
    at = open(base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0)
        return err_sys(e, errno, "%s", base);
    if (file_at_make_dirs(at, name, 0700, user != NULL, &fd, e))
        return err_wrap(e, "%s", base);
    if (user && fchown(fd, user->uid, user->gid))
        return err_sys(e, errno, "%s/%s", base, name);
    *out = xasprintf("%s/%s", base, name);
    return ERR_OK;
}

/* The job file is beside the run directory, not in it: the owner of a directory may replace the files in it
 * by links. Each generation has its own, since a tuned job has a new one. */
static enum err_code job_file_write(struct agent *a, const Ddp__V1__GroupWish *group,
                                    const struct account *user, char **out, struct err *e)
{
    CLEANUP(free_text) char *base = supervisors_run_base(a->supervisors, group->job);
    CLEANUP(free_text) char *path = xasprintf("%s/g%" PRId64 ".yaml", base, group->generation);
    const char *text = group->job_file;

    if (!file_exists(path) && file_write_atomic(path, text, strlen(text), 0600, e))
        return e->code;
    if (user && lchown(path, user->uid, user->gid))
        return err_sys(e, errno, "%s", path);
    *out = steal(path);
    return ERR_OK;
}

/* What a refusal needs. */
static void order_name(const struct action *act, struct spawn_order *order)
{
    order->spawn = act->spawn;
    order->first_generation = wish_first_generation(act->wish);
    order->first_local_rank = wish_first_local_rank(act->wish);
}

static enum err_code order_make(struct agent *a, const struct action *act, const struct account *account,
                                struct spawn_order *order, bool *node_trouble, struct err *e)
{
    const struct account *other = account && account->uid != geteuid() ? account : NULL;
    const Ddp__V1__GroupWish *group = act->group;
    CLEANUP(job_release) struct job_spec spec = {0};
    CLEANUP(free_text) char *run_dir = NULL;
    CLEANUP(free_text) char *job_file = NULL;
    struct environment_place place = {.settings = a->settings,
                                      .user = job_user(a, group->user),
                                      .account = account,
                                      .instance = a->instance,
                                      .address = a->address,
                                      .cluster = a->wish.wish ? a->wish.wish->cluster_id : "",
                                      .trainer = a->trainer,
                                      .python = a->python,
                                      .has_gpus = gpus_count(a->gpus) > 0,
                                      .inherited = a->settings->lifeline >= 0 ? environ : NULL};

    if (job_parse(&spec, group->job_file, strlen(group->job_file), "job file", e))
        return e->code;
    /* a disk that is full, read-only or damaged: another node may have a better one */
    *node_trouble = true;
    if (run_dir_make(a, group, other, spec.kind == JOB_TRAIN, &run_dir, e))
        return e->code;
    if (spec.kind == JOB_TRAIN && job_file_write(a, group, other, &job_file, e))
        return e->code;
    *node_trouble = false;
    coordinator_file_write(a);
    place.coordinator_file = a->coordinator_file;
    place.run_dir = run_dir;
    place.job_file = job_file;
    environment_order(order, &place, &spec, group, act->wish);
    order->lease_sent = a->last_ack;
    order->lease_ms = group->lease_ms;
    return ERR_OK;
}

/* The account that the job's workers run under; *out is NULL if it is the agent's own and has no entry. *missing: the
 * job's user has no account on this node. Another node may have one, so the coordinator is told to place the user's
 * jobs there. */
static enum err_code job_account_find(struct agent *a, const char *submitter, const struct account **out,
                                      bool *missing, struct err *e)
{
    const char *name = job_user(a, submitter);

    *out = NULL;
    if (!name) {
        *out = a->own.name ? &a->own : NULL;
        return ERR_OK;
    }
    if (!a->settings->run_as)
        return accounts_find(a->accounts, name, out, e);
    if (accounts_find(a->accounts, name, out, e) && e->code != ERR_NOT_FOUND)
        return e->code;
    if (!account_check_submitter(*out, name, a->settings->node, e))
        return ERR_OK;
    *missing = true;
    rpc_utf8_clean(e->msg);
    accounts_refused(a->accounts, name, e->msg);
    return e->code;
}

static void action_start(struct agent *a, const struct action *act)
{
    struct spawn_order order = {0};
    struct err e;
    const struct account *account;
    bool no_account = false;
    enum err_code code = job_account_find(a, act->group->user, &account, &no_account, &e);
    bool node_trouble = code != ERR_OK;

    order_name(act, &order); /* first, so that a refusal can name the spawn */
    if (!code)
        code = order_make(a, act, account, &order, &node_trouble, &e);
    if (!code)
        code = supervisors_start(a->supervisors, act->job, &order, &e);
    if (code && code != ERR_UNAVAILABLE) { /* UNAVAILABLE: the next reconcile tries again */
        log_error("spawn_refused", "job=%" PRId64 " spawn=%" PRId64 " why=%s", act->job, act->spawn,
                  LOG_Q(e.msg));
        if (!no_account)
            err_wrap(&e, "%s", a->settings->node);
        supervisors_refuse(a->supervisors, act->job, &order, rpc_utf8_clean(e.msg),
                           node_trouble || e.code == ERR_RESOURCE_EXHAUSTED, no_account);
    }
    spawn_order_release(&order);
    a->facts_due = true;
}

/* Nothing starts by a wish that is not on disk. The node rests, and another one may take the job. */
static void action_refuse(struct agent *a, const struct action *act)
{
    struct spawn_order order = {0};
    CLEANUP(free_text)
    char *why = xasprintf("%s: the agent cannot write its state: %s", a->settings->node, a->wish_trouble.msg);

    order_name(act, &order);
    supervisors_refuse(a->supervisors, act->job, &order, rpc_utf8_clean(why), true, false);
    a->facts_due = true;
}

static void action_apply(struct agent *a, const struct action *action)
{
    switch (action->kind) {
    case ACTION_START:
        action_start(a, action);
        break;
    case ACTION_REFUSE:
        action_refuse(a, action);
        break;
    case ACTION_STOP:
        supervisors_stop(a->supervisors, action);
        break;
    case ACTION_ANSWER:
        supervisors_answer(a->supervisors, action);
        break;
    case ACTION_FORGET:
        supervisors_forget(a->supervisors, action->job, action->spawn);
        break;
    }
}

void wish_apply(struct agent *a, int64_t now)
{
    static const Ddp__V1__Wish nothing = DDP__V1__WISH__INIT;
    CLEANUP(actions_release) struct actions actions = {0};
    struct reconcile_input in = {.wish = a->wish.wish,
                                 .confirmed = a->wish_confirmed,
                                 .settled = supervisors_settled,
                                 .ctx = a->supervisors,
                                 .now = now,
                                 .last_ack = a->last_ack};
    const struct spawn_fact **known = supervisors_known(a->supervisors, &in.count);

    in.known = known;
    if (a->wish.unsaved) {
        in.wish = a->wish.unsaved;
        in.unsaved = true;
    }
    if (a->leaving) { /* --rejoin: nothing is wanted, so all is stopped and forgotten */
        in.wish = &nothing;
        in.unsaved = false;
    }
    reconcile_wish(&in, &actions);
    free(known);
    for (size_t i = 0; i < actions.count; i++)
        action_apply(a, &actions.items[i]);
}

void wish_renew_leases(struct agent *a)
{
    const Ddp__V1__Wish *wish = a->wish.wish;

    for (size_t i = 0; wish && i < wish->n_groups; i++)
        supervisors_renew(a->supervisors, wish->groups[i]->job, a->last_ack, wish->groups[i]->lease_ms);
}
