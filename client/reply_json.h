#ifndef DDP_CLIENT_REPLY_JSON_H
#define DDP_CLIENT_REPLY_JSON_H

#include "base/buf.h"
#include "proto/ddp.pb-c.h"

/* What `-o json` prints and what the HTTP interface answers, where that is more than the message (client/text/json_print.h).
 * One line each. */

void reply_json_metrics(const Ddp__V1__GetMetricsReply *reply, int64_t job, struct buf *out);
/* The diagnosis, then the coordinator's whole answer under the key "probe". */
void reply_json_why(const Ddp__V1__ProbeJobReply *reply, struct buf *out);
void reply_json_version(const Ddp__V1__GetVersionReply *reply,
                        struct buf *out); /* NULL: no coordinator answers */
void reply_json_submitted(int64_t job, const char *name, struct buf *out);

#endif
