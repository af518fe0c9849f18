#ifndef DDP_BASE_WEB_WEB_LEVELS_H
#define DDP_BASE_WEB_WEB_LEVELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* What the viewers of /api/watch see: topics, each with its newest frame only. A frame is one server-sent event, written
 * once and shared by all viewers. A viewer holds a revision and takes the frames with later ones, so a viewer that is slow
 * or was away misses steps in between, but never the newest state, and no backlog grows for it.
 *
 * One thread puts frames, any thread takes them. */

enum web_topic {
    TOPIC_CLUSTER, /* totals of the cluster, and whether it answers */
    TOPIC_JOB,     /* a job as in the list */
    TOPIC_JOB_DETAIL, /* the same with its ranks, for viewers that name the job; they do not get TOPIC_JOB of it */
    TOPIC_NODE,
    TOPIC_POINTS, /* what is new: of jobs that the viewer names */
    TOPIC_EVENTS,
    TOPIC_LOG, /* of jobs whose logs the viewer wants */
};

struct web_frame {
    size_t references; /* the levels' lock protects it */
    size_t size;
    char data[];
};

#define WEB_WATCHED_JOBS 64
struct web_viewer { /* what one viewer wants and has */
    int64_t jobs[WEB_WATCHED_JOBS], logs[WEB_WATCHED_JOBS];
    size_t job_count, log_count;
    uint64_t revision; /* of the last frame taken */
    uint64_t born;     /* a new viewer has nothing that was gone at this revision; 0: it has come back */
    bool reset;        /* a frame "reset" comes first */
    /* called, with the levels' lock held, once there may be something new; NULL: nobody waits */
    void (*wake)(struct web_viewer *viewer);
    void *owner;
    struct web_viewer *next;
};

struct web_levels;
struct web_levels *web_levels_create(void);
void web_levels_free(struct web_levels *l); /* no viewer may be left */

/* Sets the newest frame of a topic, unless the data is unchanged and `same` allows to leave it out. name: the event's name.
 * number and text tell topics of a kind apart: a job, a node's name. data: one line of JSON; its end is left out.
 * Returns the topic's revision. */
uint64_t web_levels_put(struct web_levels *l, enum web_topic topic, int64_t number, const char *text,
                        const char *name, const struct buf *data, bool same);
uint64_t web_levels_revision(struct web_levels *l, enum web_topic topic, int64_t number,
                             const char *text); /* 0: no such topic */
/* Removes the topics of this kind that were not put since the mark. What is removed becomes a frame "gone", with its number as
 * "job", or its text as "node"; topics of points, events and logs are removed without a word. */
void web_levels_mark(struct web_levels *l, enum web_topic topic);
void web_levels_keep(struct web_levels *l, enum web_topic topic,
                     int64_t number); /* as put, but nothing is new */
void web_levels_sweep(struct web_levels *l, enum web_topic topic);
/* Wakes all viewers, so that they write a comment: a connection that is gone shows only when something is written. */
void web_levels_tick(struct web_levels *l);
/* Waits until there is a viewer, at most wait_ms; returns their number. */
size_t web_levels_wait_viewer(struct web_levels *l, int64_t wait_ms);
bool web_levels_take_entered(struct web_levels *l); /* whether a viewer has come since the last call */
/* Appends the jobs that some viewer names: each once. */
void web_levels_wanted(struct web_levels *l, bool logs, int64_t **jobs, size_t *count);

/* ---- viewers */

/* last_id: the header Last-Event-ID, or NULL. */
void web_levels_enter(struct web_levels *l, struct web_viewer *v, const char *last_id);
void web_levels_leave(struct web_levels *l, struct web_viewer *v);
/* The viewer's next frame, which the caller gives back with web_levels_return; NULL: it has the newest level. Then, if wait is not
 * NULL, wait(v) is called with the lock held, and v->wake is called once at the next change. */
struct web_frame *web_levels_next(struct web_levels *l, struct web_viewer *v,
                                  void (*wait)(struct web_viewer *v));
void web_levels_return(struct web_levels *l, struct web_frame *frame);
#define WEB_COMMENT ":\n\n" /* what a viewer writes that was woken without a frame */

#endif
