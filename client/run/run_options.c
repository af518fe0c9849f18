#include "client/run/run_options.h"

#include <string.h>

#define TEXT_OPTION(field, option, placeholder, ...)                                                         \
    {                                                                                                        \
        .name = option, .type = OPTION_TEXT, .offset = offsetof(struct run_options, field),                  \
        .value = placeholder, .help = __VA_ARGS__                                                            \
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
     .help = "print errors only; the workers' output is still printed"},
    FLAG_OPTION(raw, "raw", "pass the workers' output unchanged, even to a terminal"),
    FLAG_OPTION(
        web, "web",
        "serve the web page of this run on 127.0.0.1 until it ends, and print its URL; of several hosts, the run's host serves it"),
    TEXT_OPTION(log_dir, "log-dir", "DIR", "keep the workers' logs in DIR/ID_xxxxxx/attempt_N/LOCAL_RANK/",
                .default_text = "kept in $TMPDIR, after a failure only"),
    {.name = "redirects",
     .letter = 'r',
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, redirects),
     .value = "0-3|RANK:0-3,...",
     .help = "write to the log files only: 1 stdout, 2 stderr, 3 both"},
    {.name = "tee",
     .letter = 't',
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, tee),
     .value = "0-3|RANK:0-3,...",
     .fits = run_streams_fit,
     .otherwise = "3",
     .help =
         "write to the log files and here, with [ROLE LOCAL_RANK]: before each line (without a value: 3)"},
    TEXT_OPTION(prefix, "log-line-prefix-template", "TEXT",
                "text before each line of --tee: ${role_name}, ${rank}, ${local_rank}, ${hostname}"),
    TEXT_OPTION(attach, "attach", "RANK",
                "give this rank the terminal, or ddpctl's stdin if that is a file or a pipe",
                .default_text = "the only rank; of several, none"),
    TEXT_OPTION(local_ranks, "local-ranks-filter", "RANK,...", "print the output of these local ranks only"),
    FLAG_OPTION(job.standalone, "standalone", "run on this machine only"),
    {.name = "nnodes",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, job.nodes),
     .value = "N|MIN:MAX",
     .help = "same as --nodes"},
    {.name = "nproc-per-node",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, job.procs),
     .value = "N|gpu|cpu|auto",
     .help = "same as --procs-per-node"},
    TEXT_OPTION(node_rank, "node-rank", "N", "rank of this machine among the nodes"),
    TEXT_OPTION(rdzv_endpoint, "rdzv-endpoint", "HOST[:PORT]",
                "where the nodes meet; the machine with this address hosts the run"),
    TEXT_OPTION(rdzv_id, "rdzv-id", "NAME", "name of the run", .default_text = "none"),
    TEXT_OPTION(rdzv_backend, "rdzv-backend", "c10d|static", "accepted; both mean the same here"),
    TEXT_OPTION(rdzv_conf, "rdzv-conf", "KEY=VALUE,...", "join_timeout, last_call_timeout (s), is_host"),
    TEXT_OPTION(master_addr, "master-addr", "HOST", "host of --rdzv-endpoint", .default_text = "127.0.0.1"),
    TEXT_OPTION(master_port, "master-port", "PORT", "port of --rdzv-endpoint; on one machine, MASTER_PORT",
                .default_text = "29500"),
    TEXT_OPTION(hosts, "hosts", "A,B,...", "start ddpctl on each of these hosts; box[1-4] for four"),
    {.name = "launcher",
     .type = OPTION_CHOICE,
     .offset = offsetof(struct run_options, launcher),
     .value = "auto|srun|pbsdsh|ssh|mpirun",
     .help = "program that starts ddpctl on the hosts; auto: srun in Slurm, pbsdsh or ssh in PBS, else ssh"},
    {.name = "launched",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, launched),
     .value = "PLACE",
     .hidden = true,
     .whole = true}, /* client/run/launch/launch_message.h */
    {.name = "terminal",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, terminal),
     .value = "STREAMS",
     .hidden = true,
     .whole = true}, /* client/run/launch/launcher.c */
    TEXT_OPTION(local_addr, "local-addr", "ADDRESS", "address at which the other nodes reach this one",
                .default_text = "detected"),
    TEXT_OPTION(role, "role", "NAME", "name of the workers in their output", .default_text = "default"),
    COMMAND_FORM_OPTIONS(run_options, form),
    TEXT_OPTION(signals, "signals-to-handle", "SIGTERM,...", "signals that stop the run",
                .default_text = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"),
    TEXT_OPTION(shutdown_timeout, "shutdown-timeout", "SECONDS", "time from the signal to SIGKILL",
                .default_text = "30"),
    FLAG_OPTION(virtual_local_rank, "virtual-local-rank",
                "set LOCAL_RANK to 0 in each worker, which sees only its own GPU"),
    {.name = "max-restarts",
     .type = OPTION_TEXT,
     .offset = offsetof(struct run_options, job.max_restarts),
     .value = "N",
     .hidden = true}, /* job_flag_options describe it; this row reads PET_MAX_RESTARTS */
    IGNORED(monitor_interval, "monitor-interval"),
    IGNORED(start_method, "start-method"),
    IGNORED(event_log_handler, "event-log-handler"),
    IGNORED(logs_specs, "logs-specs"),
    IGNORED(numa_binding, "numa-binding"),
    IGNORED(stdout_filters, "duplicate-stdout-filters"),
    IGNORED(stderr_filters, "duplicate-stderr-filters"),
    {0},
};

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
