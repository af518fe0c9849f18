#include "client/cmd/submit/submission.h"

#include <pwd.h>
#include <string.h>
#include <unistd.h>

#include "base/crypto/id.h"
#include "base/mem.h"
#include "client/cmd/output.h"
#include "client/cmd/submit/job_text.h"
#include "proto/ddp.pb-c.h"

#define PATIENCE_MS 10000

static const char *submission_user(void)
{
    const struct passwd *user = getpwuid(getuid());
    return user ? user->pw_name : "?";
}

#define TEXT(s) ((char *)(uintptr_t)(s)) /* protobuf-c's request fields are not const */

/* An older coordinator has queued the job without looking at `now`. */
static enum err_code submission_cancel_unchecked(struct link *link, int64_t job, struct err *e)
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
                       "ddpctl could not cancel it (%.160s): try `ddpctl cancel %lld`",
                       link->target.address, cause.msg, (long long)job);
    return err_set(
        e, ERR_FAILED_PRECONDITION,
        "the coordinator at %s is older and does not know --now: it has queued job %lld, and ddpctl has "
        "cancelled it; upgrade the coordinator, or submit without --now",
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
    request.user = TEXT(submission_user());
    request.env = (char **)(uintptr_t)s->env;
    request.n_env = s->env ? strv_len(s->env) : 0;
    request.continues = s->continues;
    request.resume = s->resume;
    request.now = s->now;
    if (link_call(link, "SubmitJob", &request, &message, PATIENCE_MS, e) != ERR_OK)
        return e->code;
    reply = message;
    if (s->now && !reply->checked_now)
        return submission_cancel_unchecked(link, reply->job, e);
    for (size_t i = 0; i < reply->n_warnings && !s->own_cluster && !link->inside; i++)
        buf_printf(&talk, "ddpctl: warning: %s\n", reply->warnings[i]);
    if (s->inherits && !reply->keeps_env && !link->inside)
        buf_printf(
            &talk,
            "ddpctl: warning: the coordinator at %s is older: the new job does not get the environment of job "
            "%lld; set the variables that it needs with --set env.NAME=VALUE\n",
            link->target.address, (long long)s->continues);
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
    struct job_flags flags = {.set = set, .from_afar = link->inside};
    request.job = old;
    if (link_call(link, "GetJob", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    const Ddp__V1__JobStatus *status = reply;
    if (job_text_change(status->job_file, &flags, &text, e) != ERR_OK)
        return e->code;
    struct submission submission = {
        .text = text, .continues = old, .inherits = status->n_env > 0, .resume = true};
    if (submit_send(link, &submission, job, e) != ERR_OK)
        return e->code;
    /* `set` may have changed the name. */
    struct job_spec spec = {0};
    if (job_parse(&spec, text, strlen(text), "job file", e) == ERR_OK)
        *name = steal(spec.name);
    job_release(&spec);
    return e->code;
}
