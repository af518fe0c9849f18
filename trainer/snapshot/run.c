#include "trainer/snapshot/run.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define RUN_LIMIT ((size_t)4 << 10)

/* Nothing that differs between the nodes of a run, such as a time: each node may write the snapshot's files. */
void snapshot_run_print(struct buf *out, const struct snapshot_place *place)
{
    struct jout o = {.buf = out};
    jout_open(&o, NULL, '{');
    jout_text(&o, "cluster", place->cluster);
    jout_int(&o, "job", place->job);
    jout_int(&o, "generation", place->generation);
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

enum err_code snapshot_run_read(const char *path, struct snapshot_place *place, struct err *e)
{
    CLEANUP(free_text) char *name = xasprintf("%s/%s", path, SNAPSHOT_RUN_FILE);
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *root = NULL;
    if (file_presence(name) == FILE_MISSING)
        return err_set(e, ERR_NOT_FOUND, "%s is missing", name);
    if (file_read(name, RUN_LIMIT, &text, e))
        return e->code;
    if (json_parse(text.data ? text.data : "", text.len, RUN_LIMIT, &root, e)) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "%s", name);
    }
    const char *cluster = json_get_text(root, "cluster", NULL);
    int64_t job = json_get_int(root, "job", -1), generation = json_get_int(root, "generation", -1);
    if (!cluster || strlen(cluster) >= sizeof(place->cluster) || job < 0 || generation < 0)
        return err_set(e, ERR_DATA_LOSS, "%s: damaged", name);
    snprintf(place->cluster, sizeof(place->cluster), "%s", cluster);
    place->job = job;
    place->generation = generation;
    return ERR_OK;
}
