/* The ranks with which tests try the plugin's collectives over NCCL (trainer/device/cuda/nccl): each is a process that sums
 * with the stand-in for NCCL. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "trainer/device/cuda/cuda_stream.h"
#include "trainer/device/cuda/nccl/nccl.h"

enum { RANKS_COUNT = 3000, RANKS_MOST = 8, RANKS_SOON_MS = 5000 };

/* Memory that all ranks of a run share: the group's id, and how far each rank has come. ranks_run clears it. */
struct ranks_shared {
    uint8_t id[4096];
    size_t id_size;
    atomic_int id_made, at[RANKS_MOST];
};

extern struct ranks_shared *ranks_shared;
extern cudaStream_t ranks_stream;   /* the stream of this rank's device */
extern bool ranks_sum_bf16;         /* this rank will sum as bf16 */
extern bool ranks_device_has_error; /* cuda_first_error reports an error of this rank's device */

extern int ranks_told; /* the number of ranks for which ranks_share_id makes an id */

/* In the process of rank r: ends it with exit code 1 if `what` is false. */
#define RANK_CHECK(r, what)                                                                                  \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, r, #what);                           \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* Once, at the start of a test program: cmocka's setup of a group. */
int ranks_setup(void **state);

/* Runs fn for each rank in a process of its own. Each must end well, but killed_rank (-1: none) must kill itself. */
void ranks_run(void (*fn)(int r, int ranks), int ranks, int killed_rank);

/* The functions below run in the process of rank r, and end it if something fails. */

void ranks_wait_value(const atomic_int *what, int value); /* waits until *what is at least value */

/* Rank 0 makes an id; the others wait for it. `number` counts the ids of a run, from 1 on. */
void ranks_share_id(int r, int number);

enum err_code ranks_open_with(struct comm *_Atomic *out, int r, int ranks, int timeout_ms, int stall_ms,
                              struct err *e);
struct comm *ranks_open_group(int r, int ranks);
void ranks_close_group(struct comm *c, int r);

/* An array of RANKS_COUNT numbers on the device: i % 100 + r. */
float *ranks_new_array(int r);

/* Sums such an array over the ranks in three parts, sends four numbers from the last rank, and checks the results. */
void ranks_check_sums(struct comm *c, int r, int ranks);
