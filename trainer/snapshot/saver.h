#ifndef DDP_TRAINER_SNAPSHOT_SAVER_H
#define DDP_TRAINER_SNAPSHOT_SAVER_H

#include "trainer/snapshot/snapshot.h"

/* Writes snapshots in a thread of its own, from a staged copy, so that no step waits for a disk or for the
 * coordinator. One is under way at a time: while saver_busy, the caller leaves a periodic snapshot out (the
 * next one comes), and waits only for its last. Threads: the owner's, but for the two functions, which run on
 * the saver's thread. */

/* Asks whether the snapshot may count; may block for as long as it takes. */
typedef enum err_code (*saver_commit_fn)(void *arg, const struct snapshot_place *place,
                                         const struct snapshot_files *files, struct err *e);
/* Told of each snapshot that failed, when it is over. */
typedef void (*saver_failed_fn)(void *arg, const struct snapshot_place *place, const struct err *why);
struct saver_config {
    const char *dir;
    int64_t keep, keep_best;
    int64_t after;                        /* generations of the job up to this one are not touched */
    const struct snapshot_layout *layout; /* borrowed for the saver's life */
    int64_t max_parts;                    /* 0, or the world size where ranks differ */
    saver_commit_fn commit;
    saver_failed_fn failed; /* or NULL */
    void *arg;              /* of both */
};

struct saver;
MUST_CHECK enum err_code saver_open(struct saver **out, const struct saver_config *config, struct err *e);
void saver_close(struct saver *s); /* waits for what is under way; NULL is fine */

bool saver_busy(struct saver *s);
size_t saver_bytes(const struct saver *s); /* of the staged copy */
/* To be filled while not busy: snapshot_floats() of the state; then those of each part, and its samples. */
float *saver_state(struct saver *s);
float *saver_part(struct saver *s, int64_t part);
int64_t *saver_part_samples(struct saver *s);
/* Starts writing what was staged. Not while busy. */
void saver_submit(struct saver *s, const struct snapshot_place *place);
/* Until idle; the error of the last snapshot, if it failed. */
MUST_CHECK enum err_code saver_wait(struct saver *s, struct err *e);

/* Whether one ended since the last call: then its place, and its error (OK: committed). */
bool saver_take_result(struct saver *s, struct snapshot_place *place, struct err *e);

#endif
