#ifndef DDP_CLIENT_DIAGNOSE_DIAGNOSIS_FAILURE_H
#define DDP_CLIENT_DIAGNOSE_DIAGNOSIS_FAILURE_H

#include "client/diagnose/diagnosis.h"

/* The part of diagnosis_find for jobs that failed or that start anew after a failure. */
void diagnosis_failure(const Ddp__V1__ProbeJobReply *reply, struct diagnosis *d);

#endif
