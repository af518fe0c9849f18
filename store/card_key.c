#include "store/card_key.h"

/* The key that seals the cards on the nodes (store_card_key). It is in the database, so that a backup of the
 * database suffices, and in <dir>/card.key, so that the cards stay readable if the database is lost. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/store_state.h"

#define KEY_TEXT (2 * SEAL_KEY + 1)

static enum err_code key_from_database(struct store *s, bool *found, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;

    *found = false;
    if (db_prepare(s->db, "SELECT value FROM meta WHERE key='card_key'", &st, e) != ERR_OK)
        return e->code;
    const int rc = sqlite3_step(st);
    if (rc == SQLITE_DONE)
        return ERR_OK;
    if (rc != SQLITE_ROW)
        return db_error(s->db, rc, e, "meta");
    *found = hex_decode(s->card_key, sizeof s->card_key, (const char *)sqlite3_column_text(st, 0));
    return *found ? ERR_OK : err_set(e, ERR_DATA_LOSS, "the card_key in the database is invalid");
}

static bool key_from_file(struct store *s, const char *path)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct err e;

    if (!file_exists(path))
        return false;
    if (file_read(path, KEY_TEXT + 1, &text, &e) != ERR_OK || text.len != KEY_TEXT ||
        text.data[KEY_TEXT - 1] != '\n') {
        log_warn("card_key_unreadable", "path=%s", LOG_Q(path));
        return false;
    }
    text.data[KEY_TEXT - 1] = '\0';
    return hex_decode(s->card_key, sizeof s->card_key, text.data);
}

static enum err_code card_key_put(struct store *s, const char *key, struct err *e)
{
    CLEANUP(free_text) char *sql = xasprintf("INSERT INTO meta VALUES('card_key','%s')", key);

    return db_exec(s->db, sql, e);
}

/* The file only matters if the database is lost, so a failure to write it is not an error. */
static void card_key_save_file(const struct store *s, const char *path, const char *key)
{
    CLEANUP(free_text) char *text = xasprintf("%s\n", key);
    struct err e;

    (void)s;
    if (file_write_atomic(path, text, strlen(text), 0600, &e) != ERR_OK)
        log_warn("card_key_not_saved", "why=%s", LOG_Q(e.msg));
}

enum err_code card_key_settle(struct store *s, struct err *e)
{
    CLEANUP(free_text) char *path = xasprintf("%s/card.key", s->dir);
    uint8_t kept[SEAL_KEY];
    char key[KEY_TEXT];
    bool found;

    const bool in_file = s->sync != DB_SYNC_OFF && key_from_file(s, path);
    memcpy(kept, s->card_key, sizeof kept);
    if (key_from_database(s, &found, e) != ERR_OK)
        return e->code;
    if (!found && !in_file)
        id_random(s->card_key, sizeof s->card_key);
    hex_encode(key, s->card_key, sizeof s->card_key);
    if (s->deferred)
        return ERR_OK;
    if (!found && card_key_put(s, key, e) != ERR_OK)
        return e->code;
    if (s->sync != DB_SYNC_OFF && (!in_file || memcmp(kept, s->card_key, sizeof kept) != 0))
        card_key_save_file(s, path, key);
    return ERR_OK;
}
