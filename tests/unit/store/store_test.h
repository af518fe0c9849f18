#ifndef DDP_TESTS_UNIT_STORE_STORE_TEST_H
#define DDP_TESTS_UNIT_STORE_STORE_TEST_H

#include "store/store.h"

/* Records and directories for the store's tests. The records' strings are literals, because the store only
 * reads them. */

#define T(text) ((char *)(text)) /* casts away const: the strings of a record are char * */

char *make_dir(void); /* a new directory below TMPDIR; remove_dir frees the name */
void remove_dir(char *dir);

struct job_record sample_job(int64_t id);
struct generation_record sample_generation(int64_t job, int64_t number);
struct rank_record sample_rank(int64_t job, int64_t generation, int rank);
struct spawn_record sample_spawn(int64_t job, int64_t spawn);
struct event_record sample_event(int64_t job, const char *text);

/* Opens, or fails the test with the message. */
struct store *must_open(const char *dir);
void must_commit(struct store *s, const struct change *changes, size_t count);
void insert_job(struct store *s, int64_t id);
/* Fills *id with a request id like "r-17". */
struct job_record numbered_job(int64_t id, char request_id[32]);

#endif
