#ifndef DDP_TRAINER_TEST_WAIT_H
#define DDP_TRAINER_TEST_WAIT_H

#include "trainer/trainer.h"

/* Waits for tests. The first returns early if the process is asked to stop or its generation is over, the others do not. */

/* With DDP_TEST_STEP_MS=20, until 20 ms have passed since the last step of this process began. So a job takes a known time and
 * little processor time. With DDP_TEST_STEP_MS=20:PATH, only while the file PATH exists. */
void test_wait_pace(struct trainer *t);
/* With DDP_TEST_HOLD_STEP=40:PATH, in the 40th step of the run, while the file PATH exists. */
void test_wait_hold(const struct trainer *t);
/* With DDP_TEST_STUCK=PATH, while the file PATH begins with "<this process's ID> spin" or "<...> kernel": the process computes, or
 * waits in the kernel where only SIGKILL ends it. */
void test_wait_stuck(const struct trainer *t);
/* With DDP_TEST_HOLD_COPY=40:PATH, in the copy of the state after 40 steps, before its last array, while the file PATH exists. */
void test_wait_copy(const struct trainer *t);
/* Returns ms, or with DDP_TEST_SPACE_WAIT_MS=2000 that time: how long the last snapshot waits for space. */
int64_t test_wait_space(int64_t ms);

#endif
