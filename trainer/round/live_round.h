#ifndef DDP_TRAINER_ROUND_LIVE_ROUND_H
#define DDP_TRAINER_ROUND_LIVE_ROUND_H

#include "trainer/live.h"

/* A generation that goes on from memory within a round of steps that ranks make on their own (average, diloco). Ranks were
 * interrupted at different steps of the round, because they send nothing during a round. One rank may have applied an
 * exchange that failed on others. The newest rank is the one with the most exchanges and, of these ranks, the most steps.
 *
 *     a rank that has made as many exchanges    keeps all that it has, and goes on at its own step
 *     a rank behind by one exchange             was part of it: it takes the shared model and the outer momentum, and makes of
 *                                               its own parameters and error feedback what joining the exchange would have made
 *     a new rank                                takes these and the optimizer's moments, begins at the shared model, and makes
 *                                               the rest of the round from the newest rank's step on
 *
 * In rounds of a given time, ranks make unlike numbers of steps anyway, so every rank that has made as many exchanges goes on
 * with what it has. The samples that it took count from then on (trainer_compare_places). The samples that lost ranks took,
 * and those of the rest of the round, are dealt again.
 *
 * With sync.quorum a rank may have been left out of generations, and of exchanges that they made. All ranks know in which
 * generation each of the last exchanges was made. From this they know whether the late rank's last exchange counts, and
 * whether the last change that it sent is part of an exchange.
 *
 *     a rank that was late                      takes the shared model and the outer momentum, and keeps its moments, its error
 *                                               feedback and its change of the model. The change enters the next exchange
 *                                               with 0.5^age of its samples; age: exchanges that were made without it.
 *                                               If more steps follow before the exchange, the change itself is scaled
 *     a rank that was late for more than        begins at the shared model; its change is dropped
 *     LIVE_LATE_MOST exchanges
 *
 * So no local step is thrown away, and no change is applied twice. An exchange that no rank has applied is made again by
 * trainer_run, from the same arrays. A rank that has another number than before, or is in a world of another size, goes on at
 * the newest rank's step. */

#define LIVE_LATE_MOST 2

/* The state that each rank reports to the others. */
struct live_claim {
    bool whole;                                 /* it has a state */
    int64_t step;                               /* of its state; 0: it has no state, or has not made a step */
    int64_t served_step;                        /* the last step after which it has done all that was due */
    bool apart;                                 /* it makes steps on its own, in rounds */
    bool sent;                                  /* an exchange was under way when its group ended */
    int64_t exchanges;                          /* that it has applied */
    int64_t round_steps;                        /* since the round began, if all ranks make equally many */
    int64_t samples;                            /* of the run, up to the place that ranks share */
    bool dealt;                                 /* it takes samples of an open round of a given time */
    int64_t made_in[LIVE_ROUNDS_KEPT], sent_in; /* as in struct trainer */
};

/* The state of the run, which the source reports. */
struct live_run {
    struct snapshot_place place;
    struct live_choice choice;
    int64_t snapshot_age_ms, eval_age_ms, last_snapshot_step;
    bool snapshot_due, eval_due;
    struct sync_state round;
    bool round_timed; /* live_round_timed */
    int64_t round_counted;
    struct run_mark served;
    int64_t made_in[LIVE_ROUNDS_KEPT];
};

/* Returns the rank whose state is the newest one of a round; -1: no rank has one. */
int live_round_newest(const struct live_claim *all, int world);
/* Returns the number of samples with which a change counts that is `age` exchanges late. */
int64_t live_late_samples(int64_t samples, int64_t age);
/* Whether the generation goes on in a round. Valid from live_round_share on. */
bool live_has_rounds(const struct trainer *t);

/* The round is then at the step of the source's. */
void live_round_take_place(struct sync_state *round, const struct sync_state *source);

/* Whether the round that this rank holds is one of a given time. `ddpctl tune` may have made a number of steps of `sync.every`
 * since the round began, or the reverse. */
bool live_round_timed(const struct trainer *t);
/* After trainer_compare_places: a round that began before such a change cannot go on. It has been made, and its exchange is due. */
void live_round_cut_short(struct trainer *t);
/* Collective. run: of the newest rank, `source`. Afterwards each rank holds its part of the round, as t->round says. */
MUST_CHECK enum err_code live_round_share(struct trainer *t, const struct live_claim *all, int source,
                                          const struct live_run *run, struct err *e);
/* Digests of the shared model and of the outer momentum. */
void live_round_digests(struct trainer *t, uint64_t *model, uint64_t *momentum);

#endif
