#ifndef DDP_TRAINER_MEMBER_COLL_DEVICE_COMM_H
#define DDP_TRAINER_MEMBER_COLL_DEVICE_COMM_H

#include "trainer/member/coll/group.h"

/* Opens the device's own collectives if the devices of all ranks have the same ones. */
MUST_CHECK enum err_code device_comm_form(struct coll_group *g, const struct coll_config *config,
                                          int64_t deadline, struct err *e);
void device_comm_abort(struct coll_group *g); /* any thread */

#endif
