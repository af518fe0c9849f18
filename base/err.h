#ifndef DDP_BASE_ERR_H
#define DDP_BASE_ERR_H

/* One error type for the whole project: owned by the caller, no allocation, last parameter. Codes carry
 * gRPC's numbers, so that they cross the wire unchanged. Branch on the code, never on the text. Any thread.
 */

enum err_code {
    ERR_OK = 0,
    ERR_CANCELLED = 1,
    ERR_UNKNOWN = 2,
    ERR_INVALID_ARGUMENT = 3,
    ERR_DEADLINE_EXCEEDED = 4,
    ERR_NOT_FOUND = 5,
    ERR_ALREADY_EXISTS = 6,
    ERR_PERMISSION_DENIED = 7,
    ERR_RESOURCE_EXHAUSTED = 8,
    ERR_FAILED_PRECONDITION = 9, /* wrong state: do not retry */
    ERR_ABORTED = 10,            /* the caller's generation is stale: rejoin */
    ERR_OUT_OF_RANGE = 11,
    ERR_UNIMPLEMENTED = 12,
    ERR_INTERNAL = 13,
    ERR_UNAVAILABLE = 14, /* retry the call */
    ERR_DATA_LOSS = 15,
    ERR_UNAUTHENTICATED = 16,
};

struct err {
    enum err_code code;
    char msg[512];
};

#define MUST_CHECK __attribute__((warn_unused_result))

/* Each returns the code it sets, so that a failing path can end in `return err_set(...)`. */
enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets the code that fits errno (ENOENT: NOT_FOUND, EACCES: PERMISSION_DENIED, ENOSPC: RESOURCE_EXHAUSTED, ...)
 * and appends the text of errno. */
enum err_code err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "fmt: " in front of the message; keeps the code. */
enum err_code err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_code_name(enum err_code code); /* "NOT_FOUND" */

/* A bug is not an error: aborts with file and line, in release builds too. */
#define BUG_ON(cond)                                                                                         \
    do {                                                                                                     \
        if (__builtin_expect(!!(cond), 0))                                                                   \
            err_bug(__FILE__, __LINE__, #cond);                                                              \
    } while (0)
__attribute__((noreturn)) void err_bug(const char *file, int line, const char *cond);

#endif
