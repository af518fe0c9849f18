#ifndef DDP_TRAINER_SNAPSHOT_SAVER_H
#define DDP_TRAINER_SNAPSHOT_SAVER_H

#include "trainer/snapshot/divided.h"
#include "trainer/snapshot/parts.h"
#include "trainer/snapshot/snapshot.h"

/* Writes snapshots in a thread of its own, from a staged copy, so that no step waits for a disk or for the
 * coordinator. It writes one snapshot at a time: while saver_busy, the caller skips a periodic snapshot, and
 * waits only for its last one. Threads: the owner's, except the callbacks, which run on the saver's
 * thread. */

/* Commits the snapshot at the coordinator; may block for any time. An error: the snapshot must not count. ABORTED and
 * FAILED_PRECONDITION: it is refused for good; one with parts is then removed. files: without
 * path and digest if this rank wrote its part alone; bytes: those that this rank wrote. */
typedef enum err_code (*saver_commit_fn)(void *arg, const struct snapshot_place *place,
                                         const struct snapshot_files *files, struct err *e);
/* Fills the staged state. */
typedef enum err_code (*saver_copy_fn)(void *arg, float *state, struct err *e);
/* Called for each snapshot that failed. */
typedef void (*saver_failed_fn)(void *arg, const struct snapshot_place *place, const struct err *why);
/* Called before a snapshot is tried again that failed because a resource was exhausted: disk space, memory or open files. It waits
 * for a while, at most left_ms. tries: how often it was called before, so that the waits can grow. Returns false to give up. */
typedef bool (*saver_pause_fn)(void *arg, const struct snapshot_place *place, const struct err *why,
                               int64_t left_ms, int tries);
/* Asked while a snapshot is written. If it returns true, the snapshot cannot be committed any more: the write ends, what was written is
 * removed, and the snapshot fails with CANCELLED. */
typedef bool (*saver_over_fn)(void *arg, const struct snapshot_place *place);
struct saver_config {
    const char *dir;
    int64_t keep, keep_best;
    int64_t after;                        /* snapshots of generations up to this one are not removed */
    const struct snapshot_layout *layout; /* borrowed for the saver's life */
    int64_t parts; /* number of parts if ranks differ or have divided the moments, else 0 */
    /* Divided moments: those of this rank; borrowed for the saver's life. NULL: the state of a rank has all moments. */
    const struct snapshot_ranges *ranges;
    int part;           /* this rank's part */
    bool writer;        /* writes what ranks share; otherwise parts only */
    saver_copy_fn copy; /* for saver_submit_copy; else NULL */
    saver_commit_fn commit;
    saver_failed_fn failed; /* or NULL */
    saver_pause_fn pause;   /* for saver_set_last; else NULL */
    saver_over_fn over;     /* or NULL */
    void *arg;              /* argument of all of them */
};

struct saver;
MUST_CHECK enum err_code saver_open(struct saver **out, const struct saver_config *config, struct err *e);
void saver_close(
    struct saver *s); /* waits until the present snapshot is written or config.over ends it; NULL is fine */

bool saver_busy(struct saver *s);
size_t saver_bytes(const struct saver *s); /* size of the staged copy */
/* The staged memory, which the caller fills while the saver is not busy: snapshot_floats() floats of the
 * state, or with divided moments ranges->floats floats; with parts also the parameters of the model, layout->count
 * floats (NULL if this rank is no writer), and the list of parts. */
float *saver_state(struct saver *s);
float *saver_model(struct saver *s);
struct snapshot_part *saver_parts(struct saver *s);
/* The next snapshot is the last one. If the disk is full, or another resource is exhausted (RESOURCE_EXHAUSTED), it is tried
 * again for patience_ms, and then fails with FAILED_PRECONDITION; if config.pause ends the wait, with RESOURCE_EXHAUSTED. Other
 * errors do not wait. config.failed is called before the saver is idle, because the process may end then. Not while busy. */
void saver_set_last(struct saver *s, int64_t patience_ms);
/* Starts writing what was staged. Not while busy. part_samples: see snapshot_part_write. */
void saver_submit(struct saver *s, const struct snapshot_place *place, int64_t part_samples);
/* The same, without parts, of a state that config.copy stages first, on the saver's thread or in saver_await_copy. The
 * memory that config.copy reads must not change while saver_copies returns true. If the copy fails, the snapshot fails. */
void saver_submit_copy(struct saver *s, const struct snapshot_place *place);
bool saver_copies(struct saver *s);
/* Waits for the copy, or makes it if the saver's thread has not begun it. */
void saver_await_copy(struct saver *s);
/* Waits until the saver is idle. Returns the error of the last snapshot, if it failed. */
MUST_CHECK enum err_code saver_wait(struct saver *s, struct err *e);

/* Returns true if a snapshot ended since the last call; then sets *place and *e (OK: committed), of the last that ended. Another
 * may be written meanwhile. */
bool saver_take_result(struct saver *s, struct snapshot_place *place, struct err *e);

#endif
