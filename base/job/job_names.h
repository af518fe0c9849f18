#ifndef DDP_BASE_JOB_JOB_NAMES_H
#define DDP_BASE_JOB_JOB_NAMES_H

#include "base/job/job.h"

/* The names of the job file's enums, in the order of the enums in job.h. */

extern const char *const job_device_names[];
extern const char *const job_lost_names[];
extern const char *const job_store_names[];
extern const char *const job_restart_names[];
extern const char *const job_idle_names[];
extern const char *const job_symbol_names[];
extern const char *const job_precision_names[];
extern const char *const job_recompute_names[];
extern const char *const job_balance_names[];
extern const char *const job_shard_names[];
extern const char *const job_moments_names[];
extern const char *const job_reproducible_names[];
extern const char *const job_activation_names[];
extern const char *const job_loss_names[];
extern const char *const job_schedule_names[];
extern const char *const job_resume_names[];
extern const char *const job_wire_names[];
extern const char *const job_outer_schedule_names[];

#endif
