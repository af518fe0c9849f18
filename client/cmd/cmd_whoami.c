#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "client/connect.h"
#include "client/text/json_print.h"
#include "client/text/term.h"

struct whoami_options {
    const char *output;
};

static const struct option_spec options[] = {OPTION_OUTPUT(whoami_options, output), {0}};

static void whoami_print_sentence(const Ddp__V1__WhoAmIReply *reply, struct buf *out)
{
    term_puts_safe(out, reply->name);
    buf_puts(out, ", role ");
    term_puts_safe(out, reply->role);
    buf_puts(out, ", known by ");
    term_puts_safe(out, reply->known);
    buf_puts(out, ", from ");
    term_puts_safe(out, reply->origin);
    buf_putc(out, '\n');
}

/* The local socket takes no token. A user who has given one expects its name. */
static void whoami_note_token(const struct globals *globals)
{
    const char *env = getenv("DDP_TOKEN");
    const char *given = globals->token_file ? "--token" : env && *env ? "DDP_TOKEN" : NULL;
    struct target t = {0};
    struct err ignored;
    CLEANUP(buf_release) struct buf talk = {0};
    if (!given || target_find(globals, &t, &ignored) != ERR_OK)
        return;
    if (strncmp(t.address, "unix:", 5) == 0) {
        buf_printf(
            &talk,
            "ddpctl: %s is not used, because the local socket needs no token; --coordinator localhost:29600 uses it\n",
            given);
        stderr_put(&talk);
    }
    target_release(&t);
}

static int cmd_whoami_run(struct invocation *in)
{
    const struct whoami_options *o = in->options;
    Ddp__V1__WhoAmIRequest request = DDP__V1__WHO_AM_IREQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct err e;
    if (link_call_once(in->globals, "WhoAmI", &request, &reply, &e) != ERR_OK)
        return error_print(&e);
    if (o->output && strcmp(o->output, "json") == 0)
        json_print(reply, &out);
    else
        whoami_print_sentence(reply, &out);
    whoami_note_token(in->globals);
    stdout_put(&out);
    return EXIT_DONE;
}

const struct command cmd_whoami = {
    .name = "whoami",
    .usage = "whoami [-o table|json]",
    .summary = "show the name and role that the coordinator knows you by",
    .help =
        "The name comes from your token, from your certificate, or from the account that uses the local "
        "socket.\n"
        "The role says what you may do: view (read everything), submit (also run your own jobs), operate\n"
        "(everything: any job, nodes, the audit log).",
    .options = options,
    .size = sizeof(struct whoami_options),
    .run = cmd_whoami_run,
};
