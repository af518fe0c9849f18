#include "client/run/run_request.h"

#include <stdlib.h>

#include "base/id.h"
#include "base/mem.h"

#define JOIN_TIMEOUT_MS 600000
#define LAST_CALL_MS 30000

static char *nodes_text(const struct run_request *l)
{
    if (!l->nodes_min)
        return NULL;
    if (l->nodes_min == l->nodes_max)
        return xasprintf("%lld", (long long)l->nodes_min);
    return xasprintf("%lld:%lld", (long long)l->nodes_min, (long long)l->nodes_max);
}

/* Version 4, as torchrun --standalone makes one. */
static char *fresh_id(void)
{
    unsigned char b[16];
    char hex[ID_TEXT];
    id_random(b, sizeof(b));
    b[6] = (unsigned char)((b[6] & 15) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    hex_encode(hex, b, sizeof(b));
    return xasprintf("%.8s-%.4s-%.4s-%.4s-%s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

enum err_code run_request_job_text(const struct run_request *l, const struct run_options *options,
                                   const char *file, char **text, struct err *e)
{
    CLEANUP(free_text) char *nodes = nodes_text(l);
    CLEANUP(free_text) char *grace = l->grace_ms >= 0 ? xasprintf("%lldms", (long long)l->grace_ms) : NULL;
    CLEANUP(free_text) char *fresh = l->command && !l->id ? fresh_id() : NULL;
    struct job_flags flags = options->job;
    flags.run_id = fresh ? fresh : l->id;
    flags.role = l->role;
    flags.grace = grace;
    flags.virtual_local_rank = options->virtual_local_rank;
    flags.nodes = nodes;
    flags.procs = l->procs;
    if (l->command && file)
        return err_set(e, ERR_INVALID_ARGUMENT, "either a job file or a COMMAND, not both: '%s'", file);
    if (!l->command && !file)
        return err_set(e, ERR_INVALID_ARGUMENT, "nothing to run, give JOB.yaml, SCRIPT.py or a COMMAND");
    if (file)
        return job_text_from_file(file, &flags, text, e);
    if (!flags.max_restarts)
        flags.max_restarts = "0"; /* as torchrun: a command is started once unless asked otherwise */
    if (!flags.procs && !flags.gpus)
        flags.gpus = "all"; /* one process, which may start its own ranks */
    return job_text_from_command(l->command, &flags, text, e);
}

static enum err_code settle_place(struct run_request *l, struct err *e)
{
    if (l->standalone && l->nodes_min > 1)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "--standalone is this machine alone and the job wants %lld nodes",
                       (long long)l->nodes_min);
    if (l->nodes_max == 1 || l->standalone) {
        free(l->host);
        l->host = NULL;
    }
    if (l->host && !l->port)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "--rdzv-endpoint %s:0: the other nodes cannot know a port that is chosen here, name one",
            l->host);
    if (l->nodes_min == 1 || l->host)
        return ERR_OK;
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "%lld nodes need a place to meet: say --rdzv-endpoint HOST:PORT, the same on each, or "
                   "--hosts, or --nodes 1",
                   (long long)l->nodes_max);
}

static void fill(char **text, const char *standard)
{
    if (!*text)
        *text = xstrdup(standard);
}

enum err_code run_request_complete(struct run_request *l, const struct job_spec *spec, struct err *e)
{
    l->nodes_min = spec->nodes_min; /* what was said is in the job by now */
    l->nodes_max = spec->nodes_max;
    if (settle_place(l, e) != ERR_OK)
        return e->code;
    if (l->nodes_max > 1 && l->node_rank >= l->nodes_max)
        return err_set(e, ERR_INVALID_ARGUMENT, "--node-rank %lld: there are %lld nodes, the first is 0",
                       (long long)l->node_rank, (long long)l->nodes_max);
    fill(&l->id, "none");
    fill(&l->role, spec->role ? spec->role : "default");
    if (!l->join_timeout_ms)
        l->join_timeout_ms = JOIN_TIMEOUT_MS;
    if (l->last_call_ms < 0)
        l->last_call_ms = LAST_CALL_MS;
    return ERR_OK;
}

void run_request_release(struct run_request *l)
{
    free(l->procs);
    free(l->host);
    free(l->id);
    free(l->local_addr);
    strv_free(l->hosts);
    free(l->launcher);
    free(l->log_dir);
    free(l->redirects);
    free(l->tee);
    free(l->prefix);
    free(l->local_ranks);
    free(l->role);
    strv_free(l->command);
    *l = (struct run_request){0};
}
