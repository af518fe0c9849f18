/* Scans a directory of snapshots: lists those that a run could resume from, and removes those that are no longer needed. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "trainer/snapshot/examine.h"
#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/run.h"
#include "trainer/snapshot/snapshot.h"

/* Lists the names of snapshots. Other names that begin in the same way are of a user's copies. A copy next to its original
 * would count as a second snapshot, and its removal would take the parts that belong to both. */
static enum err_code list_snapshots(const char *dir, char ***out, struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    int64_t step, generation;
    if (snapshot_list_names(dir, "step-", NULL, &names, e))
        return e->code;
    *out = xcalloc(1, sizeof(**out));
    for (size_t i = 0; names[i]; i++)
        if (snapshot_name_parse(names[i], &step, &generation))
            *out = strv_append(*out, names[i]);
    return ERR_OK;
}

/* Whether the snapshot of this place has this name. Else it is a renamed one. */
static bool place_has_name(const struct snapshot_place *place, const char *name)
{
    int64_t step, generation;
    return snapshot_name_parse(name, &step, &generation) && step == place->step &&
           generation == place->generation;
}

/* Reads job, generation and step from run.json and the header of model.safetensors. name: the last part of the path. */
static enum err_code snapshot_identify(const char *path, const char *name, struct snapshot_found *out,
                                       struct err *e)
{
    struct snapshot_place place;
    if (snapshot_read_place(path, &place, e))
        return e->code;
    if (!place_has_name(&place, name))
        return err_set(e, ERR_FAILED_PRECONDITION,
                       "%s: holds the snapshot step-%lld-g%lld under a wrong name", path,
                       (long long)place.step, (long long)place.generation);
    *out = (struct snapshot_found){
        .path = xstrdup(path), .job = place.job, .generation = place.generation, .step = place.step};
    memcpy(out->cluster, place.cluster, sizeof(out->cluster));
    return ERR_OK;
}

static int newest_first(const void *a, const void *b)
{
    const struct snapshot_found *x = a, *y = b;
    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return x->generation > y->generation ? -1 : x->generation < y->generation;
}

/* In the message that offers the snapshot. */
static size_t found_names_size(const struct snapshot_found *f)
{
    size_t size = 0;
    for (char *const *node = f->elsewhere; node && *node; node++)
        size += strlen(*node) + 2;
    return size;
}

enum found_need { FOUND_SKIP, FOUND_LOOK, FOUND_READ };

/* How f must be examined. Its job may have committed snapshots in `by` of the same or a later step and generation. One that
 * was read and has all its parts here makes f useless. Those with parts on other nodes do not, because another node may
 * have lost its parts of them. */
static enum found_need found_need_of(const struct snapshot_found *f, const struct snapshot_list *by)
{
    size_t names = 0;
    int newer = 0;
    for (size_t i = 0; i < by->count; i++) {
        const struct snapshot_found *b = &by->items[i];
        names += found_names_size(b);
        if (!b->committed || b->job != f->job || strcmp(b->cluster, f->cluster) || b->step < f->step ||
            b->generation < f->generation)
            continue;
        if (!b->elsewhere && b->read)
            return FOUND_SKIP;
        newer++;
    }
    if (newer < SNAPSHOT_READ_MOST)
        return FOUND_READ;
    return newer < SNAPSHOT_LIST_MOST && names < SNAPSHOT_NAMES_MOST ? FOUND_LOOK : FOUND_SKIP;
}

static void list_unusable(struct snapshot_list *l, const struct err *why)
{
    log_warn("snapshot_unusable", "why=%s", LOG_Q(why->msg));
    l->unusable = strv_append(l->unusable, why->msg);
}

static void found_release(struct snapshot_found *f)
{
    free(f->path);
    strv_free(f->elsewhere);
}

/* Removes the snapshots that need not be offered, in place, and releases them. The list is newest first, so
 * that snapshots come after those that make them useless. */
static void select_usable(const char *dir, struct snapshot_list *l, size_t count)
{
    qsort(l->items, count, sizeof(*l->items), newest_first);
    for (size_t i = 0; i < count; i++) {
        struct snapshot_found f = l->items[i];
        struct err why = {0};
        enum found_need need = found_need_of(&f, l);
        if (need == FOUND_READ && snapshot_examine(dir, &f, &why) == ERR_OK) {
            l->items[l->count++] = f;
            continue;
        }
        /* An old one without COMMITTED.json is not read. */
        if (need == FOUND_LOOK && snapshot_look_over(dir, &f, &why) == ERR_OK && f.committed) {
            l->items[l->count++] = f;
            continue;
        }
        if (why.code)
            list_unusable(l, &why);
        found_release(&f);
    }
}

enum err_code snapshot_scan(const char *dir, struct snapshot_list *out, struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    struct snapshot_list l = {0};
    size_t count = 0;
    *out = l;
    if (file_presence(dir) == FILE_MISSING)
        return ERR_OK;
    if (list_snapshots(dir, &names, e))
        return e->code;
    l.items = xcalloc(strv_len(names) + 1, sizeof(*l.items));
    for (size_t i = 0; names[i]; i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, names[i]);
        struct err why = {0};
        if (snapshot_identify(path, names[i], &l.items[count], &why))
            list_unusable(&l, &why);
        else
            count++;
    }
    select_usable(dir, &l, count);
    *out = l;
    return ERR_OK;
}

void snapshot_list_release(struct snapshot_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        found_release(&l->items[i]);
    free(l->items);
    strv_free(l->unusable);
    *l = (struct snapshot_list){0};
}

/* Reads run.json and a header and looks for COMMITTED.json, but sums no data, so it is cheap. */
static bool snapshot_look(const char *path, struct snapshot_place *place, enum file_presence *committed)
{
    CLEANUP(free_text) char *name = xasprintf("%s/COMMITTED.json", path);
    struct err ignored;
    *committed = file_presence(name);
    return snapshot_read_place(path, place, &ignored) == ERR_OK;
}

/* ---- setting aside */

/* The first of base, base.2, base.3 and so on that has none of these names. A name comes again if another cluster, or a standalone
 * run, uses the directory, and what was set aside before must stay. The caller frees. */
static char *aside_choose(const char *base, char *const *names)
{
    for (int n = 1;; n++) {
        CLEANUP(free_text) char *aside = n == 1 ? xstrdup(base) : xasprintf("%s.%d", base, n);
        bool taken = false;
        for (char *const *name = names; *name; name++) {
            CLEANUP(free_text) char *path = xasprintf("%s/%s", aside, *name);
            taken |= file_presence(path) == FILE_PRESENT;
        }
        if (!taken)
            return steal(aside);
    }
}

/* All to one directory, because a snapshot and its parts belong together. In this order. */
static enum err_code names_set_aside(const char *dir, const char *base, char *const *names, struct err *e)
{
    if (!names)
        return ERR_OK;
    CLEANUP(free_text) char *aside = aside_choose(base, names);
    if (file_mkdirs(aside, 0755, e))
        return e->code;
    for (; *names; names++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, *names);
        CLEANUP(free_text) char *to = xasprintf("%s/%s", aside, *names);
        if (rename(path, to) < 0)
            return err_sys(e, errno, "cannot set %s aside as %s", path, to);
        log_info("snapshot_set_aside", "path=%s to=%s", LOG_Q(path), LOG_Q(to));
    }
    return file_sync_dir(dir, e);
}

/* Reads step, generation and job from the name of a directory of parts. Returns false for other names. */
static bool parts_name_parse(const char *dir, const char *name, struct snapshot_place *place)
{
    long long step, g, j;
    if (sscanf(name, "parts-step-%lld-g%lld-j%lld", &step, &g, &j) != 3)
        return false;
    *place = (struct snapshot_place){.step = step, .generation = g, .job = j};
    CLEANUP(free_text) char *exact = snapshot_parts_dir(dir, place);
    return !strcmp(name, exact + strlen(dir) + 1);
}

/* Appends the names of parts to *out. Of this cluster's job or of another: the name does not say the cluster, so the generation
 * decides alone. */
static enum err_code list_old_parts(const char *dir, const struct snapshot_place *own, int64_t generation,
                                    char ***out, struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    if (snapshot_list_names(dir, "parts-step-", NULL, &names, e))
        return e->code;
    for (size_t i = 0; names[i]; i++) {
        struct snapshot_place place;
        if (parts_name_parse(dir, names[i], &place) &&
            (place.job != own->job || place.generation <= generation))
            *out = strv_append(*out, names[i]);
    }
    return ERR_OK;
}

enum err_code snapshot_set_aside(const char *dir, const struct snapshot_place *own, int64_t generation,
                                 struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL, **old = NULL;
    CLEANUP(free_text) char *base = xasprintf("%s/set-aside-g%lld", dir, (long long)generation);
    if (file_presence(dir) == FILE_MISSING) /* only rank 0 has made its own */
        return ERR_OK;
    if (list_snapshots(dir, &names, e))
        return e->code;
    for (size_t i = 0; names[i]; i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, names[i]);
        struct snapshot_place place;
        enum file_presence committed;
        /* Snapshots that this job has made since it started from scratch stay. */
        if (snapshot_look(path, &place, &committed) && place.job == own->job &&
            !strcmp(place.cluster, own->cluster) && place.generation > generation)
            continue;
        old = strv_append(old, names[i]);
    }
    if (list_old_parts(dir, own, generation, &old, e))
        return e->code;
    return names_set_aside(dir, base, old, e);
}

/* The cluster's name comes from a file. */
static char *aside_of_run(const char *dir, const struct snapshot_place *place)
{
    char *path = xasprintf("%s/set-aside-%s-j%lld", dir, place->cluster, (long long)place->job);
    for (char *at = path + strlen(dir) + 1; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '-')
            *at = '_';
    return path;
}

/* The parts first: parts without a snapshot would be removed some day, a snapshot without parts is only not offered. */
static enum err_code set_other_aside(const char *dir, const char *name, const struct snapshot_place *place,
                                     struct err *e)
{
    CLEANUP(free_text) char *base = aside_of_run(dir, place);
    CLEANUP(free_text) char *parts = snapshot_parts_dir(dir, place);
    CLEANUP(snapshot_free_names) char **names = NULL;
    if (file_presence(parts) != FILE_MISSING)
        names = strv_append(names, parts + strlen(dir) + 1);
    names = strv_append(names, name);
    return names_set_aside(dir, base, names, e);
}

enum err_code snapshot_set_others_aside(const char *dir, const struct snapshot_place *own, struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    if (file_presence(dir) == FILE_MISSING) /* only rank 0 has made its own */
        return ERR_OK;
    if (list_snapshots(dir, &names, e))
        return e->code;
    for (size_t i = 0; names[i]; i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, names[i]);
        struct snapshot_place place = {0};
        struct err unknown = {0};
        int64_t step, generation;
        if (!snapshot_name_parse(names[i], &step, &generation) || generation != own->generation ||
            step <= own->step)
            continue;
        /* One that names no run stays. It is never replaced. */
        if (snapshot_run_read(path, &place, &unknown) && snapshot_read_place(path, &place, &unknown))
            continue;
        place.step = step;
        place.generation = generation;
        if ((place.job != own->job || strcmp(place.cluster, own->cluster)) &&
            set_other_aside(dir, names[i], &place, e))
            return e->code;
    }
    return ERR_OK;
}

struct kept {
    int64_t generation, step;
    char *path;
    bool judged, best;
    double val_loss;
};

static int kept_newest_first(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    if (x->generation != y->generation)
        return x->generation > y->generation ? -1 : 1;
    return x->step > y->step ? -1 : x->step < y->step;
}

/* Marks the `best` snapshots with the lowest loss; of equal ones, the newer. The list is newest first. */
static void mark_best(struct kept *kept, size_t count, int64_t best)
{
    for (int64_t b = 0; b < best; b++) {
        struct kept *lowest = NULL;
        for (size_t i = 0; i < count; i++)
            if (kept[i].judged && !kept[i].best && (!lowest || kept[i].val_loss < lowest->val_loss))
                lowest = &kept[i];
        if (!lowest)
            return;
        lowest->best = true;
    }
}

#define REMOVED_SUFFIX ".removed"

enum err_code snapshot_remove(const char *dir, const char *path, const struct snapshot_place *place,
                              struct err *e)
{
    CLEANUP(free_text)
    char *removed = xasprintf("%s/.tmp-step-%lld-g%lld-j%lld" REMOVED_SUFFIX, dir, (long long)place->step,
                              (long long)place->generation, (long long)place->job);
    /* Files are removed in any order. If the process died in between, the files that say which run wrote the snapshot might be
     * gone and the largest not, and nobody could remove these any more. The new name alone says that they can go. */
    if (file_remove_tree(removed, e))
        return e->code;
    /* It is missing, or the disk has no room for the name. Then the removal may still make room. */
    if (rename(path, removed) < 0)
        return file_remove_tree(path, e);
    return file_remove_tree(removed, e);
}

/* Leaves what may still be written: of other jobs, and of this generation. */
static enum err_code remove_half_done(const char *dir, const struct snapshot_place *own, struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    if (snapshot_list_names(dir, ".tmp-step-", NULL, &names, e))
        return e->code;
    for (size_t i = 0; names[i]; i++) {
        long long step, g, j;
        int used = 0;
        if (sscanf(names[i], ".tmp-step-%lld-g%lld-j%lld%n", &step, &g, &j, &used) != 3)
            continue;
        if (strcmp(names[i] + used, REMOVED_SUFFIX) && (j != own->job || g >= own->generation))
            continue;
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, names[i]);
        if (file_remove_tree(path, e))
            return e->code;
    }
    return ERR_OK;
}

/* After its snapshot: parts without a snapshot are nothing. */
static enum err_code remove_with_parts(const char *dir, const char *path, const struct snapshot_place *place,
                                       struct err *e)
{
    CLEANUP(free_text) char *parts = snapshot_parts_dir(dir, place);
    return snapshot_remove(dir, path, place, e) ? e->code : file_remove_tree(parts, e);
}

/* Parts of generations that are over, whose shared files were never written. */
static enum err_code remove_lone_parts(const char *dir, const struct snapshot_place *own, int64_t after,
                                       struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    if (snapshot_list_names(dir, "parts-step-", NULL, &names, e))
        return e->code;
    for (size_t i = 0; names[i]; i++) {
        struct snapshot_place place;
        if (!parts_name_parse(dir, names[i], &place) || place.job != own->job ||
            place.generation >= own->generation || place.generation <= after)
            continue;
        CLEANUP(free_text)
        char *shared =
            xasprintf("%s/step-%lld-g%lld", dir, (long long)place.step, (long long)place.generation);
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, names[i]);
        if (file_presence(shared) == FILE_MISSING && file_remove_tree(path, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code snapshot_discard(const char *dir, const struct snapshot_place *place, int part, bool writer,
                               struct err *e)
{
    CLEANUP(free_text)
    char *shared = xasprintf("%s/step-%lld-g%lld", dir, (long long)place->step, (long long)place->generation);
    /* If the name is another run's, the shared files and the parts are, too. */
    if (snapshot_check_name(dir, place, e))
        return e->code;
    /* The shared files first: what a crash leaves is then parts, which are no snapshot. */
    if (writer && snapshot_remove(dir, shared, place, e))
        return e->code;
    return snapshot_part_remove(dir, place, part, e);
}

enum err_code snapshot_prune(const char *dir, const struct snapshot_place *own, int64_t after, int64_t keep,
                             int64_t best, struct err *e)
{
    CLEANUP(snapshot_free_names) char **names = NULL;
    if (remove_half_done(dir, own, e) || list_snapshots(dir, &names, e))
        return e->code;
    size_t count = 0;
    struct kept *kept = xcalloc(strv_len(names) + 1, sizeof(*kept));
    enum err_code code = ERR_OK;
    for (size_t i = 0; names[i] && code == ERR_OK; i++) {
        CLEANUP(free_text) char *path = xasprintf("%s/%s", dir, names[i]);
        struct snapshot_place place;
        enum file_presence committed;
        if (!snapshot_look(path, &place, &committed) || !place_has_name(&place, names[i]) ||
            place.job != own->job || strcmp(place.cluster, own->cluster) || place.generation <= after)
            continue;
        /* Uncommitted snapshots of this generation may still be committed; those of older generations never
         * will be. A snapshot stays if an I/O error hides whether it is committed. */
        if (committed == FILE_PRESENT)
            kept[count++] =
                (struct kept){place.generation, place.step, steal(path), place.judged, false, place.val_loss};
        else if (committed == FILE_MISSING && place.generation < own->generation)
            code = remove_with_parts(dir, path, &place, e);
    }
    qsort(kept, count, sizeof(*kept), kept_newest_first);
    mark_best(kept, count, best);
    for (size_t i = 0; i < count; i++) {
        struct snapshot_place place = {
            .job = own->job, .generation = kept[i].generation, .step = kept[i].step};
        if (code == ERR_OK && (int64_t)i >= keep && !kept[i].best)
            code = remove_with_parts(dir, kept[i].path, &place, e);
        free(kept[i].path);
    }
    free(kept);
    return code ? code : remove_lone_parts(dir, own, after, e);
}
