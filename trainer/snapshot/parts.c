#include "trainer/snapshot/parts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "trainer/snapshot/divided.h"
#include "trainer/snapshot/tensors.h"

#define PARTS_LIMIT ((size_t)16 << 20)

/* ---- parts.json */

void snapshot_parts_print(struct buf *out, const struct snapshot_part *parts, size_t count)
{
    struct jout o = {.buf = out};
    bool divided = false;
    for (size_t i = 0; i < count; i++)
        divided |= parts[i].count > 0;
    jout_open(&o, NULL, '{');
    jout_open(&o, "parts", '[');
    for (size_t i = 0; i < count; i++) {
        char digest[20];
        snprintf(digest, sizeof(digest), "%016" PRIx64, parts[i].digest);
        jout_open(&o, NULL, '{');
        jout_text(&o, "digest", digest);
        jout_int(&o, "home", parts[i].home);
        jout_text(&o, "node", parts[i].node);
        if (divided) {
            jout_int(&o, "first", parts[i].first);
            jout_int(&o, "count", parts[i].count);
        }
        jout_close(&o, '}');
    }
    jout_close(&o, ']');
    jout_close(&o, '}');
    buf_putc(out, '\n');
}

static bool part_parse(const json_t *item, int64_t count, struct snapshot_part *out)
{
    const char *digest = json_get_text(item, "digest", ""), *node = json_get_text(item, "node", "");
    char *end = NULL;
    out->digest = strtoull(digest, &end, 16);
    out->home = json_get_int(item, "home", -1);
    out->first = json_get_int(item, "first", 0);
    out->count = json_get_int(item, "count", 0);
    snprintf(out->node, sizeof(out->node), "%s", node);
    return *digest && !*end && out->home >= 0 && out->home < count && out->first >= 0 && out->count >= 0 &&
           out->count <= INT64_MAX - out->first;
}

enum err_code snapshot_parts_read(const char *path, const struct snapshot_place *place,
                                  struct snapshot_part **out, struct err *e)
{
    CLEANUP(free_text) char *name = xasprintf("%s/%s", path, SNAPSHOT_PARTS_FILE);
    CLEANUP(buf_release) struct buf text = {0};
    CLEANUP(json_release) json_t *root = NULL;
    *out = NULL;
    if (!file_exists(name))
        return ERR_OK;
    if (file_read(name, PARTS_LIMIT, &text, e))
        return e->code;
    if (json_parse(text.data ? text.data : "", text.len, PARTS_LIMIT, &root, e)) {
        e->code = ERR_DATA_LOSS;
        return err_wrap(e, "%s", name);
    }
    const json_t *list = json_object_get(root, "parts");
    size_t count = json_array_size(list);
    struct snapshot_part *parts = xcalloc(count + 1, sizeof(*parts));
    bool good = count > 0 && (int64_t)count == place->parts;
    for (size_t i = 0; good && i < count; i++)
        good = part_parse(json_array_get(list, i), place->parts, &parts[i]);
    if (!good) {
        free(parts);
        return err_set(e, ERR_DATA_LOSS, "%s: damaged", name);
    }
    *out = parts;
    return ERR_OK;
}

/* ---- where parts lie */

char *snapshot_parts_dir(const char *dir, const struct snapshot_place *place)
{
    return xasprintf("%s/parts-step-%lld-g%lld-j%lld", dir, (long long)place->step,
                     (long long)place->generation, (long long)place->job);
}

char *snapshot_part_path(const char *dir, const struct snapshot_place *place, int part)
{
    CLEANUP(free_text) char *at = snapshot_parts_dir(dir, place);
    return xasprintf("%s/rank-%05d.safetensors", at, part);
}

bool snapshot_part_exists(const char *dir, const struct snapshot_place *place, int part)
{
    CLEANUP(free_text) char *path = snapshot_part_path(dir, place, part);
    return file_exists(path);
}

/* ---- one part */

static enum snapshot_choice part_choice(const struct snapshot_place *place)
{
    return place->own_params ? SNAPSHOT_OWN | SNAPSHOT_PARAMS : SNAPSHOT_OWN;
}

/* A rank that is not behind has the digest of earlier versions. */
static uint64_t digest_numbers(uint64_t digest, int64_t samples, const struct snapshot_behind *behind)
{
    digest = digest64(digest, &samples, sizeof(samples));
    return behind->steps ? digest64(digest, behind, sizeof(*behind)) : digest;
}

/* In the order of the file, so that the file alone tells its digest. */
uint64_t snapshot_part_digest(const struct snapshot_layout *l, const struct snapshot_place *place,
                              const float *state, int64_t samples)
{
    uint64_t all = 0;
    for (int moment = -1; moment < (int)l->moment_count; moment++)
        for (size_t i = 0; i < l->tensor_count && snapshot_chosen(l, moment, part_choice(place)); i++) {
            size_t at = snapshot_tensor_place(l, i, moment);
            if (at != SNAPSHOT_NONE)
                all = digest64(all, state + at, l->tensors[i].count * sizeof(float));
        }
    return digest_numbers(all, samples, &place->behind);
}

uint64_t snapshot_part_digest_divided(const struct snapshot_ranges *ranges, const float *moments)
{
    const struct snapshot_behind none = {0};
    return digest_numbers(divided_digest(ranges, moments), 0, &none);
}

/* What a part is written from. */
struct part_source {
    const struct snapshot_ranges *ranges; /* of divided moments; NULL: of a state */
    const float *values;
    size_t floats;
    int64_t samples;
};

static enum err_code part_write(const char *dir, const struct snapshot_layout *l,
                                const struct snapshot_place *place, int part, const struct part_source *from,
                                int64_t *bytes, struct err *e)
{
    CLEANUP(free_text) char *at = snapshot_parts_dir(dir, place);
    CLEANUP(free_text) char *path = snapshot_part_path(dir, place, part);
    CLEANUP(free_text) char *tmp = xasprintf("%s/.tmp-rank-%05d", at, part);
    struct stat st = {0};
    if (safetensors_ask(l->check, path, e) || snapshot_check_finite(place, from->values, from->floats, e) ||
        snapshot_check_name(dir, place, e) || file_mkdirs(at, 0755, e))
        return e->code;
    if (from->ranges
            ? divided_write(tmp, l, place, from->ranges, from->values, e)
            : snapshot_write_tensors(tmp, l, place, from->samples, part_choice(place), from->values, e)) {
        unlink(tmp); /* on a full disk the next snapshot needs its room */
        return e->code;
    }
    if (fault_hit("snapshot.part"))
        return err_set(e, ERR_INTERNAL, "%s: fault before the rename", path);
    if (rename(tmp, path) < 0)
        return err_sys(e, errno, "cannot rename %s to %s", tmp, path);
    if (file_sync_dir(at, e) || file_sync_dir(dir, e))
        return e->code;
    *bytes = stat(path, &st) == 0 ? st.st_size : 0; /* only shown to people */
    return ERR_OK;
}

enum err_code snapshot_part_write(const char *dir, const struct snapshot_layout *l,
                                  const struct snapshot_place *place, int part, const float *state,
                                  int64_t samples, int64_t *bytes, struct err *e)
{
    const struct part_source from = {.values = state, .floats = snapshot_floats(l), .samples = samples};
    return part_write(dir, l, place, part, &from, bytes, e);
}

enum err_code snapshot_part_write_divided(const char *dir, const struct snapshot_layout *l,
                                          const struct snapshot_place *place, int part,
                                          const struct snapshot_ranges *ranges, const float *moments,
                                          int64_t *bytes, struct err *e)
{
    const struct part_source from = {.ranges = ranges, .values = moments, .floats = ranges->floats};
    return part_write(dir, l, place, part, &from, bytes, e);
}

enum err_code snapshot_part_remove(const char *dir, const struct snapshot_place *place, int part,
                                   struct err *e)
{
    CLEANUP(free_text) char *at = snapshot_parts_dir(dir, place);
    CLEANUP(free_text) char *path = snapshot_part_path(dir, place, part);
    if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR)
        return err_sys(e, errno, "cannot remove %s", path);
    rmdir(at); /* the last rank of this directory succeeds */
    return ERR_OK;
}

static void close_part(struct safetensors **f)
{
    safetensors_close(*f);
}

static enum err_code part_damaged(const char *path, struct err *e)
{
    return err_set(e, ERR_DATA_LOSS, "%s: not the part that was committed: damaged", path);
}

/* The numbers in the file's header. */
static enum err_code part_read_numbers(const struct safetensors *f, int64_t *samples,
                                       struct snapshot_behind *behind, struct err *e)
{
    const char *text = json_get_text(f->metadata, "ddp.behind", "");
    long long steps, epoch, position, all;
    *behind = (struct snapshot_behind){0};
    if (snapshot_metadata_int(f, "ddp.part_samples", samples, e))
        return e->code;
    if (*text && sscanf(text, "%lld %lld %lld %lld", &steps, &epoch, &position, &all) != 4)
        return part_damaged(f->path, e);
    if (*text)
        *behind = (struct snapshot_behind){steps, epoch, position, all};
    return ERR_OK;
}

enum err_code snapshot_part_check(const struct safetensors *f, uint64_t digest,
                                  const struct snapshot_part *want, struct err *e)
{
    struct snapshot_behind behind;
    int64_t samples = 0;
    if (part_read_numbers(f, &samples, &behind, e))
        return e->code;
    return digest_numbers(digest, samples, &behind) == want->digest ? ERR_OK : part_damaged(f->path, e);
}

/* Checks the file's own tensors, which may be more than the layout has. */
static enum err_code part_check_digest(const struct safetensors *f, int64_t samples,
                                       const struct snapshot_behind *behind, const struct snapshot_part *want,
                                       struct err *e)
{
    uint64_t all = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct safetensor *t = &f->tensors[i];
        /* Trainers write floats only. The buffer below has no room for what other types are widened to. */
        if (t->type != SAFETENSORS_F32)
            return err_set(e, ERR_DATA_LOSS,
                           "%s: tensor '%s' is not of type F32, as in all parts: damaged or converted",
                           f->path, t->name);
        float *data = malloc((size_t)(t->to - t->from) + 1);
        if (!data)
            return err_set(e, ERR_RESOURCE_EXHAUSTED, "%s: a copy of tensor '%s': out of memory", f->path,
                           t->name);
        enum err_code code = safetensors_read(f, t->name, t->dims, t->shape, data, e);
        all = code ? 0 : digest64(all, data, (size_t)(t->to - t->from));
        free(data);
        if (code)
            return code;
    }
    return digest_numbers(all, samples, behind) == want->digest ? ERR_OK : part_damaged(f->path, e);
}

enum err_code snapshot_part_read(const char *dir, const struct snapshot_layout *l,
                                 const struct snapshot_place *place, int part,
                                 const struct snapshot_part *want, float *state, int64_t *samples,
                                 struct snapshot_behind *behind, struct err *e)
{
    CLEANUP(free_text) char *path = snapshot_part_path(dir, place, part);
    CLEANUP(close_part) struct safetensors *f = NULL;
    if (safetensors_open(&f, path, e) || part_read_numbers(f, samples, behind, e) ||
        snapshot_read_tensors(f, l, part_choice(place), state, e))
        return e->code;
    return part_check_digest(f, *samples, behind, want, e);
}

/* ---- all parts of a directory */

static enum err_code part_check(const char *dir, const struct snapshot_place *place, int part,
                                const struct snapshot_part *want, bool whole, struct err *e)
{
    CLEANUP(free_text) char *path = snapshot_part_path(dir, place, part);
    CLEANUP(close_part) struct safetensors *f = NULL;
    struct snapshot_behind behind;
    int64_t samples;
    if (safetensors_open(&f, path, e) || part_read_numbers(f, &samples, &behind, e))
        return e->code;
    return whole ? part_check_digest(f, samples, &behind, want, e) : ERR_OK;
}

static bool node_is_listed(char **nodes, const char *node)
{
    for (; nodes && *nodes; nodes++)
        if (!strcmp(*nodes, node))
            return true;
    return false;
}

enum err_code snapshot_parts_check(const char *dir, const char *path, const struct snapshot_place *place,
                                   bool whole, char ***elsewhere, struct err *e)
{
    CLEANUP(free_text) char *memory = NULL;
    char **away = NULL;
    struct snapshot_part *parts = NULL;
    int64_t home = -1;
    *elsewhere = NULL;
    if (snapshot_parts_read(path, place, &parts, e))
        return e->code;
    if (!parts)
        return ERR_OK;
    memory = (char *)parts;
    for (int r = 0; r < (int)place->parts && home < 0; r++)
        home = snapshot_part_exists(dir, place, r) ? parts[r].home : -1;
    if (home < 0) { /* a rank that writes the shared files writes its part, too: some part is always here */
        CLEANUP(free_text) char *at = snapshot_parts_dir(dir, place);
        return err_set(e, ERR_NOT_FOUND, "%s: none of its parts is in %s", path, at);
    }
    for (int r = 0; r < (int)place->parts; r++) {
        bool here = snapshot_part_exists(dir, place, r);
        if (!here && parts[r].home == home) {
            CLEANUP(free_text) char *at = snapshot_part_path(dir, place, r);
            strv_free(away);
            return err_set(e, ERR_NOT_FOUND, "%s: %s is missing", path, at);
        }
        if (here && part_check(dir, place, r, &parts[r], whole, e)) {
            strv_free(away);
            return err_wrap(e, "%s", path);
        }
        if (!here && !node_is_listed(away, parts[r].node))
            away = strv_append(away, parts[r].node);
    }
    *elsewhere = away;
    return ERR_OK;
}
