/* Opening the database behind a store.
 *
 * The happy path: the file is opened and its pages are checked, it is compared with ddp.mark, migrated, and a
 * new epoch is committed and marked. When the file or its log has lost acknowledged commits, the open fails
 * with DATA_LOSS and leaves all files as they are, so that a person can choose between a backup and going on
 * without it. If the disk has no room for the epoch, the database is opened for reading, and store_resume
 * tries again. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/internal.h"
#include "store/schema.h"

#define CHECK_MS 20000
#define LOG_KEPT (256u << 20)
#define ROOM_TO_TRY (64 << 10) /* bytes; with less the log cannot be made anyway */

static char *database_path(const struct store *s)
{
    return xasprintf("%s/ddp.db", s->dir);
}

static bool has_content(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

static void close_database(struct store *s)
{
    for (int i = 0; i < ST_COUNT; i++)
        db_finalize(&s->statements[i]);
    db_close(&s->db);
}

void open_release(struct store *s)
{
    close_database(s);
    mark_close(&s->mark_file);
}

/* What there is, before anything is changed. */
static enum err_code examine(struct store *s, const char *path, struct finding *found, struct err *e)
{
    const bool passing = s->sync == DB_SYNC_OFF;

    *found = (struct finding){0};
    if (!passing && mark_read(s->dir, &found->mark, &found->mark_state, e) != ERR_OK)
        return e->code;
    if (!has_content(path))
        return loss_check(path, found, e);
    if (db_open(&s->db, path, s->sync, e) != ERR_OK)
        return e->code;
    db_checkpoint_on_close(s->db, false);
    if ((!passing && !s->deferred && content_check(s->db, CHECK_MS, e) != ERR_OK) ||
        content_read(s->db, &found->content, e) != ERR_OK)
        return err_wrap(e, "%s", path);
    return loss_check(path, found, e);
}

/* Keeps a copy of a damaged log: an expert may be able to recover the commits after the damage. */
static void keep_log(const char *path)
{
    CLEANUP(free_text) char *log = xasprintf("%s-wal", path);
    CLEANUP(free_text) char *copy = db_stamped(log, "lost");
    CLEANUP(buf_release) struct buf bytes = {0};
    struct err e;

    if (!has_content(log))
        return;
    if (file_read(log, LOG_KEPT, &bytes, &e) != ERR_OK ||
        file_write_atomic(copy, bytes.data, bytes.len, 0600, &e) != ERR_OK)
        log_warn("log_not_kept", "why=%s", LOG_Q(e.msg));
}

/* With --accept-loss: a damaged file is renamed and replaced by an empty one; a file that only lacks commits
 * is used as it is. */
static enum err_code accept(struct store *s, const char *path, struct finding *found, struct err *e)
{
    struct err ignored;

    if (s->db && content_check(s->db, CHECK_MS, &ignored) == ERR_OK &&
        content_read(s->db, &found->content, &ignored) == ERR_OK) {
        keep_log(path);
        return ERR_OK;
    }
    close_database(s);
    found->content = (struct content){0};
    return loss_set_aside(path, "damaged", e);
}

static enum err_code note_mark(struct store *s, const struct finding *found, struct err *e)
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

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* What the next commit will leave behind, from what the file and the mark say. A cluster whose database is
 * gone keeps its name, so that its nodes still belong to it. */
static void plan_mark(struct store *s, const struct finding *found)
{
    const struct content *content = &found->content;
    const char *id = content->schema ? content->cluster_id : found->mark.cluster_id;
    const int64_t epoch =
        s->mark.epoch; /* of an open that was deferred: it has been told to nobody, but used */

    s->mark = (struct mark){
        .epoch = epoch ? epoch : larger(content->epoch, found->mark.epoch) + 1,
        .sequence = larger(content->sequence, found->mark.sequence) + 1,
        .last_job = larger(content->last_job, found->mark.last_job),
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

static enum err_code write_epoch(struct store *s, const struct finding *found, const char *accepted,
                                 struct err *e)
{
    if (open_put_epoch(s, e) != ERR_OK)
        return e->code;
    if (accepted && loss_record(s, found, s->mark.epoch, "loss_accepted", accepted, e) != ERR_OK)
        return e->code;
    return note_mark(s, found, e);
}

static enum err_code start_epoch(struct store *s, const struct finding *found, const char *accepted,
                                 struct err *e)
{
    struct err ignored;

    if (open_read_loss(s, e) != ERR_OK || db_step_done(s->statements[ST_BEGIN], "begin", e) != ERR_OK)
        return e->code;
    if (write_epoch(s, found, accepted, e) != ERR_OK ||
        db_step_done(s->statements[ST_COMMIT], "commit", e) != ERR_OK) {
        if (!sqlite3_get_autocommit(s->db) && db_exec(s->db, "ROLLBACK", &ignored) != ERR_OK)
            log_debug("rollback", "why=%s", LOG_Q(ignored.msg));
        return e->code;
    }
    if (s->sync == DB_SYNC_OFF)
        return ERR_OK; /* a passing cluster ends with its process: nobody will compare */
    return mark_create(&s->mark_file, s->dir, &s->mark, e);
}

static enum err_code open_writable(struct store *s, const char *path, struct err *e)
{
    struct finding found;
    CLEANUP(free_text) char *accepted = NULL;

    if (examine(s, path, &found, e) != ERR_OK) {
        if (e->code != ERR_DATA_LOSS || !s->accept_loss)
            return e->code;
        accepted = xasprintf("--accept-loss: %s", e->msg);
        if (accept(s, path, &found, e) != ERR_OK)
            return e->code;
    }
    if (!s->db && db_open(&s->db, path, s->sync, e) != ERR_OK)
        return e->code;
    plan_mark(s, &found);
    if (schema_migrate(s->db, schema_migrations, schema_latest, path, e) != ERR_OK)
        return e->code;
    if (commit_prepare(s, e) != ERR_OK || start_epoch(s, &found, accepted, e) != ERR_OK)
        return err_wrap(e, "%s", path);
    db_checkpoint_on_close(s->db, true);
    s->deferred = false;
    return ERR_OK;
}

/* Enough for whoever only reads; the epoch that it will be is known. */
static enum err_code open_reading(struct store *s, const char *path, struct err *e)
{
    struct finding found = {0};

    s->deferred = true;
    if (mark_read(s->dir, &found.mark, &found.mark_state, e) != ERR_OK ||
        db_open_reading(&s->db, path, e) != ERR_OK || content_read(s->db, &found.content, e) != ERR_OK ||
        loss_check(path, &found, e) != ERR_OK)
        return e->code;
    if (found.content.schema != schema_latest)
        return err_set(e, ERR_RESOURCE_EXHAUSTED,
                       "%s: no room to bring its schema up to date: free some space", path);
    plan_mark(s, &found);
    if (card_key_settle(s, e) != ERR_OK)
        return e->code;
    return open_read_loss(s, e);
}

enum err_code open_database(struct store *s, struct err *e)
{
    CLEANUP(free_text) char *path = database_path(s);
    struct err reading;
    const enum err_code code = open_writable(s, path, e);

    if (code != ERR_RESOURCE_EXHAUSTED || s->sync == DB_SYNC_OFF || !has_content(path))
        return code;
    close_database(s);
    if (open_reading(s, path, &reading) != ERR_OK) {
        *e = reading;
        return e->code;
    }
    log_error("disk_full", "why=%s meaning=\"serving what is known; nothing is written until there is room\"",
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
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: no room", s->dir);
    close_database(s);
    if (open_writable(s, path, e) == ERR_OK)
        return ERR_OK;
    close_database(s);
    if (open_reading(s, path, &reading) != ERR_OK) {
        *e = reading;
        e->code = ERR_DATA_LOSS; /* there is nothing left to serve from */
    }
    return e->code;
}
