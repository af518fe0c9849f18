#include "base/limits.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

rlim_t limits_raise_files(void)
{
    struct rlimit limit;
    rlim_t before;

    if (getrlimit(RLIMIT_NOFILE, &limit))
        return 0;
    before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (before != limit.rlim_max && setrlimit(RLIMIT_NOFILE, &limit))
        log_warn("descriptor_limit", "why=%s", LOG_Q(strerror(errno)));
    return before;
}

/* Runs between fork and exec, so it makes only system calls. */
void limits_restore_files(rlim_t soft)
{
    struct rlimit limit;

    if (!soft || getrlimit(RLIMIT_NOFILE, &limit) || soft > limit.rlim_max)
        return;
    limit.rlim_cur = soft;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

enum err_code limits_want_files(rlim_t wanted, struct err *e)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted)
        return ERR_OK;
    return err_set(e, ERR_RESOURCE_EXHAUSTED,
                   "%llu open files are needed, but the limit is %llu: raise the hard limit of the agent "
                   "(ulimit -n, LimitNOFILE= of its unit)",
                   (unsigned long long)wanted, (unsigned long long)limit.rlim_cur);
}
