#include "client/cmd/jobs/job_number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"

enum err_code job_number_parse(const char *text, int64_t *job, struct err *e)
{
    const char *digits = text + (*text == '#');
    char *end;
    errno = 0;
    long long value = strtoll(digits, &end, 10);
    if (*digits < '1' || *digits > '9' || *end || errno)
        return err_set(e, ERR_INVALID_ARGUMENT, "invalid job number '%s': `ddpctl status` lists the jobs",
                       text);
    *job = value;
    return ERR_OK;
}

enum err_code job_rank_parse(const char *text, int64_t *rank, struct err *e)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits] || digits > 7)
        return option_refuse("rank", "a number", text, e);
    *rank = strtol(text, NULL, 10);
    return ERR_OK;
}
