#ifndef DDP_DAEMON_AGENT_OBSERVE_WORKER_SAMPLES_H
#define DDP_DAEMON_AGENT_OBSERVE_WORKER_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/agent/observe/process.h"

/* Reads /proc and the log files of a list of workers once: CPU time, state, last output, with `measure`
 * memory and bytes of storage, and with `detail` what a probe shows of each process. Runs in a pool thread and touches only its own struct. */

#define SAMPLE_PROCESSES 24 /* of one worker in a detailed sample; sleeping ones are left out first */
#define SAMPLE_STACK 8      /* functions of a kernel stack */
#define SAMPLE_STACK_TEXT 256

struct sampled_process {
    struct process p;
    char call[PROCESS_CALL], target[PROCESS_TARGET];
    char **stack;
};

struct worker_sample {
    /* in */
    int64_t job, spawn, pid;
    char *log_dir; /* of this worker; holds stdout.log and stderr.log */
    bool detail;
    bool wait;    /* the caller wants the call in which it waits, and its kernel stack */
    bool measure; /* what all its processes use is wanted */
    char *cgroup; /* its cgroup; NULL: none. Has also processes that are not its descendants */
    /* out */
    bool there;
    char stuck; /* 'T': stopped, 'D': waiting in the kernel, 0: neither */
    /* With `wait`: process_wait and process_wait_own of the process that is stuck, or else of the one that does the work;
     * and that process's kernel stack, "pipe_read, vfs_read", empty if it may not be read. */
    char call[PROCESS_CALL], target[PROCESS_TARGET], stack[SAMPLE_STACK_TEXT];
    int own_wait;
    int64_t cpu_ms;
    /* With `measure`. used_cpu_ms: as cpu_ms, but of the cgroup's processes, too. Bytes: -1: unknown. */
    int64_t used_cpu_ms, memory_bytes, read_bytes, write_bytes;
    int64_t output_ms; /* wall time of the last byte of output, 0: none */
    struct sampled_process *processes;
    size_t process_count, left_out;
};

struct worker_samples {
    struct worker_sample *items;
    size_t count;
    int64_t took_ms; /* how long the reading took */
    int64_t done_ms; /* CLOCK_BOOTTIME: when it ended */
};

void worker_samples_take(struct worker_samples *look);
void worker_samples_release(struct worker_samples *look);

#endif
