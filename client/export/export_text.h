#ifndef DDP_CLIENT_EXPORT_EXPORT_TEXT_H
#define DDP_CLIENT_EXPORT_EXPORT_TEXT_H

#include "client/export/export_points.h"

struct buf;

/* Points as lines for other programs. A value that is not a number is nan in CSV and null in JSON. */

#define EXPORT_CSV_HEADER "job,step,time_ms,rank,name,value,captured\n"
/* The text is in quotes where RFC 4180 requires them. terminal: control characters become '?', since a job chooses the
 * names of its metrics. */
void export_put_csv_text(struct buf *out, const char *text, bool terminal);
void export_put_csv(struct buf *out, int64_t job, const struct export_point *p, bool terminal);
/* {"job":9,"step":10,"time_ms":1700000000000,"rank":0,"name":"loss","value":1.4} */
void export_put_jsonl(struct buf *out, int64_t job, const struct export_point *p);

#endif
