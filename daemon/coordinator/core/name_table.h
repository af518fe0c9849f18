#ifndef DDP_DAEMON_COORDINATOR_CORE_NAME_TABLE_H
#define DDP_DAEMON_COORDINATOR_CORE_NAME_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* Numbers for names, from 0 on, in the order in which they come. A list of many names is then a list of numbers, and what
 * is known about a name is in an array. All zeros: an empty table. */
struct name_table {
    struct name_entry **entries; /* by number */
    size_t count, cap;
    void *tree; /* the same, by name */
};

#define NAME_NONE UINT32_MAX

/* Returns the name's number; a name that is not in the table is added. likely: a number that the name may well have, so
 * that no search is needed where the names of two lists come in the same order; any value is allowed. */
uint32_t name_table_add(struct name_table *t, const char *name, uint32_t likely);
uint32_t name_table_find(const struct name_table *t, const char *name); /* NAME_NONE: not in the table */
const char *name_table_name(const struct name_table *t, uint32_t number);
void name_table_release(struct name_table *t);

#endif
