#include "client/cmd/submit.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/id.h"
#include "base/mem.h"
#include "client/cmd/follow.h"
#include "client/reply_json.h"

#define PATIENCE_MS 10000

/* Checks the script on this machine, in the working directory that the job has there. */
static enum err_code submit_check_script(const struct command_form *form, const char *word, const char *text,
                                         struct err *e)
{
    CLEANUP(job_release) struct job_spec spec = {0};
    if (job_parse(&spec, text, strlen(text), "job file", e) != ERR_OK)
        return e->code;
    return command_words_check(form, word, spec.workdir, e);
}

void submit_warn_units(const struct job_flags *flags)
{
    CLEANUP(buf_release) struct buf talk = {0};
    const char *limit = flags->time_limit;
    if (!limit || !*limit || limit[strspn(limit, "0123456789")])
        return;
    buf_printf(&talk, "ddpctl: warning: --time-limit %s means %s seconds; write %ss, or %sm for minutes\n",
               limit, limit, limit, limit);
    stderr_put(&talk);
}

enum err_code submit_text(const struct option_arguments *args, const struct command_form *form,
                          const struct job_flags *flags, char **text, struct err *e)
{
    CLEANUP(free_text) char *made = NULL;
    struct job_flags all = *flags;
    char **words;
    submit_warn_units(flags);
    if (args->tail && args->count)
        return err_set(e, ERR_INVALID_ARGUMENT, "give either a job file or a COMMAND, not both: '%s'",
                       args->list[0]);
    if (!args->tail && !args->count)
        return err_set(e, ERR_INVALID_ARGUMENT, "nothing to run: give JOB.yaml, SCRIPT.py or a COMMAND");
    if (!args->tail) {
        CLEANUP(buf_release) struct buf others = {0};
        const enum err_code code = job_text_from_file(args->list[0], flags, text, &others, e);
        stderr_put(&others);
        return code;
    }
    if (command_words_make(form, args->tail, getenv("PYTHON_EXEC"), &words, e) != ERR_OK)
        return e->code;
    all.store = job_text_store(flags, command_words_are_python(form, args->tail[0]));
    enum err_code code = job_text_from_command(words, &all, &made, e);
    strv_free(words);
    if (code != ERR_OK || submit_check_script(form, args->tail[0], made, e) != ERR_OK)
        return e->code;
    *text = steal(made);
    return ERR_OK;
}

static const char *submit_user_name(void)
{
    const struct passwd *user = getpwuid(getuid());
    return user ? user->pw_name : "?";
}

#define TEXT(s) ((char *)(uintptr_t)(s)) /* protobuf-c's request fields are not const */

/* An older coordinator has queued the job without looking at `now`. */
static enum err_code submit_cancel_unchecked(struct link *link, int64_t job, struct err *e)
{
    Ddp__V1__CancelJobRequest request = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    struct err cause;
    request.job = job;
    request.kill = true;
    request.why = TEXT("its coordinator does not know --now");
    if (link_call(link, "CancelJob", &request, &reply, PATIENCE_MS, &cause) != ERR_OK)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "the coordinator at %s is older and does not know --now: it has queued the job; "
                       "`ddpctl cancel %lld` ends it, which failed now (%.160s)",
                       link->target.address, (long long)job, cause.msg);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "the coordinator at %s is older and does not know --now: it has queued the job, and #%lld is "
        "cancelled again; upgrade the coordinator, or submit without --now",
        link->target.address, (long long)job);
}

enum err_code submit_send(struct link *link, const struct submission *s, int64_t *job, struct err *e)
{
    Ddp__V1__SubmitJobRequest request = DDP__V1__SUBMIT_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) Ddp__V1__SubmitJobReply *reply = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    char id[ID_TEXT];
    void *message;
    id_text(id);
    request.request_id = id;
    request.job_file = TEXT(s->text);
    request.user = TEXT(submit_user_name());
    request.env = (char **)(uintptr_t)s->env;
    request.n_env = s->env ? strv_len(s->env) : 0;
    request.continues = s->continues;
    request.resume = s->resume;
    request.now = s->now;
    if (link_call(link, "SubmitJob", &request, &message, PATIENCE_MS, e) != ERR_OK)
        return e->code;
    reply = message;
    if (s->now && !reply->checked_now)
        return submit_cancel_unchecked(link, reply->job, e);
    for (size_t i = 0; i < reply->n_warnings && !s->own_cluster; i++)
        buf_printf(&talk, "ddpctl: warning: %s\n", reply->warnings[i]);
    stderr_put(&talk);
    *job = reply->job;
    return ERR_OK;
}

enum err_code submit_resumed(struct link *link, int64_t old, char **set, int64_t *job, char **name,
                             struct err *e)
{
    Ddp__V1__GetJobRequest request = DDP__V1__GET_JOB_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(free_text) char *text = NULL;
    struct job_flags flags = {.set = set};
    request.job = old;
    if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__JobStatus *status = reply;
    if (job_text_change(status->job_file, &flags, &text, e) != ERR_OK)
        return e->code;
    struct submission submission = {.text = text, .continues = old, .resume = true};
    if (submit_send(link, &submission, job, e) != ERR_OK)
        return e->code;
    *name = xstrdup(status->name);
    return ERR_OK;
}

int submit_after(struct link *link, int64_t job, const char *name, bool follow, const char *output)
{
    CLEANUP(buf_release) struct buf out = {0}, talk = {0};
    struct err e;
    int code = EXIT_DONE;
    if (follow) {
        if (follow_job(link, job, &code, &e) != ERR_OK)
            return error_print(&e);
        return code;
    }
    if (output && strcmp(output, "json") == 0) {
        reply_json_submitted(job, name, &out);
    } else {
        /* only the number goes to stdout: job=$(ddpctl submit ...) */
        buf_printf(&out, "%lld\n", (long long)job);
        buf_printf(&talk, "#%lld %s submitted\n   ddpctl status %lld --watch\n", (long long)job, name,
                   (long long)job);
    }
    stderr_put(&talk);
    return stdout_put(&out) ? code : EXIT_FAILED;
}
