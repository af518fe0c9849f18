#ifndef DDP_CLIENT_TEXT_PREFIX_H
#define DDP_CLIENT_TEXT_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/text/term_filter.h"

/* Merges the output of several ranks into one stream by whole lines, so that ranks never mix within a line.
 * Each line gets "[rank] " in front if wanted, or the label of its own stream. The bytes of an unfinished
 * line are kept until its end arrives, up to 16 MiB. One thread. */
struct prefix_stream {
    int rank;
    bool standard_error;
    char *label; /* text before each line instead of "[rank] "; NULL: none */
    struct buf line;
    struct term_filter filter;
};
struct prefixer {
    bool wanted, colour;
    bool raw; /* bytes pass as they arrive, for a single rank; streams with a label are still split into lines
               */
    bool filtered; /* the output is a terminal: term_filter.h removes control sequences */
    struct prefix_stream *streams;
    size_t count, cap;
};

void prefixer_init(struct prefixer *p, bool wanted, bool colour);
void prefixer_label(struct prefixer *p, int rank, bool standard_error, const char *label);
void prefixer_add(struct prefixer *p, int rank, bool standard_error, const char *data, size_t len,
                  struct buf *out);
void prefixer_finish(struct prefixer *p,
                     struct buf *out); /* appends unfinished lines, and ends each of them */
void prefixer_release(struct prefixer *p);

#endif
