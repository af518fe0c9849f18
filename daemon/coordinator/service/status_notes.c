#include "daemon/coordinator/service/status_notes.h"

#include <stdlib.h>

#include "base/mem.h"
#include "daemon/coordinator/service/backups.h"
#include "daemon/coordinator/service/commit_queue.h"
#include "daemon/coordinator/service/convert.h"
#include "daemon/coordinator/service/service_state.h"

/* After an older database was restored without cards, or if an agent was moved from another cluster. */
static char **status_notes_add_unknown_jobs(struct service *s, char **notes)
{
    size_t count;
    const char **names = core_node_names(s->core, &count);

    for (size_t i = 0; i < count; i++) {
        struct core_node_status node = {0};
        struct err e;
        if (core_node_status(s->core, names[i], service_now(), &node, &e) != ERR_OK)
            continue;
        for (size_t k = 0; k < node.unknown_count; k++) {
            CLEANUP(free_text)
            char *text = xasprintf(
                "%s runs job %lld, which this coordinator does not know: to end all jobs on that node, run ddp-agent --rejoin there",
                names[i], (long long)node.unknown_jobs[k]);
            notes = strv_append(notes, text);
        }
        core_node_status_release(&node);
    }
    free(names);
    return notes;
}

char **status_notes(struct service *s)
{
    char **notes = NULL;
    int64_t room;

    if (!s->commit_blocked && !commit_queue_has_room(s, &room)) {
        CLEANUP(free_text)
        char *text =
            xasprintf("disk full at %s: %lld MiB are left, so new jobs are refused; running jobs continue",
                      s->options->state, (long long)(room >> 20));
        notes = strv_append(notes, text);
    }
    if (s->commit_blocked) {
        CLEANUP(free_text)
        char *text = s->obstacle == OBSTACLE_FULL ? xasprintf("disk full at %s", s->options->state)
                                                  : xstrdup(s->obstacle_text);
        CLEANUP(free_text)
        char *note =
            xasprintf("%s: nothing is written and new jobs are refused; running jobs continue", text);
        notes = strv_append(notes, note);
    }
    if (s->backups && backups_problem(s->backups)) {
        CLEANUP(free_text)
        char *text = xasprintf("the last backup of the database failed: %s", backups_problem(s->backups));
        notes = strv_append(notes, text);
    }
    return status_notes_add_unknown_jobs(s, notes);
}
