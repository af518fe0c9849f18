#include "client/cmd/jobs/job_reference.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/cmd/jobs/job_number.h"
#include "client/job_status.h"

#define CANDIDATES_SHOWN 8

/* "3-5", "#3-5", "3-#5" */
static bool reference_is_range(const char *text)
{
    text += *text == '#';
    size_t digits = strspn(text, "0123456789");
    if (!digits || text[digits] != '-')
        return false;
    text += digits + 1;
    text += *text == '#';
    digits = strspn(text, "0123456789");
    return digits && !text[digits];
}

static enum err_code reference_parse_range(const char *text, struct job_reference *out, struct err *e)
{
    const char *dash = strchr(text, '-');
    CLEANUP(free_text) char *first = xasprintf("%.*s", (int)(dash - text), text);
    if (job_number_parse(first, &out->first, e) != ERR_OK ||
        job_number_parse(dash + 1, &out->last, e) != ERR_OK)
        return e->code;
    if (out->first > out->last)
        return err_set(e, ERR_INVALID_ARGUMENT, "range of jobs '%s': its end is before its start", text);
    out->kind = REFERENCE_RANGE;
    return ERR_OK;
}

/* The characters that a job file allows in a name. */
static bool reference_is_name(const char *text)
{
    if (!isalpha((unsigned char)*text) && strspn(text, "0123456789") == strlen(text))
        return false;
    if (!isalnum((unsigned char)*text) || strlen(text) > 64)
        return false;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            return false;
    return true;
}

enum err_code job_reference_parse(const char *text, struct job_reference *out, struct err *e)
{
    *out = (struct job_reference){.text = text};
    if (reference_is_range(text))
        return reference_parse_range(text, out, e);
    if (strcmp(text, "last") == 0) {
        out->kind = REFERENCE_LAST;
    } else if (reference_is_name(text)) {
        out->kind = REFERENCE_NAME;
    } else {
        if (job_number_parse(text, &out->first, e) != ERR_OK)
            return e->code;
        out->last = out->first;
    }
    return ERR_OK;
}

void job_numbers_add(struct job_numbers *numbers, int64_t job)
{
    for (size_t i = 0; i < numbers->count; i++)
        if (numbers->list[i] == job)
            return;
    numbers->list = array_grow(numbers->list, numbers->count, &numbers->cap, sizeof(*numbers->list));
    numbers->list[numbers->count++] = job;
}

void job_numbers_remove(struct job_numbers *numbers, size_t index)
{
    numbers->count--;
    memmove(numbers->list + index, numbers->list + index + 1,
            (numbers->count - index) * sizeof(*numbers->list));
}

void job_numbers_release(struct job_numbers *numbers)
{
    free(numbers->list);
    *numbers = (struct job_numbers){0};
}

/* "3 (failed), 7 (succeeded)" */
static enum err_code reference_refuse_candidates(const char *name, Ddp__V1__JobStatus *const *jobs,
                                                 size_t count, bool ended, struct err *e)
{
    CLEANUP(buf_release) struct buf list = {0};
    size_t found = 0;
    for (size_t i = count; i-- > 0;) {
        if (strcmp(jobs[i]->name, name) != 0 || job_status_ended(jobs[i]) != ended)
            continue;
        if (found++ < CANDIDATES_SHOWN)
            buf_printf(&list, "%s%lld (%s)", list.len ? ", " : "", (long long)jobs[i]->job, jobs[i]->state);
    }
    if (found > CANDIDATES_SHOWN)
        buf_printf(&list, " and %zu older ones", found - CANDIDATES_SHOWN);
    return err_set(e, ERR_INVALID_ARGUMENT, "%zu jobs have the name '%s'; give the number: %s", found, name,
                   list.data);
}

static enum err_code reference_find_name(const char *name, Ddp__V1__JobStatus *const *jobs, size_t count,
                                         struct job_numbers *out, struct err *e)
{
    for (int ended = 0; ended < 2; ended++) {
        const Ddp__V1__JobStatus *only = NULL;
        size_t found = 0;
        for (size_t i = 0; i < count; i++)
            if (strcmp(jobs[i]->name, name) == 0 && job_status_ended(jobs[i]) == (ended == 1)) {
                only = jobs[i];
                found++;
            }
        if (found > 1)
            return reference_refuse_candidates(name, jobs, count, ended == 1, e);
        if (found == 1) {
            job_numbers_add(out, only->job);
            return ERR_OK;
        }
    }
    return err_set(e, ERR_NOT_FOUND, "no job has the name '%s': `ddpctl status --all` lists the jobs", name);
}

static enum err_code reference_find_last(Ddp__V1__JobStatus *const *jobs, size_t count, const char *user,
                                         struct job_numbers *out, struct err *e)
{
    for (size_t i = count; i-- > 0;)
        if (strcmp(jobs[i]->user, user) == 0) {
            job_numbers_add(out, jobs[i]->job);
            return ERR_OK;
        }
    return err_set(e, ERR_NOT_FOUND, "last: there is no job of %s; `ddpctl status --all` lists the jobs",
                   user);
}

enum err_code job_reference_resolve(const struct job_reference *reference, Ddp__V1__JobStatus *const *jobs,
                                    size_t count, const char *user, struct job_numbers *out, struct err *e)
{
    bool any = false;
    switch (reference->kind) {
    case REFERENCE_NUMBER:
        job_numbers_add(out, reference->first);
        return ERR_OK;
    case REFERENCE_RANGE:
        for (size_t i = 0; i < count; i++)
            if (jobs[i]->job >= reference->first && jobs[i]->job <= reference->last) {
                job_numbers_add(out, jobs[i]->job);
                any = true;
            }
        return any ? ERR_OK
                   : err_set(e, ERR_NOT_FOUND, "there are no jobs %s: `ddpctl status --all` lists the jobs",
                             reference->text);
    case REFERENCE_LAST:
        return reference_find_last(jobs, count, user, out, e);
    case REFERENCE_NAME:
        break;
    }
    return reference_find_name(reference->text, jobs, count, out, e);
}

enum err_code job_numbers_only(const struct job_numbers *numbers, const char *command, const char *text,
                               struct err *e)
{
    CLEANUP(buf_release) struct buf list = {0};
    const size_t shown = numbers->count > CANDIDATES_SHOWN ? CANDIDATES_SHOWN : numbers->count;
    if (numbers->count == 1)
        return ERR_OK;
    for (size_t i = 0; i < shown; i++)
        buf_printf(&list, "%s%lld", text_separator(i, numbers->count, " and "), (long long)numbers->list[i]);
    return err_set(e, ERR_INVALID_ARGUMENT, "%s takes one job, but '%s' means %zu: %s%s", command, text,
                   numbers->count, list.data, shown < numbers->count ? ", ..." : "");
}
