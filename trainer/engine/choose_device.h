#ifndef DDP_TRAINER_ENGINE_CHOOSE_DEVICE_H
#define DDP_TRAINER_ENGINE_CHOOSE_DEVICE_H

#include "trainer/engine/engine.h"

/* Opens the device that the job asks for. FAILED_PRECONDITION: the job needs a GPU, and there is none. */
MUST_CHECK enum err_code choose_device(struct device **out, const struct engine_config *config,
                                       struct err *e);

#endif
