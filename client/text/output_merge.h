#ifndef DDP_CLIENT_TEXT_OUTPUT_MERGE_H
#define DDP_CLIENT_TEXT_OUTPUT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "client/text/live_line.h"
#include "client/text/term_filter.h"

/* Merges the output of several ranks as it comes, so that no line has text of two ranks. No clock, no output:
 * times are arguments (ms), and the caller writes the text of the targets. One thread.
 *
 * A whole line passes at once. The start of a line passes at once if it ends with a carriage return, as a
 * progress bar's does, and otherwise when it has waited for OUTPUT_MERGE_WAIT_MS or is long. The rest of the
 * line follows as it comes.
 *
 * In a pipe or a file, bytes are only appended. If another rank's text comes in the middle of a line, a line
 * end is inserted before it. That text waits while the line grows, but not after a carriage return, and at
 * most for OUTPUT_MERGE_HOLD_MS.
 *
 * On a live terminal the unfinished lines are drawn below all whole lines, one line for each stream. They are
 * redrawn in place, and each becomes a whole line above when it ends. Whole lines and changes wait for the next
 * drawing, which comes OUTPUT_MERGE_DRAW_MS after the last one, so that the terminal keeps up with fast bars. */
#define OUTPUT_MERGE_WAIT_MS 100
#define OUTPUT_MERGE_HOLD_MS 1000
#define OUTPUT_MERGE_DRAW_MS 50

/* stdout or stderr of one rank. */
struct output_stream {
    int rank;
    bool standard_error;
    bool own;    /* the rank has the terminal: unlabelled, unfiltered, as it comes */
    char *label; /* text before each line instead of "[rank] "; NULL: none */
    struct term_filter filter;
    struct buf waiting; /* has not passed yet: the start of a line, or lines that another line holds up */
    int64_t since_ms;   /* since when its first byte waits */
    int64_t added_ms;   /* when the last byte came */
    int64_t lines;      /* of all streams, when its last byte came; 0: none came */
    /* of the line that has passed in part */
    struct live_line live; /* live terminals: the part */
    int64_t changed;       /* likewise: grows with each change, to find the newest lines */
    bool labelled;         /* the line has a label */
    bool bare;             /* its next text needs a label: the start of a line, or after a carriage return */
    bool cut;              /* a line end was inserted and is not yet followed by text of the stream */
};

/* Where the output goes: ddpctl's stdout or stderr. */
struct output_target {
    bool wanted, colour; /* "[rank] " before each line of a stream without a label; in colour */
    bool raw;            /* for a single rank: streams without a label pass unchanged as they come */
    bool filtered;       /* a terminal: term_filter.h removes control sequences */
    bool dims_errors;    /* filtered: stderr is dim, to tell it from the stdout between it */
    bool live;           /* a terminal, filtered and not raw: unfinished lines are drawn and redrawn */
    size_t columns;      /* live: the terminal's width; 0: unknown */
    size_t lines;        /* live: how many unfinished lines are drawn at most, those that changed last */
    struct buf text;     /* to be written; the caller clears it */
    /* private */
    struct output_stream *open;     /* whose unfinished line is at the end of what was written; NULL: none */
    struct output_stream *coloured; /* filtered, not live: whose colour is in effect; NULL: none */
    bool returned;                  /* what was written ends with a carriage return */
    bool dirty;                     /* live: an unfinished line has changed */
    size_t drawn;                   /* live: lines that are drawn now */
    struct buf above;               /* live: whole lines, until the next drawing */
    int64_t due_ms;                 /* live: no drawing before; 0: the next one is at once */
};

struct output_merge {
    struct output_target targets[2]; /* stdout, stderr */
    bool shared;                     /* both are the same file: targets[0] gets the output for both */
    bool joined;                     /* targets[0] gets the ranks' stderr too */
    /* private */
    int own;                        /* 1 + the rank that has the terminal; 0: none */
    struct output_stream **streams; /* in the order of ranks */
    struct output_stream past;      /* stands for a stream that was finished */
    size_t count, cap;
    int64_t changes;
    int64_t lines; /* 1 + line ends that were added */
};

void output_merge_init(struct output_merge *m);
void output_merge_own(struct output_merge *m, int rank); /* the rank that has the terminal; -1: none */
void output_merge_label(struct output_merge *m, int rank, bool standard_error, const char *label);
void output_merge_add(struct output_merge *m, int rank, bool standard_error, const char *data, size_t len,
                      int64_t now_ms);
/* How many lines of any stream have been added since the stream's last byte; -1: it has none. */
int64_t output_merge_lines_since(const struct output_merge *m, int rank, bool standard_error);
/* True if the stream has much text waiting until another rank's line ends. A caller that can wait should not
 * add more now. */
bool output_merge_is_held(struct output_merge *m, int rank, bool standard_error, int64_t now_ms);
void output_merge_tick(struct output_merge *m, int64_t now_ms); /* passes on what has waited long enough */
bool output_merge_waits(const struct output_merge *m); /* a later tick or drawing will pass on something */
/* Lines of ddpctl itself, on lines of their own. */
void output_merge_say(struct output_merge *m, bool standard_error, const struct buf *lines);
/* Passes on everything, and ends the unfinished lines. In a pipe, a line without a label is ended when other text
 * follows, so that the output of a rank that writes alone is not changed. */
void output_merge_finish(struct output_merge *m, int64_t now_ms);
/* Before the targets' texts are written: adds whole lines and the drawing of unfinished lines to live targets
 * that are due. What output_merge_say and output_merge_finish added is drawn at once. */
void output_merge_draw(struct output_merge *m, int64_t now_ms);
/* Other programs have written to the terminal: the next drawing begins at the line of the cursor. */
void output_merge_moved(struct output_merge *m);
void output_merge_release(struct output_merge *m);

#endif
