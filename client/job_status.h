#ifndef DDP_CLIENT_JOB_STATUS_H
#define DDP_CLIENT_JOB_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/ddp.pb-c.h"

/* What a job's status means. No state, no clock; any thread. */

bool job_status_ended(const Ddp__V1__JobStatus *job); /* succeeded, failed or cancelled */
bool job_status_succeeded(const Ddp__V1__JobStatus *job);
/* ddpctl's exit code for a job that has ended. */
int job_status_exit_code(const Ddp__V1__JobStatus *job);

/* The newest value of a metric; false: the job has not reported it. */
bool job_status_metric(const Ddp__V1__JobStatus *job, const char *name, double *value);
/* `balance: speed`: appends which rank takes how many samples of a step, as balance_print does. False: the job does not have
 * that key, or not all ranks have reported. */
struct buf;
bool job_status_put_balance(const Ddp__V1__JobStatus *job, struct buf *out);
double job_status_fraction(const Ddp__V1__JobStatus *job); /* share of the steps that are done; -1: unknown */
int64_t job_status_eta_ms(const Ddp__V1__JobStatus *job);  /* time until the last step; -1: unknown */
/* "3rd in line, starts about 14:20, when job 9 ends on box2; at once with --nodes 1". False: the coordinator says nothing about its
 * start, because the job is not in the queue, or cannot run on the present nodes. */
bool job_status_put_start(const Ddp__V1__JobStatus *job, int64_t now_ms, struct buf *out);
/* Time since the job's first start, or since it was submitted; up to its end if it has ended. */
int64_t job_status_run_ms(const Ddp__V1__JobStatus *job, int64_t now_ms);

#endif
