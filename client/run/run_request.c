#include "client/run/run_request.h"

#include <stdlib.h>

#include "base/crypto/id.h"
#include "base/mem.h"

#define JOIN_TIMEOUT_MS 600000
#define LAST_CALL_MS 30000

static char *request_nodes_text(const struct run_request *r)
{
    if (!r->nodes_min)
        return NULL;
    if (r->nodes_min == r->nodes_max)
        return xasprintf("%lld", (long long)r->nodes_min);
    return xasprintf("%lld:%lld", (long long)r->nodes_min, (long long)r->nodes_max);
}

/* A UUID of version 4, as torchrun --standalone makes one. */
static char *request_fresh_id(void)
{
    unsigned char b[16];
    char hex[ID_TEXT];
    id_random(b, sizeof(b));
    b[6] = (unsigned char)((b[6] & 15) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    hex_encode(hex, b, sizeof(b));
    return xasprintf("%.8s-%.4s-%.4s-%.4s-%s", hex, hex + 8, hex + 12, hex + 16, hex + 20);
}

enum err_code run_request_job_text(const struct run_request *r, const struct run_options *options,
                                   const char *file, char **text, struct buf *others, struct err *e)
{
    CLEANUP(free_text) char *nodes = request_nodes_text(r);
    CLEANUP(free_text) char *grace = r->grace_ms >= 0 ? xasprintf("%lldms", (long long)r->grace_ms) : NULL;
    CLEANUP(free_text) char *fresh = r->command && !r->id ? request_fresh_id() : NULL;
    struct job_flags flags = options->job;
    flags.run_id = fresh ? fresh : r->id;
    flags.role = r->role;
    flags.grace = grace;
    flags.virtual_local_rank = options->virtual_local_rank;
    flags.nodes = nodes;
    flags.procs = r->procs;
    flags.store = r->command ? job_text_store(&flags, r->python) : flags.store;
    if (r->command && file)
        return err_set(e, ERR_INVALID_ARGUMENT, "give either a job file or a COMMAND, not both: '%s'", file);
    if (!r->command && !file)
        return err_set(e, ERR_INVALID_ARGUMENT, "nothing to run: give JOB.yaml, SCRIPT.py or a COMMAND");
    if (file)
        return job_text_from_file(file, &flags, text, others, e);
    if (flags.max_restarts && !flags.restart_on)
        flags.restart_on = "any"; /* as in torchrun: --max-restarts restarts after every failure */
    if (!flags.procs && !flags.gpus)
        flags.gpus = "all"; /* the command is one process, which may start ranks of its own */
    return job_text_from_command(r->command, &flags, text, e);
}

static enum err_code request_complete_place(struct run_request *r, struct err *e)
{
    if (r->standalone && r->nodes_min > 1)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "option '--standalone' runs the job on this machine only, but the job needs %lld nodes",
            (long long)r->nodes_min);
    if (r->nodes_max == 1 || r->standalone) { /* there is nobody to meet */
        free(r->host);
        r->host = NULL;
    }
    if (r->host && !r->port)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "--rdzv-endpoint %s:0: give a port; the other nodes cannot know one that is chosen here",
            r->host);
    if (r->nodes_min == 1 || r->host)
        return ERR_OK;
    return err_set(e, ERR_INVALID_ARGUMENT,
                   "%lld nodes need a place to meet: give --rdzv-endpoint HOST:PORT, the same on each, or "
                   "--hosts, or --nodes 1",
                   (long long)r->nodes_max);
}

static void request_fill_text(char **text, const char *standard)
{
    if (!*text)
        *text = xstrdup(standard);
}

enum err_code run_request_complete(struct run_request *r, const struct job_spec *spec, struct err *e)
{
    r->nodes_min = spec->nodes_min; /* the flags are part of the job's text by now */
    r->nodes_max = spec->nodes_max;
    if (request_complete_place(r, e) != ERR_OK)
        return e->code;
    if (r->nodes_max > 1 && r->node_rank >= r->nodes_max)
        return err_set(e, ERR_INVALID_ARGUMENT, "--node-rank %lld: there are %lld nodes, counted from 0",
                       (long long)r->node_rank, (long long)r->nodes_max);
    request_fill_text(&r->id, "none");
    request_fill_text(&r->role, spec->role ? spec->role : "default");
    if (!r->join_timeout_ms)
        r->join_timeout_ms = JOIN_TIMEOUT_MS;
    if (r->last_call_ms < 0)
        r->last_call_ms = LAST_CALL_MS;
    return ERR_OK;
}

void run_request_release(struct run_request *r)
{
    free(r->procs);
    free(r->host);
    free(r->id);
    free(r->local_addr);
    strv_free(r->hosts);
    free(r->launcher);
    free(r->log_dir);
    free(r->redirects);
    free(r->tee);
    free(r->prefix);
    free(r->local_ranks);
    free(r->role);
    strv_free(r->command);
    *r = (struct run_request){0};
}
