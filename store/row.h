#ifndef DDP_STORE_ROW_H
#define DDP_STORE_ROW_H

#include <sqlite3.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sm.h"

/* Describes how a record is stored in a table. The INSERT, UPDATE and SELECT statements, the binding and the reading
 * all follow from one const table of columns. Private to store/. */

enum column_type {
    COLUMN_INT64,
    COLUMN_INT,   /* int */
    COLUMN_BOOL,  /* stored 0 or 1 */
    COLUMN_TEXT,  /* char *, NULL is NULL */
    COLUMN_TEXTS, /* char **, stored as NUL-terminated texts one after another; an empty list is NULL */
    COLUMN_FIXED, /* uint8_t[size] */
    COLUMN_BYTES, /* uint8_t *, its length in the size_t at offset `size` */
    COLUMN_STATE, /* an enum, stored by its name in sm; only moves change it */
    COLUMN_ENUM,  /* an enum, stored by its name in sm */
};
struct column {
    const char *name;
    enum column_type type;
    size_t offset, size;
    const struct sm *sm;
    bool key; /* part of the primary key */
};
struct table {
    const char *name;
    const struct column *columns;
    size_t count, record_size;
};

#define COL(record, kind, field)                                                                             \
    {                                                                                                        \
        .name = #field, .type = (kind), .offset = offsetof(struct record, field)                             \
    }
#define COL_KEY(record, kind, field)                                                                         \
    {                                                                                                        \
        .name = #field, .type = (kind), .offset = offsetof(struct record, field), .key = true                \
    }
#define COL_FIXED(record, field)                                                                             \
    {                                                                                                        \
        .name = #field, .type = COLUMN_FIXED, .offset = offsetof(struct record, field),                      \
        .size = sizeof(((struct record *)0)->field)                                                          \
    }
#define COL_BYTES(record, field, length)                                                                     \
    {                                                                                                        \
        .name = #field, .type = COLUMN_BYTES, .offset = offsetof(struct record, field),                      \
        .size = offsetof(struct record, length)                                                              \
    }
#define COL_STATE(record, field, machine)                                                                    \
    {                                                                                                        \
        .name = #field, .type = COLUMN_STATE, .offset = offsetof(struct record, field), .sm = &(machine)     \
    }

#define COL_ENUM(record, field, machine)                                                                     \
    {                                                                                                        \
        .name = #field, .type = COLUMN_ENUM, .offset = offsetof(struct record, field), .sm = &(machine)      \
    }

/* Parameter numbers are column numbers, from 1, in each statement. */
void row_sql_insert(struct buf *out, const struct table *t);
void row_sql_put(struct buf *out, const struct table *t);    /* all columns except key and state, by key */
void row_sql_upsert(struct buf *out, const struct table *t); /* inserts, or replaces */
void row_sql_select(struct buf *out,
                    const struct table *t); /* without WHERE; columns in the order of the table */

/* Binds the record's values; texts and blobs are borrowed until the statement is reset. */
MUST_CHECK enum err_code row_bind(sqlite3_stmt *st, const struct table *t, const void *record,
                                  bool with_state, struct err *e);
/* Fills a zeroed record from the current row. DATA_LOSS: the row has a value that no record can have. */
MUST_CHECK enum err_code row_read(sqlite3_stmt *st, const struct table *t, void *record, struct err *e);

#endif
