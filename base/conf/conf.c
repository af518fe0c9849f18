#include "base/conf/conf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/conf/conf_tree.h"
#include "base/file.h"
#include "base/mem.h"

enum err_code conf_open(struct conf_doc **out, const char *text, size_t len, const char *where, struct err *e)
{
    struct conf_doc *doc = xcalloc(1, sizeof(*doc));

    doc->places = strv_append(NULL, where);
    if (conf_tree_parse(&doc->root, text, len, doc->places[0], false, e)) {
        conf_close(doc);
        return e->code;
    }
    *out = doc;
    return ERR_OK;
}

enum err_code conf_open_file(struct conf_doc **out, const char *path, struct err *e)
{
    CLEANUP(buf_release) struct buf text = {0};

    if (file_read(path, CONF_MAX_BYTES, &text, e)) {
        if (e->code == ERR_RESOURCE_EXHAUSTED && text.len) /* the file was read and is too large */
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: larger than %d KiB: move data to other files", path,
                           CONF_MAX_BYTES >> 10);
        return e->code;
    }
    return conf_open(out, text.data, text.len, path, e);
}

void conf_close(struct conf_doc *doc)
{
    if (!doc)
        return;
    conf_tree_free(doc->root);
    strv_free(doc->places);
    free(doc);
}

const struct conf_node *conf_root(const struct conf_doc *doc)
{
    return doc->root;
}

bool conf_is_scalar(const struct conf_node *node)
{
    return node->kind == CONF_SCALAR;
}

bool conf_is_map(const struct conf_node *node)
{
    return node->kind == CONF_MAP;
}

bool conf_is_list(const struct conf_node *node)
{
    return node->kind == CONF_LIST;
}

bool conf_is_plain(const struct conf_node *node)
{
    return node->kind == CONF_SCALAR && node->plain;
}

bool conf_is_null(const struct conf_node *node)
{
    return conf_is_plain(node) && (!*node->text || !strcmp(node->text, "~") || !strcmp(node->text, "null"));
}

const char *conf_scalar(const struct conf_node *node)
{
    return node->kind == CONF_SCALAR ? node->text : NULL;
}

const char *conf_key(const struct conf_node *node)
{
    return node->key ? node->key->text : "value";
}

const char *conf_where(const struct conf_node *node)
{
    return node->where;
}

const struct conf_node *conf_get(const struct conf_node *map, const char *key)
{
    for (size_t i = 0; map->kind == CONF_MAP && i < map->count; i++)
        if (!strcmp(map->items[i]->key->text, key))
            return map->items[i];
    return NULL;
}

const struct conf_node *conf_at(const struct conf_node *list, size_t index)
{
    return list->kind != CONF_SCALAR && index < list->count ? list->items[index] : NULL;
}

size_t conf_count(const struct conf_node *node)
{
    return node->count;
}

enum err_code conf_fail(const struct conf_node *node, struct err *e, const char *fmt, ...)
{
    size_t used;
    va_list ap;

    e->code = ERR_INVALID_ARGUMENT;
    if (node->failed)
        *node->failed = node;
    if (node->line)
        snprintf(e->msg, sizeof(e->msg), "%s:%zu:%zu: ", node->where, node->line, node->column);
    else
        snprintf(e->msg, sizeof(e->msg), "%s: ", node->where);
    used = strlen(e->msg);
    va_start(ap, fmt);
    vsnprintf(e->msg + used, sizeof(e->msg) - used, fmt, ap);
    va_end(ap);
    return e->code;
}

static struct conf_node *find_item(const struct conf_node *map, const char *key, size_t *index)
{
    for (size_t i = 0; i < map->count; i++)
        if (!strcmp(map->items[i]->key->text, key)) {
            *index = i;
            return map->items[i];
        }
    *index = map->count;
    return NULL;
}

/* The place of a node from --set is the option itself, without line and column. */
static void forget_lines(struct conf_node *node)
{
    node->line = 0;
    if (node->key)
        node->key->line = 0;
    for (size_t i = 0; i < node->count; i++)
        forget_lines(node->items[i]);
}

static void conf_node_put(struct conf_node *map, size_t index, const char *key, const char *where,
                          struct conf_node *value)
{
    value->key = conf_tree_node(CONF_SCALAR, where, 0, 0);
    value->key->text = xstrdup(key);
    if (index < map->count) {
        conf_tree_free(map->items[index]);
        map->items[index] = value;
    } else {
        conf_tree_add(map, value);
    }
}

/* Follows the dotted path, makes missing maps, and puts value at its end. Takes value on success only. */
static enum err_code set_at(struct conf_node *map, char *path, const char *where, struct conf_node *value,
                            struct err *e)
{
    for (char *key = path;;) {
        char *dot = strchr(key, '.');
        struct conf_node *next;
        size_t index;

        if (dot)
            *dot = '\0';
        if (!*key)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: invalid path: a key between two dots is empty",
                           where);
        next = find_item(map, key, &index);
        if (!dot) { /* the last key of the path: an earlier value is replaced */
            conf_node_put(map, index, key, where, value);
            return ERR_OK;
        }
        if (!next) {
            next = conf_tree_node(CONF_MAP, where, 0, 0);
            conf_node_put(map, index, key, where, next);
        }
        if (next->kind != CONF_MAP)
            return err_set(e, ERR_INVALID_ARGUMENT, "%s: invalid path: '%s' is not a map", where, key);
        map = next;
        key = dot + 1;
    }
}

enum err_code conf_set(struct conf_doc *doc, const char *assignment, struct err *e)
{
    const char *equals = strchr(assignment, '=');
    CLEANUP(free_text) char *path = NULL;
    CLEANUP(free_text) char *place = NULL;

    if (!equals || equals == assignment)
        return err_set(
            e, ERR_INVALID_ARGUMENT,
            "invalid value for option '--set': expected PATH=VALUE, such as train.optimizer.lr=1e-3, got '%s'",
            assignment);
    path = strndup(assignment, (size_t)(equals - assignment));
    BUG_ON(!path);
    place = xasprintf("--set %s", path);
    return conf_set_as(doc, path, equals + 1, place, e);
}

enum err_code conf_set_as(struct conf_doc *doc, const char *path, const char *text, const char *place,
                          struct err *e)
{
    CLEANUP(free_text) char *steps = xstrdup(path); /* set_at writes NUL bytes into it */
    struct conf_node *value;
    const char *where;

    doc->places = strv_append(doc->places, place);
    where = doc->places[strv_len(doc->places) - 1];
    if (conf_tree_parse(&value, text, strlen(text), where, true, e))
        return e->code;
    forget_lines(value);
    if (set_at(doc->root, steps, where, value, e)) {
        conf_tree_free(value);
        return e->code;
    }
    return ERR_OK;
}

static int append_output(void *buf, unsigned char *data, size_t size)
{
    buf_append(buf, data, size);
    return 1;
}

static void conf_node_emit(yaml_emitter_t *out, const struct conf_node *node)
{
    yaml_event_t event;
    const char *text = conf_is_null(node) ? "null" : node->text;

    if (node->kind == CONF_SCALAR) {
        /* A quoted scalar stays in quotes: without them it could be read as a number. */
        yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text, (int)strlen(text), 1, 1,
                                     node->plain ? YAML_PLAIN_SCALAR_STYLE : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
        BUG_ON(!yaml_emitter_emit(out, &event));
        return;
    }
    if (node->kind == CONF_MAP)
        yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE);
    else
        yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE);
    BUG_ON(!yaml_emitter_emit(out, &event));
    for (size_t i = 0; i < node->count; i++) {
        if (node->kind == CONF_MAP)
            conf_node_emit(out, node->items[i]->key);
        conf_node_emit(out, node->items[i]);
    }
    if (node->kind == CONF_MAP)
        yaml_mapping_end_event_initialize(&event);
    else
        yaml_sequence_end_event_initialize(&event);
    BUG_ON(!yaml_emitter_emit(out, &event));
}

char *conf_print(const struct conf_doc *doc)
{
    CLEANUP(buf_release) struct buf text = {0};
    yaml_emitter_t out;
    yaml_event_t event;

    BUG_ON(!yaml_emitter_initialize(&out));
    yaml_emitter_set_output(&out, append_output, &text);
    yaml_emitter_set_unicode(&out, 1);
    yaml_emitter_set_width(&out, -1);
    yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING);
    BUG_ON(!yaml_emitter_emit(&out, &event));
    yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 1);
    BUG_ON(!yaml_emitter_emit(&out, &event));
    conf_node_emit(&out, doc->root);
    yaml_document_end_event_initialize(&event, 1);
    BUG_ON(!yaml_emitter_emit(&out, &event));
    yaml_stream_end_event_initialize(&event);
    BUG_ON(!yaml_emitter_emit(&out, &event));
    yaml_emitter_delete(&out);
    return buf_steal(&text);
}
