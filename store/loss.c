#include "store/loss.h"

/* Detects a database that lacks acknowledged commits, and refuses it or records the accepted loss. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/backup_copy.h"
#include "store/commit.h"
#include "store/content.h"
#include "store/schema.h"
#include "store/store_state.h"

/* "jobs 19 to 40 are missing" */
static void loss_name_jobs(char *out, size_t size, int64_t first, int64_t last)
{
    if (first < last)
        snprintf(out, size, "jobs %" PRId64 " to %" PRId64 " are missing", first, last);
    else if (first == last)
        snprintf(out, size, "job %" PRId64 " is missing", last);
    else
        snprintf(out, size, "no job is missing, but their latest changes are");
}

enum err_code loss_check(const char *path, const struct finding *found, struct err *e)
{
    const struct mark *mark = &found->mark;
    const struct content *content = &found->content;
    char jobs[96];

    if (found->mark_state != MARK_GOOD)
        return ERR_OK; /* nothing to compare with; epoch_note_mark reports it */
    if (content->schema > schema_latest)
        return ERR_OK; /* schema_migrate will refuse it for its schema */
    if (content->schema == 0)
        return err_set(e, ERR_DATA_LOSS,
                       "%s is missing or empty, but ddp.mark beside it names commit %" PRId64 ": %" PRId64
                       " jobs up to number %" PRId64 " are missing",
                       path, mark->sequence, mark->jobs, mark->last_job);
    if (strcmp(content->cluster_id, mark->cluster_id) != 0)
        return err_set(e, ERR_DATA_LOSS, "%s belongs to cluster %.8s, but ddp.mark beside it to cluster %.8s",
                       path, content->cluster_id, mark->cluster_id);
    /* The database may be one commit ahead: a crash after the commit and before the mark. */
    if (content->sequence >= mark->sequence)
        return ERR_OK;
    loss_name_jobs(jobs, sizeof jobs, content->last_job + 1, mark->last_job);
    return err_set(e, ERR_DATA_LOSS,
                   "%s ends at commit %" PRId64 ", but commit %" PRId64 " was acknowledged: %" PRId64
                   " commits are lost, %s",
                   path, content->sequence, mark->sequence, mark->sequence - content->sequence, jobs);
}

enum err_code loss_check_moved(struct store *s, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/ddp.db", s->dir);
    CLEANUP(free_text) char *to = db_stamped(path, "rescued");
    struct content content;
    struct err why;
    int moved = 0;

    /* The pages can still be read through the open file, so they are saved while this process lives. */
    if (s->mark_file.fd < 0 ||
        sqlite3_file_control(s->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || !moved)
        return ERR_OK;
    if (backup_pages(s->db, to, NULL, &content, &why) == ERR_OK)
        return err_set(
            e, ERR_DATA_LOSS,
            "%s was deleted or replaced while in use; all acknowledged commits are in %s: restore that file",
            path, to);
    return err_set(e, ERR_DATA_LOSS,
                   "%s was deleted or replaced while it is in use, and could not be saved: %s", path,
                   why.msg);
}

static enum err_code loss_move_file(const char *path, const char *to, const char *suffix, struct err *e)
{
    CLEANUP(free_text) char *from = xasprintf("%s%s", path, suffix);
    CLEANUP(free_text) char *target = xasprintf("%s%s", to, suffix);

    if (rename(from, target) != 0 && errno != ENOENT)
        return err_sys(e, errno, "rename %s", from);
    return ERR_OK;
}

enum err_code loss_set_aside(const char *path, const char *why, struct err *e)
{
    CLEANUP(free_text) char *to = db_stamped(path, why);

    /* The log goes first. After a crash in between, a database without its log is older than the mark,
     * which is detected; a log without its database would be replayed into whatever file came next. */
    if (loss_move_file(path, to, "-wal", e) != ERR_OK || loss_move_file(path, to, "-shm", e) != ERR_OK ||
        loss_move_file(path, to, "", e) != ERR_OK)
        return e->code;
    if (file_exists(to))
        log_warn("database_set_aside", "now=%s", LOG_Q(to));
    return ERR_OK;
}

enum err_code loss_put(struct store *s, const char *key, int64_t value, struct err *e)
{
    CLEANUP(free_text)
    char *sql = xasprintf("INSERT INTO meta VALUES('%s','%" PRId64
                          "') ON CONFLICT(key) DO UPDATE SET value=excluded.value",
                          key, value);

    return db_exec(s->db, sql, e);
}

/* Job numbers that users and nodes may know are not given to other jobs. */
static enum err_code loss_reserve_jobs(struct store *s, int64_t last, struct err *e)
{
    CLEANUP(free_text)
    char *sql = xasprintf("UPDATE sqlite_sequence SET seq=max(seq,%" PRId64 ") WHERE name='job';"
                          "INSERT INTO sqlite_sequence(name,seq) SELECT 'job',%" PRId64
                          " WHERE NOT EXISTS(SELECT 1 FROM sqlite_sequence WHERE name='job')",
                          last, last);

    return db_exec(s->db, sql, e);
}

/* Receivers that know the ids of lost notices would take new notices with these ids for repetitions. */
static enum err_code loss_skip_notices(struct store *s, struct err *e)
{
    return db_exec(s->db,
                   "UPDATE sqlite_sequence SET seq=seq+1000000000 WHERE name='notice';"
                   "INSERT INTO sqlite_sequence(name,seq) SELECT 'notice',1000000000"
                   " WHERE NOT EXISTS(SELECT 1 FROM sqlite_sequence WHERE name='notice')",
                   e);
}

enum err_code loss_record(struct store *s, const struct finding *found, int64_t epoch, const char *what,
                          const char *text, struct err *e)
{
    const int64_t last = found->mark.last_job;
    int64_t first = found->content.last_job + 1;
    struct event_record event = {
        .time_ms = clock_wall_ms(), .what = (char *)(uintptr_t)what, .text = (char *)(uintptr_t)text};

    if (s->loss.epoch && s->loss.first_job <= s->loss.last_job && s->loss.first_job < first)
        first = s->loss.first_job; /* of an earlier loss: nodes may still have those jobs, too */
    s->loss = (struct store_loss){.epoch = epoch, .first_job = first, .last_job = last};
    if (loss_reserve_jobs(s, last, e) != ERR_OK || loss_skip_notices(s, e) != ERR_OK ||
        loss_put(s, "loss_epoch", epoch, e) != ERR_OK || loss_put(s, "loss_first_job", first, e) != ERR_OK ||
        loss_put(s, "loss_last_job", last, e) != ERR_OK ||
        loss_put(s, "restored", found->mark_state == MARK_GOOD ? RECORDS_NUMBERED : RECORDS_RESTORED, e) !=
            ERR_OK)
        return e->code;
    log_warn(what, "epoch=%" PRId64 " what=%s", epoch, LOG_Q(text));
    return commit_event(s, &event, e);
}
