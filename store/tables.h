#ifndef DDP_STORE_TABLES_H
#define DDP_STORE_TABLES_H

#include "store/row.h"

/* How each record lies in its table. Private to store/. */
extern const struct table job_table, node_table, generation_table, rank_table, spawn_table, snapshot_table,
    event_table, user_table, audit_table, notice_table;

#endif
