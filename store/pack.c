#include "store/pack.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "store/tables.h"

/* The format: "ddp records 1\n", then for each table its name, the names of its columns, the number of rows, and the
 * values of each row. A value is its length plus 1 (0: NULL) and its bytes. A number has as many bytes as it needs,
 * the least significant first. */
static const char magic[] = "ddp records 1\n";
#define MAGIC_BYTES (sizeof magic - 1)
#define COLUMNS_MOST 64

struct place { /* where struct records has a table's rows */
    const struct table *table;
    size_t array, count;
};
#define PLACE(name)                                                                                          \
    {                                                                                                        \
        &name##_table, offsetof(struct records, name##s), offsetof(struct records, name##_count)             \
    }
static const struct place places[] = {PLACE(job), PLACE(generation), PLACE(rank), PLACE(spawn),
                                      PLACE(snapshot)};

/* ---- writing */

static void put_length(struct buf *out, size_t n)
{
    for (; n >= 0x80; n >>= 7)
        buf_putc(out, (char)(n | 0x80));
    buf_putc(out, (char)n);
}

static void put_bytes(struct buf *out, const void *data, size_t size)
{
    put_length(out, size + 1);
    if (size)
        buf_append(out, data, size);
}

static void pack_put_text(struct buf *out, const char *text)
{
    if (text)
        put_bytes(out, text, strlen(text));
    else
        put_length(out, 0);
}

static void pack_put_number(struct buf *out, int64_t number)
{
    uint8_t bytes[sizeof number];
    size_t size = 0;

    for (uint64_t left = (uint64_t)number; left; left >>= 8)
        bytes[size++] = (uint8_t)left;
    put_bytes(out, bytes, size);
}

static void put_texts(struct buf *out, char *const *list)
{
    CLEANUP(buf_release) struct buf joined = {0};

    for (size_t i = 0; list && list[i]; i++)
        buf_append(&joined, list[i], strlen(list[i]) + 1);
    put_bytes(out, joined.data, joined.len);
}

static void pack_put_value(struct buf *out, const struct column *c, const char *record)
{
    const void *at = record + c->offset;

    switch (c->type) {
    case COLUMN_INT64:
        pack_put_number(out, *(const int64_t *)at);
        return;
    case COLUMN_INT:
        pack_put_number(out, *(const int *)at);
        return;
    case COLUMN_BOOL:
        pack_put_number(out, *(const bool *)at);
        return;
    case COLUMN_TEXT:
        pack_put_text(out, *(char *const *)at);
        return;
    case COLUMN_TEXTS:
        put_texts(out, *(char **const *)at);
        return;
    case COLUMN_FIXED:
        put_bytes(out, at, c->size);
        return;
    case COLUMN_BYTES:
        put_bytes(out, *(uint8_t *const *)at, *(const size_t *)(const void *)(record + c->size));
        return;
    case COLUMN_STATE:
    case COLUMN_ENUM: /* by name, since another version may have other numbers */
        pack_put_text(out, sm_name(c->sm, *(const int *)at));
        return;
    }
}

void pack_records(struct buf *out, const struct records *r)
{
    buf_append(out, magic, MAGIC_BYTES);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        const struct table *t = places[i].table;
        const size_t count = *(const size_t *)(const void *)((const char *)r + places[i].count);
        const char *rows = *(char *const *)(const void *)((const char *)r + places[i].array);

        pack_put_text(out, t->name);
        put_length(out, t->count);
        for (size_t k = 0; k < t->count; k++)
            pack_put_text(out, t->columns[k].name);
        put_length(out, count);
        for (size_t row = 0; row < count; row++)
            for (size_t k = 0; k < t->count; k++)
                pack_put_value(out, &t->columns[k], rows + row * t->record_size);
    }
}

/* ---- reading */

struct reader {
    const char *at, *end;
};

static bool take_length(struct reader *r, size_t *out)
{
    *out = 0;
    for (int shift = 0; r->at < r->end && shift < 35; shift += 7) {
        const uint8_t byte = (uint8_t)*r->at++;
        *out |= (size_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool take_bytes(struct reader *r, const char **data, size_t *size) /* sets *data to NULL for NULL */
{
    if (!take_length(r, size))
        return false;
    *data = NULL;
    if (!*size)
        return true;
    if (--*size > (size_t)(r->end - r->at))
        return false;
    *data = r->at;
    r->at += *size;
    return true;
}

static bool names_it(const char *data, size_t size, const char *name)
{
    return data && strlen(name) == size && !memcmp(data, name, size);
}

static int64_t number_of(const char *data, size_t size)
{
    uint64_t number = 0;

    for (size_t i = size; i-- > 0;)
        number = number << 8 | (uint8_t)data[i];
    return (int64_t)number;
}

static char *text_of(const char *data, size_t size)
{
    char *text = xmalloc(size + 1);

    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

static bool set_state(const struct column *c, void *at, const char *data, size_t size)
{
    CLEANUP(free_text) char *name = text_of(data, size);
    const int state = sm_find(c->sm, name);

    *(int *)at = state;
    return state >= 0;
}

/* Refuses the values that the table of the database would refuse. */
static bool unpack_set_value(const struct column *c, char *record, const char *data, size_t size)
{
    void *at = record + c->offset;
    const bool numeric = c->type == COLUMN_INT64 || c->type == COLUMN_INT || c->type == COLUMN_BOOL;
    const int64_t number = numeric && data && size <= sizeof number ? number_of(data, size) : 0;

    if (numeric && (!data || size > sizeof number)) /* no column of numbers allows NULL */
        return false;
    switch (c->type) {
    case COLUMN_INT64:
        *(int64_t *)at = number;
        return true;
    case COLUMN_INT:
        *(int *)at = (int)number;
        return number >= INT_MIN && number <= INT_MAX;
    case COLUMN_BOOL:
        *(bool *)at = number != 0;
        return true;
    case COLUMN_TEXT:
        *(char **)at = data ? text_of(data, size) : NULL;
        return !data || !memchr(data, '\0', size);
    case COLUMN_TEXTS:
        if (size && data[size - 1]) /* each text ends in NUL: strlen below stays inside data */
            return false;
        for (size_t i = 0; i < size; i += strlen(data + i) + 1)
            *(char ***)at = strv_append(*(char ***)at, data + i);
        return true;
    case COLUMN_FIXED:
        if (!data || size != c->size)
            return false;
        memcpy(at, data, size);
        return true;
    case COLUMN_BYTES:
        *(uint8_t **)at = size ? xmemdup(data, size) : NULL;
        *(size_t *)(void *)(record + c->size) = size;
        return true;
    case COLUMN_STATE:
    case COLUMN_ENUM:
        return data && set_state(c, at, data, size);
    }
    return false;
}

static const struct column *find_column(const struct table *t, const char *data, size_t size)
{
    for (size_t i = 0; i < t->count; i++)
        if (names_it(data, size, t->columns[i].name))
            return &t->columns[i];
    return NULL;
}

static bool read_rows(struct reader *r, const struct place *place, const struct column *const *columns,
                      size_t column_count, struct records *out)
{
    size_t *count = (size_t *)(void *)((char *)out + place->count), rows, cap = 0;
    char *array = NULL;

    if (!take_length(r, &rows))
        return false;
    for (size_t row = 0; row < rows; row++) {
        array = array_grow(array, *count, &cap, place->table->record_size);
        memcpy((char *)out + place->array, &array, sizeof array);
        char *record = array + *count * place->table->record_size;
        memset(record, 0, place->table->record_size);
        (*count)++;
        for (size_t i = 0; i < column_count; i++) {
            const char *data;
            size_t size;
            if (!take_bytes(r, &data, &size) ||
                (columns[i] && !unpack_set_value(columns[i], record, data, size)))
                return false;
        }
    }
    return true;
}

static bool read_table(struct reader *r, const struct place *place, struct records *out)
{
    const struct column *columns[COLUMNS_MOST];
    const char *name;
    size_t size, count;

    if (!take_bytes(r, &name, &size) || !names_it(name, size, place->table->name) ||
        !take_length(r, &count) || count < 1 || count > COLUMNS_MOST)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!take_bytes(r, &name, &size))
            return false;
        columns[i] = find_column(place->table, name, size);
    }
    return read_rows(r, place, columns, count, out);
}

enum err_code pack_read(struct records *out, const void *data, size_t size, struct err *e)
{
    struct reader r = {data, (const char *)data + size};

    memset(out, 0, sizeof *out);
    if (size < MAGIC_BYTES || memcmp(data, magic, MAGIC_BYTES) != 0)
        return err_set(e, ERR_DATA_LOSS, "the bytes are not packed records");
    r.at += MAGIC_BYTES;
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (!read_table(&r, &places[i], out))
            return err_set(e, ERR_DATA_LOSS, "packed records: table '%s' is invalid", places[i].table->name);
    return ERR_OK;
}
