/* `restore`: a backup replaces the database.
 *
 * First the copy is prepared beside the database: it is checked, migrated to the present schema, and the loss
 * is recorded in it. Then the present files are renamed and the copy takes their place. A crash in between
 * leaves the mark without a database, so the next start refuses, and the restore can be repeated. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "store/backup.h"
#include "store/backup_copy.h"
#include "store/commit.h"
#include "store/content.h"
#include "store/loss.h"
#include "store/open.h"
#include "store/schema.h"
#include "store/store_state.h"

static int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The mark, and what the present database says beyond the mark, as far as it can be read. */
static enum err_code restore_survey_present(struct store *s, const char *path, struct finding *found,
                                            struct err *e)
{
    CLEANUP(db_close) sqlite3 *db = NULL;
    struct content content;
    struct err ignored;

    if (mark_read(s->dir, &found->mark, &found->mark_state, e) != ERR_OK)
        return e->code;
    if (db_open_reading(&db, path, &ignored) != ERR_OK || content_read(db, &content, &ignored) != ERR_OK ||
        content.schema == 0 ||
        (*found->mark.cluster_id && strcmp(found->mark.cluster_id, content.cluster_id) != 0))
        return ERR_OK;
    memcpy(found->mark.cluster_id, content.cluster_id, ID_TEXT);
    found->mark.epoch = larger_of(found->mark.epoch, content.epoch);
    found->mark.sequence = larger_of(found->mark.sequence, content.sequence);
    found->mark.last_job = larger_of(found->mark.last_job, content.last_job);
    return ERR_OK;
}

static enum err_code restore_check_copy(const char *file, const struct finding *found, struct err *e)
{
    const struct content *content = &found->content;

    if (content->schema == 0)
        return err_set(e, ERR_DATA_LOSS, "%s: not a coordinator's database", file);
    if (content->schema > schema_latest)
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s has schema %" PRId64 ", but this program supports up to %d", file, content->schema,
                       schema_latest);
    if (*found->mark.cluster_id && strcmp(content->cluster_id, found->mark.cluster_id) != 0)
        return err_set(
            e, ERR_FAILED_PRECONDITION,
            "%s belongs to cluster %.8s, and this state directory to cluster %.8s: give it another --state",
            file, content->cluster_id, found->mark.cluster_id);
    return ERR_OK;
}

/* Records in the copy which commits it lacks, and that the loss begins with the next epoch, the one of the
 * coordinator's next start. */
static enum err_code restore_write_copy(struct store *s, const struct finding *found, const char *text,
                                        struct err *e)
{
    const int64_t epoch = larger_of(found->content.epoch, found->mark.epoch);

    s->mark = (struct mark){.epoch = epoch,
                            .sequence = larger_of(found->content.sequence, found->mark.sequence) + 1,
                            .last_job = larger_of(found->content.last_job, found->mark.last_job),
                            .jobs = found->content.jobs};
    memcpy(s->mark.cluster_id, found->content.cluster_id, ID_TEXT);
    if (schema_migrate(s->db, schema_migrations, schema_latest, NULL, e) != ERR_OK ||
        commit_prepare(s, e) != ERR_OK || open_read_loss(s, e) != ERR_OK)
        return e->code;
    struct finding beyond = *found;
    beyond.mark.last_job = s->mark.last_job;
    if (db_step_done(s->statements[ST_BEGIN], "begin", e) != ERR_OK || open_put_epoch(s, e) != ERR_OK ||
        loss_record(s, &beyond, epoch + 1, "restored", text, e) != ERR_OK ||
        db_step_done(s->statements[ST_COMMIT], "commit", e) != ERR_OK)
        return e->code;
    return ERR_OK;
}

static enum err_code restore_prepare_copy(struct store *s, const char *file, const char *tmp,
                                          struct finding *found, struct err *e)
{
    if (backup_copy(file, tmp, NULL, &found->content, e) != ERR_OK ||
        restore_check_copy(file, found, e) != ERR_OK || db_open(&s->db, tmp, DB_SYNC_FULL, e) != ERR_OK)
        return e->code;
    CLEANUP(free_text)
    char *text = xasprintf("restored from %s, which ends at commit %" PRId64 " and job %" PRId64, file,
                           found->content.sequence, found->content.last_job);
    CLEANUP(free_text) char *log = xasprintf("%s-wal", tmp);
    /* The rename moves one file, so the log must be empty. */
    if (restore_write_copy(s, found, text, e) != ERR_OK || db_checkpoint(s->db, e) != ERR_OK)
        return err_wrap(e, "%s", tmp);
    open_release(s);
    if (file_exists(log))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s is still there after the copy was closed", log);
    return ERR_OK;
}

static void restore_remove_copy(const char *tmp)
{
    static const char *const suffixes[] = {"", "-journal", "-wal", "-shm"};

    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        CLEANUP(free_text) char *path = xasprintf("%s%s", tmp, suffixes[i]);
        unlink(path);
    }
}

static void restore_print_result(const char *file, const struct finding *found, struct buf *said)
{
    buf_printf(said, "restored from %s: %s, the last is number %" PRId64 "\n", file,
               text_counted(found->content.jobs, "job").text, found->content.last_job);
    if (found->mark.last_job == found->content.last_job + 1)
        buf_printf(said, "not in it: job number %" PRId64 "; it is not assigned again\n",
                   found->mark.last_job);
    else if (found->mark.last_job > found->content.last_job)
        buf_printf(said, "not in it: job numbers %" PRId64 " to %" PRId64 "; they are not assigned again\n",
                   found->content.last_job + 1, found->mark.last_job);
}

static enum err_code restore_put_in_place(struct store *s, const char *tmp, const char *path, struct err *e)
{
    /* A crash after this line leaves no database beside the mark: the next start refuses, and the restore
     * can be repeated. A crash before mark_create leaves a database that is ahead of the mark, which is
     * accepted. */
    if (loss_set_aside(path, "replaced", e) != ERR_OK)
        return e->code;
    if (rename(tmp, path) != 0)
        return err_sys(e, errno, "rename to %s", path);
    if (file_sync_dir(s->dir, e) != ERR_OK)
        return e->code;
    return mark_create(&s->mark_file, s->dir, &s->mark, e);
}

static enum err_code restore_locked(struct store *s, const char *file, struct buf *said, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/ddp.db", s->dir);
    CLEANUP(free_text) char *tmp = xasprintf("%s/ddp.db.restore", s->dir);
    struct finding found = {0};

    if (store_lock(s, e) != ERR_OK || restore_survey_present(s, path, &found, e) != ERR_OK)
        return e->code;
    restore_remove_copy(tmp);
    if (restore_prepare_copy(s, file, tmp, &found, e) != ERR_OK) {
        open_release(s);
        restore_remove_copy(tmp);
        return e->code;
    }
    const bool replaces = access(path, F_OK) == 0;
    if (restore_put_in_place(s, tmp, path, e) != ERR_OK)
        return e->code;
    restore_print_result(file, &found, said);
    if (replaces)
        buf_printf(said, "the former database %s is kept beside it as ddp.db.replaced-...\n", path);
    return ERR_OK;
}

enum err_code backup_restore(const char *state, const char *file, struct buf *said, struct err *e)
{
    struct store s = {.lock_fd = -1, .mark_file = {.fd = -1}, .sync = DB_SYNC_FULL, .dir = xstrdup(state)};
    const enum err_code code = restore_locked(&s, file, said, e);

    open_release(&s);
    close_fd(&s.lock_fd);
    free_text(&s.dir);
    return code;
}
