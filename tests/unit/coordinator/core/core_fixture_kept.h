#ifndef DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_KEPT_H
#define DDP_TESTS_UNIT_COORDINATOR_CORE_CORE_FIXTURE_KEPT_H

#include "tests/unit/coordinator/core/core_fixture.h"

/* Applies the changes of f->out that are new since the last call to f->kept, the records that a store would
 * hold, and appends the texts of their events to f->events. */
void fixture_keep_changes(struct core_fixture *f);

#endif
