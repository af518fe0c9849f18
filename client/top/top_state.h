#ifndef DDP_CLIENT_TOP_TOP_STATE_H
#define DDP_CLIENT_TOP_TOP_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/top/top_keys.h"
#include "client/top/top_model.h"

/* What the user of `ddpctl top` has chosen to see, and how a key changes it. No input or output. */

enum top_page { TOP_JOBS, TOP_NODES, TOP_JOB };
enum top_prompt { TOP_NO_PROMPT, TOP_FILTERS, TOP_ASKS_CANCEL };
enum top_sort { TOP_BY_TURN, TOP_BY_JOB, TOP_BY_NAME, TOP_BY_USER, TOP_BY_PROGRESS, TOP_BY_TIME, TOP_SORTS };
enum top_action { TOP_NOTHING, TOP_QUIT, TOP_CANCEL_JOB };

struct top_state {
    enum top_page page;
    enum top_prompt prompt;
    enum top_sort sort;
    bool reverse;
    char filter[64];
    int64_t selected;   /* the number of a job; 0: none */
    size_t selected_at; /* its index in the list at the last top_settle */
    size_t first;       /* index of the listed job at the top of the screen */
    size_t first_node;  /* index of the node at the top of the page of nodes */
    size_t room;        /* rows of the list on the screen, as top_settle was told */
    int64_t open;       /* the job of the page TOP_JOB */
    int64_t cancels;    /* the job that TOP_ASKS_CANCEL is about */
    char message[160];  /* for the last line; until the next key */
};

const char *top_sort_name(enum top_sort sort);
/* The jobs that the filter keeps, sorted. The caller frees the array. */
Ddp__V1__JobStatus **top_choose(const struct top_state *s, const struct top_model *m, size_t *count);
/* Keeps the selected job on the screen, which has `room` rows for the list, after the jobs or the room have changed. */
void top_settle(struct top_state *s, const struct top_model *m, size_t room);
enum top_action top_press(struct top_state *s, const struct top_model *m, const struct top_key *key);

#endif
