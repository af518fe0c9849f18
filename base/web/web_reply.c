#include "base/web/web_reply.h"

#include <stdlib.h>

#include "base/json.h"

void web_reply_fail(struct web_reply *reply, const struct err *e)
{
    struct jout o = {.buf = &reply->body};
    reply->code = e->code;
    buf_clear(&reply->body);
    jout_open(&o, NULL, '{');
    jout_text(&o, "error", e->msg);
    jout_text(&o, "code", err_code_name(e->code));
    jout_close(&o, '}');
    buf_putc(&reply->body, '\n');
}

void web_reply_release(struct web_reply *reply)
{
    buf_release(&reply->body);
    free(reply->secret);
    *reply = (struct web_reply){0};
}

unsigned web_reply_status(enum err_code code)
{
    switch (code) {
    case ERR_OK:
        return 200;
    case ERR_INVALID_ARGUMENT:
    case ERR_OUT_OF_RANGE:
        return 400;
    case ERR_UNAUTHENTICATED:
    case ERR_PERMISSION_DENIED:
        return 403;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_UNIMPLEMENTED:
        return 405;
    case ERR_ALREADY_EXISTS:
    case ERR_FAILED_PRECONDITION:
    case ERR_ABORTED:
        return 409;
    case ERR_RESOURCE_EXHAUSTED:
        return 429;
    case ERR_UNAVAILABLE:
    case ERR_CANCELLED:
        return 503;
    case ERR_DEADLINE_EXCEEDED:
        return 504;
    default:
        return 500;
    }
}
