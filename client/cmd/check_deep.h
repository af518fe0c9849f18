#ifndef DDP_CLIENT_CMD_CHECK_DEEP_H
#define DDP_CLIENT_CMD_CHECK_DEEP_H

#include "client/connect.h"

/* `ddpctl check --deep`. */

struct check_deep_options {
    bool deep, drain;
    const char *only; /* "box1,box2"; NULL: all nodes */
    int64_t below;    /* percent; 0: the default */
    double seconds;   /* 0: the default */
};

#define CHECK_DEEP_BELOW 80
#define CHECK_DEEP_SECONDS 5

/* What is wrong with the options; NULL: nothing. */
const char *check_deep_misuse(const struct check_deep_options *o);
/* job_text: a job's file, or NULL; env: for the ranks, or NULL. Returns the exit code. */
int check_deep(struct link *link, const struct check_deep_options *o, const char *job_text, char *const *env,
               bool json);

#endif
