#include "store/row.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"
#include "store/db.h"

static void *row_field(void *record, const struct column *c)
{
    return (char *)record + c->offset;
}

static const void *row_field_const(const void *record, const struct column *c)
{
    return (const char *)record + c->offset;
}

static void row_put_columns(struct buf *out, const struct table *t)
{
    for (size_t i = 0; i < t->count; i++)
        buf_printf(out, "%s%s", i ? "," : "", t->columns[i].name);
}

void row_sql_insert(struct buf *out, const struct table *t)
{
    buf_printf(out, "INSERT INTO %s(", t->name);
    row_put_columns(out, t);
    buf_puts(out, ") VALUES(");
    for (size_t i = 0; i < t->count; i++)
        buf_printf(out, "%s?%zu", i ? "," : "", i + 1);
    buf_putc(out, ')');
}

static void row_put_assignments(struct buf *out, const struct table *t)
{
    const char *comma = "";
    for (size_t i = 0; i < t->count; i++) {
        const struct column *c = &t->columns[i];
        if (c->key || c->type == COLUMN_STATE)
            continue;
        buf_printf(out, "%s%s=?%zu", comma, c->name, i + 1);
        comma = ",";
    }
}

void row_sql_put(struct buf *out, const struct table *t)
{
    buf_printf(out, "UPDATE %s SET ", t->name);
    row_put_assignments(out, t);
    const char *word = " WHERE ";
    for (size_t i = 0; i < t->count; i++) {
        if (!t->columns[i].key)
            continue;
        buf_printf(out, "%s%s=?%zu", word, t->columns[i].name, i + 1);
        word = " AND ";
    }
}

void row_sql_upsert(struct buf *out, const struct table *t)
{
    row_sql_insert(out, t);
    const char *comma = "";
    buf_puts(out, " ON CONFLICT(");
    for (size_t i = 0; i < t->count; i++) {
        if (!t->columns[i].key)
            continue;
        buf_printf(out, "%s%s", comma, t->columns[i].name);
        comma = ",";
    }
    buf_puts(out, ") DO UPDATE SET ");
    row_put_assignments(out, t);
}

void row_sql_select(struct buf *out, const struct table *t)
{
    buf_puts(out, "SELECT ");
    row_put_columns(out, t);
    buf_printf(out, " FROM %s", t->name);
}

static int row_bind_texts(sqlite3_stmt *st, int index, char *const *list)
{
    if (!list || !list[0])
        return sqlite3_bind_null(st, index);
    CLEANUP(buf_release) struct buf joined = {0};
    for (size_t i = 0; list[i]; i++)
        buf_append(&joined, list[i], strlen(list[i]) + 1);
    return sqlite3_bind_blob64(st, index, joined.data, joined.len, SQLITE_TRANSIENT);
}

static int row_bind_bytes(sqlite3_stmt *st, int index, const struct column *c, const void *record)
{
    const uint8_t *data = *(uint8_t *const *)row_field_const(record, c);
    const size_t size = *(const size_t *)(const void *)((const char *)record + c->size);
    return data ? sqlite3_bind_blob64(st, index, data, size, SQLITE_STATIC) : sqlite3_bind_null(st, index);
}

static int row_bind_column(sqlite3_stmt *st, int index, const struct column *c, const void *record)
{
    const void *at = row_field_const(record, c);
    switch (c->type) {
    case COLUMN_INT64:
        return sqlite3_bind_int64(st, index, *(const int64_t *)at);
    case COLUMN_INT:
        return sqlite3_bind_int(st, index, *(const int *)at);
    case COLUMN_BOOL:
        return sqlite3_bind_int(st, index, *(const bool *)at);
    case COLUMN_TEXT:
        return sqlite3_bind_text(st, index, *(char *const *)at, -1, SQLITE_STATIC);
    case COLUMN_TEXTS:
        return row_bind_texts(st, index, *(char **const *)at);
    case COLUMN_FIXED:
        return sqlite3_bind_blob64(st, index, at, c->size, SQLITE_STATIC);
    case COLUMN_BYTES:
        return row_bind_bytes(st, index, c, record);
    case COLUMN_STATE:
    case COLUMN_ENUM:
        return sqlite3_bind_text(st, index, sm_name(c->sm, *(const int *)at), -1, SQLITE_STATIC);
    }
    return SQLITE_MISUSE;
}

enum err_code row_bind(sqlite3_stmt *st, const struct table *t, const void *record, bool with_state,
                       struct err *e)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct column *c = &t->columns[i];
        if (c->type == COLUMN_STATE && !with_state)
            continue;
        const int rc = row_bind_column(st, (int)i + 1, c, record);
        if (rc != SQLITE_OK)
            return db_error(sqlite3_db_handle(st), rc, e, c->name);
    }
    return ERR_OK;
}

static char *row_dup_text(sqlite3_stmt *st, int index)
{
    const unsigned char *text = sqlite3_column_text(st, index);
    return text ? xstrdup((const char *)text) : NULL;
}

static char **row_dup_texts(const char *data, size_t size)
{
    char **list = NULL;
    for (size_t at = 0; at < size; at += strnlen(data + at, size - at) + 1)
        list = strv_append(list, data + at);
    return list;
}

static enum err_code row_refuse(const struct table *t, const struct column *c, struct err *e)
{
    return err_set(e, ERR_DATA_LOSS, "the database's table '%s' has a row with an invalid value for '%s'",
                   t->name, c->name);
}

static enum err_code row_read_blob(sqlite3_stmt *st, int index, const struct table *t, const struct column *c,
                                   void *record, struct err *e)
{
    const void *data = sqlite3_column_blob(st, index);
    const size_t size = (size_t)sqlite3_column_bytes(st, index);
    if (c->type == COLUMN_FIXED) {
        if (size != c->size)
            return row_refuse(t, c, e);
        memcpy(row_field(record, c), data, size);
    } else if (c->type == COLUMN_TEXTS) {
        if (size && ((const char *)data)[size - 1] != '\0')
            return row_refuse(t, c, e);
        *(char ***)row_field(record, c) = row_dup_texts(data, size);
    } else {
        *(uint8_t **)row_field(record, c) = data ? xmemdup(data, size) : NULL;
        *(size_t *)(void *)((char *)record + c->size) = size;
    }
    return ERR_OK;
}

static enum err_code row_read_column(sqlite3_stmt *st, int index, const struct table *t,
                                     const struct column *c, void *record, struct err *e)
{
    void *at = row_field(record, c);
    const int64_t number = sqlite3_column_int64(st, index);
    switch (c->type) {
    case COLUMN_INT64:
        *(int64_t *)at = number;
        return ERR_OK;
    case COLUMN_INT:
        if (number < INT_MIN || number > INT_MAX)
            return row_refuse(t, c, e);
        *(int *)at = (int)number;
        return ERR_OK;
    case COLUMN_BOOL:
        *(bool *)at = number != 0;
        return ERR_OK;
    case COLUMN_TEXT:
        *(char **)at = row_dup_text(st, index);
        return ERR_OK;
    case COLUMN_STATE:
    case COLUMN_ENUM: {
        const char *name = (const char *)sqlite3_column_text(st, index);
        const int state = name ? sm_find(c->sm, name) : -1;
        if (state < 0) /* damage, or a program of a later version wrote it */
            return row_refuse(t, c, e);
        *(int *)at = state;
        return ERR_OK;
    }
    case COLUMN_TEXTS:
    case COLUMN_FIXED:
    case COLUMN_BYTES:
        return row_read_blob(st, index, t, c, record, e);
    }
    return row_refuse(t, c, e);
}

enum err_code row_read(sqlite3_stmt *st, const struct table *t, void *record, struct err *e)
{
    for (size_t i = 0; i < t->count; i++)
        if (row_read_column(st, (int)i, t, &t->columns[i], record, e) != ERR_OK)
            return e->code;
    return ERR_OK;
}
