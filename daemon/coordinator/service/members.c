#include "daemon/coordinator/service/members.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/service_state.h"
#include "proto/ddp.pb-c.h"

/* A run over several hosts: `ddpctl run --rdzv-endpoint` was typed on each of them, and the host that owns
 * the endpoint started a private coordinator. Nothing here is stored: the run ends with the coordinator.
 *
 * Happy path:
 * 1. The ddpctl that started the coordinator joins over the unix socket. Its request opens the run and
 *    defines it: id, kind of job, number of nodes.
 * 2. The other ddpctls join over TCP. A request that differs from the first one is refused with the
 *    difference.
 * 3. Each member is told a node name that is unique in the run, and starts an agent under that name.
 *    members_describe adds what the member said (processes, place) to the agent's hello.
 * 4. After each change, every member gets a RunStatus: who is there, which job, which host.
 *
 * Failure modes:
 * - A member's stream ends (ddpctl or its host died): the member is removed. Its agent, if it still runs, is
 *   a node without a member until the agent goes, too.
 * - A node is lost but its stream is not: the member keeps its stream and may come back, but another host may
 *   take its place (run_check_place).
 * - A ddpctl joins again, or its machine after a reboot: it replaces its former member (member_take_over).
 *   The same ddpctl keeps its node name and its place.
 * - The coordinator was replaced by that of another run: the cluster id in the request differs, and the
 *   request is refused. */

#define NAME_MAX_BYTES 60 /* a node name has at most 63 bytes, and "-12" may be appended */
#define PROCS_MAX 65536   /* more than --nproc-per-node=cpu gives on the largest machine */

struct member {
    struct service *service;
    struct rpc_call *rpc;
    char *key;       /* from ddpctl, which sends the same key when it connects again */
    char *node;      /* the node name that this member was given */
    int rank;        /* --node-rank; -1: any */
    int procs;       /* --nproc-per-node */
    int turn;        /* the order of joining */
    bool seen_alive; /* its node was alive once, so a missing node is a lost one */
    bool dirty;      /* its status has changed since it was sent */
    struct member *next;
};

struct run {
    char *id, *kind, *digest, *host;
    int nodes_min, nodes_max, turns;
    int64_t job;            /* the run's job as last sent to the members */
    struct member *members; /* sorted by turn */
};

static bool member_node_gone(const struct service *s, const struct member *m)
{
    const struct node_record *node = core_node(s->core, m->node);
    return m->seen_alive && (!node || node->state == NODE_LOST || node->state == NODE_LEFT);
}

static bool member_node_alive(const struct service *s, const struct member *m)
{
    const struct node_record *node = core_node(s->core, m->node);
    return node && node->state == NODE_ALIVE;
}

static int64_t run_job(const struct service *s)
{
    size_t count;
    int64_t *ids = core_job_ids(s->core, 0, &count);
    const int64_t job = count ? ids[0] : 0;
    free(ids);
    return job;
}

/* ---- who may join */

static enum err_code run_check_open(const struct service *s, const Ddp__V1__JoinRunRequest *m, bool opens,
                                    struct err *e)
{
    const struct run *run = s->run;
    if (!run && s->options->lifeline < 0)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "this coordinator serves a cluster, not a run: use `ddpctl submit`");
    if (m->cluster_id[0] && strcmp(m->cluster_id, store_cluster_id(s->store)) != 0)
        return err_set(e, ERR_FAILED_PRECONDITION, "the run was started again");
    /* ABORTED makes ddpctl try again until the first member has joined. */
    if (!run && !opens)
        return err_set(e, ERR_ABORTED, "the run is not open yet");
    /* A new ddpctl names no cluster yet. It cannot join a run whose job has ended; it tries again, since the
     * next run may start at the same endpoint. */
    const struct job_record *job = core_job(s->core, run_job(s));
    if (!m->cluster_id[0] && job && sm_terminal(&job_sm, (int)job->state))
        return err_set(e, ERR_ABORTED, "the run at this endpoint has just ended");
    return ERR_OK;
}

/* The numbers as the option --nnodes takes them: "2", "1:4". */
static char *nodes_option_text(int least, int most)
{
    return least == most ? xasprintf("%d", least) : xasprintf("%d:%d", least, most);
}

static enum err_code run_check_same(const struct run *run, const Ddp__V1__JoinRunRequest *m, struct err *e)
{
    CLEANUP(free_text) char *here = nodes_option_text(run->nodes_min, run->nodes_max);
    CLEANUP(free_text) char *there = nodes_option_text(m->nodes_min, m->nodes_max);
    if (strcmp(run->id, m->id) != 0)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "run '%.80s' is at this endpoint (on %s), not '%.80s': use its --rdzv-id or another port",
            run->id, run->host, m->id);
    if (strcmp(here, there) != 0)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "run '%.80s' has --nnodes %s on %s, but this host has --nnodes %s", run->id, here,
                       run->host, there);
    if (strcmp(run->kind, m->kind) != 0)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "run '%.80s' is a %s job on %s, but a %s job on this host: use the same command on each host",
            run->id, run->kind, run->host, m->kind);
    if (m->node_rank >= run->nodes_max)
        return err_set(e, ERR_INVALID_ARGUMENT, "--node-rank %d: expected 0 to %d with --nnodes %s",
                       m->node_rank, run->nodes_max - 1, here);
    return ERR_OK;
}

/* Whether the request comes from the same ddpctl as `old`, or from the same machine after its node was lost.
 * A second ddpctl on a machine whose node is alive is another member. */
static bool member_replaces(const struct service *s, const struct member *old,
                            const Ddp__V1__JoinRunRequest *m)
{
    return strcmp(old->key, m->member) == 0 || (member_node_gone(s, old) && strcmp(old->node, m->host) == 0);
}

static enum err_code run_check_place(const struct service *s, const Ddp__V1__JoinRunRequest *m, struct err *e)
{
    const struct run *run = s->run;
    int present = 0;
    for (const struct member *x = run->members; x; x = x->next) {
        /* A replaced member frees its place. A lost node frees its place, too, so that the run can continue
         * on another host. */
        if (member_replaces(s, x, m) || member_node_gone(s, x))
            continue;
        present++;
        if (m->node_rank >= 0 && x->rank == m->node_rank)
            return err_set(e, ERR_ALREADY_EXISTS,
                           "--node-rank %d is already used by %s: use another one on each host", m->node_rank,
                           x->node);
    }
    if (present >= run->nodes_max)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "run '%.80s' already has %s, its maximum", run->id,
                       text_counted(run->nodes_max, "node").text);
    return ERR_OK;
}

/* ---- members */

static struct run *run_open(const Ddp__V1__JoinRunRequest *m)
{
    struct run *run = xcalloc(1, sizeof *run);
    *run = (struct run){.id = xstrdup(m->id),
                        .kind = xstrdup(m->kind),
                        .digest = xstrdup(m->job_digest),
                        .nodes_min = m->nodes_min,
                        .nodes_max = m->nodes_max};
    return run;
}

void members_free(struct run *run)
{
    if (!run)
        return;
    free(run->id);
    free(run->kind);
    free(run->digest);
    free(run->host);
    free(run);
}

static bool run_has_node_name(const struct run *run, const char *name)
{
    for (const struct member *x = run->members; x; x = x->next)
        if (strcmp(x->node, name) == 0)
            return true;
    return false;
}

/* A name for the member's node that no other member has. Node names appear in logs, terminals and directory
 * names, so other characters of the host name are replaced. Host names may be equal, for example in
 * containers, so a number is appended. */
static char *run_choose_node_name(const struct run *run, const char *host)
{
    CLEANUP(free_text) char *clean = xasprintf("%.*s", NAME_MAX_BYTES, *host ? host : "node");
    for (char *c = clean; *c; c++)
        if (!isalnum((unsigned char)*c) && (c == clean || !strchr("-_.", *c)))
            *c = c == clean ? 'n' : '-';
    char *name = xstrdup(clean);
    for (int n = 2; run_has_node_name(run, name); n++) {
        free(name);
        name = xasprintf("%s-%d", clean, n);
    }
    return name;
}

static void member_unlink(struct run *run, const struct member *m)
{
    struct member **at = &run->members;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
}

static void member_free(struct member *m)
{
    free(m->key);
    free(m->node);
    free(m);
}

/* Removes the members that the new one replaces. From a former stream of the same ddpctl it takes the node
 * name and the place, so that its agent, which may still run under that name, remains its node. */
static void member_take_over(struct service *s, struct member *m, const Ddp__V1__JoinRunRequest *request)
{
    for (struct member *x = s->run->members, *next; x; x = next) {
        next = x->next;
        if (!member_replaces(s, x, request))
            continue;
        if (strcmp(x->key, m->key) == 0 && !m->node) {
            m->node = steal(x->node);
            m->turn = x->turn;
            m->seen_alive = x->seen_alive;
        }
        member_unlink(s->run, x);
        /* First the user, so that members_end does not remove the member a second time. */
        rpc_call_set_user(x->rpc, NULL);
        rpc_call_fail_with(x->rpc, ERR_FAILED_PRECONDITION, "another ddpctl has taken this member's place");
        member_free(x);
    }
}

static void member_add(struct service *s, struct rpc_call *rpc, const Ddp__V1__JoinRunRequest *request)
{
    struct run *run = s->run;
    struct member *m = xcalloc(1, sizeof *m), **at;
    *m = (struct member){.service = s,
                         .rpc = rpc,
                         .key = xstrdup(request->member),
                         .rank = request->node_rank,
                         .procs = request->procs};
    member_take_over(s, m, request);
    if (!m->node) {
        m->node = run_choose_node_name(run, request->host);
        m->turn = ++run->turns;
    }
    if (!run->host)
        run->host = xstrdup(m->node);
    for (at = &run->members; *at && (*at)->turn < m->turn;)
        at = &(*at)->next;
    m->next = *at;
    *at = m;
    rpc_call_set_user(rpc, m);
    log_info("run_joined", "node=%s peer=%s", m->node, LOG_Q(rpc_call_peer(rpc)->address));
    members_changed(s);
}

void members_join(struct rpc_call *rpc, const void *message, void *user)
{
    struct service *s = user;
    const Ddp__V1__JoinRunRequest *request = message;
    const bool opens = rpc_call_peer(rpc)->kind == RPC_PEER_UNIX; /* the ddpctl that started this process */
    struct err e = {0};
    commit_queue_flush(s);
    if (request->nodes_min < 1 || request->nodes_max < request->nodes_min || !request->member[0] ||
        request->procs < 0 || request->procs > PROCS_MAX || request->node_rank < -1)
        err_set(&e, ERR_INVALID_ARGUMENT, "invalid request to join a run: member, nodes, node rank or procs");
    else if (run_check_open(s, request, opens, &e) == ERR_OK && !s->run)
        s->run = run_open(request);
    if (e.code != ERR_OK || (s->run->host && run_check_same(s->run, request, &e) != ERR_OK) ||
        run_check_place(s, request, &e) != ERR_OK) {
        rpc_call_fail(rpc, &e);
        return;
    }
    member_add(s, rpc, request);
}

void members_end(struct rpc_call *rpc, bool cancelled)
{
    struct member *m = rpc_call_user(rpc);
    (void)cancelled;
    if (!m)
        return;
    log_info("run_left", "node=%s", m->node);
    member_unlink(m->service->run, m);
    members_changed(m->service);
    member_free(m);
}

void members_describe(struct service *s, struct core_hello *hello)
{
    for (const struct member *m = s->run ? s->run->members : NULL; m; m = m->next)
        if (strcmp(m->node, hello->node) == 0) {
            hello->procs = m->procs;
            hello->seat = m->rank + 1; /* 0: no --node-rank, so the order of joining counts */
            hello->turn = m->turn;
        }
}

/* ---- the status that members get */

void members_changed(struct service *s)
{
    for (struct member *m = s->run ? s->run->members : NULL; m; m = m->next)
        m->dirty = s->run_due = true;
}

/* Members watch the job itself with WatchJob; a status only tells them its number. */
void members_job_changed(struct service *s)
{
    if (s->run && s->run->job != run_job(s))
        members_changed(s);
}

void members_sendable(struct rpc_call *rpc)
{
    const struct member *m = rpc_call_user(rpc);
    if (m)
        m->service->run_due = true;
}

static void member_push(struct member *m, Ddp__V1__RunStatus *status)
{
    struct err e = {0};
    status->node = m->node;
    const enum err_code code = rpc_call_send(m->rpc, status, &e);
    /* If the client reads slowly, on_sendable sends the status that is newest then. */
    m->dirty = code == ERR_RESOURCE_EXHAUSTED;
    if (code == ERR_INTERNAL)
        rpc_call_fail(m->rpc, &e);
}

void members_push(struct service *s)
{
    struct run *run = s->run;
    Ddp__V1__RunStatus status = DDP__V1__RUN_STATUS__INIT;
    s->run_due = false;
    for (struct member *m = run->members; m; m = m->next) {
        m->seen_alive |= member_node_alive(s, m);
        status.members++;
    }
    status.nodes = xcalloc((size_t)status.members + 1, sizeof *status.nodes);
    for (struct member *m = run->members; m; m = m->next)
        if (member_node_alive(s, m))
            status.nodes[status.n_nodes++] = m->node;
    status.cluster_id = (char *)(uintptr_t)store_cluster_id(s->store);
    status.nodes_min = run->nodes_min;
    status.nodes_max = run->nodes_max;
    status.job = run->job = run_job(s);
    status.host = run->host;
    status.job_digest = run->digest;
    for (struct member *m = run->members; m; m = m->next)
        if (m->dirty && !rpc_call_over(m->rpc))
            member_push(m, &status);
    free(status.nodes);
}
