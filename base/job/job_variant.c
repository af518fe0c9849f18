#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/job/job_variant.h"
#include "base/mem.h"
#include "base/text.h"

/* Maps with a `type` key: finds the table of the type. */

/* Appends the names of the supported variants: "linear or mlp". */
static void list_variants(struct buf *out, const struct job_variant *all, size_t count)
{
    size_t usable = 0, seen = 0;

    for (size_t i = 0; i < count; i++)
        usable += all[i].fields != NULL;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].fields)
            continue;
        buf_printf(out, "%s%s", text_separator(seen++, usable, " or "), all[i].name);
    }
}

static enum err_code variant_refuse(const struct conf_node *place, const struct job_variant *all,
                                    size_t count, bool known, const char *kind, struct err *e)
{
    CLEANUP(buf_release) struct buf names = {0};

    list_variants(&names, all, count);
    if (known)
        return conf_fail(place, e, "%s type '%.64s' is not supported yet: use %s", kind, conf_scalar(place),
                         names.data);
    return conf_fail(place, e, "invalid %s type: expected %s, got '%.64s'", kind, names.data,
                     conf_scalar(place));
}

enum err_code job_pick(const struct conf_node *map, const struct job_variant *all, size_t count, int fallback,
                       const char *kind, int *index, struct err *e)
{
    const struct conf_node *type;
    CLEANUP(buf_release) struct buf names = {0};

    if (!conf_is_map(map)) {
        const char *name = all[0].name;
        char expected[64];

        for (size_t i = 0; conf_is_scalar(map) && i < count; i++)
            if (all[i].fields && !strcmp(conf_scalar(map), all[i].name))
                name = all[i].name;
        snprintf(expected, sizeof(expected), "a map such as {type: %s}", name);
        return conf_refuse(map, kind, expected, e);
    }
    type = conf_get(map, "type");
    if (!type && fallback >= 0) {
        *index = fallback;
        return ERR_OK;
    }
    list_variants(&names, all, count);
    if (!type)
        return conf_fail(map, e, "'%s' has no key 'type', which is required: %s", kind, names.data);
    if (!conf_is_scalar(type))
        return conf_refuse(type, "type", names.data, e);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(conf_scalar(type), all[i].name))
            continue;
        if (!all[i].fields) /* a later version may support it, so it is not "unknown" */
            return variant_refuse(type, all, count, true, kind, e);
        *index = (int)i;
        return ERR_OK;
    }
    return variant_refuse(type, all, count, false, kind, e);
}

static bool has_key(const struct job_variant *v, const char *key)
{
    const struct conf_field *f = v->fields;

    while (f && f->key && strcmp(f->key, key))
        f++;
    return f && f->key;
}

static enum err_code key_refuse(const struct conf_node *place, const struct job_variant *all, size_t count,
                                const char *kind, const struct job_variant *chosen, const char *key,
                                struct err *e)
{
    CLEANUP(buf_release) struct buf names = {0}, keys = {0};
    size_t have = 0, seen = 0;

    for (size_t i = 0; i < count; i++)
        have += has_key(&all[i], key);
    for (size_t i = 0; i < count; i++)
        if (has_key(&all[i], key))
            buf_printf(&names, "%s%s", text_separator(seen++, have, " and "), all[i].name);
    for (const struct conf_field *f = chosen->fields; f->key; f++)
        buf_printf(&keys, "%s%s", keys.len ? ", " : "", f->key);
    return conf_fail(place, e, "'%s' is a key of %s type %s; %s has %s", key, kind, names.data, chosen->name,
                     keys.data);
}

/* Refuses keys that only other types have, such as `wire` in {type: average, wire: int4}. */
static enum err_code check_keys(const struct conf_node *map, const struct job_variant *all, size_t count,
                                const char *kind, const struct job_variant *chosen, struct err *e)
{
    for (size_t i = 0; i < count; i++)
        for (const struct conf_field *f = all[i].fields; f && f->key; f++)
            if (conf_get(map, f->key) && !has_key(chosen, f->key))
                return key_refuse(conf_get(map, f->key), all, count, kind, chosen, f->key, e);
    return ERR_OK;
}

enum err_code job_read_variant(const struct conf_node *map, const struct job_variant *all, size_t count,
                               const char *kind, int type, void *at, struct err *e)
{
    const struct job_variant *chosen = &all[type];

    return check_keys(map, all, count, kind, chosen, e) ? e->code : conf_read_map(map, chosen->fields, at, e);
}

enum err_code job_ignore(const struct conf_node *node, void *at, struct err *e)
{
    (void)node;
    (void)at;
    (void)e;
    return ERR_OK;
}

const struct conf_node *job_either(const struct conf_node *map, const char *key)
{
    const struct conf_node *node = conf_get(map, key);

    return node ? node : map;
}
