#ifndef DDP_TRAINER_SNAPSHOT_EXAMINE_H
#define DDP_TRAINER_SNAPSHOT_EXAMINE_H

#include "trainer/snapshot/safetensors.h"
#include "trainer/snapshot/snapshot.h"

/* For this folder. What a user of snapshots needs of examine.c is in snapshot.h. */

/* Lists the names in dir that start with prefix or end with suffix (either may be NULL), sorted. */
MUST_CHECK enum err_code snapshot_list_names(const char *dir, const char *prefix, const char *suffix,
                                             char ***out, struct err *e);
void snapshot_free_names(char ***names); /* for CLEANUP */

/* Whether `name` is the name of a snapshot, step-<N>-g<generation>, and nothing more: step-100-g1.bak is a user's copy. */
bool snapshot_name_parse(const char *name, int64_t *step, int64_t *generation);

/* snapshot_sum that asks `check` before each file; NULL: it does not. */
MUST_CHECK enum err_code snapshot_sum_unless(const char *path, const struct safetensors_check *check,
                                             struct snapshot_files *out, struct err *e);
/* Checks whether the snapshot is complete and committed. Reads all its files, and its parts in dir. Fills what f has beside
 * its path and place. DATA_LOSS or NOT_FOUND: it is damaged, or lacks a file. */
MUST_CHECK enum err_code snapshot_examine(const char *dir, struct snapshot_found *f, struct err *e);
/* The same for an old snapshot, in little time: checks that all files are there and as long as their headers say, but reads
 * no tensors. Takes the digest from COMMITTED.json; f->committed stays false if there is none. Reads all if the file
 * SNAPSHOT_LOAD_FAILED is there. */
MUST_CHECK enum err_code snapshot_look_over(const char *dir, struct snapshot_found *f, struct err *e);

#endif
