#include "client/web/web_call.h"

#include "base/mem.h"
#include "client/text/json_print.h"

enum err_code web_call_print(struct link *link, const char *method, const void *request, struct buf *out,
                             struct err *e)
{
    CLEANUP(rpc_release) void *reply = NULL;
    if (link_call(link, method, request, &reply, 0, e) != ERR_OK)
        return e->code;
    json_print(reply, out);
    return ERR_OK;
}
