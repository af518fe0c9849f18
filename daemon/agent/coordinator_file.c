#include "daemon/agent/coordinator_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/paths.h"

void coordinator_file_write(struct agent *a)
{
    CLEANUP(free_text) char *text = xasprintf("%s\n", a->settings->coordinator);
    const char *dir = a->runtime_dir ? a->runtime_dir : a->settings->state;
    struct err e;

    if (a->coordinator_told)
        return;
    if (!a->coordinator_file)
        a->coordinator_file = paths_join(dir, "coordinator");
    if (!file_mkdirs(dir, a->runtime_dir ? 0711 : 0700, &e) &&
        !file_write_atomic(a->coordinator_file, text, strlen(text), 0644, &e)) {
        a->coordinator_told = true;
        return;
    }
    /* an old file would name the old address: without it workers keep the address that they were started with
     */
    log_warn("coordinator_not_told", "path=%s why=%s", LOG_Q(a->coordinator_file), LOG_Q(e.msg));
    unlink(a->coordinator_file);
}
