#include <stdlib.h>

#include "base/mem.h"
#include "store/db.h"
#include "store/load.h"
#include "store/store_state.h"
#include "store/tables.h"

/* Users and the audit record: read and trimmed here, written by commit.c. */

#define SHARED_ROWS 300000 /* above that, finding each share would stop the loop for more than a second */

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

/* How many lines of each caller may stay, so that at most `keep` lines are left. Callers with fewer lines lose none, and the others keep
 * equally many. INT64_MAX: there are not more than `keep`. */
static enum err_code audit_share(struct store *s, int64_t keep, int64_t *share, struct err *e)
{
    CLEANUP(db_finalize) sqlite3_stmt *st = NULL;
    int64_t left = keep;
    int rc;
    *share = INT64_MAX;
    if (db_prepare(s->db,
                   "SELECT lines,count(*) OVER (ORDER BY lines DESC,who) FROM"
                   " (SELECT who,count(*) AS lines FROM audit GROUP BY who) ORDER BY lines,who DESC",
                   &st, e) != ERR_OK)
        return e->code;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const int64_t lines = sqlite3_column_int64(st, 0), callers = sqlite3_column_int64(st, 1);
        if (lines > left / callers) {
            *share =
                left > callers ? left / callers : 1; /* of so many callers the oldest lines go, see below */
            return ERR_OK;
        }
        left -= lines;
    }
    return rc == SQLITE_DONE ? ERR_OK : db_error(s->db, rc, e, "audit");
}

/* A caller can write any number of lines with calls that it may make. They must not displace the lines of others. */
static enum err_code audit_trim_shares(struct store *s, int64_t keep, struct err *e)
{
    int64_t beyond, share;
    CLEANUP(free_text)
    char *sql = xasprintf("SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET %lld", (long long)keep);
    if (db_int(s->db, sql, 0, &beyond, e) != ERR_OK)
        return e->code;
    if (!beyond || keep > SHARED_ROWS)
        return ERR_OK;
    if (audit_share(s, keep, &share, e) != ERR_OK)
        return e->code;
    return audit_trim(s,
                      "DELETE FROM audit WHERE id IN (SELECT id FROM (SELECT id,row_number() OVER"
                      " (PARTITION BY who ORDER BY id DESC) AS age FROM audit) WHERE age>?1)",
                      share, e);
}

enum err_code store_trim_audit(struct store *s, int64_t since_ms, int64_t keep, struct err *e)
{
    if (audit_trim(s, "DELETE FROM audit WHERE time_ms<?1", since_ms, e) != ERR_OK ||
        audit_trim(s,
                   "DELETE FROM audit WHERE what='" STORE_AUDIT_REFUSED
                   "' AND id<=(SELECT id FROM audit WHERE"
                   " what='" STORE_AUDIT_REFUSED "' ORDER BY id DESC LIMIT 1 OFFSET ?1)",
                   keep / 10, e) != ERR_OK ||
        audit_trim_shares(s, keep, e) != ERR_OK)
        return e->code;
    return audit_trim(
        s, "DELETE FROM audit WHERE id<=(SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET ?1)", keep, e);
}
