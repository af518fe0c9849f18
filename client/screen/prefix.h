#ifndef DDP_CLIENT_SCREEN_PREFIX_H
#define DDP_CLIENT_SCREEN_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/screen/term_filter.h"

/* The output of several ranks as one: whole lines, each behind "[rank] " where wanted, or a label of the
 * stream's own. Bytes of an unfinished
 * line wait for its end (16 MiB at most), so that ranks never mix within a line. */
struct prefix_stream {
    int rank;
    bool standard_error;
    char *label; /* in front of each line instead of "[rank] "; NULL: none */
    struct buf line;
    struct term_filter filter;
};
struct prefixer {
    bool wanted, colour;
    bool raw; /* bytes pass as they arrive, if there is one rank; labelled streams are still split in lines */
    bool filtered; /* for a terminal: only colour and movement within the line pass (term_filter.h) */
    struct prefix_stream *streams;
    size_t count, cap;
};

void prefixer_init(struct prefixer *p, bool wanted, bool colour);
void prefixer_label(struct prefixer *p, int rank, bool standard_error, const char *label);
void prefixer_add(struct prefixer *p, int rank, bool standard_error, const char *data, size_t len,
                  struct buf *out);
void prefixer_finish(struct prefixer *p, struct buf *out); /* unfinished lines, each with an end */
void prefixer_release(struct prefixer *p);

#endif
