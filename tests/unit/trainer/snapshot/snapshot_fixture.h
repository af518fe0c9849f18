#ifndef DDP_TESTS_UNIT_TRAINER_SNAPSHOT_SNAPSHOT_FIXTURE_H
#define DDP_TESTS_UNIT_TRAINER_SNAPSHOT_SNAPSHOT_FIXTURE_H

#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/snapshot.h"

/* Snapshots of two tensors and two moments, in a directory that each test gets anew. Every function fails the test if
 * a call fails that it needs. */

#define SNAPSHOT_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_dir_make, fixture_dir_remove)

enum {
    FLOATS = 32 * 3, /* of a state: parameters and two moments */
    PARTS = 3        /* ranks that have parts; 0 and 1 share a node, 2 has its own */
};

extern char fixture_dir[64];
extern const struct snapshot_tensor fixture_tensors[2];
extern const struct snapshot_layout fixture_layout;
extern const struct snapshot_layout
    fixture_apart; /* the same; moment 0 is each rank's own, moment 1 is shared */

int fixture_dir_make(void **state);
int fixture_dir_remove(void **state);
bool fixture_file_exists(const char *name); /* name: below fixture_dir */

void fixture_fill(float *state, float from); /* from, from + 1 and so on */
struct snapshot_place fixture_place_at(int64_t step, int64_t generation);
/* The state is filled from the step's number. */
void fixture_write(const struct snapshot_place *place, bool commit, struct snapshot_files *out);

void fixture_same_place(const struct snapshot_place *a, const struct snapshot_place *b);
/* Compares tensors only, because the gaps of the flat arrays are not stored. */
void fixture_same_tensors(const float *a, const float *b);

struct snapshot_place fixture_place_of_parts(int64_t step, int64_t generation, bool own_params);
/* The state of the rank's part is filled from 100 * rank. */
void fixture_write_part(const struct snapshot_place *place, int rank);
/* Writes and commits the shared files, and writes the parts of ranks `from` and up. The model is 0, -1, -2 and so on. */
void fixture_write_with_parts(const struct snapshot_place *place, int from, struct snapshot_files *out);

#endif
