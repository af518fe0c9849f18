#include "client/cmd/jobs/job_number.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf/option.h"

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

#define NODES_MOST 10000

enum err_code nodes_range_parse(const char *text, int32_t *min, int32_t *max, struct err *e)
{
    char *end = NULL;
    long low = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0, high = low;

    if (end && *end == ':' && isdigit((unsigned char)end[1]))
        high = strtol(end + 1, &end, 10);
    if (!end || *end || low < 1 || high < low || high > NODES_MOST)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "invalid number of nodes: '%s'; expected N or MIN:MAX, such as 3 or 1:4", text);
    *min = (int32_t)low;
    *max = (int32_t)high;
    return ERR_OK;
}
