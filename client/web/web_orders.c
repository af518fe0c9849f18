#include "client/web/web_orders.h"

#include <string.h>

#include "base/mem.h"
#include "client/cmd/jobs/job_number.h"
#include "client/cmd/submit/job_text.h"
#include "client/cmd/submit/submission.h"
#include "client/reply_json.h"
#include "client/web/web_call.h"

static enum err_code order_submit(struct link *link, const struct web_request *r, struct buf *out,
                                  struct err *e)
{
    CLEANUP(free_text) char *text = NULL;
    CLEANUP(job_release) struct job_spec spec = {0};
    const struct job_flags flags = {.from_afar = link->inside};
    int64_t job;
    if (!r->body_size || strlen(r->body) != r->body_size)
        return err_set(e, ERR_INVALID_ARGUMENT, "the body must be a job file (YAML)");
    if (job_text_from_memory(r->body, r->body_size, &flags, "job", &text, e) != ERR_OK ||
        job_parse(&spec, text, strlen(text), "job file", e) != ERR_OK)
        return e->code;
    const struct submission submission = {.text = text};
    if (submit_send(link, &submission, &job, e) != ERR_OK)
        return e->code;
    reply_json_submitted(job, spec.name, out);
    return ERR_OK;
}

static enum err_code order_resume(struct link *link, const struct web_request *r, const json_t *body,
                                  struct buf *out, struct err *e)
{
    CLEANUP(free_text) char *name = NULL;
    const json_t *list = json_object_get(body, "set");
    char **set = NULL;
    int64_t job;
    if (list && !json_is_array(list))
        return err_set(e, ERR_INVALID_ARGUMENT, "set: expected a list, such as [\"train.epochs=20\"]");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text) {
            strv_free(set);
            return err_set(e, ERR_INVALID_ARGUMENT, "set: expected a list of texts");
        }
        set = strv_append(set, text);
    }
    const enum err_code code = submit_resumed(link, r->job, set, &job, &name, e);
    strv_free(set);
    if (code != ERR_OK)
        return code;
    reply_json_submitted(job, name, out);
    return ERR_OK;
}

static enum err_code order_resize(struct link *link, const struct web_request *r, const json_t *body,
                                  struct buf *out, struct err *e)
{
    Ddp__V1__ResizeJobRequest request = DDP__V1__RESIZE_JOB_REQUEST__INIT;
    const char *nodes = json_get_text(body, "nodes", "");
    request.job = r->job;
    if (nodes_range_parse(nodes, &request.nodes_min, &request.nodes_max, e) != ERR_OK)
        return err_wrap(e, "nodes");
    return web_call_print(link, "ResizeJob", &request, out, e);
}

static enum err_code order_flag(const json_t *body, const char *key, protobuf_c_boolean *out, struct err *e)
{
    const json_t *value = json_object_get(body, key);
    if (value && !json_is_boolean(value))
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: expected true or false", key);
    *out = json_is_true(value);
    return ERR_OK;
}

enum err_code web_order(struct link *link, const struct web_request *r, struct buf *out, struct err *e)
{
    Ddp__V1__CancelJobRequest cancel = DDP__V1__CANCEL_JOB_REQUEST__INIT;
    Ddp__V1__RestartJobRequest restart = DDP__V1__RESTART_JOB_REQUEST__INIT;
    CLEANUP(json_release) json_t *body = NULL;
    const char *keys = r->route == WEB_CANCEL    ? "kill"
                       : r->route == WEB_RESTART ? "from_scratch"
                       : r->route == WEB_RESIZE  ? "nodes"
                                                 : "set";
    if (r->route == WEB_SUBMIT)
        return order_submit(link, r, out, e);
    if (web_request_json(r, keys, &body, e) != ERR_OK)
        return e->code;
    cancel.job = restart.job = r->job;
    switch (r->route) {
    case WEB_CANCEL:
        if (order_flag(body, "kill", &cancel.kill, e) != ERR_OK)
            return e->code;
        return web_call_print(link, "CancelJob", &cancel, out, e);
    case WEB_RESTART:
        if (order_flag(body, "from_scratch", &restart.from_scratch, e) != ERR_OK)
            return e->code;
        return web_call_print(link, "RestartJob", &restart, out, e);
    case WEB_RESIZE:
        return order_resize(link, r, body, out, e);
    case WEB_RESUME:
        return order_resume(link, r, body, out, e);
    default:
        BUG_ON("a route that has no answer");
        return ERR_INTERNAL;
    }
}
