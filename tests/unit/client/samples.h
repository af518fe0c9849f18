#ifndef DDP_TESTS_UNIT_CLIENT_SAMPLES_H
#define DDP_TESTS_UNIT_CLIENT_SAMPLES_H

#include "proto/ddp.pb-c.h"

/* Answers of a coordinator for the tests of the screens, in static memory. */

#define NOW INT64_C(1700000000000)

void sample_running(Ddp__V1__JobStatus *job);   /* 4 ranks on 2 nodes, after one restart */
void sample_queued(Ddp__V1__JobStatus *job);    /* waits for GPUs */
void sample_failed(Ddp__V1__JobStatus *job);    /* with seven lines on stderr */
void sample_succeeded(Ddp__V1__JobStatus *job); /* a classifier */
void sample_command(Ddp__V1__JobStatus *job);   /* running, without reports */
void sample_nodes(Ddp__V1__ListNodesReply *reply);

#endif
