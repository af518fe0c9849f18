#ifndef DDP_TRAINER_SNAPSHOT_SNAPSHOT_H
#define DDP_TRAINER_SNAPSHOT_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/crypto/id.h"
#include "base/err.h"

/* Snapshots: each is a directory `step-<N>-g<generation>` below snapshot.dir.
 *
 *   model.safetensors        parameters; its metadata says where in the run the snapshot was taken
 *   run.json                 which run: cluster, job, generation (run.h)
 *   config.json, vocab.json  files that other tools need beside the parameters, if the layout has them
 *   algorithms.txt           which algorithms computed products, if they were chosen (DDP_CUDA_TUNE)
 *   optimizer.safetensors    moments, "<tensor>.<moment>"; missing if there are none, or if the parts hold them
 *   shared.safetensors       if ranks differ: those arrays that are equal on all of them
 *   parts.json               if ranks differ, or have divided the moments: the list of the snapshot's parts, which lie elsewhere
 *                            (parts.h)
 *   COMMITTED.json           job, generation, step and the sha256 of each file; written at the commit
 *   LOAD_FAILED              why a run could not load it; not under the digest
 *
 * Snapshots of earlier versions have no run.json; the metadata of their tensors names cluster, job and generation. Still
 * older ones have no parts.json. If ranks differed, their optimizer.safetensors has the mean over the ranks, and
 * rank-<R>.safetensors has all that rank R had.
 *
 * A directory appears under its name completely or not at all: it is written as `.tmp-...`, every file is
 * fsynced, then it is renamed. A removal renames it to `.tmp-...removed` first. A directory without COMMITTED.json may
 * still be a committed snapshot, because the process may have died after the coordinator's answer. So the directory is offered with
 * its digest, and the coordinator decides. The digest is the sha256 over the lines "<sha256 of the file>  <name>\n", sorted by name, without
 * COMMITTED.json. Equal contents give equal digests on every node. Two runs of the same job file, seed and layout
 * write the same bytes, except into run.json, parts.json (it has the names of nodes) and COMMITTED.json. */

struct snapshot_tensor { /* borrowed; offset and count are floats of the flat array */
    const char *name;
    int dims;
    const int64_t *shape;
    size_t offset, count;
};

#define SNAPSHOT_ALGORITHMS_FILE "algorithms.txt"
struct
    snapshot_extra { /* borrowed; a small file beside the tensors: config.json, vocab.json or algorithms.txt */
    const char *name;
    const char *text;
    size_t length;
};
#define SNAPSHOT_EXTRAS 3

#define SNAPSHOT_NONE SIZE_MAX

struct safetensors_check;

/* The layout of a snapshot's arrays, which is the same for every snapshot of a job. */
struct snapshot_layout {
    const struct snapshot_tensor *tensors;
    size_t tensor_count;
    size_t count; /* floats in the array of parameters, and in that of each moment */
    const char *const *moments;
    const bool *own; /* by moment: each rank has its own, if ranks differ. NULL: of all */
    size_t moment_count;
    const bool *unused; /* by moment: neither written nor read now. NULL: none */
    /* Names of moments that may be missing in a file, which reads as zeros, or that may be there although the layout has
     * none of that name: a run may change the strategy that they belong to. The last is NULL. NULL: there are none. */
    const char *const *optional;
    /* Of moment i and tensor j, number i tensor_count + j: where it begins in a state; SNAPSHOT_NONE: the
     * tensor has none. NULL: each moment is an array of `count` floats, one behind the other. */
    const size_t *places;
    size_t floats; /* of a state, where there are places */
    struct snapshot_extra extras[SNAPSHOT_EXTRAS];
    size_t extra_count;
    const struct safetensors_check *check; /* asked while a snapshot or a part is written; NULL: never */
};
/* Returns the floats of one state: parameters, then the moments. */
size_t snapshot_floats(const struct snapshot_layout *l);

struct snapshot_piece { /* samples in a row, of the epoch's order */
    int64_t epoch, position, count;
};
#define SNAPSHOT_PIECES 1024
#define SNAPSHOT_PORTIONS 1024
#define SNAPSHOT_CLUSTER 64

/* Of a rank that was stopped within a round at an earlier step than the newest rank: by how many steps it is behind, and its
 * own place. */
struct snapshot_behind {
    int64_t steps; /* 0: its place is that of the snapshot */
    int64_t epoch, position, samples;
};

struct snapshot_place {
    char cluster[SNAPSHOT_CLUSTER]; /* the cluster that the job number belongs to: each cluster has a job 1 */
    int64_t job, generation, step;
    int64_t epoch, position; /* the data cursor */
    int64_t seed, updates;   /* updates: of the optimizer */
    int64_t samples;         /* seen so far by all ranks */
    int64_t world_size;
    /* Averaging: steps since the last average, and samples of all ranks. */
    int64_t round_steps, round_samples;
    /* Fragments: 1 + the one whose turn it is, and the steps of its turn; 0: there are none, or an older snapshot. */
    int64_t turn, turn_steps;
    int64_t fragments;  /* of diloco; 0: another strategy, or an older snapshot */
    int64_t parts;      /* number of rank files: 0 or world_size */
    int64_t own_params; /* 1: the parts hold parameters, too, because they differ */
    bool divided;       /* each part holds moments that no other part has: divided.h */
    bool judged;        /* val_loss was measured at this step */
    double val_loss;
    int64_t best_step; /* step with the lowest validation loss so far; 0: none. best_loss: that loss */
    double best_loss;
    /* Size and digest of the data files. 0: the data is not from files, or it is IDX and the snapshot of an earlier version. */
    int64_t data_bytes;
    uint64_t data_digest;
    int64_t epoch_samples; /* number of training samples; 0: an older snapshot, which does not say */
    bool shuffled;         /* in the order of the seed, not of the files */
    /* Rounds of a given time. step_samples: taken beyond the last whole step. dealt: samples have been dealt to ranks up to
     * dealt_epoch and dealt_position; of these, `pieces` were given back. */
    int64_t step_samples;
    bool dealt;
    int64_t dealt_epoch, dealt_position, piece_count;
    struct snapshot_piece pieces[SNAPSHOT_PIECES];
    struct snapshot_behind behind; /* of the rank whose part it is; in parts only */
    /* balance: speed: samples of a whole step, by rank; portion_count 0: equal, or more ranks than there is room for. */
    int64_t portion_count, portions[SNAPSHOT_PORTIONS];
};

struct snapshot_files {
    char *path; /* absolute if dir is absolute */
    char digest[DIGEST_TEXT];
    char *sums; /* the lines over which the digest is taken */
    int64_t bytes;
};
void snapshot_files_release(struct snapshot_files *f);
/* Computes digest and size of a snapshot's directory. Reads all its files. */
MUST_CHECK enum err_code snapshot_sum(const char *path, struct snapshot_files *out, struct err *e);

/* Whether a snapshot of this step and generation may be written below dir. FAILED_PRECONDITION: a snapshot of this name is
 * there, and another run wrote it, or who wrote it cannot be found out. It must be neither replaced nor removed. */
MUST_CHECK enum err_code snapshot_check_name(const char *dir, const struct snapshot_place *own,
                                             struct err *e);

/* Writes a snapshot below dir. state: snapshot_floats() floats. parts: the place->parts parts, if ranks differ, else
 * NULL; then the parameters are those of `model`, and only the shared moments are written. With divided moments there are none, and
 * state may be NULL. OUT_OF_RANGE: a value is not finite. CANCELLED: l->check ended the write, and nothing is left of it. */
struct snapshot_part;
MUST_CHECK enum err_code snapshot_write(const char *dir, const struct snapshot_layout *l,
                                        const struct snapshot_place *place, const float *state,
                                        const float *model, const struct snapshot_part *parts,
                                        struct snapshot_files *out, struct err *e);
/* Writes COMMITTED.json, durably. From then on the snapshot counts. The file names the bytes that were
 * committed, even if the snapshot's files have changed since. */
MUST_CHECK enum err_code snapshot_mark_committed(const struct snapshot_files *files,
                                                 const struct snapshot_place *place, struct err *e);

/* Writes COMMITTED.json into the snapshot at `path`, which the coordinator has committed with this digest. DATA_LOSS: its
 * files have another digest. */
MUST_CHECK enum err_code snapshot_mark_digest(const char *path, const char *digest, struct err *e);

/* Reads all files of the snapshot at `path`. DATA_LOSS: they have another digest. */
MUST_CHECK enum err_code snapshot_check_digest(const char *path, const char *digest, struct err *e);

/* A run could not load the snapshot that its source rank has at `path`. Leaves a note in the snapshot of the same name in dir,
 * if there is one: the next scan reads all its files before it lists the snapshot. */
#define SNAPSHOT_LOAD_FAILED "LOAD_FAILED"
void snapshot_note_failure(const char *dir, const char *path, const char *why); /* path NULL: none */

/* Checks a directory before a model is read from it: model.safetensors, config.json and vocab.json must be
 * the files that COMMITTED.json names. digest: the snapshot that it must be, or NULL. A directory without
 * COMMITTED.json must have this digest, or a name that is not a snapshot's: then it is a user's copy, or
 * another tool's directory. FAILED_PRECONDITION: the snapshot is not committed. DATA_LOSS: it is damaged, or
 * another snapshot. */
MUST_CHECK enum err_code snapshot_check_model(const char *path, const char *digest, struct err *e);

/* Reads the place of a snapshot from its directory. */
MUST_CHECK enum err_code snapshot_read_place(const char *path, struct snapshot_place *out, struct err *e);
/* Reads a snapshot into state, snapshot_floats() floats. The gaps between tensors do not change, nor do moments that
 * the parts hold. Optional moments that the snapshot does not have become 0. */
MUST_CHECK enum err_code snapshot_read(const char *path, const struct snapshot_layout *l, float *state,
                                       struct err *e);
/* A part of a snapshot without parts.json. */
MUST_CHECK enum err_code snapshot_read_part(const char *path, const struct snapshot_layout *l, int part,
                                            float *state, int64_t *samples, struct err *e);

/* ---- what is there: scan.c */

struct snapshot_found {
    char *path;
    char cluster[SNAPSHOT_CLUSTER];
    int64_t job, generation, step;
    char digest[DIGEST_TEXT];
    bool committed;   /* its COMMITTED.json names exactly these bytes */
    bool read;        /* false: it is old, so its files were only looked at. Read them before they are used */
    int64_t parts;    /* number of its parts; 0: it has none */
    bool divided;     /* it cannot be loaded without all of them */
    char **elsewhere; /* nodes that wrote parts which are not in this directory; NULL: all are here */
};
struct snapshot_list {
    struct snapshot_found *items; /* newest first, by (step, generation) */
    size_t count;
    char **unusable; /* snapshots that cannot be read, with reasons, one line each; NULL: there are none */
};
/* Lists the snapshots in dir that could be loaded. Those that cannot be read are logged, and listed as
 * unusable. Reading a snapshot sums up all its files, so a snapshot that nobody would choose is skipped
 * unread: its job has a committed snapshot of the same or a later step and generation, with all its parts in this
 * directory. If parts lie elsewhere, another node may have lost them, so older snapshots are listed, too: a job's newest
 * SNAPSHOT_READ_MOST committed ones are read, and others, up to SNAPSHOT_LIST_MOST in all, are looked at only
 * (found.read). A missing directory counts as empty. */
#define SNAPSHOT_READ_MOST 4
#define SNAPSHOT_LIST_MOST 64
/* In a large job, a snapshot's `elsewhere` names many nodes. Fewer snapshots are listed if all names together have more bytes
 * than this. With names of 10 characters: 11 snapshots in a job of 1,000 nodes. */
#define SNAPSHOT_NAMES_MOST ((size_t)128 << 10)
MUST_CHECK enum err_code snapshot_scan(const char *dir, struct snapshot_list *out, struct err *e);
void snapshot_list_release(struct snapshot_list *l);

/* For a run that starts again from scratch: moves the snapshots in dir to dir/set-aside-g<generation>, where
 * they are not found, pruned or offered; their parts in this directory, too. If a name is there already, all go to
 * dir/set-aside-g<generation>.2, or .3 and so on. Keeps the snapshots that own's job made after `generation`. */
MUST_CHECK enum err_code snapshot_set_aside(const char *dir, const struct snapshot_place *own,
                                            int64_t generation, struct err *e);

/* For a run that continues from another run's snapshot: moves snapshots of other runs that have the names of those that
 * own will write (its generation, and later steps than own's) to dir/set-aside-<cluster>-j<job>, or .2 and so on, with their
 * parts. They are there if they could not be loaded, so that the run starts before them. */
MUST_CHECK enum err_code snapshot_set_others_aside(const char *dir, const struct snapshot_place *own,
                                                   struct err *e);

/* Removes a snapshot with parts that was not committed and never will be: this rank's part and, if this rank is a writer,
 * the shared files. */
MUST_CHECK enum err_code snapshot_discard(const char *dir, const struct snapshot_place *place, int part,
                                          bool writer, struct err *e);

/* Removes the snapshot of this place. path: dir/step-<N>-g<generation>. If the process dies meanwhile, the next snapshot_prune
 * removes the rest. */
MUST_CHECK enum err_code snapshot_remove(const char *dir, const char *path,
                                         const struct snapshot_place *place, struct err *e);

/* Keeps the `keep` newest committed snapshots of own's job and its `best` committed ones with the lowest
 * val_loss. Removes its other committed ones, its uncommitted ones of older generations than own's, and the parts of all
 * these. Also removes what a process that died has left half written, or, of any job, half removed. Does not touch other
 * jobs' snapshots, nor those of own's generations up to `after` (0: none). */
MUST_CHECK enum err_code snapshot_prune(const char *dir, const struct snapshot_place *own, int64_t after,
                                        int64_t keep, int64_t best, struct err *e);

#endif
