#include "store/record.h"

#define TO(state) (1u << (state))

static const struct sm_state job_states[] = {
    [JOB_QUEUED] = {"queued", TO(JOB_STARTING) | TO(JOB_FAILED) | TO(JOB_CANCELLED)},
    [JOB_STARTING] = {"starting", TO(JOB_RUNNING) | TO(JOB_RECOVERING) | TO(JOB_STOPPING)},
    [JOB_RUNNING] = {"running", TO(JOB_RECOVERING) | TO(JOB_STOPPING) | TO(JOB_SUCCEEDED)},
    [JOB_RECOVERING] = {"recovering", TO(JOB_STARTING) | TO(JOB_STOPPING)},
    [JOB_STOPPING] = {"stopping", TO(JOB_SUCCEEDED) | TO(JOB_FAILED) | TO(JOB_CANCELLED)},
    [JOB_SUCCEEDED] = {"succeeded", 0},
    [JOB_FAILED] = {"failed", 0},
    [JOB_CANCELLED] = {"cancelled", 0},
};
const struct sm job_sm = {"job", job_states, JOB_CANCELLED + 1};

/* forming: processes are started and join. ready: all have joined, the answer is fixed, the bootstrap id
 * is awaited. draining: stopped on purpose, may still commit. closed: ended without a failure. Only ready,
 * running and draining generations can commit a snapshot, and a job has at most one generation that is
 * neither closed nor failed. */
static const struct sm_state generation_states[] = {
    [GENERATION_FORMING] = {"forming", TO(GENERATION_READY) | TO(GENERATION_DRAINING) |
                                           TO(GENERATION_CLOSED) | TO(GENERATION_FAILED)},
    [GENERATION_READY] = {"ready", TO(GENERATION_RUNNING) | TO(GENERATION_DRAINING) | TO(GENERATION_CLOSED) |
                                       TO(GENERATION_FAILED)},
    [GENERATION_RUNNING] = {"running",
                            TO(GENERATION_DRAINING) | TO(GENERATION_CLOSED) | TO(GENERATION_FAILED)},
    [GENERATION_DRAINING] = {"draining", TO(GENERATION_CLOSED) | TO(GENERATION_FAILED)},
    [GENERATION_CLOSED] = {"closed", 0},
    [GENERATION_FAILED] = {"failed", 0},
};
const struct sm generation_sm = {"generation", generation_states, GENERATION_FAILED + 1};

static const struct sm_state rank_states[] = {
    [RANK_ASSIGNED] = {"assigned", TO(RANK_SPAWNED) | TO(RANK_JOINED) | TO(RANK_TRAINING) | TO(RANK_EXITED) |
                                       TO(RANK_LOST)},
    [RANK_SPAWNED] = {"spawned", TO(RANK_JOINED) | TO(RANK_TRAINING) | TO(RANK_EXITED) | TO(RANK_LOST)},
    [RANK_JOINED] = {"joined", TO(RANK_TRAINING) | TO(RANK_EXITED) | TO(RANK_LOST)},
    [RANK_TRAINING] = {"training", TO(RANK_EXITED) | TO(RANK_LOST)},
    [RANK_EXITED] = {"exited", 0},
    [RANK_LOST] = {"lost", 0},
};
const struct sm rank_sm = {"rank", rank_states, RANK_LOST + 1};

/* A node that was lost or left may come back: it joins again, and is alive once its facts were compared. */
static const struct sm_state node_states[] = {
    [NODE_JOINING] = {"joining", TO(NODE_ALIVE) | TO(NODE_DRAINING) | TO(NODE_LOST) | TO(NODE_LEFT)},
    [NODE_ALIVE] = {"alive", TO(NODE_SUSPECT) | TO(NODE_DRAINING) | TO(NODE_LOST) | TO(NODE_LEFT)},
    [NODE_SUSPECT] = {"suspect", TO(NODE_ALIVE) | TO(NODE_DRAINING) | TO(NODE_LOST) | TO(NODE_LEFT)},
    [NODE_DRAINING] = {"draining", TO(NODE_ALIVE) | TO(NODE_LOST) | TO(NODE_LEFT)},
    [NODE_LOST] = {"lost", TO(NODE_JOINING)},
    [NODE_LEFT] = {"left", TO(NODE_JOINING)},
};
const struct sm node_sm = {"node", node_states, NODE_LEFT + 1};
