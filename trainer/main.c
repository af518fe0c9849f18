/* ddp-trainer: one worker of a train job. Exit codes: 0: done, or stopped because the job was asked to stop;
 * 1: failed; 2: usage error; 68 (EXIT_NO_ADDRESS): the coordinator's name cannot be resolved; 71
 * (EXIT_NODE_TROUBLE): the node allows too few open files; 75 (EXIT_PEER_LOST): a peer was lost, or the
 * generation is over, and this process does not go on (generations.h); 143: stopped by SIGTERM alone, after a snapshot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/topology.h"
#include "base/worker/exits.h"
#include "trainer/device/plugin.h"
#include "trainer/generate.h"
#include "trainer/generations.h"
#include "trainer/member/link/tuning.h"
#include "trainer/options.h"
#include "trainer/signals.h"
#include "trainer/sizes.h"
#include "trainer/trainer.h"

#define FILES_WANTED                                                                                         \
    128 /* connecting to the peers takes about 70 (trainer/member/coll/handshake.c), gRPC 20 */

/* OpenMP's threads spin between matrix products unless the environment forbids it before the library is
 * loaded. With several workers on a machine that costs up to half the speed. So a worker that was started
 * without this setting executes itself again. */
static void want_passive_openmp(char **argv)
{
    const char *ranks = getenv("LOCAL_WORLD_SIZE");
    if (getenv("OMP_WAIT_POLICY") || topology_allowed() < 2 * (ranks ? atoi(ranks) : 1))
        return; /* it is set already, or there is one thread for each worker */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
    log_warn("openmp_policy", "why=\"ddp-trainer cannot execute itself again, idle threads will spin\"");
}

/* Whether a restart would fail in the same way: the error follows from the input or the configuration, and
 * results repeat bit for bit. */
static bool is_for_good(enum err_code code)
{
    return code == ERR_INVALID_ARGUMENT || code == ERR_FAILED_PRECONDITION || code == ERR_NOT_FOUND ||
           code == ERR_UNIMPLEMENTED || code == ERR_DATA_LOSS || code == ERR_OUT_OF_RANGE;
}

/* Before the first Join has answered, the environment alone says which rank this is. */
static int own_rank(const struct trainer *t, const struct link *link)
{
    return t->formation.info.peers ? t->formation.rank : link_first_member(link)->rank;
}

/* Plain text on stderr, because a failed job shows the last lines of stderr. A lost peer is there already (generations.c). */
static int exit_code(const struct trainer *t, const struct link *link, const struct err *e)
{
    if (e->code == ERR_ABORTED || e->code == ERR_CANCELLED)
        return EXIT_PEER_LOST;
    if (e->code) {
        fprintf(stderr, "ddp-trainer: rank %d: %s\n", own_rank(t, link), e->msg);
        return is_for_good(e->code) ? EXIT_NO_RESTART : 1;
    }
    if (!t->stopped || t->asked)
        return 0;
    return trainer_stop_signal ? 128 + trainer_stop_signal : EXIT_PEER_LOST;
}

static int worker_run(struct trainer_config *config, struct link *link)
{
    struct trainer t;
    struct err e = {0};
    if (trainer_open(&t, config, link, &e) == ERR_OK && generations_run(&t, &e) == ERR_OK)
        e.code = ERR_OK;
    int code = exit_code(&t, link, &e);
    if (!code)
        link_await_told(link);
    link_cancel(link);
    /* An exchange may be under way beside the steps, with peers that hang. trainer_leave must not wait for them. */
    if (e.code)
        formation_abort(&t.formation);
    /* The result of the run does not change; operations that hang end with the process. */
    if (!trainer_leave(&t)) {
        fflush(NULL);
        _exit(code);
    }
    trainer_close(&t);
    return code;
}

static int generate_text(const struct trainer_options *o)
{
    struct err e = {0};
    if (generate_main(o, &e) == ERR_OK)
        return 0;
    fprintf(stderr, "ddp-trainer: %s\n", e.msg);
    return e.code == ERR_INVALID_ARGUMENT ? EXIT_USAGE : 1;
}

/* Nothing is trained, so there is no link, and no exit code that a coordinator reads. */
static int sizes_print(const struct trainer_options *o)
{
    CLEANUP(buf_release) struct buf out = {0};
    struct trainer_config config;
    struct plan_sizes sizes = {0};
    struct err e = {0};
    if (config_read(&config, o, &e) == ERR_OK &&
        sizes_of_job(&config.job.train, (int)o->world, (int)(o->per_node ? o->per_node : o->world),
                     (size_t)o->gpu_memory, &sizes, &e) == ERR_OK) {
        plan_sizes_print(&sizes, &out);
        printf("%s\n", out.data);
    } else {
        fprintf(stderr, "ddp-trainer: %s\n", e.msg);
    }
    plan_sizes_release(&sizes);
    config_release(&config);
    return e.code == ERR_OK ? 0 : e.code == ERR_INVALID_ARGUMENT ? EXIT_USAGE : 1;
}

/* Prints {"name": "cuda", "version": "CUDA 13.0, ...", "nccl": "2.28.9"}, or with "nccl": "missing" and "why" if only
 * one rank can train, or {"why": "..."}. */
static int tell_plugin(void)
{
    CLEANUP(buf_release) struct buf out = {0};
    const struct plugin *plugin;
    struct err e = {0};
    struct jout o = {.buf = &out};
    jout_open(&o, NULL, '{');
    if (plugin_load(&plugin, &e) == ERR_OK) {
        CLEANUP(free_text)
        char *nccl = xasprintf("%d.%d.%d", plugin->nccl_version / 10000, plugin->nccl_version / 100 % 100,
                               plugin->nccl_version % 100);
        jout_text(&o, "name", plugin->name);
        jout_text(&o, "version", plugin->version);
        jout_text(&o, "nccl", plugin->nccl_version ? nccl : "missing");
        if (!plugin->nccl_version)
            jout_text(&o, "why", plugin->no_nccl ? plugin->no_nccl : "the plugin is built without NCCL");
    } else {
        jout_text(&o, "why", e.msg);
    }
    jout_close(&o, '}');
    printf("%.*s\n", (int)out.len, (const char *)out.data);
    return e.code ? 1 : 0;
}

int main(int argc, char **argv)
{
    struct trainer_config config;
    struct link *link = NULL;
    struct err e = {0};
    CLEANUP(trainer_options_release) struct trainer_options options;
    const int ended = trainer_options_read(&options, argc, argv);
    if (ended >= 0)
        return ended;
    if (options.plugin)
        return tell_plugin();
    /* This may execute the program again, so it comes before anything is opened. */
    want_passive_openmp(argv);
    log_init("ddp-trainer", LOG_INFO);
    if (options.generate)
        return generate_text(&options);
    if (options.sizes)
        return sizes_print(&options);
    int code = EXIT_USAGE;
    (void)limits_raise_files();
    if (signals_open(options.standalone, &e) || limits_want_files(FILES_WANTED, &e)) {
        fprintf(stderr, "ddp-trainer: %s\n", e.msg);
        return EXIT_NODE_TROUBLE;
    }
    if (config_read(&config, &options, &e) || link_open(&link, config.standalone, &e)) {
        fprintf(stderr, "ddp-trainer: %s\n", e.msg);
    } else if (link_find_coordinator(link, &e)) {
        /* This exit code tells the coordinator that the node is at fault, not the job. */
        fprintf(stderr, "ddp-trainer: %s\n", e.msg);
        link_close(link);
        code = EXIT_NO_ADDRESS;
    } else {
        code = worker_run(&config, link);
    }
    config_release(&config);
    return code;
}
