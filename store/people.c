#include <stdlib.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/load.h"
#include "store/store_state.h"
#include "store/tables.h"

/* Users and the audit record: read and trimmed here, written by commit.c. */

enum err_code store_users(struct store *s, struct user_record **out, size_t *count, struct err *e)
{
    struct user_record *users = NULL;
    size_t loaded = 0;
    if (load_rows(s, &user_table, "ORDER BY name", 0, &users, &loaded, e) != ERR_OK) {
        store_users_free(users, loaded);
        return e->code;
    }
    *out = users;
    *count = loaded;
    return ERR_OK;
}

void store_users_free(struct user_record *users, size_t count)
{
    for (size_t i = 0; i < count; i++)
        user_record_release(&users[i]);
    free(users);
}

enum err_code store_audit(struct store *s, int64_t since_ms, size_t limit, struct audit_record **out,
                          size_t *count, struct err *e)
{
    struct audit_record *list = NULL;
    size_t loaded = 0;
    CLEANUP(free_text)
    char *where = xasprintf(
        "WHERE id IN (SELECT id FROM audit WHERE time_ms>=?1 ORDER BY id DESC LIMIT %zu) ORDER BY id", limit);
    if (load_rows(s, &audit_table, where, since_ms, &list, &loaded, e) != ERR_OK) {
        store_audit_free(list, loaded);
        return e->code;
    }
    *out = list;
    *count = loaded;
    return ERR_OK;
}

void store_audit_free(struct audit_record *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        audit_record_release(&list[i]);
    free(list);
}

static enum err_code audit_trim(struct store *s, const char *sql, int64_t number, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    if (db_prepare(s->db, sql, &st, e) != ERR_OK)
        return e->code;
    sqlite3_bind_int64(st, 1, number);
    return db_step_done(st, "trim audit", e);
}

enum err_code store_trim_audit(struct store *s, int64_t since_ms, int64_t keep, struct err *e)
{
    if (audit_trim(s, "DELETE FROM audit WHERE time_ms<?1", since_ms, e) != ERR_OK ||
        audit_trim(s,
                   "DELETE FROM audit WHERE what='" STORE_AUDIT_REFUSED
                   "' AND id<=(SELECT id FROM audit WHERE"
                   " what='" STORE_AUDIT_REFUSED "' ORDER BY id DESC LIMIT 1 OFFSET ?1)",
                   keep / 10, e) != ERR_OK)
        return e->code;
    return audit_trim(
        s, "DELETE FROM audit WHERE id<=(SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET ?1)", keep, e);
}
