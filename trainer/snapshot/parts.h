#ifndef DDP_TRAINER_SNAPSHOT_PARTS_H
#define DDP_TRAINER_SNAPSHOT_PARTS_H

#include "base/buf.h"
#include "trainer/snapshot/snapshot.h"

/* Parts: what each rank has of its own in a snapshot, where ranks differ. Rank R writes
 *
 *     parts-step-<N>-g<generation>-j<job>/rank-<R>.safetensors
 *
 * into snapshot.dir of its node: moments, own arrays of the strategy (error feedback), samples of the open round, and
 * within a round its parameters; also its own place, if it was stopped before the newest rank. No state crosses the
 * network. With divided moments (shard: optimizer), a part holds the moments of the parameters that the rank updates, and nothing
 * else (divided.h). The directory lies beside step-<N>-g<generation>, which holds what ranks share, because several processes
 * write parts, and each part appears by a rename of its own.
 *
 * The ranks agree on parts.json before anything is written: for each part a digest of its numbers, the node, and the
 * `home`, the rank that writes the shared files of that directory. parts.json is one of the shared files, so the one
 * digest that the coordinator commits vouches for all parts. The coordinator commits when each rank has said that its
 * files are on disk.
 *
 * A directory that holds a part should hold all parts of the same home. If one is missing or damaged there, the
 * snapshot is not offered there. The coordinator then chooses an older snapshot that all nodes of the generation have
 * whole, or its rules for lost snapshots apply. */

#define SNAPSHOT_PARTS_FILE "parts.json"
#define SNAPSHOT_NODE 64

struct snapshot_part {
    uint64_t digest;
    int64_t home;
    char node[SNAPSHOT_NODE];
    /* Divided moments: the parameters whose moments the part holds, in the order of the model's tensors. Else 0. */
    int64_t first, count;
};

void snapshot_parts_print(struct buf *out, const struct snapshot_part *parts, size_t count);
/* From a snapshot's directory; the caller frees. *out NULL: it has no parts.json. DATA_LOSS: damaged, or not
 * place->parts of them. */
MUST_CHECK enum err_code snapshot_parts_read(const char *path, const struct snapshot_place *place,
                                             struct snapshot_part **out, struct err *e);

/* The caller frees. dir: snapshot.dir. */
char *snapshot_parts_dir(const char *dir, const struct snapshot_place *place);
char *snapshot_part_path(const char *dir, const struct snapshot_place *place, int part);
bool snapshot_part_exists(const char *dir, const struct snapshot_place *place, int part);

/* Of what a part keeps of the state, and of place->behind. */
uint64_t snapshot_part_digest(const struct snapshot_layout *l, const struct snapshot_place *place,
                              const float *state, int64_t samples);
/* bytes: of the file. */
MUST_CHECK enum err_code snapshot_part_write(const char *dir, const struct snapshot_layout *l,
                                             const struct snapshot_place *place, int part, const float *state,
                                             int64_t samples, int64_t *bytes, struct err *e);
/* The same of divided moments. moments: ranges->floats floats. */
struct snapshot_ranges;
uint64_t snapshot_part_digest_divided(const struct snapshot_ranges *ranges, const float *moments);
MUST_CHECK enum err_code snapshot_part_write_divided(const char *dir, const struct snapshot_layout *l,
                                                     const struct snapshot_place *place, int part,
                                                     const struct snapshot_ranges *ranges,
                                                     const float *moments, int64_t *bytes, struct err *e);
/* A part that does not exist counts as removed. */
MUST_CHECK enum err_code snapshot_part_remove(const char *dir, const struct snapshot_place *place, int part,
                                              struct err *e);
/* Into state, snapshot_floats() of it; arrays that the part does not hold are left as they are. DATA_LOSS: it is not the
 * part that `want` describes. */
MUST_CHECK enum err_code snapshot_part_read(const char *dir, const struct snapshot_layout *l,
                                            const struct snapshot_place *place, int part,
                                            const struct snapshot_part *want, float *state, int64_t *samples,
                                            struct snapshot_behind *behind, struct err *e);

/* Checks the parts in dir that belong to the snapshot at `path`. whole: reads them; else looks at their headers and sizes
 * only. *elsewhere: the nodes that wrote the parts which are not here, each once; NULL: all are here, or the snapshot has
 * none. The caller frees. NOT_FOUND: a part is missing that should be in this directory; DATA_LOSS: one is damaged. */
MUST_CHECK enum err_code snapshot_parts_check(const char *dir, const char *path,
                                              const struct snapshot_place *place, bool whole,
                                              char ***elsewhere, struct err *e);

#endif
