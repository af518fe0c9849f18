#include "daemon/supervisor/protocol/record.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"

#define RECORD_MAX (256 << 10)

static void record_path(char out[PATH_MAX], const char *dir, int64_t spawn)
{
    snprintf(out, PATH_MAX, "%s/%" PRId64 ".json", dir, spawn);
}

enum err_code record_write(const char *dir, const struct spawn_fact *fact, bool durable, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    struct jout o = {.buf = &text};
    char path[PATH_MAX];

    jout_open(&o, NULL, '{');
    spawn_fact_encode(&o, fact);
    jout_close(&o, '}');
    buf_putc(&text, '\n');
    record_path(path, dir, fact->spawn);
    return file_write_renamed(path, text.data, text.len, 0600, durable, e);
}

enum err_code record_remove(const char *dir, int64_t spawn, struct err *e)
{
    char path[PATH_MAX];

    record_path(path, dir, spawn);
    if (unlink(path) && errno != ENOENT)
        return err_sys(e, errno, "%s", path);
    return ERR_OK;
}

static enum err_code record_read(const char *dir, int64_t spawn, struct spawn_fact *out, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *obj = NULL;
    char path[PATH_MAX];

    record_path(path, dir, spawn);
    if (file_read(path, RECORD_MAX, &text, e))
        return e->code;
    if (json_parse(text.data, text.len, RECORD_MAX, &obj, e))
        return err_wrap(e, "%s", path);
    return spawn_fact_decode(out, obj, e);
}

static int fact_by_spawn(const void *a, const void *b)
{
    const struct spawn_fact *x = a, *y = b;

    return (x->spawn > y->spawn) - (x->spawn < y->spawn);
}

static bool name_is_record(const char *name, int64_t *spawn)
{
    char *end;

    if (*name < '1' || *name > '9')
        return false;
    errno = 0;
    *spawn = strtoll(name, &end, 10);
    return !errno && !strcmp(end, ".json");
}

enum err_code record_list(const char *dir, struct record_list *out, struct err *e)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    enum err_code code;

    memset(out, 0, sizeof(*out));
    if (!d)
        return errno == ENOENT ? ERR_OK : err_sys(e, errno, "%s", dir);
    /* Nobody would watch the processes of a record that is not listed. */
    while ((code = file_next_entry(d, dir, &entry, e)) == ERR_OK && entry) {
        struct spawn_fact fact = {0};
        struct err ignored;
        int64_t spawn;

        if (!name_is_record(entry->d_name, &spawn))
            continue;
        /* An unreadable record is listed, too, because the end of its spawn must be reported. */
        if (record_read(dir, spawn, &fact, &ignored)) {
            spawn_fact_release(&fact);
            fact = (struct spawn_fact){.spawn = spawn, .state = SPAWN_EXITED, .lost = true};
            spawn_fact_set_text(&fact.message, xasprintf("its record cannot be read: %s", ignored.msg));
        }
        out->items = array_grow(out->items, out->count, &out->cap, sizeof(*out->items));
        out->items[out->count++] = fact;
    }
    closedir(d);
    if (code) {
        record_list_release(out);
        return code;
    }
    if (out->count)
        qsort(out->items, out->count, sizeof(*out->items), fact_by_spawn);
    return ERR_OK;
}

void record_list_release(struct record_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        spawn_fact_release(&list->items[i]);
    free(list->items);
    memset(list, 0, sizeof(*list));
}
