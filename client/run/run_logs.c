#include "client/run/run_logs.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/paths.h"

enum err_code run_logs_claim(const char *dir, const char *run_id, char **out, struct err *e)
{
    CLEANUP(free_text) char *here = getcwd(NULL, 0);
    CLEANUP(free_text) char *base = paths_join(here ? here : "/", dir);
    CLEANUP(free_text) char *id = xasprintf("%.64s", run_id);
    for (char *at = id; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
            *at = '_';
    CLEANUP(free_text) char *path = xasprintf("%s/%s_XXXXXX", base, id);
    if (file_mkdirs(base, 0777, e) != ERR_OK)
        return e->code;
    if (!mkdtemp(path))
        return err_sys(e, errno, "%s", path);
    *out = steal(path);
    return ERR_OK;
}

void run_logs_attempt(const char *logs, int64_t job, int64_t generation, const char *node)
{
    CLEANUP(free_text) char *path = xasprintf("%s/attempt_%lld", logs, (long long)generation - 1);
    CLEANUP(free_text)
    char *target = xasprintf("%lld/generation_%lld/%s", (long long)job, (long long)generation, node);
    if (symlink(target, path) != 0)
        return; /* such as EEXIST: an earlier look made the link */
}
