#ifndef DDP_TESTS_UNIT_CLIENT_SAMPLES_H
#define DDP_TESTS_UNIT_CLIENT_SAMPLES_H

#include "proto/ddp.pb-c.h"

/* Sample answers of a coordinator, for the tests of the screens. They lie in static memory: a second call
 * overwrites the first. */

#define NOW INT64_C(1700000000000)

void sample_running(Ddp__V1__JobStatus *job);   /* 4 ranks on 2 nodes, after one restart */
void sample_queued(Ddp__V1__JobStatus *job);    /* waits for GPUs */
void sample_failed(Ddp__V1__JobStatus *job);    /* the failed rank wrote seven lines to stderr */
void sample_succeeded(Ddp__V1__JobStatus *job); /* trained a classifier */
void sample_command(Ddp__V1__JobStatus *job);   /* runs a command that sends no reports */
void sample_nodes(Ddp__V1__ListNodesReply *reply);

#endif
