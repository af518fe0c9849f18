#ifndef DDP_TRAINER_SNAPSHOT_SNAPSHOT_H
#define DDP_TRAINER_SNAPSHOT_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"

/* Snapshots: one directory `step-<N>-g<generation>` each, under snapshot.dir.
 *
 *   model.safetensors       parameters; its metadata says where in the run it was taken
 *   config.json, vocab.json what other tools want beside the parameters; where the layout names them
 *   optimizer.safetensors   moments, "<tensor>.<moment>"; absent when the optimizer has none
 *   rank-<R>.safetensors    parameters, moments and samples of one rank, where ranks differ (in the middle of
 * an averaging round); the two files above then hold the mean over the ranks COMMITTED.json          job,
 * generation, step and the sha256 of each file; made only once it counts
 *
 * A directory appears under its name whole or not at all: it is written as `.tmp-...`, every file fsynced,
 * then renamed. Without COMMITTED.json it may still be one that the coordinator knows as committed (a crash
 * in between), so it is offered, with its digest, but not trusted. The digest is the sha256 over the lines
 * "<sha256 of the file>  <name>\n", sorted by name, without COMMITTED.json; equal contents give equal digests
 * on every node. */

struct snapshot_tensor { /* borrowed; offset and count in floats of the flat array */
    const char *name;
    int dims;
    const int64_t *shape;
    size_t offset, count;
};

struct snapshot_extra { /* borrowed: a small file beside the tensors, one of config.json and vocab.json */
    const char *name;
    const char *text;
    size_t length;
};
#define SNAPSHOT_EXTRAS 2

/* The layout of what is kept: the same for every snapshot of a job. */
struct snapshot_layout {
    const struct snapshot_tensor *tensors;
    size_t tensor_count;
    size_t count; /* floats of the flat array of parameters, and of each moment */
    const char *const *moments;
    size_t moment_count;
    struct snapshot_extra extras[SNAPSHOT_EXTRAS];
    size_t extra_count;
};
/* Floats of one state: parameters, then the moments. */
size_t snapshot_floats(const struct snapshot_layout *l);

#define SNAPSHOT_CLUSTER 64
struct snapshot_place {
    char cluster[SNAPSHOT_CLUSTER]; /* whose job numbers these are: two clusters both have a job 1 */
    int64_t job, generation, step;
    int64_t epoch, position; /* the data cursor */
    int64_t seed, updates;   /* of the optimizer */
    int64_t samples;         /* seen so far, all ranks */
    int64_t world_size;
    int64_t round_steps, round_samples; /* averaging: since the last average, all ranks' samples */
    int64_t parts;                      /* rank files: 0 or world_size */
    bool judged;                        /* val_loss is that of this step */
    double val_loss;
    int64_t best_step; /* of the run so far, and its loss; 0: none */
    double best_loss;
    int64_t data_bytes; /* of the files that were trained on, and their digest; 0: there are none */
    uint64_t data_digest;
    int64_t epoch_samples; /* number of training samples; 0: an older snapshot, which does not say */
    bool shuffled;         /* in the order of the seed, not of the files */
};

struct snapshot_files {
    char *path; /* absolute where dir is */
    char digest[DIGEST_TEXT];
    char *sums; /* the lines that the digest is made of */
    int64_t bytes;
};
void snapshot_files_release(struct snapshot_files *f);
/* Of what lies in a snapshot's directory: all of it is read. */
MUST_CHECK enum err_code snapshot_sum(const char *path, struct snapshot_files *out, struct err *e);

/* state: snapshot_floats(); parts: place->parts such states one after the other, part_samples as many.
 * Numbers that are not finite are refused: OUT_OF_RANGE. */
MUST_CHECK enum err_code snapshot_write(const char *dir, const struct snapshot_layout *l,
                                        const struct snapshot_place *place, const float *state,
                                        const float *parts, const int64_t *part_samples,
                                        struct snapshot_files *out, struct err *e);
/* Makes it count: COMMITTED.json, durable. It names the bytes that were committed, whatever may have become
 * of them since. */
MUST_CHECK enum err_code snapshot_mark_committed(const struct snapshot_files *files,
                                                 const struct snapshot_place *place, struct err *e);

/* Before a model is read from a directory by itself: that what there is of model.safetensors, config.json and
 * vocab.json are the files that COMMITTED.json names. digest: the snapshot that it has to be, or NULL. One
 * that has no COMMITTED.json must have this digest, or no longer be called as snapshots are: somebody's copy,
 * or another tool's. FAILED_PRECONDITION: not committed; DATA_LOSS: damaged, or another snapshot. */
MUST_CHECK enum err_code snapshot_check_model(const char *path, const char *digest, struct err *e);

/* The place alone, from a snapshot's directory. */
MUST_CHECK enum err_code snapshot_read_place(const char *path, struct snapshot_place *out, struct err *e);
/* Into state, snapshot_floats() of it. The gaps between tensors are left as they are. */
MUST_CHECK enum err_code snapshot_read(const char *path, const struct snapshot_layout *l, float *state,
                                       struct err *e);
MUST_CHECK enum err_code snapshot_read_part(const char *path, const struct snapshot_layout *l, int part,
                                            float *state, int64_t *samples, struct err *e);

/* ---- what is there: scan.c */

struct snapshot_found {
    char *path;
    char cluster[SNAPSHOT_CLUSTER];
    int64_t job, generation, step;
    char digest[DIGEST_TEXT];
    bool committed; /* its COMMITTED.json names these very bytes */
};
struct snapshot_list {
    struct snapshot_found *items; /* newest first, by (step, generation) */
    size_t count;
    char **unusable; /* what cannot be read, and why: one line each; NULL: nothing */
};
/* Lists the snapshots in dir that could be loaded. Those that cannot be read are logged, and listed as
 * unusable. Reading a snapshot sums up all its files, so a snapshot that nobody would choose is skipped
 * unread: its job has a committed snapshot of the same or a later step and generation. A missing directory
 * counts as empty. */
MUST_CHECK enum err_code snapshot_scan(const char *dir, struct snapshot_list *out, struct err *e);
void snapshot_list_release(struct snapshot_list *l);

/* For a run that starts again from scratch: moves the snapshots in dir to dir/set-aside-g<generation>, where
 * they are not found, pruned or offered. Keeps the snapshots that own's job made after `generation`. */
MUST_CHECK enum err_code snapshot_set_aside(const char *dir, const struct snapshot_place *own,
                                            int64_t generation, struct err *e);

/* Leaves the `keep` newest committed snapshots of own's job and the `best` ones of the lowest val_loss;
 * removes its uncommitted ones of older generations than own's, and half-written ones. Other jobs' are left
 * alone, and so is what its generations up to `after` made (0: none). */
MUST_CHECK enum err_code snapshot_prune(const char *dir, const struct snapshot_place *own, int64_t after,
                                        int64_t keep, int64_t best, struct err *e);

#endif
