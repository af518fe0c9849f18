#include "daemon/coordinator/backup_commands.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "store/backup.h"

#define AUTOMATIC_SHOWN 5 /* of backups that were not made by hand, the newest */

enum err_code backup_command(const struct config *c, const char *file, struct err *e)
{
    CLEANUP(free_text) char *dir = config_backup_dir(c);
    CLEANUP(free_text) char *to = file ? xstrdup(file) : backup_name(dir);
    if (backup_make(c->state, to, NULL, e) != ERR_OK)
        return e->code;
    puts(to);
    return ERR_OK;
}

enum err_code restore_command(const struct config *c, const char *file, struct err *e)
{
    CLEANUP(buf_release) struct buf summary = {0};
    if (backup_restore(c->state, file, &summary, e) != ERR_OK)
        return e->code;
    fputs(summary.data, stdout);
    return ERR_OK;
}

static void backups_put(const struct backup *list, size_t count, struct buf *out)
{
    size_t automatic = 0;
    for (size_t i = 0; i < count; i++) {
        automatic += list[i].automatic;
        if (list[i].automatic && automatic > AUTOMATIC_SHOWN)
            continue;
        buf_printf(out, "    %s  (%lld min old, %s, the last is number %lld)\n", list[i].path,
                   (long long)((clock_wall_ms() - list[i].time_ms) / 60000),
                   text_counted(list[i].jobs, "job").text, (long long)list[i].last_job);
    }
    if (automatic > AUTOMATIC_SHOWN)
        buf_printf(out, "    and %zu older automatic backups\n", automatic - AUTOMATIC_SHOWN);
}

void restore_put_choices(const struct config *c, struct buf *out)
{
    CLEANUP(free_text) char *dir = config_backup_dir(c);
    struct backup *list = NULL, *rescued = NULL;
    size_t count = 0, rescues = 0;
    struct err e;
    buf_puts(out, "Possible causes: a damaged disk, a damaged write-ahead log (ddp.db-wal), a deleted file,"
                  " or an older copy in its place.\n"
                  "To continue, use the same --state or --config with one of these commands:\n");
    /* A short list would offer an older backup as the newest. */
    if (backup_list_rescued(c->state, &rescued, &rescues, &e) != ERR_OK)
        buf_printf(out, "  The saved databases cannot be listed: %s\n", e.msg);
    /* First the commits that were saved from a deleted database: no backup is newer. */
    if (rescues)
        buf_puts(out, "  ddp-coordinator restore FILE     restores what was saved of a deleted database:\n");
    backups_put(rescued, rescues, out);
    if (backup_list_all(dir, c->state, &list, &count, &e) != ERR_OK)
        buf_printf(out,
                   "  ddp-coordinator restore FILE     restores a backup; the backups cannot be listed: %s\n",
                   e.msg);
    else
        buf_printf(out, "  ddp-coordinator restore FILE     restores a backup; in %s:%s\n", dir,
                   count ? "" : " none");
    backups_put(list, count, out);
    buf_puts(out, "  ddp-coordinator --accept-loss    continues without the missing commits\n");
    backups_free(list, count);
    backups_free(rescued, rescues);
}
