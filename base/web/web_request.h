#ifndef DDP_BASE_WEB_WEB_REQUEST_H
#define DDP_BASE_WEB_WEB_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

/* What a request asks for (docs/reference/http.md). No state; any thread. */

enum web_route {
    WEB_PAGE,
    WEB_WATCH,
    WEB_JOBS,
    WEB_JOB,
    WEB_METRICS,
    WEB_LOGS,
    WEB_EVENTS,
    WEB_WHY,
    WEB_CLUSTER_EVENTS,
    WEB_NODES,
    WEB_VERSION,
    WEB_WHOAMI,
    WEB_SUBMIT,
    WEB_CANCEL,
    WEB_RESIZE,
    WEB_RESTART,
    WEB_RESUME,
    WEB_LOGIN, /* this and the next: only a server with logins has them */
    WEB_LOGOUT,
};

#define WEB_URI_MOST 8192
#define WEB_BODY_MOST (1 << 20)
#define WEB_LOGIN_BODY_MOST 4096 /* anybody may send it */
#define WEB_PARAMETERS 8

struct web_parameter {
    char *name, *value;
};
struct web_request {
    enum web_route route;
    int64_t job; /* 0: the path names no job */
    struct web_parameter parameters[WEB_PARAMETERS];
    size_t count;
    /* The server sets these when the whole body has arrived. body_size does not count the NUL at the end. */
    char *body;
    size_t body_size;
};

/* uri: as in the request line, percent-encoded. NOT_FOUND: no such path. UNIMPLEMENTED: the path has no such method.
 * INVALID_ARGUMENT: the number of a job or a parameter is wrong. Release the request after ERR_OK only. */
MUST_CHECK enum err_code web_request_parse(struct web_request *out, const char *method, const char *uri,
                                           struct err *e);
void web_request_release(struct web_request *r);

/* The parameter's value; NULL: the request does not have it. */
const char *web_request_text(const struct web_request *r, const char *name);
/* INVALID_ARGUMENT: the value is not a number, or outside of min to max. */
MUST_CHECK enum err_code web_request_int(const struct web_request *r, const char *name, int64_t min,
                                         int64_t max, int64_t fallback, int64_t *out, struct err *e);
/* A list of numbers of jobs: "9,12". At most `most`; *count is 0 if the request does not have the parameter. */
MUST_CHECK enum err_code web_request_jobs(const struct web_request *r, const char *name, int64_t *jobs,
                                          size_t most, size_t *count, struct err *e);
/* The body as a JSON object; an empty body is an empty object. Only the keys of the list are allowed: "kill", or
 * "from_scratch,set". The caller calls json_decref. */
MUST_CHECK enum err_code web_request_json(const struct web_request *r, const char *keys, json_t **out,
                                          struct err *e);

#endif
