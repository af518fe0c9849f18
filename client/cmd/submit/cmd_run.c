#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/job/tell.h"
#include "base/mem.h"
#include "base/paths.h"
#include "client/cmd/submit/submit.h"
#include "client/interrupts.h"
#include "client/run/batch/batch_task.h"
#include "client/run/hosts/host_group.h"
#include "client/run/launch/launch_message.h"
#include "client/run/launch/remote_launch.h"
#include "client/run/master_port.h"
#include "client/run/run_logs.h"
#include "client/run/run_session.h"
#include "client/run/torchrun.h"

/* run: one job in the foreground.
 *
 * Happy path: flags, PET_* variables and the batch system become a run request (client/run/run_request.h), and this
 * becomes the text of a job. On one machine, ddpctl starts a private cluster, submits the job, follows it to its end,
 * stops the cluster and exits with the job's exit code. On several hosts, see client/run/hosts/host_group.c. With
 * --launcher or --hosts, this ddpctl only starts the others (client/run/launch/remote_launch.h).
 *
 * The only rank of a command, or that of --attach, has the terminal (client/run/run_terminal.h), and then ^C is for its
 * program. Otherwise the first ^C cancels the job (snapshot, then stop), the second kills it. However this process
 * dies, its end of the lifeline pipe closes, and everything that it started ends. ^Z stops the display, not the job. */

/* Checks the job against this machine. *slots: what the private agent has to offer, at least as many as the
 * job has workers here, even if there are fewer cores. */
static enum err_code run_check_job(const struct invocation *in, const struct job_spec *spec, int64_t *slots,
                                   struct err *e)
{
    const struct run_options *o = in->options;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *slots = cores > 0 ? cores : 1;
    if (spec->procs == JOB_PROCS_NUMBER && spec->procs_per_node > *slots)
        *slots = spec->procs_per_node;
    if (o->attach && spec->kind == JOB_TRAIN)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "option '--attach' needs a command: the ranks of a train job read no input");
    /* The private coordinator has no configuration and would refuse it later, as an error of its own. */
    if (spec->tell && tell_check(spec->tell, NULL, e) != ERR_OK)
        return e->code = ERR_INVALID_ARGUMENT;
    if (access(spec->workdir, X_OK) != 0)
        return err_set(e, ERR_INVALID_ARGUMENT, "workdir %s: %s", spec->workdir, strerror(errno));
    return in->args.tail ? command_words_check(&o->form, in->args.tail[0], spec->workdir, true, e) : ERR_OK;
}

static enum err_code run_start_session(struct run_session *s, const char *text, int64_t slots, struct err *e)
{
    struct submission submission = {.text = text, .own_cluster = true};
    CLEANUP(buf_release) struct buf talk = {0};
    CLEANUP(free_text) char *ports = master_port_range(s->request->master_port, &talk);
    const struct local_cluster_agent agent = {
        .slots = slots, .ports = ports, .attach = s->terminal.attach, .terminal = s->terminal.theirs};
    stderr_put(&talk);
    if (local_cluster_start(&s->local, &agent, s->request->log_dir, e) != ERR_OK ||
        local_cluster_link(&s->local, &s->link, e) != ERR_OK)
        return e->code;
    if (run_session_serve_web(s, NULL, e) != ERR_OK ||
        submit_send(&s->link, &submission, &s->job, e) != ERR_OK)
        return e->code;
    return run_session_run(s, e);
}

/* Prints an error that is not the job's: exit code 125, but 2 for a job that was refused as invalid. */
static int run_report_failure(const struct err *e)
{
    int code = error_print(e);
    return code == EXIT_USAGE ? EXIT_USAGE : EXIT_DDP;
}

static int run_on_this_machine(const struct run_options *o, const struct run_request *r, const char *text,
                               const struct job_spec *spec, int64_t slots)
{
    struct run_session s;
    struct err e;
    run_session_init(&s, r, o->quiet);
    s.serves_web = o->web;
    if (spec->procs == JOB_PROCS_GPU)
        s.without_gpus = "--nproc-per-node N or cpu";
    else if (spec->device == JOB_DEVICE_CUDA)
        s.without_gpus = "--device cpu";
    int code = run_start_session(&s, text, slots, &e) == ERR_OK ? s.exit_code : run_report_failure(&e);
    if (interrupts_count())
        code = 128 + interrupt_signal();
    run_session_release(&s, code);
    return code;
}

/* Makes the job's text and parses it again, as the coordinator will. */
static enum err_code run_read_job(struct invocation *in, const struct run_request *r, char **text,
                                  struct job_spec *spec, struct err *e)
{
    const struct run_options *o = in->options;
    CLEANUP(buf_release) struct buf others = {0};
    const enum err_code code = run_request_job_text(r, o, in->args.list[0], text, &others, e);
    stderr_put(&others);
    if (code != ERR_OK)
        return code;
    submit_warn_units(&o->job);
    return job_parse(spec, *text, strlen(*text), "job file", e);
}

/* Fills the request from the command line and PET_*, then from the launcher that started this process, then from the
 * batch system. Each source fills only the values that the earlier sources did not set. */
static enum err_code run_read_request(struct invocation *in, struct batch_task *batch, struct run_request *r,
                                      enum launcher *launcher, struct err *e)
{
    struct run_options *o = in->options;
    CLEANUP(buf_release) struct buf talk = {0};
    CLEANUP(launch_message_release) struct launch_message at = {0};
    char *const nothing[] = {NULL};
    /* Looked at before torchrun_read, which would accept PET_LAUNCHED from a parent's environment. */
    const bool launched = o->launched != NULL;
    if (launched &&
        (launch_message_parse(o->launched, &at, e) != ERR_OK || launch_message_receive(&at, e) != ERR_OK))
        return e->code;
    /* The launcher has read the file of --token and sent the token. This host may not have the file. */
    if (launched && getenv("DDP_TOKEN"))
        in->globals->token_file = NULL;
    if (torchrun_read(r, o, in->args.tail, environ ? environ : nothing, &talk, e) != ERR_OK)
        return e->code;
    stderr_put(&talk);
    if (launched) {
        launch_message_apply(&at, r);
        r->attach = RUN_ATTACH_NO; /* its stdin is a pipe from the ddpctl that started it */
    }
    *launcher = LAUNCHER_NONE;
    if (batch_allocation_here(&batch->allocation, e) != ERR_OK ||
        (!launched && launcher_choose(r, &batch->allocation, paths_finds_program, launcher, e) != ERR_OK))
        return e->code;
    if (!*launcher)
        batch_task_enter(batch, r);
    return ERR_OK;
}

/* Makes the job from the request, and completes the request from the job file. */
static enum err_code run_plan_job(struct invocation *in, const struct batch_task *batch,
                                  struct run_request *r, char **text, struct job_spec *spec, struct err *e)
{
    struct run_options *o = in->options;
    if (run_read_job(in, r, text, spec, e) != ERR_OK)
        return e->code;
    /* A requeued batch job is a new run with a new job number, so `resume: auto` would find nothing to
     * continue from. */
    if (batch_task_resumes(batch, spec)) {
        o->job.set = strv_append(o->job.set, "train.resume=continue");
        free_text(text);
        job_release(spec);
        if (run_read_job(in, r, text, spec, e) != ERR_OK)
            return e->code;
    }
    batch_task_signals(batch, spec->kind, r);
    return run_request_complete(r, spec, e);
}

/* --log-dir: claims a directory for this run below it. */
static enum err_code run_claim_logs(struct run_request *r, const struct job_spec *spec, struct err *e)
{
    char *claimed;
    if (!r->log_dir)
        return ERR_OK;
    if (run_logs_claim(r->log_dir, spec->run_id ? spec->run_id : spec->name, &claimed, e) != ERR_OK)
        return e->code;
    free(r->log_dir);
    r->log_dir = claimed;
    return ERR_OK;
}

static int run_request_start(struct invocation *in, struct run_request *r, const char *text,
                             struct job_spec *spec, int64_t slots)
{
    const struct run_options *o = in->options;
    struct err e;
    if (run_claim_logs(r, spec, &e) != ERR_OK)
        return run_report_failure(&e);
    return r->host ? host_group_run(in->globals, r, text, spec, o)
                   : run_on_this_machine(o, r, text, spec, slots);
}

static int cmd_run_run(struct invocation *in)
{
    CLEANUP(run_request_release) struct run_request request = {0};
    CLEANUP(job_release) struct job_spec spec = {0};
    CLEANUP(free_text) char *text = NULL;
    CLEANUP(batch_task_release) struct batch_task batch = {.mates = {.fd = -1}};
    struct err e;
    enum launcher launcher;
    int64_t slots;
    bool leads;
    int code;
    if (run_read_request(in, &batch, &request, &launcher, &e) != ERR_OK)
        return run_report_failure(&e);
    if (launcher && request.attach >= 0) {
        err_set(
            &e, ERR_INVALID_ARGUMENT,
            "option '--attach': a rank that --hosts or --launcher starts elsewhere cannot have this terminal; type "
            "the command on each host instead, with --attach on the host of the rank");
        return error_print(&e);
    }
    if (launcher)
        return remote_launch_run(launcher, in->globals, &request, &batch.allocation, in->argv);
    if (run_plan_job(in, &batch, &request, &text, &spec, &e) != ERR_OK ||
        run_check_job(in, &spec, &slots, &e) != ERR_OK)
        return error_print(&e);
    /* Checks come first, so that every task of a node reports a mistake; then one of them runs the job. */
    if (batch_task_lead(&batch, &leads, &code, &e) != ERR_OK)
        return run_report_failure(&e);
    if (leads) {
        code = run_request_start(in, &request, text, &spec, slots);
        batch_task_end(&batch, code);
    }
    return code;
}

const struct command cmd_run = {
    .name = "run",
    .usage = "run [OPTIONS] SCRIPT.py|COMMAND [ARGUMENTS]\nrun JOB.yaml [OPTIONS]",
    .summary = "run one job in the foreground, without a cluster",
    .help =
        "Runs the job on this machine, with a private coordinator and agent, and prints the output of its\n"
        "ranks. Its exit code is that of the first rank that failed (128 + N for signal N), or 125 if ddp\n"
        "itself failed. The output of a single rank passes unchanged. The output of several ranks is merged by\n"
        "lines as it comes. On a terminal each line begins with its [rank], and progress bars stay at the\n"
        "bottom. The first ^C stops the job, and a train job writes a snapshot first (exit code 130); the\n"
        "second ^C kills it. If ddpctl dies, everything it started dies too. ^Z stops the display, not the\n"
        "job.\n\n"
        "The only rank of a COMMAND, or the one that --attach names, has the terminal: it can read input, and\n"
        "^C is a signal for the program (three within two seconds kill the job). If stdin is a pipe or a file,\n"
        "that rank reads it. All other ranks read /dev/null.\n\n"
        "A COMMAND is not restarted after a failure unless --max-restarts is given.\n\n"
        "torchrun's options have the same meaning here, in both spellings (--nproc_per_node too), and are also\n"
        "read from PET_* variables. The beginning of an option's name is enough if no other option begins so\n"
        "(--nproc). `ddprun` is short for `ddpctl run`. The first word that is not an option begins the script\n"
        "or command, and every word after it belongs to it. A SCRIPT.py is run by `python3 -u`, or by the\n"
        "interpreter that $PYTHON_EXEC names.\n\n"
        "To run on several hosts, type the same line on each. They meet at --rdzv-endpoint, an address of one\n"
        "of them. They need the same token, in DDP_TOKEN, ~/.config/ddp/token or --token FILE; --insecure runs\n"
        "without a token. At localhost a token is made automatically.\n\n"
        "  ddprun --standalone --nproc-per-node=gpu train.py --epochs 50\n"
        "  ddpctl run --procs-per-node 4 ./bench\n"
        "  ddprun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=box1:29400 train.py\n"
        "  ddpctl run examples/single.yaml --set train.epochs=3",
    .options = run_option_table,
    .shared = job_flag_options,
    .size = sizeof(struct run_options),
    .most = 1,
    .rules = {.ends = command_words_begin, .abbreviations = true},
    .tail = true,
    .offline = true,
    .run = cmd_run_run,
};
