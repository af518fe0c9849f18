#include "client/run/launch/remote_launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/crypto/id.h"
#include "base/mem.h"
#include "client/cmd/output.h"
#include "client/cmd/submit/job_text.h"
#include "client/run/batch/nodelist.h"
#include "client/run/hosts/run_token.h"
#include "client/run/launch/launch_message.h"
#include "client/run/launch/launcher_exec.h"
#include "client/run/launch/remote_children.h"

#define TOKEN_BYTES 32
#define SSH_PORT_FIRST 10000
#define SSH_PORTS 19000

/* "box2" of "user@box2". */
static const char *remote_host_name(const char *host)
{
    const char *at = strrchr(host, '@');
    return at ? at + 1 : host;
}

static enum err_code remote_launch_plan_hosts(struct remote_launch *p, const struct run_request *r,
                                              const struct batch_allocation *a, struct err *e)
{
    p->hosts = r->hosts ? strv_dup(r->hosts) : a->nodes ? strv_dup(a->nodes) : NULL;
    p->meet = r->host ? r->host : p->hosts ? remote_host_name(p->hosts[0]) : "";
    p->count = p->hosts ? (int64_t)strv_len(p->hosts) : r->nodes_max;
    p->elastic = r->nodes_min && r->nodes_min < p->count; /* the run goes on if a host cannot be started */
    for (char **host = p->hosts; host && *host; host++)
        /* a leading '-' would be an option of ssh, and a comma would split the launch message */
        if (!*remote_host_name(*host) || **host == '-' || strpbrk(*host, ", \t\n"))
            return err_set(e, ERR_INVALID_ARGUMENT, "--hosts: '%s' is not a host name", *host);
    if (p->count > 1 && (strcasecmp(p->meet, "localhost") == 0 || strncmp(p->meet, "127.", 4) == 0 ||
                         strcmp(p->meet, "::1") == 0))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "--hosts: '%s' is a different machine on each host; give this machine's name",
                       p->meet);
    if (!p->count)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "the number of nodes is missing: give --hosts box1,box2 or --nodes 2");
    if (r->hosts && r->nodes_max && r->nodes_max != p->count)
        return err_set(e, ERR_INVALID_ARGUMENT, "--hosts names %lld hosts, but --nodes is %lld",
                       (long long)p->count, (long long)r->nodes_max);
    if (!r->hosts && p->hosts && r->nodes_max && r->nodes_max < p->count) { /* some of the allocation */
        for (size_t i = (size_t)r->nodes_max; p->hosts[i]; i++)
            free(p->hosts[i]);
        p->hosts[r->nodes_max] = NULL;
        p->count = r->nodes_max;
    }
    if (!p->hosts && (p->launcher == LAUNCHER_SSH || p->launcher == LAUNCHER_PBSDSH))
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "--launcher %s needs the names of the hosts: give --hosts box1,box2",
                       p->launcher == LAUNCHER_SSH ? "ssh" : "pbsdsh");
    return ERR_OK;
}

/* Chooses the run's id and port. Both come from the allocation's id if there is one, and are random
 * otherwise, so that runs do not meet by accident. An id that the user typed is among the arguments, so it is
 * not sent. */
static void remote_launch_plan_meeting(struct remote_launch *p, const struct run_request *r,
                                       const struct batch_allocation *a)
{
    uint32_t random;
    id_random(&random, sizeof(random));
    p->id = r->id ? xstrdup("") : a->id ? xasprintf("job-%s", a->id) : xasprintf("run-%08x", random);
    p->port = r->port ? r->port : a->id ? batch_allocation_port(a) : SSH_PORT_FIRST + random % SSH_PORTS;
}

/* The user's token, or a new one for this run. */
static enum err_code remote_launch_plan_token(struct remote_launch *p, const struct globals *globals,
                                              struct err *e)
{
    CLEANUP(free_text) char *token = NULL;
    uint8_t secret[TOKEN_BYTES];
    char hex[2 * TOKEN_BYTES + 1];
    /* UNAUTHENTICATED: the user has no token, which only matters if hosts are started by hand */
    if (run_token_find(globals, &token, e) != ERR_OK && e->code != ERR_UNAUTHENTICATED)
        return e->code;
    if (!token && globals->insecure)
        return ERR_OK;
    id_random(secret, sizeof(secret));
    hex_encode(hex, secret, sizeof(secret));
    CLEANUP(free_text) char *entry = xasprintf("DDP_TOKEN=%s", token ? token : hex);
    p->secrets = strv_append(p->secrets, entry);
    return ERR_OK;
}

/* The variables that `ddpctl submit` would send, and PET_*, which stand for flags. */
static enum err_code remote_launch_plan_environment(struct remote_launch *p, struct err *e)
{
    static char pet[] = "PET_*", threads[] = "OMP_NUM_THREADS";
    char *const exports[] = {pet, threads, NULL};
    char *const nothing[] = {NULL};
    char **carried = NULL;
    if (job_text_environment(environ ? environ : nothing, exports, &carried, e) != ERR_OK)
        return e->code;
    for (char **entry = carried; entry && *entry; entry++)
        p->secrets = strv_append(p->secrets, *entry);
    strv_free(carried);
    return ERR_OK;
}

static void remote_launch_release(struct remote_launch *p)
{
    strv_free(p->hosts);
    strv_free(p->secrets);
    free(p->slots);
    free(p->id);
}

char **remote_launch_command(const struct remote_launch *p, int64_t rank, const char *env)
{
    char self[4096];
    struct launch_message at = {.rank = rank,
                                .count = p->count,
                                .port = p->port,
                                .id = p->id,
                                .host = (char *)(uintptr_t)p->meet,
                                .env = (char *)(uintptr_t)env};
    CLEANUP(free_text) char *place = launch_message_text(&at);
    char terminal[] = {(char)('0' + isatty(STDOUT_FILENO) + 2 * isatty(STDERR_FILENO)), '\0'};
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = 0;
    char **argv = strv_append(NULL, length > 0 ? self : "ddpctl");
    argv = strv_append(argv, "run");
    argv = strv_append(argv, "--launched");
    argv = strv_append(argv, place);
    argv = strv_append(
        argv, "--terminal"); /* which of this process's streams are terminals; the launcher hides that */
    argv = strv_append(argv, terminal);
    for (char *const *argument = p->argv; *argument; argument++)
        argv = strv_append(argv, *argument);
    return argv;
}

/* pbsdsh counts lines of PBS_NODEFILE: a host is known by its first line. */
static enum err_code remote_launch_plan_slots(struct remote_launch *p, const struct batch_allocation *a,
                                              struct err *e)
{
    int64_t named = a->nodes ? a->node_count : 0;
    p->slots = xcalloc((size_t)p->count + 1, sizeof(*p->slots));
    for (int64_t i = 0; i < p->count; i++) {
        int64_t at = 0;
        while (at < named && strcasecmp(a->nodes[at], p->hosts[i]) != 0)
            at++;
        if (at == named)
            return err_set(e, ERR_INVALID_ARGUMENT,
                           "pbsdsh cannot start anything on %s: PBS_NODEFILE does not name it", p->hosts[i]);
        p->slots[i] = a->slots ? a->slots[at] : at;
    }
    return ERR_OK;
}

static int remote_launch_report_failure(const struct err *e)
{
    return error_print(e) == EXIT_USAGE ? EXIT_USAGE : EXIT_DDP;
}

int remote_launch_run(enum launcher launcher, const struct globals *globals, const struct run_request *r,
                      const struct batch_allocation *a, char *const *argv)
{
    CLEANUP(remote_launch_release)
    struct remote_launch plan = {.launcher = launcher, .argv = argv, .signals = r->signals};
    struct err e;
    if (remote_launch_plan_hosts(&plan, r, a, &e) != ERR_OK ||
        remote_launch_plan_token(&plan, globals, &e) != ERR_OK ||
        remote_launch_plan_environment(&plan, &e) != ERR_OK)
        return remote_launch_report_failure(&e);
    remote_launch_plan_meeting(&plan, r, a);
    if (launcher == LAUNCHER_SRUN && !r->host)
        plan.meet = ""; /* each task finds the first node in the variables of its step */
    if (launcher == LAUNCHER_PBSDSH && remote_launch_plan_slots(&plan, a, &e) != ERR_OK)
        return remote_launch_report_failure(&e);
    if (launcher == LAUNCHER_SRUN || launcher == LAUNCHER_MPIRUN)
        return launcher_exec(&plan);
    return remote_children_run(&plan);
}
