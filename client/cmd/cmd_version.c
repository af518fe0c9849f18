#include <string.h>

#include "base/mem.h"
#include "client/connect.h"
#include "client/reply_json.h"

struct version_options {
    const char *output;
};

static const struct option_spec options[] = {OPTION_OUTPUT(version_options, output), {0}};

/* ddpctl's own version is printed even when no coordinator answers; then the exit code is 3. */
static int cmd_version_run(struct invocation *in)
{
    const struct version_options *o = in->options;
    Ddp__V1__GetVersionRequest request = DDP__V1__GET_VERSION_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct err e;
    /* An error is reported after the version was printed. */
    const enum err_code code = link_call_once(in->globals, "GetVersion", &request, &message, &e);
    const Ddp__V1__GetVersionReply *reply = message;
    if (o->output && strcmp(o->output, "json") == 0) {
        reply_json_version(reply, &out);
    } else {
        buf_puts(&out, "ddpctl " DDP_VERSION "\n");
        if (reply)
            buf_printf(&out, "coordinator %s, cluster %s, epoch %lld, schema %lld\n", reply->version,
                       reply->cluster_id, (long long)reply->epoch, (long long)reply->schema);
    }
    stdout_put(&out);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

const struct command cmd_version = {
    .name = "version",
    .usage = "version [-o table|json]",
    .summary = "print the versions of ddpctl and the coordinator",
    .help = "Prints both versions. Exits with 3 if no coordinator answers.",
    .options = options,
    .size = sizeof(struct version_options),
    .run = cmd_version_run,
};
