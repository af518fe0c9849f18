#include "client/run/run_options.h"

#include <string.h>

#define TEXT_OPTION(field, option, placeholder, text)                                                        \
    {                                                                                                        \
        .name = option, .type = OPTION_TEXT, .offset = offsetof(struct run_options, field),                  \
        .value = placeholder, .help = text                                                                   \
    }
#define FLAG_OPTION(field, option, text)                                                                     \
    {                                                                                                        \
        .name = option, .type = OPTION_FLAG, .offset = offsetof(struct run_options, field), .help = text     \
    }
#define IGNORED(field, option)                                                                               \
    {                                                                                                        \
        .name = option, .type = OPTION_TEXT, .offset = offsetof(struct run_options, field),                  \
        .value = "VALUE", .hidden = true                                                                     \
    }

const struct option_spec run_option_table[] = {
    {.name = "quiet",
     .letter = 'q',
     .type = OPTION_FLAG,
     .offset = offsetof(struct run_options, quiet),
     .help = "say nothing but errors; the workers' output comes all the same"},
    FLAG_OPTION(raw, "raw", "pass the workers' output unchanged, also to a terminal"),
    TEXT_OPTION(log_dir, "log-dir", "DIR",
                "keep the workers' logs: DIR/ID_xxxxxx/attempt_N/LOCAL_RANK/ (else a failed run's only)"),
    {.name = "redirects",
     .letter = 'r',
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, redirects),
     .value = "0-3|RANK:0-3,...",
     .help = "to the log files only: 1 stdout, 2 stderr, 3 both"},
    {.name = "tee",
     .letter = 't',
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, tee),
     .value = "0-3|RANK:0-3,...",
     .fits = run_streams_fit,
     .otherwise = "3",
     .help = "to the log files and here, each line behind [ROLE LOCAL_RANK]: (alone: 3)"},
    TEXT_OPTION(prefix, "log-line-prefix-template", "TEXT",
                "before each line of --tee: ${role_name}, ${rank}, ${local_rank}, ${hostname}"),
    TEXT_OPTION(local_ranks, "local-ranks-filter", "RANK,...", "show only these local ranks' output"),
    FLAG_OPTION(job.standalone, "standalone", "this machine alone"),
    {.name = "nnodes",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, job.nodes),
     .value = "N|MIN:MAX",
     .help = "as --nodes"},
    {.name = "nproc-per-node",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, job.procs),
     .value = "N|gpu|cpu|auto",
     .help = "as --procs-per-node"},
    TEXT_OPTION(node_rank, "node-rank", "N", "this machine's place among the nodes"),
    TEXT_OPTION(rdzv_endpoint, "rdzv-endpoint", "HOST[:PORT]",
                "where the nodes meet: whoever owns the address hosts"),
    TEXT_OPTION(rdzv_id, "rdzv-id", "NAME", "the run's name there (none)"),
    TEXT_OPTION(rdzv_backend, "rdzv-backend", "c10d|static", "either: one way to meet serves both"),
    TEXT_OPTION(rdzv_conf, "rdzv-conf", "KEY=VALUE,...", "join_timeout, last_call_timeout (s), is_host"),
    TEXT_OPTION(master_addr, "master-addr", "HOST", "as --rdzv-endpoint, by parts (127.0.0.1)"),
    TEXT_OPTION(master_port, "master-port", "PORT", "its port (29500)"),
    TEXT_OPTION(hosts, "hosts", "A,B,...", "start ddpctl on each of them, by --launcher; box[1-4] for four"),
    {.name = "launcher",
     .type = OPTION_CHOICE,
     .offset = offsetof(struct run_options, launcher),
     .value = "auto|srun|pbsdsh|ssh|mpirun",
     .help = "how; auto: srun in Slurm, pbsdsh or ssh in PBS, else ssh"},
    {.name = "launched",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, launched),
     .value = "PLACE",
     .hidden = true}, /* client/run/launch_message.h */
    {.name = "terminal",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, terminal),
     .value = "STREAMS",
     .hidden = true}, /* client/run/launcher.c */
    TEXT_OPTION(local_addr, "local-addr", "ADDRESS", "where the other nodes reach this one (found out)"),
    TEXT_OPTION(role, "role", "NAME", "what the workers are called (default)"),
    {.name = "module",
     .letter = 'm',
     .type = OPTION_FLAG,
     .offset = offsetof(struct run_options, module),
     .help = "SCRIPT is a Python module: python3 -u -m SCRIPT"},
    FLAG_OPTION(no_python, "no-python", "run SCRIPT as it is, also when it ends in .py"),
    FLAG_OPTION(run_path, "run-path", "run SCRIPT by python3 -u, whatever its name ends in"),
    TEXT_OPTION(signals, "signals-to-handle", "SIGTERM,...", "which stop it (SIGTERM,SIGINT,SIGHUP,SIGQUIT)"),
    TEXT_OPTION(shutdown_timeout, "shutdown-timeout", "SECONDS", "from the signal to SIGKILL (30)"),
    FLAG_OPTION(virtual_local_rank, "virtual-local-rank",
                "LOCAL_RANK is 0 in each worker, and its own GPU all that it sees"),
    {.name = "max-restarts",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, job.max_restarts),
     .value = "N",
     .hidden = true}, /* job_flag_options have it; here for PET_MAX_RESTARTS */
    IGNORED(monitor_interval, "monitor-interval"),
    IGNORED(start_method, "start-method"),
    IGNORED(event_log_handler, "event-log-handler"),
    IGNORED(logs_specs, "logs-specs"),
    IGNORED(numa_binding, "numa-binding"),
    IGNORED(stdout_filters, "duplicate-stdout-filters"),
    IGNORED(stderr_filters, "duplicate-stderr-filters"),
    {0},
};

bool run_begins_command(const char *argument)
{
    const char *dot = strrchr(argument, '.');
    return !dot || (strcmp(dot, ".yaml") != 0 && strcmp(dot, ".yml") != 0);
}

bool run_streams_fit(const char *text)
{
    if (*text >= '0' && *text <= '3' && !text[1])
        return true;
    for (;;) {
        size_t digits = strspn(text, "0123456789");
        if (!digits || digits > 4 || text[digits] != ':' || text[digits + 1] < '0' || text[digits + 1] > '3')
            return false;
        text += digits + 2;
        if (!*text)
            return true;
        if (*text++ != ',')
            return false;
    }
}
