#include "store/mark.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "store/db.h"

#define SLOT_BYTES 4096 /* slots lie in different pages of any disk */
#define TEXT_BYTES 512
#define SLOTS 2

static char *mark_path(const char *dir)
{
    return xasprintf("%s/ddp.mark", dir);
}

/* Text, so that a person can read it; its checksum is the last line. The rest of the slot is newlines. */
static void slot_print(char out[TEXT_BYTES], const struct mark *m)
{
    char text[TEXT_BYTES], hex[DIGEST_TEXT];
    uint8_t digest[DIGEST_BYTES];
    int len = snprintf(text, sizeof text,
                       "ddp mark 1\ncluster %s\nepoch %" PRId64 "\nsequence %" PRId64 "\nlast_job %" PRId64
                       "\njobs %" PRId64 "\n",
                       m->cluster_id, m->epoch, m->sequence, m->last_job, m->jobs);

    digest_sha256(digest, text, (size_t)len);
    hex_encode(hex, digest, sizeof digest);
    len += snprintf(text + len, sizeof text - (size_t)len, "sha256 %s\n", hex);
    memset(out, '\n', TEXT_BYTES);
    memcpy(out, text, (size_t)len);
}

static bool slot_parse(const char *slot, size_t size, struct mark *out)
{
    struct mark m = {0};
    char text[TEXT_BYTES + 1], again[TEXT_BYTES];

    if (size < TEXT_BYTES)
        return false;
    memcpy(text, slot, TEXT_BYTES);
    text[TEXT_BYTES] = '\0';
    if (sscanf(text,
               "ddp mark 1\ncluster %32[0-9a-f]\nepoch %" SCNd64 "\nsequence %" SCNd64 "\nlast_job %" SCNd64
               "\njobs %" SCNd64 "\n",
               m.cluster_id, &m.epoch, &m.sequence, &m.last_job, &m.jobs) != 5)
        return false;
    slot_print(again, &m); /* prints the checksum that the text must have; a torn write differs */
    if (memcmp(again, text, TEXT_BYTES) != 0)
        return false;
    *out = m;
    return true;
}

enum err_code mark_read(const char *dir, struct mark *out, enum mark_state *state, struct err *e)
{
    CLEANUP(free_text) char *path = mark_path(dir);
    CLEANUP(buf_release) struct buf text = {0};
    struct mark m;

    *out = (struct mark){0};
    *state = MARK_NONE;
    if (!file_exists(path))
        return ERR_OK;
    if (file_read(path, 1 << 20, &text, e) != ERR_OK)
        return e->code;
    /* The newest intact slot counts. After a torn write that is the other slot, which is one commit older. */
    *state = MARK_DAMAGED;
    for (size_t at = 0; at < SLOTS * SLOT_BYTES && at < text.len; at += SLOT_BYTES)
        if (slot_parse(text.data + at, text.len - at, &m) && m.sequence >= out->sequence) {
            *out = m;
            *state = MARK_GOOD;
        }
    return ERR_OK;
}

enum err_code mark_create(struct mark_file *f, const char *dir, const struct mark *mark, struct err *e)
{
    CLEANUP(free_text) char *path = mark_path(dir);
    char file[SLOTS * SLOT_BYTES];

    memset(file, '\n', sizeof file);
    for (int slot = 0; slot < SLOTS; slot++)
        slot_print(file + slot * SLOT_BYTES, mark);
    mark_close(f);
    if (file_write_atomic(path, file, sizeof file, 0600, e) != ERR_OK) {
        e->code = ERR_RESOURCE_EXHAUSTED; /* also for a read-only file system: it may become writable again */
        return e->code;
    }
    f->fd = open(path, O_WRONLY | O_CLOEXEC);
    if (f->fd < 0)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: %s", path, strerror(errno));
    f->turn = 0;
    return ERR_OK;
}

enum err_code mark_write(struct mark_file *f, const struct mark *mark, struct err *e)
{
    char slot[TEXT_BYTES];

    slot_print(slot, mark);
    if (fault_hit("store.mark"))
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "store.mark: fault point");
    if (pwrite(f->fd, slot, sizeof slot, (off_t)f->turn * SLOT_BYTES) != (ssize_t)sizeof slot ||
        fdatasync(f->fd) != 0)
        return err_set(e, ERR_RESOURCE_EXHAUSTED, "ddp.mark: %s", strerror(errno));
    f->turn = (f->turn + 1) % SLOTS; /* only after success: a failed write leaves the other slot intact */
    return ERR_OK;
}

void mark_close(struct mark_file *f)
{
    close_fd(&f->fd);
}
