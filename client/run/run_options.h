#ifndef DDP_CLIENT_RUN_RUN_OPTIONS_H
#define DDP_CLIENT_RUN_RUN_OPTIONS_H

#include "client/cmd/submit/command_words.h"
#include "client/cmd/submit/job_text.h"

/* The options of `ddpctl run`, its own and torchrun's, as they were typed. Each of torchrun's options is also
 * read from PET_<NAME>. */
struct run_options {
    struct job_flags job; /* first: job_flag_options fill it */
    const char *node_rank, *master_addr, *master_port, *local_addr;
    const char *rdzv_backend, *rdzv_endpoint, *rdzv_id, *rdzv_conf;
    const char *log_dir, *redirects, *tee, *local_ranks, *role, *prefix, *attach;
    const char *hosts, *launcher, *launched, *terminal;
    const char *signals, *shutdown_timeout, *monitor_interval;
    const char *start_method, *event_log_handler, *logs_specs, *numa_binding; /* have no effect here */
    const char *stdout_filters, *stderr_filters;                              /* nor have these */
    struct command_form form;
    bool virtual_local_rank, quiet, raw, web;
};

extern const struct option_spec run_option_table[];

/* Checks a choice of streams: "0" to "3" (1 stdout, 2 stderr, 3 both), or one for each local rank: "0:3,1:2". */
bool run_streams_fit(const char *text);

#endif
