#include "base/conf/conf_tree.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/mem.h"

/* Builds a tree from libyaml's events. --set can edit the tree, and the tree keeps the place of every key.
 * Anchors, aliases, tags and further documents are refused: a job file does not need them, and their effect
 * is easy to overlook. */

struct builder {
    yaml_parser_t yaml;
    const char *where;
    struct conf_node *stack[CONF_MAX_DEPTH];
    size_t depth;
    struct conf_node *key; /* a key whose value has not been read yet */
    struct conf_node *root;
    size_t nodes;
    bool document;
};

struct conf_node *conf_tree_node(enum conf_kind kind, const char *where, size_t line, size_t column)
{
    struct conf_node *node = xcalloc(1, sizeof(*node));

    *node = (struct conf_node){.kind = kind, .where = where, .line = line, .column = column};
    return node;
}

void conf_tree_add(struct conf_node *parent, struct conf_node *child)
{
    parent->items = array_grow(parent->items, parent->count, &parent->cap, sizeof(struct conf_node *));
    parent->items[parent->count++] = child;
}

void conf_tree_free(struct conf_node *node)
{
    if (!node)
        return;
    for (size_t i = 0; i < node->count; i++)
        conf_tree_free(node->items[i]);
    free(node->items);
    conf_tree_free(node->key);
    free(node->text);
    free(node);
}

static enum err_code yaml_failed(struct builder *b, struct err *e)
{
    const yaml_parser_t *y = &b->yaml;
    const char *why = y->problem ? y->problem : "cannot be read";

    if (y->error == YAML_READER_ERROR)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: not UTF-8 text: %s at byte %zu", b->where, why,
                       y->problem_offset);
    if (!y->context)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s:%zu:%zu: %s", b->where, y->problem_mark.line + 1,
                       y->problem_mark.column + 1, why);
    return err_set(e, ERR_INVALID_ARGUMENT, "%s:%zu:%zu: %s, %s that starts at line %zu", b->where,
                   y->problem_mark.line + 1, y->problem_mark.column + 1, why, y->context,
                   y->context_mark.line + 1);
}

static enum err_code fail_at(const struct builder *b, const yaml_event_t *event, struct err *e,
                             const char *why)
{
    return err_set(e, ERR_INVALID_ARGUMENT, "%s:%zu:%zu: %s", b->where, event->start_mark.line + 1,
                   event->start_mark.column + 1, why);
}

/* Each key is compared with all keys before it: CONF_MAX_KEYS bounds the time, which grows with the square. */
static enum err_code check_key(const struct conf_node *map, const struct conf_node *key, struct err *e)
{
    const struct conf_node *twin = conf_get(map, key->text);

    if (map->count == CONF_MAX_KEYS)
        return conf_fail(key, e, "too many keys: at most %d are allowed in one map", CONF_MAX_KEYS);
    if (twin)
        return conf_fail(key, e, "key '%s' is given twice: line %zu has it, too", key->text, twin->key->line);
    return ERR_OK;
}

/* Adds a scalar, or a map or list that has just begun, to the innermost open map or list. Takes ownership, on
 * failure too. */
static enum err_code builder_place_node(struct builder *b, struct conf_node *node, struct err *e)
{
    struct conf_node *top = b->depth ? b->stack[b->depth - 1] : NULL;

    if (!top) {
        b->root = node;
        return ERR_OK;
    }
    if (top->kind == CONF_MAP && !b->key) {
        b->key = node;
        if (node->kind != CONF_SCALAR)
            return conf_fail(node, e, "a key must be text");
        return check_key(top, node, e);
    }
    node->key = steal(b->key);
    conf_tree_add(top, node);
    return ERR_OK;
}

static struct conf_node *node_of(struct builder *b, const yaml_event_t *event, enum conf_kind kind)
{
    return conf_tree_node(kind, b->where, event->start_mark.line + 1, event->start_mark.column + 1);
}

static enum err_code add_scalar(struct builder *b, const yaml_event_t *event, struct err *e)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    struct conf_node *node;

    if (strlen(text) != len)
        return fail_at(b, event, e, "text must not contain a NUL byte");
    node = node_of(b, event, CONF_SCALAR);
    node->text = xstrdup(text);
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return builder_place_node(b, node, e);
}

static enum err_code add_inner(struct builder *b, const yaml_event_t *event, enum conf_kind kind,
                               struct err *e)
{
    struct conf_node *node;

    if (b->depth == CONF_MAX_DEPTH)
        return fail_at(b, event, e, "nested too deeply: at most 32 levels are allowed");
    node = node_of(b, event, kind);
    if (builder_place_node(b, node, e))
        return e->code;
    b->stack[b->depth++] = node;
    return ERR_OK;
}

static bool has_extras(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor || event->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor || event->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor || event->data.mapping_start.tag;
    default:
        return event->type == YAML_ALIAS_EVENT;
    }
}

static enum err_code builder_take_event(struct builder *b, const yaml_event_t *event, struct err *e)
{
    if (has_extras(event))
        return fail_at(b, event, e, "anchors, aliases and tags are not supported: write the value out");
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->document)
            return fail_at(b, event, e, "a second YAML document starts here: put only one into a file");
        b->document = true;
        return ERR_OK;
    case YAML_SCALAR_EVENT:
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        if (++b->nodes > CONF_MAX_NODES)
            return fail_at(b, event, e, "too many values: at most 100000 are allowed");
        if (event->type == YAML_SCALAR_EVENT)
            return add_scalar(b, event, e);
        return add_inner(b, event, event->type == YAML_MAPPING_START_EVENT ? CONF_MAP : CONF_LIST, e);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return ERR_OK;
    default: /* the starts and ends of the stream and of the document */
        return ERR_OK;
    }
}

static enum err_code builder_run(struct builder *b, struct err *e)
{
    yaml_event_t event;

    for (;;) {
        bool last;

        if (!yaml_parser_parse(&b->yaml, &event))
            return yaml_failed(b, e);
        last = event.type == YAML_STREAM_END_EVENT;
        e->code = ERR_OK;
        if (builder_take_event(b, &event, e)) {
            yaml_event_delete(&event);
            return e->code;
        }
        yaml_event_delete(&event);
        if (last)
            return ERR_OK;
    }
}

static enum err_code check_root(struct builder *b, bool any_kind, struct err *e)
{
    if (!b->root)
        b->root = conf_tree_node(any_kind ? CONF_SCALAR : CONF_MAP, b->where, 1, 1);
    if (b->root->kind == CONF_SCALAR && !b->root->text) {
        b->root->text = xstrdup("");
        b->root->plain = true;
    }
    if (!any_kind && b->root->kind != CONF_MAP) {
        if (!conf_is_null(b->root))
            return conf_fail(b->root, e, "expected a map of 'key: value' lines");
        b->root->kind = CONF_MAP;
    }
    return ERR_OK;
}

enum err_code conf_tree_parse(struct conf_node **out, const char *text, size_t len, const char *where,
                              bool any_kind, struct err *e)
{
    struct builder b = {.where = where};
    enum err_code code;

    if (len > CONF_MAX_BYTES)
        return err_set(e, ERR_INVALID_ARGUMENT, "%s: larger than %d bytes", where, CONF_MAX_BYTES);
    BUG_ON(!yaml_parser_initialize(&b.yaml));
    yaml_parser_set_encoding(&b.yaml, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.yaml, (const unsigned char *)text, len);
    code = builder_run(&b, e);
    yaml_parser_delete(&b.yaml);
    if (!code)
        code = check_root(&b, any_kind, e);
    conf_tree_free(b.key);
    if (code) {
        conf_tree_free(b.root);
        return code;
    }
    *out = b.root;
    return ERR_OK;
}
