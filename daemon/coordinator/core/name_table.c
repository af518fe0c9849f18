/* The tree is balanced (tsearch), because workers choose the names: no choice of names makes a search slow. */
#include "daemon/coordinator/core/name_table.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct name_entry {
    char *name;
    uint32_t number;
};

static int compare_entries(const void *a, const void *b)
{
    const struct name_entry *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static struct name_entry *tree_find_entry(const struct name_table *t, const char *name)
{
    const struct name_entry wanted = {.name = (char *)(uintptr_t)name};
    struct name_entry *const *found = tfind(&wanted, &t->tree, compare_entries);

    return found ? *found : NULL;
}

uint32_t name_table_find(const struct name_table *t, const char *name)
{
    const struct name_entry *entry = tree_find_entry(t, name);

    return entry ? entry->number : NAME_NONE;
}

uint32_t name_table_add(struct name_table *t, const char *name, uint32_t likely)
{
    if (likely < t->count && !strcmp(t->entries[likely]->name, name))
        return likely;
    struct name_entry *entry = tree_find_entry(t, name);
    if (entry)
        return entry->number;
    entry = xcalloc(1, sizeof(*entry));
    *entry = (struct name_entry){.name = xstrdup(name), .number = (uint32_t)t->count};
    t->entries = array_grow(t->entries, t->count, &t->cap, sizeof(struct name_entry *));
    t->entries[t->count++] = entry;
    BUG_ON(!tsearch(entry, &t->tree, compare_entries)); /* no memory */
    return entry->number;
}

const char *name_table_name(const struct name_table *t, uint32_t number)
{
    return t->entries[number]->name;
}

static void free_entry(void *entry)
{
    free(((struct name_entry *)entry)->name);
    free(entry);
}

void name_table_release(struct name_table *t)
{
    tdestroy(t->tree, free_entry);
    free(t->entries);
    *t = (struct name_table){0};
}
