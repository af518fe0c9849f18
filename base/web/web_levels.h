#ifndef DDP_BASE_WEB_WEB_LEVELS_H
#define DDP_BASE_WEB_WEB_LEVELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What the viewers of /api/watch see: a list of topics, each with its newest frame only. A frame is one server-sent
 * event; it is written once, and all viewers share it. A viewer remembers the revision of the last frame that it took,
 * and takes the frames with later revisions. So a slow viewer skips states in between, but always gets the newest
 * state, and the server keeps no backlog for it.
 *
 * One thread puts frames, any thread takes them. */

enum web_topic {
    TOPIC_CLUSTER, /* totals of the cluster, and whether the coordinator answers */
    TOPIC_JOB,     /* a job as a row of the list of jobs */
    TOPIC_JOB_DETAIL, /* the job with its ranks, for viewers that watch this job; they do not get its TOPIC_JOB as well */
    TOPIC_NODE,
    TOPIC_POINTS, /* new points of jobs that the viewer watches */
    TOPIC_USAGE,  /* the same of what nodes measure */
    TOPIC_EVENTS,
    TOPIC_LOG, /* new lines of jobs whose logs the viewer watches */
};

struct web_frame {
    size_t references; /* the levels' lock protects it */
    size_t size;
    char data[];
};

#define WEB_WATCHED_JOBS 64
struct web_viewer { /* what one viewer has asked for, and has received */
    int64_t jobs[WEB_WATCHED_JOBS], logs[WEB_WATCHED_JOBS];
    size_t job_count, log_count;
    uint64_t revision; /* of the last frame taken */
    /* A new viewer gets no frame about topics that were removed up to this revision. 0: the viewer has reconnected. */
    uint64_t born;
    bool reset; /* send a frame "reset" first */
    /* NULL, or a function that is called once, at the next change or tick. The levels' lock is held during the call. */
    void (*wake)(struct web_viewer *viewer);
    void *owner;
    struct web_viewer *next;
};

struct web_levels;
struct web_levels *web_levels_create(void);
void web_levels_free(struct web_levels *l); /* no viewer may be left */

/* Sets the newest frame of a topic. With `same`, there is no new frame if the data has not changed. name: the event's
 * name. number and text identify one topic of its kind: the number of a job, the name of a node. data: one line of
 * JSON; the newline at its end is left out. Returns the topic's revision. */
uint64_t web_levels_put(struct web_levels *l, enum web_topic topic, int64_t number, const char *text,
                        const char *name, const struct buf *data, bool same);
uint64_t web_levels_revision(struct web_levels *l, enum web_topic topic, int64_t number,
                             const char *text); /* 0: no such topic */
/* To remove topics of one kind: mark, then put or keep every topic that exists, then sweep. The sweep removes the
 * topics that were neither put nor kept since the mark. Viewers get a frame "gone" with the number of a removed job
 * ("job") or the name of a removed node ("node"), but no frame for removed topics of points, events and logs. */
void web_levels_mark(struct web_levels *l, enum web_topic topic);
void web_levels_keep(struct web_levels *l, enum web_topic topic,
                     int64_t number); /* the topic still exists and has not changed */
void web_levels_sweep(struct web_levels *l, enum web_topic topic);
/* Wakes all viewers, so that they write a comment. Only a write shows that a connection is gone. */
void web_levels_tick(struct web_levels *l);
/* Waits until there is a viewer, at most wait_ms; returns their number. */
size_t web_levels_wait_viewer(struct web_levels *l, int64_t wait_ms);
bool web_levels_take_entered(struct web_levels *l); /* whether a viewer has come since the last call */
/* Which jobs viewers watch, each once, at most `most`: those of the viewers that came last. The caller frees *jobs. */
void web_levels_wanted(struct web_levels *l, bool logs, size_t most, int64_t **jobs, size_t *count);

/* ---- viewers */

/* last_id: the header Last-Event-ID, or NULL. */
void web_levels_enter(struct web_levels *l, struct web_viewer *v, const char *last_id);
void web_levels_leave(struct web_levels *l, struct web_viewer *v);
/* The viewer's next frame, which the caller gives back with web_levels_return. NULL: the viewer has all newest frames. In this
 * case wait(v), if wait is not NULL, is called with the lock held; it may set v->wake. */
struct web_frame *web_levels_next(struct web_levels *l, struct web_viewer *v,
                                  void (*wait)(struct web_viewer *v));
void web_levels_return(struct web_levels *l, struct web_frame *frame);
#define WEB_COMMENT ":\n\n" /* what a viewer writes when it is woken and there is no frame */

#endif
