#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    return code;
}

static enum err_code code_of_errno(int errnum)
{
    switch (errnum) {
    case ENOENT:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_PERMISSION_DENIED;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
        return ERR_RESOURCE_EXHAUSTED;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
        return ERR_INVALID_ARGUMENT;
    case ETIMEDOUT:
        return ERR_DEADLINE_EXCEEDED;
    case ECANCELED:
        return ERR_CANCELLED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return ERR_UNAVAILABLE;
    case EBUSY:
    case EADDRINUSE:
        return ERR_FAILED_PRECONDITION;
    default:
        return ERR_INTERNAL;
    }
}

enum err_code err_sys(struct err *e, int errnum, const char *fmt, ...)
{
    char reason[128];
    size_t used;
    va_list ap;

    e->code = code_of_errno(errnum);
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    used = strlen(e->msg);
    snprintf(e->msg + used, sizeof(e->msg) - used, ": %s", strerror_r(errnum, reason, sizeof(reason)));
    return e->code;
}

enum err_code err_wrap(struct err *e, const char *fmt, ...)
{
    char inner[sizeof(e->msg)];
    size_t used;
    va_list ap;

    memcpy(inner, e->msg, sizeof(inner));
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    used = strlen(e->msg);
    snprintf(e->msg + used, sizeof(e->msg) - used, ": %s", inner);
    return e->code;
}

const char *err_code_name(enum err_code code)
{
    static const char *const names[] = {
        "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
        "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
        "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
        "DATA_LOSS", "UNAUTHENTICATED",
    };

    if ((unsigned)code >= sizeof(names) / sizeof(names[0]))
        return "UNKNOWN";
    return names[code];
}

void err_bug(const char *file, int line, const char *cond)
{
    fprintf(stderr, "bug: %s:%d: %s\n", file, line, cond);
    abort();
}
