#ifndef DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_KEPT_H
#define DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_KEPT_H

#include "tests/unit/coordinator/core/core_fixture.h"

/* What a restart of the coordinator finds: the records that a store would hold after all changes so far. The
 * texts of the events are collected too. */

/* Applies the changes of f->out that have not been applied yet to f->kept and f->events. */
void fixture_keep_changes(struct core_fixture *f);

#endif
