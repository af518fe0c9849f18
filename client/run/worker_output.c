#include "client/run/worker_output.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

enum { STREAM_OUT = 1, STREAM_ERR = 2 };

/* The streams of a local rank in "3" or "0:3,1:2". torchrun_read has checked the text. */
static int worker_output_streams(const char *text, int local_rank)
{
    if (!text)
        return 0;
    if (!strchr(text, ':'))
        return atoi(text);
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (atoi(at) == local_rank)
            return atoi(strchr(at, ':') + 1);
    return 0;
}

static bool worker_output_is_listed(const char *list, int local_rank)
{
    char *end;
    for (const char *at = list; *at; at = end) {
        long number = strtol(at, &end, 10);
        if (end == at)
            end++; /* a comma or a blank */
        else if (number == local_rank)
            return true;
    }
    return false;
}

bool worker_output_shown(const struct run_request *request, int local_rank, bool standard_error, bool *teed)
{
    int stream = standard_error ? STREAM_ERR : STREAM_OUT;
    *teed = worker_output_streams(request->tee, local_rank) & stream;
    if (request->local_ranks && !worker_output_is_listed(request->local_ranks, local_rank))
        return false;
    return *teed || !(worker_output_streams(request->redirects, local_rank) & stream);
}

/* The length of a name in Python's string.Template: letters, digits and _, not beginning with a digit. */
static size_t template_name_length(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    return *s >= '0' && *s <= '9' ? 0 : strspn(s, letters);
}

/* Whether s, behind a '$', begins with the name, in braces or without. *length: of that. */
static bool template_names(const char *s, const char *name, size_t *length)
{
    const bool braces = *s == '{';
    const size_t n = template_name_length(s + braces);
    *length = n + (braces ? 2 : 0);
    return n == strlen(name) && strncmp(s + braces, name, n) == 0 && (!braces || s[n + 1] == '}');
}

char *worker_output_label(const char *role, int rank, int local_rank, const char *pattern)
{
    CLEANUP(buf_release) struct buf out = {0};
    char number[16], local[16], host[HOST_NAME_MAX + 1] = "";
    const struct {
        const char *name, *value;
    } macros[] = {{"role_name", role}, {"rank", number}, {"local_rank", local}, {"hostname", host}};
    if (!pattern || !*pattern) /* torchrun's default */
        return xasprintf("[%s%d]:", role, local_rank);
    snprintf(number, sizeof(number), "%d", rank);
    snprintf(local, sizeof(local), "%d", local_rank);
    (void)gethostname(host, sizeof(host) - 1);
    while (*pattern) {
        size_t i = *pattern == '$' ? 0 : ARRAY_LEN(macros), length = 0;
        while (i < ARRAY_LEN(macros) && !template_names(pattern + 1, macros[i].name, &length))
            i++;
        if (i < ARRAY_LEN(macros)) {
            buf_puts(&out, macros[i].value);
            pattern += 1 + length;
        } else {
            pattern += pattern[0] == '$' && pattern[1] == '$'; /* "$$" is a '$' */
            buf_putc(&out, *pattern++);
        }
    }
    return buf_steal(&out);
}

void worker_output_add(struct log_tail *t, const struct run_request *request, const Ddp__V1__JobStatus *job,
                       const char *node)
{
    for (size_t i = 0; i < job->n_ranks; i++) {
        const Ddp__V1__RankStatus *r = job->ranks[i];
        if (strcmp(r->node, node) != 0)
            continue;
        const struct log_tail_place place = {r->first_generation ? r->first_generation : job->generation,
                                             r->first_generation ? r->first_local_rank : r->local_rank};
        CLEANUP(free_text)
        char *label = worker_output_label(request->role, r->rank, r->local_rank, request->prefix);
        for (int stream = 0; stream < 2; stream++) {
            bool teed;
            if (worker_output_shown(request, r->local_rank, stream, &teed))
                log_tail_add(t, r->rank, place, stream, teed ? label : NULL);
        }
    }
}
