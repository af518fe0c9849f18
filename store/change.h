#ifndef DDP_STORE_CHANGE_H
#define DDP_STORE_CHANGE_H

#include "store/record.h"

/* One durable change. The core emits them in order; store_commit applies a whole list in one transaction. A
 * move is a compare-and-set: the row must be in `from`, and the table in states.c must allow `to`; anything
 * else is a bug in the core and aborts the transaction with INTERNAL. A move that users should see has an
 * event in the same list. PUT replaces all columns except the state. Records are borrowed for the call. */
enum change_kind {
    CHANGE_JOB_INSERT,        /* job */
    CHANGE_JOB_PUT,           /* job */
    CHANGE_JOB_MOVE,          /* id, from, to, text = why: sets state and reason */
    CHANGE_NODE_INSERT,       /* node */
    CHANGE_NODE_PUT,          /* node */
    CHANGE_NODE_MOVE,         /* name, from, to, text */
    CHANGE_NODE_DELETE,       /* name */
    CHANGE_GENERATION_INSERT, /* generation */
    CHANGE_GENERATION_PUT,    /* generation */
    CHANGE_GENERATION_MOVE,   /* id, generation_number, from, to, text */
    CHANGE_GENERATION_DELETE, /* id, generation_number: an old one of which nothing is needed, with its ranks */
    CHANGE_RANK_INSERT,       /* rank */
    CHANGE_RANK_PUT,          /* rank */
    CHANGE_RANK_MOVE,         /* id, generation_number, rank_number, from, to */
    CHANGE_SPAWN_INSERT,      /* spawn */
    CHANGE_SPAWN_PUT,         /* spawn */
    CHANGE_SNAPSHOT_PUT, /* snapshot: inserted, or its nodes replaced; its key is (job, generation, step) */
    CHANGE_SNAPSHOT_DELETE, /* snapshot: its key; one that enough newer ones have replaced */
    CHANGE_EVENT,           /* event; the store assigns its id */
    CHANGE_JOB_PROGRESS,    /* id, text = its progress: changes only that column */
    CHANGE_JOB_FORGET,      /* id: a finished job with all its records, by retention */
    CHANGE_USER_PUT,        /* user: inserted, or replaced by name */
    CHANGE_USER_DELETE,     /* name */
    CHANGE_AUDIT,           /* audit; the store assigns its id */
    CHANGE_JOB_CLEAR, /* id: a job with all its records except its events; the same list inserts it again */
    CHANGE_LOST_NUMBER_REMOVED, /* id: a number in [gap_from, gap_to) whose job was removed by retention */
    CHANGE_META,                /* name, id = value: a number of the cluster itself */
    CHANGE_NOTICE,              /* notice; the store assigns its id */
};

struct change {
    enum change_kind kind;
    int64_t id, generation_number;
    int rank_number, from, to;
    char *name, *text;
    union {
        struct job_record *job;
        struct node_record *node;
        struct generation_record *generation;
        struct rank_record *rank;
        struct spawn_record *spawn;
        struct snapshot_record *snapshot;
        struct event_record *event;
        struct user_record *user;
        struct audit_record *audit;
        struct notice_record *notice;
    };
};

/* Deep copies and releases; record.c. */
void job_record_copy(struct job_record *to, const struct job_record *from);
void job_record_release(struct job_record *r);
void node_record_copy(struct node_record *to, const struct node_record *from);
void node_record_release(struct node_record *r);
void generation_record_copy(struct generation_record *to, const struct generation_record *from);
void generation_record_release(struct generation_record *r);
void rank_record_copy(struct rank_record *to, const struct rank_record *from);
void rank_record_release(struct rank_record *r);
void spawn_record_copy(struct spawn_record *to, const struct spawn_record *from);
void spawn_record_release(struct spawn_record *r);
void snapshot_record_copy(struct snapshot_record *to, const struct snapshot_record *from);
void snapshot_record_release(struct snapshot_record *r);
void event_record_copy(struct event_record *to, const struct event_record *from);
void event_record_release(struct event_record *r);
void user_record_copy(struct user_record *to, const struct user_record *from);
void user_record_release(struct user_record *r);
void audit_record_release(struct audit_record *r);
void notice_record_release(struct notice_record *r);

/* A change that owns its record, for the queue of the core and for a simulated store. */
void change_release(struct change *c);

/* The result of store_load. It has all records of unfinished jobs. Of a finished job it has the job, its snapshots,
 * and these generations with their ranks and spawns: the newest, the newest with a failed_spawn, and each that has a
 * spawn that is not dead. */
struct records {
    struct job_record *jobs;
    struct node_record *nodes;
    struct generation_record *generations;
    struct rank_record *ranks;
    struct spawn_record *spawns;
    struct snapshot_record *snapshots;
    size_t job_count, node_count, generation_count, rank_count, spawn_count, snapshot_count;
    enum records_age {
        RECORDS_NEW,
        /* an older copy, or possibly one: nodes may have newer records, and jobs with larger numbers */
        RECORDS_RESTORED,
        /* was RECORDS_RESTORED; the coordinator is still learning from nodes, or doubts a worker, and next_job is already
         * raised */
        RECORDS_LEARNING,
        RECORDS_NUMBERED, /* an older copy, but next_job is above all numbers that were assigned */
    } age;
    int64_t next_job;         /* the next id; ids are never reused */
    int64_t gap_from, gap_to; /* ids that were assigned by a lost database: see adopt.c; 0: none */
    int64_t *removed;         /* ids of the gap whose jobs nodes have returned and retention has removed */
    size_t removed_count;
    int64_t
        clock_ms; /* the wall time that a coordinator last trusted, at most an hour before it ended; 0: not known */
};
void records_release(struct records *r);

#endif
