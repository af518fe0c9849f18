#ifndef DDP_TESTS_UNIT_AGENT_LOGS_LOG_FILES_H
#define DDP_TESTS_UNIT_AGENT_LOGS_LOG_FILES_H

/* Writes a log of job 7, generation 2, on node box1 below `directory`. name: "stdout.log" or "stderr.log"; mode: as for
 * fopen. Fails the test if it cannot. */
void log_file_write(const char *directory, int local_rank, const char *name, const char *mode,
                    const char *text);

#endif
