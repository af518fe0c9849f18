#ifndef DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_MESSAGE_H
#define DDP_DAEMON_COORDINATOR_SERVICE_TELL_TELL_MESSAGE_H

#include "base/buf.h"
#include "base/job/tell.h"
#include "store/record.h"

/* Writes a notice as the body of a request. Names and texts come from users and programs, so each form escapes them. */

/* "job 7 'gpt' of ana failed" or "node box1 is lost", without the reason. */
void tell_title(const struct notice_record *n, struct buf *out);
/* The JSON object of TELL_JSON, which programs get too. */
void tell_json(const struct notice_record *n, const char *cluster, struct buf *out);
/* shape: not TELL_AUTO. */
void tell_body(const struct notice_record *n, enum tell_shape shape, const char *cluster, struct buf *out);
/* The headers of such a request, NULL-terminated, without any text of a user. The caller calls strv_free. */
char **tell_headers(const struct notice_record *n, enum tell_shape shape);

#endif
