/* Workers of a generation that was formed after the backup from which the records were restored, and of which no node has a
 * card. A node gets the card with its wish, and survivors may join the generation before that.
 *
 * While cards may still come (job.held), these workers are told to call again (job_may_lack_generation). After that the
 * generation that the records take for the current one ends, without a charge. Its members and those of the lost generation
 * are survivors, and the next generation forms with the newest state that one of them has in memory. Its number is above that
 * of the lost generation, since the members of this would not join an earlier one. */
#include "daemon/coordinator/core/cards/lost_generation.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/coordinator/core/generation_end.h"

/* No backup is so old that it lacks more generations of a job. */
#define LACKED_MOST 100000

void lost_generation_note(struct spawn *s, int64_t generation)
{
    s->named = generation <= s->job->r.generation + LACKED_MOST ? generation : 0;
}

void lost_generation_review(struct core *core, struct job *job)
{
    struct generation *g = job_current(job);
    const int64_t newest = job_newest_generation(job);
    char text[96];

    if (job->held || newest <= job->r.generation || !g || !generation_open(g) ||
        (job->r.state != JOB_STARTING && job->r.state != JOB_RUNNING))
        return;
    snprintf(text, sizeof(text), "the restored records lack generation %" PRId64 ", which has workers",
             newest);
    generation_fail(core, g, &(struct failure_cause){.exit_code = 125, .text = text});
}
