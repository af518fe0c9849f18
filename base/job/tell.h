#ifndef DDP_BASE_JOB_TELL_H
#define DDP_BASE_JOB_TELL_H

#include "base/err.h"

/* The `tell` of a job file: a URL that gets messages about the job. */

/* How the body of a message looks. */
enum tell_shape {
    TELL_AUTO, /* by the URL's host */
    TELL_JSON,
    TELL_SLACK,
    TELL_NTFY,
    TELL_DISCORD,
};
extern const char *const tell_shape_names[]; /* NULL-terminated */

/* The shape of a message to the URL: the requested one, else the one that suits the host, else TELL_JSON. */
enum tell_shape tell_shape_of(enum tell_shape asked, const char *url);

/* Whether a job may have this URL. allow: beginnings of URLs; {"none", NULL}: no job may; NULL: https to any public
 * host. PERMISSION_DENIED with what is allowed. */
MUST_CHECK enum err_code tell_check(const char *url, char *const *allow, struct err *e);

#endif
