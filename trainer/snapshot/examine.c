/* What one snapshot is: its digest, whether it is committed, and whether it is complete. */
#include "trainer/snapshot/examine.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/run.h"
#include "trainer/snapshot/safetensors.h"

#define COMMITTED_LIMIT ((size_t)1 << 20)

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

enum err_code snapshot_list_names(const char *dir, const char *prefix, const char *suffix, char ***out,
                                  struct err *e)
{
    char **names = xcalloc(1, sizeof(*names));
    DIR *d = opendir(dir);
    if (!d) {
        free(names);
        return err_sys(e, errno, "%s", dir);
    }
    struct dirent *entry;
    enum err_code code;
    while ((code = file_next_entry(d, dir, &entry, e)) == ERR_OK && entry) {
        size_t length = strlen(entry->d_name), tail = suffix ? strlen(suffix) : 0;
        if (prefix && strncmp(entry->d_name, prefix, strlen(prefix)))
            continue;
        if (suffix && (length < tail || strcmp(entry->d_name + length - tail, suffix)))
            continue;
        names = strv_append(names, entry->d_name);
    }
    closedir(d);
    if (code) {
        strv_free(names);
        return code;
    }
    qsort(names, strv_len(names), sizeof(*names), by_name);
    *out = names;
    return ERR_OK;
}

void snapshot_free_names(char ***names)
{
    strv_free(*names);
}

bool snapshot_name_parse(const char *name, int64_t *step, int64_t *generation)
{
    char exact[64];
    long long s, g;
    if (sscanf(name, "step-%lld-g%lld", &s, &g) != 2)
        return false;
    *step = s;
    *generation = g;
    snprintf(exact, sizeof(exact), "step-%lld-g%lld", s, g);
    return !strcmp(name, exact);
}

/* Lists the files that a snapshot's digest covers, sorted. */
static enum err_code list_files(const char *path, char ***out, struct err *e)
{
    static const char *const extras[] = {"config.json", "vocab.json", SNAPSHOT_ALGORITHMS_FILE,
                                         SNAPSHOT_PARTS_FILE, SNAPSHOT_RUN_FILE};
    if (snapshot_list_names(path, NULL, ".safetensors", out, e))
        return e->code;
    for (size_t i = 0; i < ARRAY_LEN(extras); i++) {
        CLEANUP(free_text) char *file = xasprintf("%s/%s", path, extras[i]);
        if (file_exists(file))
            *out = strv_append(*out, extras[i]);
    }
    qsort(*out, strv_len(*out), sizeof(**out), by_name);
    return ERR_OK;
}

enum err_code snapshot_sum(const char *path, struct snapshot_files *out, struct err *e)
{
    return snapshot_sum_unless(path, NULL, out, e);
}

enum err_code snapshot_sum_unless(const char *path, const struct safetensors_check *check,
                                  struct snapshot_files *out, struct err *e)
{
    CLEANUP(buf_release) struct buf lines = {0};
    CLEANUP(snapshot_free_names) char **names = NULL;
    struct snapshot_files f = {0};
    if (list_files(path, &names, e))
        return e->code;
    for (size_t i = 0; names[i]; i++) {
        CLEANUP(free_text) char *file = xasprintf("%s/%s", path, names[i]);
        char sum[DIGEST_TEXT];
        struct stat st;
        if (safetensors_ask(check, file, e) || digest_file(sum, file, e))
            return e->code;
        /* The size is only shown to people. If a file has vanished, its sum fails anyway. */
        if (stat(file, &st) == 0)
            f.bytes += st.st_size;
        buf_printf(&lines, "%s  %s\n", sum, names[i]);
    }
    if (lines.len == 0)
        return err_set(e, ERR_NOT_FOUND, "%s: holds no snapshot", path);
    uint8_t raw[DIGEST_BYTES];
    digest_sha256(raw, lines.data, lines.len);
    hex_encode(f.digest, raw, sizeof(raw));
    f.path = xstrdup(path);
    f.sums = xstrdup(lines.data);
    *out = f;
    return ERR_OK;
}

/* Reads COMMITTED.json of the snapshot. A snapshot that is not committed has none; *root then stays NULL. */
static enum err_code read_committed(const char *path, json_t **root, struct err *e)
{
    CLEANUP(free_text) char *name = xasprintf("%s/COMMITTED.json", path);
    CLEANUP(buf_release) struct buf text = {0};
    if (file_presence(name) == FILE_MISSING)
        return ERR_OK;
    if (file_read(name, COMMITTED_LIMIT, &text, e))
        return e->code;
    if (json_parse(text.data ? text.data : "", text.len, COMMITTED_LIMIT, root, e)) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "%s", name);
    }
    return ERR_OK;
}

static enum err_code committed_differs(const char *path, struct err *e)
{
    return err_set(e, ERR_DATA_LOSS, "%s: the files are not the ones that were committed: damaged", path);
}

/* Sets f->committed if COMMITTED.json names the digest that f has. */
static enum err_code check_committed(struct snapshot_found *f, struct err *e)
{
    CLEANUP(json_release) json_t *root = NULL;
    if (read_committed(f->path, &root, e))
        return e->code;
    if (root && strcmp(json_get_text(root, "digest", ""), f->digest))
        return committed_differs(f->path, e);
    f->committed = root != NULL;
    return ERR_OK;
}

enum err_code snapshot_examine(const char *dir, struct snapshot_found *f, struct err *e)
{
    CLEANUP(snapshot_files_release) struct snapshot_files files = {0};
    struct snapshot_place place;
    if (snapshot_sum(f->path, &files, e))
        return e->code;
    memcpy(f->digest, files.digest, sizeof(f->digest));
    if (check_committed(f, e) || snapshot_read_place(f->path, &place, e))
        return e->code;
    f->parts = place.parts;
    f->divided = place.divided;
    if (snapshot_parts_check(dir, f->path, &place, true, &f->elsewhere, e))
        return e->code;
    f->read = true;
    return ERR_OK;
}

/* Whether the files that COMMITTED.json names are there, and no others, and whether each has the size that its header says. */
static enum err_code check_listed_files(const char *path, const json_t *root, struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    const json_t *files = json_object_get(root, "files");
    if (list_files(path, &names, e))
        return e->code;
    if (strv_len(names) != json_object_size(files) ||
        strlen(json_get_text(root, "digest", "")) != DIGEST_TEXT - 1)
        return committed_differs(path, e);
    for (size_t i = 0; names[i]; i++) {
        CLEANUP(free_text) char *file = xasprintf("%s/%s", path, names[i]);
        const char *tail = strrchr(names[i], '.');
        struct safetensors *f = NULL;
        if (!json_object_get(files, names[i]))
            return committed_differs(path, e);
        if (tail && !strcmp(tail, ".safetensors") && safetensors_open(&f, file, e))
            return e->code;
        safetensors_close(f);
    }
    return ERR_OK;
}

enum err_code snapshot_look_over(const char *dir, struct snapshot_found *f, struct err *e)
{
    CLEANUP(free_text) char *failed = xasprintf("%s/%s", f->path, SNAPSHOT_LOAD_FAILED);
    CLEANUP(json_release) json_t *root = NULL;
    struct snapshot_place place;
    struct err ignored = {0};
    if (file_presence(failed) != FILE_MISSING) {
        if (snapshot_examine(dir, f, e))
            return e->code;
        if (file_remove_tree(failed, &ignored)) {
            /* It has been repaired. It is only read once more next time. */
        }
        return ERR_OK;
    }
    if (read_committed(f->path, &root, e) || !root)
        return e->code;
    if (check_listed_files(f->path, root, e) || snapshot_read_place(f->path, &place, e) ||
        snapshot_parts_check(dir, f->path, &place, false, &f->elsewhere, e))
        return e->code;
    snprintf(f->digest, sizeof(f->digest), "%s", json_get_text(root, "digest", ""));
    f->parts = place.parts;
    f->divided = place.divided;
    f->committed = true;
    return ERR_OK;
}

enum err_code snapshot_check_digest(const char *path, const char *digest, struct err *e)
{
    CLEANUP(snapshot_files_release) struct snapshot_files files = {0};
    if (snapshot_sum(path, &files, e))
        return e->code;
    return strcmp(files.digest, digest) ? committed_differs(path, e) : ERR_OK;
}

void snapshot_note_failure(const char *dir, const char *path, const char *why)
{
    const char *name = path ? strrchr(path, '/') : NULL;
    CLEANUP(free_text) char *own = xasprintf("%s%s", dir, name ? name : "");
    CLEANUP(free_text) char *file = xasprintf("%s/%s", own, SNAPSHOT_LOAD_FAILED);
    CLEANUP(free_text) char *text = xasprintf("%s\n", why);
    struct err e = {0};
    if (name && file_presence(own) == FILE_PRESENT && file_write_atomic(file, text, strlen(text), 0644, &e))
        log_warn("snapshot_note_failed", "why=%s", LOG_Q(e.msg)); /* it may be offered again */
}

enum err_code snapshot_mark_digest(const char *path, const char *digest, struct err *e)
{
    CLEANUP(snapshot_files_release) struct snapshot_files files = {0};
    struct snapshot_place place;
    if (snapshot_sum(path, &files, e))
        return e->code;
    if (strcmp(files.digest, digest))
        return err_set(e, ERR_DATA_LOSS, "%s: the files are not the ones that were committed", path);
    return snapshot_read_place(path, &place, e) ? e->code : snapshot_mark_committed(&files, &place, e);
}

static enum err_code check_file(const char *path, const char *name, const json_t *files, struct err *e)
{
    CLEANUP(free_text) char *file = xasprintf("%s/%s", path, name);
    char sum[DIGEST_TEXT] = "";
    if (file_exists(file) && digest_file(sum, file, e))
        return e->code;
    if (strcmp(sum, json_get_text(files, name, "")))
        return err_set(
            e, ERR_DATA_LOSS,
            "%s: not the file that was committed: damaged (a copy that was changed on purpose must "
            "have no COMMITTED.json)",
            file);
    return ERR_OK;
}

static bool is_called_snapshot(const char *path)
{
    CLEANUP(free_text) char *real = realpath(path, NULL);
    const char *name = real ? strrchr(real, '/') : NULL;
    int64_t step, generation;
    return name && snapshot_name_parse(name + 1, &step, &generation);
}

/* Checks a directory without COMMITTED.json. */
static enum err_code check_uncommitted(const char *path, const char *digest, struct err *e)
{
    if (!digest && !is_called_snapshot(path))
        return ERR_OK;
    if (!digest)
        return err_set(e, ERR_FAILED_PRECONDITION, "%s: is not committed: it has no COMMITTED.json", path);
    return snapshot_check_digest(path, digest, e);
}

enum err_code snapshot_check_model(const char *path, const char *digest, struct err *e)
{
    static const char *const names[] = {"model.safetensors", "config.json", "vocab.json"};
    CLEANUP(json_release) json_t *root = NULL;
    if (read_committed(path, &root, e))
        return e->code;
    if (!root)
        return check_uncommitted(path, digest, e);
    if (digest && strcmp(json_get_text(root, "digest", ""), digest))
        return err_set(e, ERR_DATA_LOSS, "%s: another snapshot was committed under this name", path);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (check_file(path, names[i], json_object_get(root, "files"), e))
            return e->code;
    return ERR_OK;
}
