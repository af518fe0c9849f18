#ifndef DDP_TESTS_UNIT_TRAINER_MEMBER_SYNC_DILOCO_REFERENCE_H
#define DDP_TESTS_UNIT_TRAINER_MEMBER_SYNC_DILOCO_REFERENCE_H

#include "tests/unit/trainer/member/sync/quadratic.h"

/* diloco in plain double precision, all ranks in one process. out: the PARAMS values that quadratic_run gives. size: ranks,
 * at most 5. */
void diloco_reference(double *out, int size, const struct quadratic *u);

#endif
