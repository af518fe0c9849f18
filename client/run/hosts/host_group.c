#include "client/run/hosts/host_group.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/net/port_owner.h"
#include "base/text.h"
#include "client/cmd/output.h"
#include "client/cmd/submit/submit.h"
#include "client/diagnose/reach.h"
#include "client/interrupts.h"
#include "client/run/hosts/endpoint.h"
#include "client/run/hosts/host_duties.h"
#include "client/run/hosts/local_token.h"
#include "client/run/hosts/run_membership.h"
#include "client/run/hosts/run_token.h"
#include "client/run/run_session.h"

/* A run over several hosts, without daemons.
 *
 * Happy path: one machine hosts the run: the owner of the endpoint's address, or the one that is_host names.
 * It starts the run's coordinator, which serves that address; all hosts share a token. Every host joins the
 * run by the RPC JoinRun, the hosting machine over the unix socket, which opens the run for the others. The
 * reply names the host's node, and the host starts an agent under this name, which connects to the
 * coordinator. When all nodes have joined, or the minimum and no other one within the last call, the hosting
 * machine submits the job. Each ddpctl then follows the job as `run` on one machine does. At the end the
 * hosting machine waits until the others have learned of it.
 *
 * Failures:
 * - A host starts before there is a coordinator: it tries again until the join timeout.
 * - A host leaves: its agent's goodbye, or the node timeout, ends the generation.
 * - The hosting machine dies: the others find its port closed, or hear nothing for GONE_MS, and stop.
 * - ^C on any host cancels the job for all; the reason names that host. */

#define TURN_MS 20
#define SAY_MS 2000       /* after this time the user is told what ddpctl waits for, */
#define REMINDERS 10      /* and again after a tenth of the join timeout, then at twice the time each */
#define PROBE_MS 2000     /* between checks whether something else listens at the endpoint */
#define STRANGER_MS 10000 /* something that listens this long without answering is not a coordinator */
#define GONE_MS 10000     /* without a stream, which breaks after 20 s of silence: the coordinator is gone; */
#define GONE_REFUSED_MS 1000 /* or without one, and the port is closed */
#define FAREWELL_MS 10000    /* for the others to learn of the end */

struct host_group {
    const struct run_request *request;
    const struct job_spec *spec;
    const char *text;
    bool hosting, quiet;
    char *token;      /* NULL: --insecure */
    bool local_token; /* the user has none, so it is the one of this user on this machine */
    char *node;       /* this host's node in the run */
    char name[HOST_NAME_MAX + 1], digest[DIGEST_TEXT];
    struct endpoint endpoint;
    struct run_membership member;
    struct run_session session;
    int64_t started_ms, said_ms, probe_ms;
    int64_t listens_ms; /* since when something that is not a coordinator has listened, 0: nothing does */
    int64_t ready_ms;   /* since when the minimum of nodes has been here, 0: there are fewer */
    struct host_duties duties;
};

/* ---- before anything is started */

/* The host name up to its first dot, in the characters that a node's name may have. */
static void host_group_read_name(struct host_group *h)
{
    if (gethostname(h->name, sizeof(h->name)) != 0 || !*h->name)
        snprintf(h->name, sizeof(h->name), "node");
    h->name[strcspn(h->name, ".")] = 0;
    for (char *c = h->name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", *c))
            *c = '-';
    if (*h->name == '-')
        *h->name = 'n';
}

static enum err_code host_group_check_flags(const struct globals *globals, struct err *e)
{
    if (globals->tls_ca || globals->tls_cert || globals->tls_key)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "ddpctl run has no TLS; to use TLS, start a cluster and use ddpctl submit");
    return ERR_OK;
}

static int64_t machine_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? n : 1;
}

/* The number of workers of this node, 0: as the job says. */
static int64_t host_group_own_procs(const struct job_spec *spec)
{
    if (spec->procs == JOB_PROCS_NUMBER)
        return spec->procs_per_node;
    return spec->procs == JOB_PROCS_CPU ? machine_cores() : 0;
}

/* ---- what is said meanwhile */

static const char *host_group_forgotten(const struct host_group *h)
{
    return h->request->starter ? h->request->starter : "to start the others";
}

static void host_group_say_waiting(const struct host_group *h, bool first, int64_t waited)
{
    const Ddp__V1__RunStatus *status = h->member.status;
    CLEANUP(buf_release) struct buf line = {0};
    long long seconds = (first ? h->request->join_timeout_ms : waited) / 1000;
    if (!status && first)
        buf_printf(&line, "ddpctl: waiting for the run's host at %s, %lld s at most\n", h->endpoint.address,
                   seconds);
    else if (!status)
        buf_printf(&line, "ddpctl: no answer from %s after %lld s: did you forget to start it there?\n",
                   h->endpoint.address, seconds);
    else if (first)
        buf_printf(&line, "ddpctl: %zu of %s joined at %s, waiting for the others %lld s at most\n",
                   status->n_nodes, text_counted(h->request->nodes_min, "node").text, h->endpoint.address,
                   seconds);
    else
        buf_printf(&line, "ddpctl: %zu of %s joined after %lld s: did you forget %s?\n", status->n_nodes,
                   text_counted(h->request->nodes_min, "node").text, seconds, host_group_forgotten(h));
    stderr_put(&line);
}

static void host_group_remind(struct host_group *h)
{
    int64_t waited = clock_boot_ms() - h->started_ms, tenth = h->request->join_timeout_ms / REMINDERS;
    int64_t next = !h->said_ms ? SAY_MS : h->said_ms < tenth ? tenth : 2 * h->said_ms;
    if (waited < next || (h->member.status && h->ready_ms)) /* the last call needs no reminder */
        return;
    h->said_ms = next;
    if (!h->quiet)
        host_group_say_waiting(h, next == SAY_MS, waited);
}

/* ---- meeting */

static enum err_code host_group_start_coordinator(struct host_group *h, struct err *e)
{
    struct local_cluster *local = &h->session.local;
    bool wanted = h->request->is_host > 0 || (h->request->is_host < 0 && h->endpoint.own);
    /* As in torchrun, a second ddpctl on the hosting machine joins the first. */
    if (!wanted || endpoint_taken(&h->endpoint))
        return ERR_OK;
    if (local_cluster_start_coordinator(local, h->endpoint.listen, h->token, e) == ERR_OK)
        h->hosting = true;
    else if (!endpoint_taken(&h->endpoint)) /* if it is taken now, another ddpctl was faster: join that one */
        return e->code;
    return ERR_OK;
}

static enum err_code host_group_open_link(struct host_group *h, struct err *e)
{
    struct run_session *s = &h->session;
    const struct rpc_channel_options options = {.token = h->token};
    /* Only the unix socket opens a run: nobody else can start one on this coordinator. */
    if (h->hosting)
        return local_cluster_link(&s->local, &s->link, e);
    s->link.target = (struct target){.address = xstrdup(h->endpoint.address), .from = "--rdzv-endpoint"};
    s->link.own_port = h->local_token ? h->request->port : 0;
    return rpc_channel_open(&s->link.channel, h->endpoint.address, &options, e);
}

static enum err_code host_group_explain_refusal(const struct host_group *h, struct err *e)
{
    if (e->code != ERR_UNAUTHENTICATED)
        return e->code;
    if (h->local_token)
        return err_set(
            e, ERR_UNAUTHENTICATED,
            "the run at %s has a token of its own; set the same DDP_TOKEN here, or take another port",
            h->endpoint.address);
    return err_set(e, ERR_UNAUTHENTICATED,
                   h->token ? "the run at %s has another token; it must be the same on each host"
                            : "the run at %s has a token; give it here too, without --insecure",
                   h->endpoint.address);
}

/* Fails when something has listened at the endpoint for STRANGER_MS without answering as a coordinator does:
 * the port belongs to another program, and waiting will not help. */
static enum err_code host_group_find_stranger(struct host_group *h, const struct err *cause, struct err *e)
{
    int64_t now = clock_boot_ms();
    if (now < h->probe_ms)
        return ERR_OK;
    h->probe_ms = now + PROBE_MS;
    if (h->member.answered || !reach_listens(h->endpoint.address))
        h->listens_ms = 0;
    else if (!h->listens_ms)
        h->listens_ms = now;
    else if (now - h->listens_ms >= STRANGER_MS)
        return err_set(e, ERR_UNAVAILABLE, "another program listens at %s; take another port (%.160s)",
                       h->endpoint.address, cause->msg);
    return ERR_OK;
}

static enum err_code host_group_check_timeout(struct host_group *h, const struct err *cause, struct err *e)
{
    int64_t limit = h->request->join_timeout_ms;
    /* The run's host may simply start later, so only a foreign program ends the wait early. */
    if (clock_boot_ms() - h->started_ms < limit)
        return host_group_find_stranger(h, cause, e);
    return err_set(e, ERR_UNAVAILABLE, "no run at %s within %lld s: %.200s", h->endpoint.address,
                   (long long)limit / 1000, cause->msg);
}

static enum err_code host_group_check_local(struct host_group *h, struct err *e)
{
    if (interrupts_count())
        return err_set(e, ERR_CANCELLED, "interrupted");
    host_group_remind(h);
    return local_cluster_check(&h->session.local, e);
}

/* Waits until this user's coordinator listens at the endpoint: the token of this machine is sent to nobody
 * else. A token that the user gave is known to the hosts of the run only, so it needs no such check. */
static enum err_code host_group_wait_own_port(struct host_group *h, struct err *e)
{
    const struct timespec turn = {.tv_nsec = TURN_MS * 1000000L};
    enum port_owner owner;
    while ((owner = port_owner_find(h->request->port)) != PORT_OF_THIS_USER) {
        if (owner == PORT_OF_ANOTHER)
            return err_set(e, ERR_UNAVAILABLE, "another user listens at %s; take another port",
                           h->endpoint.address);
        if (host_group_check_local(h, e) != ERR_OK)
            return e->code;
        if (clock_boot_ms() - h->started_ms >= h->request->join_timeout_ms)
            return err_set(e, ERR_UNAVAILABLE, "no run at %s within %lld s", h->endpoint.address,
                           (long long)h->request->join_timeout_ms / 1000);
        nanosleep(&turn, NULL);
    }
    return ERR_OK;
}

/* The token of the run's hosts. Those that meet at a loopback address belong to one machine, so a user who has
 * no token gets one for this machine. */
static enum err_code host_group_find_token(struct host_group *h, const struct globals *globals, struct err *e)
{
    enum err_code code = run_token_find(globals, &h->token, e);
    if (code != ERR_UNAUTHENTICATED || !h->endpoint.loopback)
        return code;
    h->local_token = true;
    return local_token_get(&h->token, e);
}

static enum err_code host_group_join(struct host_group *h, struct err *e)
{
    Ddp__V1__JoinRunRequest request = DDP__V1__JOIN_RUN_REQUEST__INIT;
    request.id = h->request->id;
    request.host = h->name;
    request.nodes_min = (int32_t)h->request->nodes_min;
    request.nodes_max = (int32_t)h->request->nodes_max;
    request.node_rank = (int32_t)h->request->node_rank;
    request.procs = (int32_t)host_group_own_procs(h->spec);
    request.kind = (char *)(uintptr_t)(h->spec->kind == JOB_TRAIN ? "train" : "command");
    request.job_digest = h->digest;
    run_membership_init(&h->member, &h->session.link, &request);
    while (!h->member.status) {
        struct err cause;
        enum err_code code = run_membership_next(&h->member, TURN_MS, &cause);
        if (host_group_check_local(h, e) != ERR_OK)
            return e->code;
        if (code == ERR_UNAVAILABLE && host_group_check_timeout(h, &cause, e) != ERR_OK)
            return e->code;
        /* such as a wrong token, or a run that is full: trying again will not help */
        if (code != ERR_OK && code != ERR_UNAVAILABLE) {
            *e = cause;
            return host_group_explain_refusal(h, e);
        }
    }
    h->node = xstrdup(h->member.status->node);
    h->session.node = h->node;
    h->member.request.host = h->node; /* to get the same name if the stream breaks and it joins again */
    return ERR_OK;
}

/* --web, which is typed on each host: the hosting machine has the coordinator's socket, so it serves the page. */
static enum err_code host_group_serve_web(struct host_group *h, struct err *e)
{
    CLEANUP(buf_release) struct buf line = {0};
    if (h->hosting)
        return run_session_serve_web(&h->session, h->name, e);
    if (h->session.serves_web && !h->quiet) {
        buf_printf(&line, "ddpctl: the web page of this run is on %s, which prints its URL\n",
                   h->member.status->host);
        stderr_put(&line);
    }
    return ERR_OK;
}

static enum err_code host_group_start_agent(struct host_group *h, struct err *e)
{
    const struct run_request *r = h->request;
    int64_t procs = host_group_own_procs(h->spec), here = machine_cores();
    struct local_cluster_agent agent = {.slots = procs > here ? procs : here,
                                        .coordinator = h->hosting ? NULL : h->endpoint.address,
                                        .token = h->hosting ? NULL : h->token,
                                        .own_port = h->local_token && !h->hosting,
                                        .node = h->node,
                                        .address = r->local_addr ? r->local_addr : h->endpoint.node,
                                        .attach = h->session.terminal.attach,
                                        .terminal = h->session.terminal.theirs};
    /* Each host runs the command that was typed there, in its own directory, whatever the submitted job says.
     */
    if (h->spec->kind == JOB_COMMAND) {
        agent.workdir = h->spec->workdir;
        agent.command = r->command;
    }
    return local_cluster_start_agent(&h->session.local, &agent, e);
}

/* ---- the run's coordinator, and the other nodes */

static enum err_code host_group_check_coordinator(struct host_group *h, int64_t wait_ms, struct err *e)
{
    struct err cause;
    enum err_code code = run_membership_next(&h->member, wait_ms, &cause);
    int64_t now = clock_boot_ms(), away = h->member.away_ms ? now - h->member.away_ms : 0;
    if (code != ERR_OK && code != ERR_UNAVAILABLE) {
        *e = cause;
        return e->code;
    }
    /* The hosting machine notices the end of its coordinator as the end of a child. */
    if (h->hosting || away < GONE_REFUSED_MS || (away < GONE_MS && !endpoint_gone(&h->endpoint, now)))
        return ERR_OK;
    return err_set(e, ERR_UNAVAILABLE, "run '%.80s' is over: its host, %s at %s, is gone", h->request->id,
                   h->member.status->host, h->endpoint.address);
}

static void host_group_warn_difference(const struct host_group *h)
{
    const Ddp__V1__RunStatus *status = h->member.status;
    CLEANUP(buf_release) struct buf line = {0};
    if (strcmp(status->job_digest, h->digest) == 0)
        return;
    buf_printf(&line, "ddpctl: warning: the job here differs from the job on %s, which is used\n",
               status->host);
    stderr_put(&line);
}

static enum err_code host_group_too_few(const struct host_group *h, struct err *e)
{
    const Ddp__V1__RunStatus *status = h->member.status;
    CLEANUP(buf_release) struct buf names = {0};
    run_membership_list(&h->member, &names);
    return err_set(e, ERR_DEADLINE_EXCEEDED, "%zu of %s joined within %lld s%s%.200s%s: did you forget %s?",
                   status->n_nodes, text_counted(h->request->nodes_min, "node").text,
                   (long long)h->request->join_timeout_ms / 1000, names.len ? " (" : "",
                   names.len ? names.data : "", names.len ? ")" : "", host_group_forgotten(h));
}

/* *out: the maximum of nodes has joined, or the minimum and the last call is over. DEADLINE_EXCEEDED: too few
 * have joined within the join timeout. */
static enum err_code host_group_complete(struct host_group *h, bool *out, struct err *e)
{
    int64_t now = clock_boot_ms(), here = (int64_t)h->member.status->n_nodes;
    if (here < h->request->nodes_min) { /* the last call starts again when there are enough */
        h->ready_ms = 0;
        *out = false;
        return now - h->started_ms < h->request->join_timeout_ms ? ERR_OK : host_group_too_few(h, e);
    }
    if (!h->ready_ms)
        h->ready_ms = now;
    *out = here >= h->request->nodes_max || now - h->ready_ms >= h->request->last_call_ms;
    return ERR_OK;
}

/* Waits until there is a job, which the hosting machine submits. */
static enum err_code host_group_wait_job(struct host_group *h, struct err *e)
{
    struct submission submission = {.text = h->text, .own_cluster = true};
    bool all = false;
    while (!h->member.status->job) {
        if (host_group_check_local(h, e) != ERR_OK || host_group_check_coordinator(h, TURN_MS, e) != ERR_OK)
            return e->code;
        if (h->hosting && host_group_complete(h, &all, e) != ERR_OK)
            return e->code;
        if (all)
            return submit_send(&h->session.link, &submission, &h->session.job, e);
    }
    h->session.job = h->member.status->job;
    return ERR_OK;
}

/* ---- while the job runs */

static enum err_code host_group_turn(struct run_session *s, struct err *e)
{
    struct host_group *h = s->owner;
    if (host_group_check_coordinator(h, 0, e) != ERR_OK)
        return e->code;
    if (!h->hosting)
        return ERR_OK;
    return host_duties_turn(&h->duties, e);
}

static enum err_code host_group_run_job(struct host_group *h, struct err *e)
{
    struct run_session *s = &h->session;
    if (local_cluster_open(&s->local, h->request->log_dir, e) != ERR_OK ||
        host_group_start_coordinator(h, e) != ERR_OK ||
        (h->local_token && !h->hosting && host_group_wait_own_port(h, e) != ERR_OK) ||
        host_group_open_link(h, e) != ERR_OK || host_group_join(h, e) != ERR_OK ||
        host_group_serve_web(h, e) != ERR_OK || host_group_start_agent(h, e) != ERR_OK)
        return e->code;
    if (!h->hosting)
        host_group_warn_difference(h);
    if (host_group_wait_job(h, e) != ERR_OK)
        return e->code;
    h->duties = (struct host_duties){.session = s, .member = &h->member, .address = h->endpoint.address};
    s->turn = host_group_turn;
    s->owner = h;
    return run_session_run(s, e);
}

/* ---- the end */

/* The hosting machine waits until the others have left, since its coordinator is how they learn of the end. A
 * host whose node is still there has not learned of it. */
static void host_group_wait_others(struct host_group *h)
{
    int64_t deadline = clock_boot_ms() + FAREWELL_MS;
    struct err e;
    int stops = interrupts_count();
    while (h->hosting && h->session.ended && h->member.status->n_nodes > 1 && clock_boot_ms() < deadline &&
           interrupts_count() == stops)
        if (run_membership_next(&h->member, TURN_MS, &e) != ERR_OK)
            return;
}

static int host_group_exit_code(struct host_group *h, enum err_code code, const struct err *e)
{
    CLEANUP(buf_release) struct buf line = {0};
    if (interrupts_count()) /* as a shell reports it, even if the job ended in another way meanwhile */
        return 128 + interrupt_signal();
    if (code != ERR_OK)
        return error_print(e) == EXIT_USAGE ? EXIT_USAGE : EXIT_DDP;
    if (strcmp(h->session.state, "cancelled") == 0) {
        buf_printf(&line, "ddpctl: %s\n", h->session.reason);
        stderr_put(&line);
    }
    return h->session.exit_code;
}

/* The digest of what must be the same on each host. Commands may differ, and so may the number of workers. */
static void host_group_digest_job(struct host_group *h)
{
    uint8_t digest[DIGEST_BYTES];
    struct job_spec common = *h->spec;
    if (h->spec->kind != JOB_TRAIN) /* commands may differ from host to host */
        return;
    common.procs = JOB_PROCS_AUTO;
    CLEANUP(free_text) char *text = job_print(&common);
    digest_sha256(digest, text, strlen(text));
    hex_encode(h->digest, digest, sizeof(digest));
}

int host_group_run(const struct globals *globals, const struct run_request *request, const char *text,
                   const struct job_spec *spec, const struct run_options *options)
{
    const bool quiet = options->quiet;
    struct host_group h = {.request = request, .spec = spec, .text = text, .quiet = quiet};
    struct err e = {0};
    host_group_read_name(&h);
    host_group_digest_job(&h);
    run_session_init(&h.session, request, quiet);
    h.session.serves_web = options->web;
    h.started_ms = clock_boot_ms();
    enum err_code code = endpoint_find(&h.endpoint, request->host, request->port, &e);
    if (code == ERR_OK)
        code = host_group_check_flags(globals, &e);
    if (code == ERR_OK)
        code = host_group_find_token(&h, globals, &e);
    if (code == ERR_OK)
        code = host_group_run_job(&h, &e);
    int status = host_group_exit_code(&h, code, &e);
    host_group_wait_others(&h);
    if (!h.hosting)
        local_cluster_end(
            &h.session.local); /* the agent says goodbye while the coordinator waits for this host */
    run_membership_leave(&h.member);
    run_session_release(&h.session, status);
    endpoint_release(&h.endpoint);
    free(h.token);
    free(h.node);
    return status;
}
