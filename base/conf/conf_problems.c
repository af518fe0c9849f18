#include "base/conf/conf_problems.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf/conf_tree.h"
#include "base/mem.h"

#define PROBLEMS_MOST 20 /* a file with more is not a job file */
#define SOURCE_COLUMNS 96

/* Lets conf_fail say which node it was called for. */
static void problems_watch(struct conf_node *node, const struct conf_node **failed)
{
    node->failed = failed;
    if (node->key)
        node->key->failed = failed;
    for (size_t i = 0; i < node->count; i++)
        problems_watch(node->items[i], failed);
}

/* Removes the item, or the item whose key is `failed`, and marks the map or list that it was in. */
static bool problems_remove(struct conf_node *node, const struct conf_node *failed)
{
    for (size_t i = 0; i < node->count; i++) {
        struct conf_node *item = node->items[i];
        if (item == failed || item->key == failed) {
            conf_tree_free(item);
            memmove(&node->items[i], &node->items[i + 1], (node->count - i - 1) * sizeof(*node->items));
            node->count--;
            node->damaged = true;
            return true;
        }
        if (problems_remove(item, failed))
            return true;
    }
    return false;
}

static int compare_problems(const void *a, const void *b)
{
    const struct conf_problem *x = a, *y = b;

    if (!x->line != !y->line)
        return x->line ? -1 : 1;
    if (x->line != y->line)
        return x->line < y->line ? -1 : 1;
    return (x->column > y->column) - (x->column < y->column);
}

void conf_problems_find(struct conf_doc *doc,
                        enum err_code (*read)(const struct conf_doc *doc, void *context, struct err *e),
                        void *context, struct conf_problems *out)
{
    const struct conf_node *failed = NULL;
    struct err e;
    bool goes_on = true;

    *out = (struct conf_problems){0};
    problems_watch(doc->root, &failed);
    while (goes_on && out->count < PROBLEMS_MOST && read(doc, context, &e) != ERR_OK) {
        /* What is said of a map or list as a whole may be due to the part that was removed from it. */
        if (!failed || !failed->damaged) {
            out->list = array_grow(out->list, out->count, &out->cap, sizeof(*out->list));
            out->list[out->count++] = (struct conf_problem){.text = xstrdup(e.msg),
                                                            .line = failed ? failed->line : 0,
                                                            .column = failed ? failed->column : 0};
        }
        goes_on = failed && problems_remove(doc->root, failed);
        failed = NULL;
    }
    if (out->count)
        qsort(out->list, out->count, sizeof(*out->list), compare_problems);
}

void conf_problems_release(struct conf_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++)
        free(problems->list[i].text);
    free(problems->list);
    *problems = (struct conf_problems){0};
}

/* Columns count characters, from 1. */
static size_t byte_of_column(const char *line, size_t column)
{
    size_t at = 0;

    for (size_t i = 1; i < column && line[at]; i++)
        for (at++; ((unsigned char)line[at] & 0xC0) == 0x80;)
            at++;
    return at;
}

void conf_problem_print(const struct conf_problem *problem, const char *source, struct buf *out)
{
    const char *line = source;

    buf_puts(out, problem->text);
    for (size_t i = 1; i < problem->line && line; i++)
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    if (!problem->line || !line)
        return;
    size_t len = strcspn(line, "\r\n"), at = byte_of_column(line, problem->column), from = 0;
    if (at > SOURCE_COLUMNS / 2) /* a long line: its part around the place */
        from = at - SOURCE_COLUMNS / 2;
    if (at >= len || from >= len)
        return;
    while (from && ((unsigned char)line[from] & 0xC0) == 0x80)
        from--;
    size_t shown = len - from < SOURCE_COLUMNS ? len - from : SOURCE_COLUMNS;
    while (from + shown < len && ((unsigned char)line[from + shown] & 0xC0) == 0x80)
        shown--;
    buf_printf(out, "\n    %.*s\n    ", (int)shown, line + from);
    for (size_t i = from; i < at; i++)
        if (((unsigned char)line[i] & 0xC0) != 0x80) /* columns of text, not bytes */
            buf_putc(out, line[i] == '\t' ? '\t' : ' ');
    buf_putc(out, '^');
}
