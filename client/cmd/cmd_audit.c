#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/cmd/jobs/since.h"
#include "client/connect.h"
#include "client/screen/screen_events.h"
#include "client/text/json_print.h"

#define LINES_DEFAULT 100
#define LINES_MOST 10000

struct audit_options {
    const char *output, *since;
    int64_t lines;
};

static const struct option_spec options[] = {
    {.name = "since",
     .type = OPTION_TEXT,
     .offset = offsetof(struct audit_options, since),
     .value = "WHEN",
     .help = SINCE_HELP},
    {.name = "lines",
     .letter = 'n',
     .type = OPTION_INT,
     .offset = offsetof(struct audit_options, lines),
     .value = "N",
     .help = "print the newest N lines, at most 10000",
     .default_text = "100"},
    OPTION_OUTPUT(audit_options, output),
    {0},
};

static enum err_code audit_read_options(const struct audit_options *o, Ddp__V1__GetAuditRequest *request,
                                        struct err *e)
{
    if (o->since && since_parse(o->since, &request->since_ms, e) != ERR_OK)
        return e->code;
    if (o->lines > LINES_MOST)
        return err_set(e, ERR_INVALID_ARGUMENT,
                       "invalid value for option '--lines': expected at most %d, got %lld", LINES_MOST,
                       (long long)o->lines);
    request->limit = o->lines ? (int32_t)o->lines : LINES_DEFAULT;
    return ERR_OK;
}

static int cmd_audit_run(struct invocation *in)
{
    Ddp__V1__GetAuditRequest request = DDP__V1__GET_AUDIT_REQUEST__INIT;
    const struct audit_options *o = in->options;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct term term = term_of(STDOUT_FILENO);
    struct err e;
    if (audit_read_options(o, &request, &e) != ERR_OK ||
        link_call_once(in->globals, "GetAudit", &request, &reply, &e) != ERR_OK)
        return error_print(&e);
    const bool json = o->output && strcmp(o->output, "json") == 0;
    if (json)
        json_print(reply, &out);
    else
        screen_audit(reply, &term, &out);
    (json ? stdout_put : screen_put)(&out);
    return EXIT_DONE;
}

const struct command cmd_audit = {
    .name = "audit",
    .usage = "audit [--since WHEN] [-n N] [-o table|json]",
    .summary = "list who changed what, when and from where",
    .help =
        "Prints one line for each change that a user made, oldest first: jobs submitted, cancelled, resized,\n"
        "restarted and tuned, nodes drained, undrained and forgotten, users added and removed. Refused calls are\n"
        "listed too; many calls of one caller within a minute share a line. Needs the role operate.",
    .options = options,
    .size = sizeof(struct audit_options),
    .run = cmd_audit_run,
};
