#include "store/open.h"

/* Opening the database behind a store.
 *
 * The happy path: the file is opened and its pages are checked; it is compared with ddp.mark and
 * migrated; a new epoch is committed, and then written to the mark. When the file or its log has lost
 * acknowledged commits, the open fails with DATA_LOSS and leaves all files as they are, so that a person
 * can choose between a backup and continuing without the commits. If the disk has no room for the epoch,
 * the database is opened for reading, and store_resume tries again. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/backup_copy.h"
#include "store/card_key.h"
#include "store/commit.h"
#include "store/content.h"
#include "store/loss.h"
#include "store/schema.h"
#include "store/store_state.h"

#define CHECK_MS 20000
#define LOG_KEPT (256u << 20)
#define ROOM_TO_TRY (64 << 10) /* bytes; with less space the log cannot be made */

static char *database_path(const struct store *s)
{
    return xasprintf("%s/ddp.db", s->dir);
}

static bool file_has_content(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

static void database_close(struct store *s)
{
    for (int i = 0; i < ST_COUNT; i++)
        db_finalize(&s->statements[i]);
    db_close(&s->db);
}

void open_release(struct store *s)
{
    database_close(s);
    mark_close(&s->mark_file);
}

/* Reads the mark and the database before anything is changed. */
static enum err_code database_examine(struct store *s, const char *path, struct finding *found, struct err *e)
{
    const bool temporary = s->sync == DB_SYNC_OFF;

    *found = (struct finding){0};
    if (!temporary && mark_read(s->dir, &found->mark, &found->mark_state, e) != ERR_OK)
        return e->code;
    if (!file_has_content(path))
        return loss_check(path, found, e);
    if (db_open(&s->db, path, s->sync, e) != ERR_OK)
        return e->code;
    /* A file that is refused stays as it is, its log included. */
    db_checkpoint_on_close(s->db, false);
    if ((!temporary && !s->deferred && content_check(s->db, CHECK_MS, NULL, e) != ERR_OK) ||
        content_read(s->db, &found->content, e) != ERR_OK)
        return err_wrap(e, "%s", path);
    return loss_check(path, found, e);
}

/* Keeps a copy of a damaged log: an expert may be able to recover the commits after the damage. */
static void loss_keep_log(const char *path)
{
    CLEANUP(free_text) char *log = xasprintf("%s-wal", path);
    CLEANUP(free_text) char *copy = db_stamped(log, "lost");
    CLEANUP(buf_release) struct buf bytes = {0};
    struct err e;

    if (!file_has_content(log))
        return;
    if (file_read(log, LOG_KEPT, &bytes, &e) != ERR_OK ||
        file_write_atomic(copy, bytes.data, bytes.len, 0600, &e) != ERR_OK)
        log_warn("log_not_kept", "why=%s", LOG_Q(e.msg));
}

/* With --accept-loss: a damaged file is renamed and replaced by an empty one; a file that only lacks commits
 * is used as it is. */
static enum err_code loss_accept(struct store *s, const char *path, struct finding *found, struct err *e)
{
    struct err ignored;

    if (s->db && content_check(s->db, CHECK_MS, NULL, &ignored) == ERR_OK &&
        content_read(s->db, &found->content, &ignored) == ERR_OK) {
        loss_keep_log(path);
        return ERR_OK;
    }
    database_close(s);
    found->content = (struct content){0};
    return loss_set_aside(path, "damaged", e);
}

/* Reports a mark that is damaged or missing, since then this start cannot detect lost commits. */
static enum err_code epoch_note_mark(struct store *s, const struct finding *found, struct err *e)
{
    const bool damaged = found->mark_state == MARK_DAMAGED;
    struct event_record event = {.time_ms = clock_wall_ms()};

    if (s->sync == DB_SYNC_OFF || found->mark_state == MARK_GOOD || found->content.sequence == 0)
        return ERR_OK;
    event.what = (char *)(uintptr_t)(damaged ? "mark_damaged" : "mark_missing");
    event.text = (char *)(uintptr_t)(damaged ? "ddp.mark is damaged: this start could not tell whether the "
                                               "database is whole"
                                             : "ddp.mark is missing: this start could not tell whether the "
                                               "database is whole");
    log_warn(event.what, "meaning=%s", LOG_Q(event.text));
    if (loss_put(s, "restored", RECORDS_RESTORED, e) != ERR_OK)
        return e->code;
    return commit_event(s, &event, e);
}

enum err_code open_read_loss(struct store *s, struct err *e)
{
    const char *sql = "SELECT CAST(value AS INTEGER) FROM meta WHERE key=";
    CLEANUP(free_text) char *epoch = xasprintf("%s'loss_epoch'", sql);
    CLEANUP(free_text) char *first = xasprintf("%s'loss_first_job'", sql);
    CLEANUP(free_text) char *last = xasprintf("%s'loss_last_job'", sql);

    if (db_int(s->db, epoch, 0, &s->loss.epoch, e) != ERR_OK ||
        db_int(s->db, first, 1, &s->loss.first_job, e) != ERR_OK ||
        db_int(s->db, last, 0, &s->loss.last_job, e) != ERR_OK)
        return e->code;
    return ERR_OK;
}

static int64_t int64_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The mark of the next commit, from the file and the present mark. A cluster whose database is gone keeps
 * its id, so that its nodes still belong to it. */
static void epoch_plan_mark(struct store *s, const struct finding *found)
{
    const struct content *content = &found->content;
    const char *id = content->schema ? content->cluster_id : found->mark.cluster_id;
    const int64_t epoch = s->mark.epoch; /* of a deferred open: it is not durable, but was used already */

    s->mark = (struct mark){
        .epoch = epoch ? epoch : int64_max(content->epoch, found->mark.epoch) + 1,
        .sequence = int64_max(content->sequence, found->mark.sequence) + 1,
        .last_job = int64_max(content->last_job, found->mark.last_job),
        .jobs = content->jobs,
    };
    if (*id)
        memcpy(s->mark.cluster_id, id, ID_TEXT);
    else
        id_text(s->mark.cluster_id);
}

enum err_code open_put_epoch(struct store *s, struct err *e)
{
    CLEANUP(free_text)
    char *sql = xasprintf("INSERT INTO meta VALUES('cluster_id','%s') ON CONFLICT DO NOTHING;"
                          "INSERT INTO meta VALUES('epoch','%" PRId64
                          "') ON CONFLICT(key) DO UPDATE SET value=excluded.value",
                          s->mark.cluster_id, s->mark.epoch);

    if (db_exec(s->db, sql, e) != ERR_OK || card_key_settle(s, e) != ERR_OK)
        return e->code;
    return commit_sequence(s, s->mark.sequence, e);
}

static enum err_code epoch_write(struct store *s, const struct finding *found, const char *accepted,
                                 struct err *e)
{
    if (open_put_epoch(s, e) != ERR_OK)
        return e->code;
    if (accepted && loss_record(s, found, s->mark.epoch, "loss_accepted", accepted, e) != ERR_OK)
        return e->code;
    return epoch_note_mark(s, found, e);
}

static enum err_code epoch_start(struct store *s, const struct finding *found, const char *accepted,
                                 struct err *e)
{
    struct err ignored;

    if (open_read_loss(s, e) != ERR_OK || db_step_done(s->statements[ST_BEGIN], "begin", e) != ERR_OK)
        return e->code;
    if (epoch_write(s, found, accepted, e) != ERR_OK ||
        db_step_done(s->statements[ST_COMMIT], "commit", e) != ERR_OK) {
        if (!sqlite3_get_autocommit(s->db) && db_exec(s->db, "ROLLBACK", &ignored) != ERR_OK)
            log_debug("rollback", "why=%s", LOG_Q(ignored.msg));
        return e->code;
    }
    if (s->sync == DB_SYNC_OFF)
        return ERR_OK; /* a temporary cluster ends with its process, so its mark would never be read */
    return mark_create(&s->mark_file, s->dir, &s->mark, e);
}

static enum err_code database_open_writable(struct store *s, const char *path, struct err *e)
{
    struct finding found;
    CLEANUP(free_text) char *accepted = NULL;

    if (database_examine(s, path, &found, e) != ERR_OK) {
        if (e->code != ERR_DATA_LOSS || !s->accept_loss)
            return e->code;
        accepted = xasprintf("--accept-loss: %s", e->msg);
        if (loss_accept(s, path, &found, e) != ERR_OK)
            return e->code;
    }
    if (!s->db && db_open(&s->db, path, s->sync, e) != ERR_OK)
        return e->code;
    epoch_plan_mark(s, &found);
    if (schema_migrate(s->db, schema_migrations, schema_latest, path, e) != ERR_OK)
        return e->code;
    if (commit_prepare(s, e) != ERR_OK || epoch_start(s, &found, accepted, e) != ERR_OK)
        return err_wrap(e, "%s", path);
    db_checkpoint_on_close(s->db, true);
    s->deferred = false;
    return ERR_OK;
}

/* On a full disk: opens the database for reading, with the epoch that it will have once it is writable. */
static enum err_code database_open_reading(struct store *s, const char *path, struct err *e)
{
    struct finding found = {0};

    s->deferred = true;
    if (mark_read(s->dir, &found.mark, &found.mark_state, e) != ERR_OK ||
        db_open_reading(&s->db, path, e) != ERR_OK || content_read(s->db, &found.content, e) != ERR_OK ||
        loss_check(path, &found, e) != ERR_OK)
        return e->code;
    if (found.content.schema != schema_latest)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: no space to update its schema: free some space", path);
    epoch_plan_mark(s, &found);
    if (card_key_settle(s, e) != ERR_OK)
        return e->code;
    return open_read_loss(s, e);
}

enum err_code open_database(struct store *s, struct err *e)
{
    CLEANUP(free_text) char *path = database_path(s);
    struct err reading;
    const enum err_code code = database_open_writable(s, path, e);

    if (code != ERR_RESOURCE_EXHAUSTED || s->sync == DB_SYNC_OFF || !file_has_content(path))
        return code;
    database_close(s);
    if (database_open_reading(s, path, &reading) != ERR_OK) {
        *e = reading;
        return e->code;
    }
    log_error(store_room(s) < STORE_ROOM_LEAST ? "disk_full" : "database_not_written",
              "why=%s meaning=\"answering from the known records until the database can be written\"",
              LOG_Q(e->msg));
    return ERR_OK;
}

enum err_code store_resume(struct store *s, struct err *e)
{
    CLEANUP(free_text) char *path = database_path(s);
    struct err reading;

    if (!s->deferred)
        return ERR_OK;
    if (store_room(s) < ROOM_TO_TRY)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: no space left", s->dir);
    database_close(s);
    if (database_open_writable(s, path, e) == ERR_OK)
        return ERR_OK;
    database_close(s);
    if (database_open_reading(s, path, &reading) != ERR_OK) {
        *e = reading;
        e->code = ERR_DATA_LOSS; /* no database is left to answer from */
    }
    return e->code;
}
