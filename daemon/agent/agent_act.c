#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/file_at.h"
#include "base/job/job.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/agent/agent_state.h"
#include "daemon/agent/environment.h"
#include "daemon/agent/reconcile.h"
#include "proto/rpc_codec.h"

#define REPORT_EVERY_MS 100
#define TAILS_MAX (1u << 20) /* bytes of stderr in one message: the coordinator takes 4 MiB in all */

/* ---- wishes to orders */

/* The account's name; NULL: the agent's own. */
static const char *job_user(const struct agent *a, const char *submitter)
{
    return a->settings->run_as ? submitter : a->settings->user;
}

const struct passwd *agent_other_user(const struct agent *a, const char *submitter)
{
    const char *name = job_user(a, submitter);
    const struct passwd *pw = name ? getpwnam(name) : NULL;

    return pw && pw->pw_uid != geteuid() ? pw : NULL;
}

/* One a generation, for the sockets of its ranks and the job file. Below <state>/run, which only we may
 * enter, unless the workers are another user's. */
static enum err_code run_dir_make(struct agent *a, const Ddp__V1__GroupWish *group, char **out, struct err *e)
{
    const struct passwd *user = agent_other_user(a, group->user);
    CLEANUP(free_text) char *base = supervisors_run_base(a->supervisors, group->job);
    CLEANUP(free_text) char *name = xasprintf("g%" PRId64, group->generation);
    CLEANUP(close_fd) int at = -1;
    CLEANUP(close_fd) int fd = -1;

    if (file_mkdirs(base, user ? 0711 : 0700, e))
        return e->code;
    at = open(base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (at < 0)
        return err_sys(e, errno, "%s", base);
    if (file_at_make_dirs(at, name, 0700, user, &fd, e))
        return err_wrap(e, "%s", base);
    if (user && fchown(fd, user->pw_uid, user->pw_gid))
        return err_sys(e, errno, "%s/%s", base, name);
    *out = xasprintf("%s/%s", base, name);
    return ERR_OK;
}

/* Beside the run directory, not in it: who owns a directory may exchange the files in it for links. */
static enum err_code job_file_write(struct agent *a, const char *path, const Ddp__V1__GroupWish *group,
                                    struct err *e)
{
    const struct passwd *user = agent_other_user(a, group->user);
    const char *text = group->job_file;

    if (!file_exists(path) && file_write_atomic(path, text, strlen(text), 0600, e))
        return e->code;
    if (user && lchown(path, user->pw_uid, user->pw_gid))
        return err_sys(e, errno, "%s", path);
    return ERR_OK;
}

static enum err_code order_make(struct agent *a, const struct action *act, struct spawn_order *order,
                                struct err *e)
{
    const Ddp__V1__GroupWish *group = act->group;
    CLEANUP(job_release) struct job_spec spec = {0};
    CLEANUP(free_text) char *run_dir = NULL;
    CLEANUP(free_text) char *job_file = NULL;
    struct environment_place place = {.settings = a->settings,
                                      .user = job_user(a, group->user),
                                      .instance = a->instance,
                                      .address = a->address,
                                      .cluster = a->wish.wish ? a->wish.wish->cluster_id : "",
                                      .trainer = a->trainer,
                                      .has_gpus = gpus_count(a->gpus) > 0,
                                      .inherited = a->settings->lifeline >= 0 ? environ : NULL};

    order->spawn = act->spawn;
    order->generation = act->wish->generation;
    order->rank = act->wish->rank;
    order->local_rank = act->wish->local_rank;
    if (job_parse(&spec, group->job_file, strlen(group->job_file), "job file", e))
        return e->code;
    if (run_dir_make(a, group, &run_dir, e))
        return e->code;
    job_file = xasprintf("%s.yaml", run_dir);
    if (spec.kind == JOB_TRAIN && job_file_write(a, job_file, group, e))
        return e->code;
    agent_tell_coordinator(a);
    place.coordinator_file = a->coordinator_file;
    place.run_dir = run_dir;
    place.job_file = job_file;
    environment_order(order, &place, &spec, group, act->wish);
    order->lease_sent = a->last_ack;
    order->lease_ms = group->lease_ms;
    return ERR_OK;
}

/* The job's user can have no workers here: other nodes may do, and this one may do for other users. */
static bool account_is_missing(struct agent *a, const struct action *act, struct spawn_order *order,
                               struct err *e)
{
    const char *user = act->group->user;

    if (!a->settings->run_as || !account_check(user, a->settings->node, e) || e->code == ERR_UNAVAILABLE)
        return false;
    order->spawn = act->spawn;
    order->generation = act->wish->generation;
    order->rank = act->wish->rank;
    order->local_rank = act->wish->local_rank;
    rpc_utf8_clean(e->msg);
    accounts_refused(a->accounts, user, e->msg);
    return true;
}

static void spawn_start(struct agent *a, const struct action *act)
{
    struct spawn_order order = {0};
    struct err e = {0};
    bool no_account = account_is_missing(a, act, &order, &e);
    enum err_code code = e.code ? e.code : order_make(a, act, &order, &e);

    if (!code)
        code = supervisors_start(a->supervisors, act->job, &order, &e);
    if (code && code != ERR_UNAVAILABLE) {
        log_error("spawn_refused", "job=%" PRId64 " spawn=%" PRId64 " why=%s", act->job, act->spawn,
                  LOG_Q(e.msg));
        if (!no_account)
            err_wrap(&e, "%s", a->settings->node);
        supervisors_refuse(a->supervisors, act->job, &order, rpc_utf8_clean(e.msg),
                           no_account || e.code == ERR_RESOURCE_EXHAUSTED, no_account);
    }
    spawn_order_release(&order);
    a->facts_due = true;
}

static void action_apply(struct agent *a, const struct action *action)
{
    switch (action->kind) {
    case ACTION_START:
        spawn_start(a, action);
        break;
    case ACTION_STOP:
        supervisors_stop(a->supervisors, action);
        break;
    case ACTION_FORGET:
        supervisors_forget(a->supervisors, action->job, action->spawn);
        break;
    }
}

void agent_reconcile(struct agent *a, int64_t now)
{
    static const Ddp__V1__Wish nothing = DDP__V1__WISH__INIT;
    CLEANUP(actions_release) struct actions actions = {0};
    struct reconcile_input in = {.wish = a->wish.wish,
                                 .confirmed = a->wish_confirmed,
                                 .settled = supervisors_settled,
                                 .ctx = a->supervisors,
                                 .now = now,
                                 .last_ack = a->last_ack};
    struct known_spawn *known = supervisors_known(a->supervisors, &in.count);

    in.known = known;
    if (a->leaving)
        in.wish = &nothing;
    reconcile(&in, &actions);
    free(known);
    for (size_t i = 0; i < actions.count; i++)
        action_apply(a, &actions.items[i]);
}

bool agent_wants_job(void *agent, int64_t job)
{
    struct agent *a = agent;

    return wish_group(a->wish.wish, job) != NULL;
}

int64_t *agent_live_jobs(void *agent, size_t *count)
{
    struct agent *a = agent;
    const Ddp__V1__Wish *wish = a->wish.wish;
    size_t known_count;
    struct known_spawn *known = supervisors_known(a->supervisors, &known_count);
    int64_t *jobs = xcalloc(known_count + (wish ? wish->n_groups : 0) + 1, sizeof(*jobs));

    *count = 0;
    for (size_t i = 0; i < known_count; i++)
        jobs[(*count)++] = known[i].job;
    for (size_t i = 0; wish && i < wish->n_groups; i++)
        jobs[(*count)++] = wish->groups[i]->job;
    free(known);
    return jobs;
}

void agent_renew_leases(struct agent *a)
{
    const Ddp__V1__Wish *wish = a->wish.wish;

    for (size_t i = 0; wish && i < wish->n_groups; i++)
        supervisors_renew(a->supervisors, wish->groups[i]->job, a->last_ack, wish->groups[i]->lease_ms);
}

static bool fact_is_live(const struct spawn_fact *fact)
{
    return fact->pid > 0 && (fact->state == SPAWN_RUNNING || fact->state == SPAWN_STOPPING);
}

void agent_watch(struct agent *a)
{
    size_t count, live = 0;
    struct known_spawn *known = supervisors_known(a->supervisors, &count);
    struct monitored_worker *list = xcalloc(count + 1, sizeof(*list));

    for (size_t i = 0; i < count; i++) {
        const struct spawn_fact *fact = known[i].fact;
        const Ddp__V1__GroupWish *group = wish_group(a->wish.wish, known[i].job);

        if (fact_is_live(fact))
            list[live++] = (struct monitored_worker){.job = known[i].job,
                                                     .spawn = fact->spawn,
                                                     .generation = fact->generation,
                                                     .pid = fact->pid,
                                                     .rank = fact->rank,
                                                     .local_rank = fact->local_rank,
                                                     .stall_timeout_ms = group ? group->stall_timeout_ms : 0};
    }
    worker_monitor_set(a->watch, list, live);
    free(list);
    free(known);
}

/* ---- facts to messages */

struct fact_list {
    Ddp__V1__SpawnFact **items;
    size_t count, cap, tail_bytes;
};

static void fact_message_free(Ddp__V1__SpawnFact *f)
{
    free(f->stderr_tail ? f->stderr_tail[0] : NULL); /* all lines are one text, cut */
    free(f->stderr_tail);
    free(f);
}

static void fact_list_release(struct fact_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        fact_message_free(list->items[i]);
    free(list->items);
}

static Ddp__V1__SpawnFact *fact_list_add(struct fact_list *list, int64_t job, int64_t spawn,
                                         int64_t generation, int rank)
{
    Ddp__V1__SpawnFact *f = xcalloc(1, sizeof(*f));

    ddp__v1__spawn_fact__init(f);
    f->job = job;
    f->spawn = spawn;
    f->generation = generation;
    f->rank = rank;
    list->items = array_grow(list->items, list->count, &list->cap, sizeof(*list->items));
    list->items[list->count++] = f;
    return f;
}

static void fact_set_tail(Ddp__V1__SpawnFact *f, const char *tail)
{
    char *text = xstrdup(tail), *line, *rest = text;
    size_t cap = 0;

    while ((line = strsep(&rest, "\n"))) {
        f->stderr_tail = array_grow(f->stderr_tail, f->n_stderr_tail, &cap, sizeof(*f->stderr_tail));
        f->stderr_tail[f->n_stderr_tail++] = line;
    }
}

static void fact_list_add_known(struct fact_list *list, const struct known_spawn *known)
{
    const struct spawn_fact *from = known->fact;
    Ddp__V1__SpawnFact *f = fact_list_add(list, known->job, from->spawn, from->generation, from->rank);

    f->state = (char *)spawn_state_name(from->state);
    f->pid = from->pid;
    f->code = from->code;
    f->signal = from->signal;
    f->out_of_memory = from->out_of_memory;
    f->lost = from->lost;
    f->not_started = from->not_started;
    f->port_busy = from->port_busy;
    f->lease_expired = from->lease_expired;
    f->node_trouble = from->node_trouble;
    f->no_account = from->no_account;
    f->stopped = from->stopped;
    f->started_ms = from->started_ms;
    f->ended_ms = from->ended_ms;
    if (from->message)
        f->message = from->message;
    if (!from->stderr_tail || list->tail_bytes + strlen(from->stderr_tail) > TAILS_MAX)
        return; /* those that ended first tell the story */
    list->tail_bytes += strlen(from->stderr_tail);
    fact_set_tail(f, from->stderr_tail);
}

static bool spawn_is_known(const struct known_spawn *known, size_t count, int64_t job, int64_t spawn)
{
    for (size_t i = 0; i < count; i++)
        if (known[i].job == job && known[i].fact->spawn == spawn)
            return true;
    return false;
}

/* The first to end comes first, so that its last words are the ones there is room for. */
static int known_by_end(const void *a, const void *b)
{
    const struct spawn_fact *x = ((const struct known_spawn *)a)->fact;
    const struct spawn_fact *y = ((const struct known_spawn *)b)->fact;
    int64_t x_end = x->state == SPAWN_EXITED ? x->ended_ms : INT64_MAX;
    int64_t y_end = y->state == SPAWN_EXITED ? y->ended_ms : INT64_MAX;

    return (x_end > y_end) - (x_end < y_end);
}

/* What is about to start must not look absent. */
static void fact_list_add_pending(struct agent *a, struct fact_list *list, const struct known_spawn *known,
                                  size_t count)
{
    const Ddp__V1__Wish *wish = a->wish.wish;

    for (size_t g = 0; wish && g < wish->n_groups; g++)
        for (size_t i = 0; i < wish->groups[g]->n_spawns; i++) {
            const Ddp__V1__GroupWish *group = wish->groups[g];
            const Ddp__V1__SpawnWish *s = group->spawns[i];

            if (reconcile_pending(group, s) && !spawn_is_known(known, count, group->job, s->spawn))
                fact_list_add(list, group->job, s->spawn, s->generation, s->rank)->state = (char *)"starting";
        }
}

/* False: nothing was left to send, or it could not go. */
static bool reports_send_batch(struct agent *a)
{
    Ddp__V1__Report *items[REPORTS_BATCH];
    Ddp__V1__Reports batch;
    Ddp__V1__AgentUp up;
    struct err e;

    if (!a->reports.count)
        return false;
    report_queue_batch(&a->reports, &batch, items);
    ddp__v1__agent_up__init(&up);
    up.body_case = DDP__V1__AGENT_UP__BODY_REPORTS;
    up.reports = &batch;
    if (session_send(a->session, &up, &e))
        return false;
    report_queue_sent(&a->reports, &batch);
    return true;
}

/* Reports go first: after a worker's exit the coordinator takes none of it. */
void agent_send_facts(struct agent *a)
{
    CLEANUP(fact_list_release) struct fact_list list = {0};
    Ddp__V1__AgentUp up;
    Ddp__V1__Facts facts;
    struct known_spawn *known;
    struct err e;
    size_t count;

    if (!session_welcomed(a->session))
        return;
    while (reports_send_batch(a))
        ;
    known = supervisors_known(a->supervisors, &count);
    if (count) /* known is NULL without */
        qsort(known, count, sizeof(*known), known_by_end);
    for (size_t i = 0; i < count; i++)
        fact_list_add_known(&list, &known[i]);
    fact_list_add_pending(a, &list, known, count);
    ddp__v1__facts__init(&facts);
    facts.epoch = a->wish.wish ? a->wish.wish->epoch : 0;
    facts.revision = a->wish.wish ? a->wish.wish->revision : 0;
    facts.spawns = list.items;
    facts.n_spawns = list.count;
    ddp__v1__agent_up__init(&up);
    up.body_case = DDP__V1__AGENT_UP__BODY_FACTS;
    up.facts = &facts;
    if (!session_send(a->session, &up, &e))
        a->facts_due = false; /* else once it is sendable, or after the next welcome */
    else if (e.code != ERR_RESOURCE_EXHAUSTED && e.code != ERR_UNAVAILABLE && e.code != ERR_CANCELLED)
        log_error("facts_not_sent", "why=%s", LOG_Q(e.msg));
    free(known);
}

int64_t agent_send_reports(struct agent *a, int64_t now)
{
    if (!a->reports.count || !session_welcomed(a->session))
        return INT64_MAX;
    if (now < a->reports_sent_ms + REPORT_EVERY_MS)
        return a->reports_sent_ms + REPORT_EVERY_MS;
    reports_send_batch(a);
    a->reports_sent_ms = now;
    return a->reports.count ? now + REPORT_EVERY_MS : INT64_MAX;
}

static void known_free(struct known_spawn **known)
{
    free(*known);
}

bool agent_log_ended(void *agent, int64_t job, int64_t generation, int local_rank)
{
    struct agent *a = agent;
    const Ddp__V1__GroupWish *group = wish_group(a->wish.wish, job);
    size_t count;
    CLEANUP(known_free) struct known_spawn *known = supervisors_known(a->supervisors, &count);

    for (size_t i = 0; i < count; i++)
        if (known[i].job == job && known[i].fact->generation == generation &&
            known[i].fact->local_rank == local_rank && known[i].fact->state != SPAWN_EXITED)
            return false;
    for (size_t i = 0; group && i < group->n_spawns; i++) {
        const Ddp__V1__SpawnWish *s = group->spawns[i];

        if (s->generation == generation && s->local_rank == local_rank && reconcile_pending(group, s) &&
            !spawn_is_known(known, count, job, s->spawn))
            return false;
    }
    return true;
}
