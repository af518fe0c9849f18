#include "client/cmd/jobs/job_find.h"

#include <stdlib.h>

#include "base/mem.h"

enum err_code job_find_user(struct link *link, char **name, struct err *e)
{
    Ddp__V1__WhoAmIRequest request = DDP__V1__WHO_AM_IREQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    if (link_call(link, "WhoAmI", &request, &reply, 0, e) != ERR_OK)
        return e->code;
    *name = xstrdup(((const Ddp__V1__WhoAmIReply *)reply)->name);
    return ERR_OK;
}

enum err_code jobs_find(struct link *link, char *const *references, size_t count, struct job_numbers *out,
                        struct err *e)
{
    struct job_reference *list = xcalloc(count + 1, sizeof *list);
    CLEANUP(job_pages_release) struct job_pages pages = {0};
    CLEANUP(free_text) char *user = NULL;
    bool needs_jobs = false, needs_user = false;
    enum err_code code = ERR_OK;
    for (size_t i = 0; i < count && code == ERR_OK; i++) {
        code = job_reference_parse(references[i], &list[i], e);
        needs_jobs = needs_jobs || list[i].kind != REFERENCE_NUMBER;
        needs_user = needs_user || list[i].kind == REFERENCE_LAST;
    }
    if (code == ERR_OK && needs_jobs)
        code = job_pages_fetch(link, true, &pages, e);
    if (code == ERR_OK && needs_user)
        code = job_find_user(link, &user, e);
    for (size_t i = 0; i < count && code == ERR_OK; i++)
        code = job_reference_resolve(&list[i], pages.jobs, pages.count, user, out, e);
    free(list);
    return code;
}

enum err_code job_find(struct link *link, const char *command, const char *reference, int64_t *job,
                       struct err *e)
{
    CLEANUP(job_numbers_release) struct job_numbers numbers = {0};
    char *const references[] = {(char *)(uintptr_t)reference};
    if (jobs_find(link, references, 1, &numbers, e) != ERR_OK ||
        job_numbers_only(&numbers, command, reference, e) != ERR_OK)
        return e->code;
    *job = numbers.list[0];
    return ERR_OK;
}

int jobs_run(struct invocation *in, const char *one_for,
             int (*act)(struct link *link, int64_t job, const void *context), const void *context)
{
    CLEANUP(job_numbers_release) struct job_numbers jobs = {0};
    struct link link;
    struct err e;
    int result = EXIT_DONE;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    if (jobs_find(&link, in->args.list, in->args.count, &jobs, &e) != ERR_OK ||
        (one_for && job_numbers_only(&jobs, one_for, in->args.list[0], &e) != ERR_OK))
        result = error_print(&e);
    for (size_t i = 0; i < jobs.count && (result == EXIT_DONE || i); i++) {
        const int code = act(&link, jobs.list[i], context);
        result = result == EXIT_DONE ? code : result;
    }
    link_close(&link);
    return result;
}

struct job_action {
    enum err_code (*act)(struct link *link, int64_t job, void *context, struct err *e);
    void *context;
};

static int job_action_run(struct link *link, int64_t job, const void *context)
{
    const struct job_action *action = context;
    struct err e;
    return action->act(link, job, action->context, &e) == ERR_OK ? EXIT_DONE : error_print(&e);
}

int jobs_each(struct invocation *in,
              enum err_code (*act)(struct link *link, int64_t job, void *context, struct err *e),
              void *context)
{
    const struct job_action action = {act, context};
    return jobs_run(in, NULL, job_action_run, &action);
}
