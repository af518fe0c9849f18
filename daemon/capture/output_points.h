#ifndef DDP_DAEMON_CAPTURE_OUTPUT_POINTS_H
#define DDP_DAEMON_CAPTURE_OUTPUT_POINTS_H

#include "base/match/pattern.h"
#include "daemon/capture/line_cut.h"
#include "daemon/capture/point_writer.h"
#include "daemon/capture/shape.h"

/* Makes points of the lines of a program's stdout and stderr: by a pattern with named groups, or by the usual shapes (shape.h). Of
 * stderr only progress bars count, because tqdm writes there.
 *
 * Steps only grow within a program. A step "50/500" that is less than the one before begins a new pass, and counts on from the
 * end of the last one. A bar is drawn with the next step before the program sets the values of this step, so the last values
 * of a step count; those of step 0 are of the pass before. A bar repeats the results of the last evaluation at each step: they count
 * when they change. A record without a step has the step of the longest progress bar, as far as it is known at the end of a
 * turn; without a bar records are numbered. A line without a step has the step of the line before; without one, lines are numbered.
 * No clock, no files; one thread. */

#define OUTPUT_WAITING_MOST 64
#define OUTPUT_HELD_TURNS 40 /* how long the first validation loss waits for a line with a step */
#define OUTPUT_REST_MOST 512 /* bytes of the metrics of a bar that rich draws */

struct output_points {
    struct point_writer *writer;
    struct pattern *pattern;    /* NULL: shapes */
    struct line_cut streams[2]; /* stdout, stderr */
    bool standard_error;        /* of the line that is being read */
    int64_t now_ms;
    /* steps */
    int64_t base, last, last_total; /* of lines and bars with a loss */
    int64_t bar_step, bar_total;    /* of the longest bar; total 0: none yet */
    int64_t bar_base;               /* the steps of its passes before this one */
    int64_t record_step, records;   /* of the last record, and their number */
    int64_t steps, steps_said;      /* of the whole run, as far as the output shows them; 0: unknown */
    int64_t bar_steps;              /* `steps` at `bar` */
    struct metric_line bar;         /* the last values of a step of a bar */
    bool bar_due;                   /* they are not written yet */
    struct metric_line evaluated;   /* the results of an evaluation that a bar showed last */
    struct shape_values rich; /* the bar of rich whose metrics may go on in the next lines; rest NULL: none */
    char rest[OUTPUT_REST_MOST]; /* its metrics so far */
    bool rich_stream;            /* the stream that it is on */
    bool step_losses;            /* lines with a step, or bars, name the loss */
    bool stepped, trained;       /* a step, or a loss of training, has been read: evaluations belong to it */
    struct metric_line held;     /* a validation loss before that; count 0: none */
    int held_turns;
    struct metric_line waiting[OUTPUT_WAITING_MOST];
    size_t waiting_count;
};

void output_points_feed(struct output_points *o, bool standard_error, const char *data, size_t len,
                        int64_t now_ms);
void output_points_turn(struct output_points *o); /* both streams have been read for now */
void output_points_end(struct output_points *o);  /* and nothing more will come */
void output_points_release(struct output_points *o);

#endif
