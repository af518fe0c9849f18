#ifndef DDP_CLIENT_WEB_WEB_LINES_H
#define DDP_CLIENT_WEB_WEB_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* The output of a job's ranks as JSON, a line of output each:
 * {"rank":0,"stderr":false,"generation":1,"written_ms":0,"text":"..."}. The beginning of a line waits for its end. Of a progress bar, whose text is
 * replaced after carriage returns, the last text becomes a line, and about every 10 s the one then. One thread. */

struct web_lines {   /* zeroed, it is empty */
    struct buf json; /* complete lines, with commas between them */
    size_t count;
    struct buf notes; /* JSON texts, with commas between them */
    bool incomplete;  /* a part of the output is missing, and a note says so */
    /* private */
    bool noted;
    struct line_part *parts;
    size_t part_count, part_cap;
};

void web_lines_add(struct web_lines *w, const Ddp__V1__LogData *data);
void web_lines_finish(struct web_lines *w); /* lines without an end are complete, too */
void web_lines_clear(struct web_lines *w);  /* keeps the beginnings of lines */
void web_lines_release(struct web_lines *w);

#endif
