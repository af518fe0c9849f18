#ifndef DDP_BASE_CONF_CONF_TREE_H
#define DDP_BASE_CONF_CONF_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/conf/conf.h"

/* The tree behind conf.h, shared by its own files only. The document owns every node. */

enum conf_kind { CONF_SCALAR, CONF_MAP, CONF_LIST };

struct conf_node {
    enum conf_kind kind;
    const char *where;     /* borrowed from the document */
    size_t line, column;   /* both from 1; line 0: messages name `where` only (--set) */
    char *text;            /* scalar */
    bool plain;            /* scalar without quotes */
    struct conf_node *key; /* this node's key in its map, or NULL; owned */
    struct conf_node **items;
    size_t count, cap;
    /* conf_problems.c */
    const struct conf_node **failed; /* where conf_fail notes the node; NULL: nowhere */
    bool damaged;                    /* an item with an error was removed from it */
};

struct conf_doc {
    char **places; /* NULL-terminated: the names that nodes borrow */
    struct conf_node *root;
};

enum { CONF_MAX_BYTES = 1 << 20, CONF_MAX_DEPTH = 32, CONF_MAX_NODES = 100000, CONF_MAX_KEYS = 1024 };

/* Parses one YAML document; *out is a map node, empty for an empty text, unless any_kind. */
MUST_CHECK enum err_code conf_tree_parse(struct conf_node **out, const char *text, size_t len,
                                         const char *where, bool any_kind, struct err *e);
struct conf_node *conf_tree_node(enum conf_kind kind, const char *where, size_t line, size_t column);
void conf_tree_add(struct conf_node *parent, struct conf_node *child);
void conf_tree_free(struct conf_node *node);
bool conf_is_null(const struct conf_node *node); /* nothing, ~ or null, unquoted */

#endif
