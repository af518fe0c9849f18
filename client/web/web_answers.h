#ifndef DDP_CLIENT_WEB_WEB_ANSWERS_H
#define DDP_CLIENT_WEB_WEB_ANSWERS_H

#include "base/web/web_reply.h"
#include "base/web/web_request.h"
#include "client/link.h"

/* Answers requests of the HTTP interface by the calls that ddpctl's commands make, and in the JSON that they print with
 * `-o json`. Any number of threads. */
void web_answer(struct link *link, const struct web_request *request, struct web_reply *reply);

#endif
