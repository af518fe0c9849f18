#include "proto/rpc_status.h"

#include <string.h>

#include "proto/rpc_codec.h"
#include "proto/rpc_resolve.h"

enum err_code rpc_status_read(int status, const char *text, size_t len, struct err *e)
{
    enum err_code code =
        status >= ERR_OK && status <= ERR_UNAUTHENTICATED ? (enum err_code)status : ERR_UNKNOWN;

    if (code == ERR_OK)
        return err_set(e, ERR_OK, "%s", "");
    if (len == 0)
        return err_set(e, code, "%s without an explanation", err_code_name(code));
    if (len >= sizeof(e->msg))
        len = sizeof(e->msg) - 1;
    err_set(e, code, "%.*s", (int)len, text);
    rpc_utf8_clean(e->msg);
    rpc_resolve_explain(e->msg, sizeof(e->msg));
    return code;
}

enum err_code rpc_status_of_call(int status, const char *text, size_t len, int asked, struct err *e)
{
    if (status == ERR_CANCELLED && !asked)
        status = ERR_UNAVAILABLE;
    return rpc_status_read(status, text, len, e);
}

int rpc_status_code(const struct err *e)
{
    return e->code >= ERR_OK && e->code <= ERR_UNAUTHENTICATED ? (int)e->code : (int)ERR_UNKNOWN;
}
