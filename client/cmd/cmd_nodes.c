#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/connect.h"
#include "client/screen/json_print.h"
#include "client/screen/screen.h"
#include "client/screen/screen_nodes.h"

/* nodes, and the three things an operator says about one: drain, undrain, forget. */

struct nodes_options {
    const char *output;
};

static const struct option_spec nodes_table[] = {OPTION_OUTPUT(nodes_options, output), {0}};

static int cmd_nodes_run(struct invocation *in)
{
    const struct nodes_options *o = in->options;
    Ddp__V1__ListNodesRequest request = DDP__V1__LIST_NODES_REQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct term term = term_of(STDOUT_FILENO);
    struct link link;
    struct err e;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    enum err_code code = link_call(&link, "ListNodes", &request, &reply, 0, &e);
    if (code == ERR_OK && o->output && strcmp(o->output, "json") == 0)
        json_print(reply, &out);
    else if (code == ERR_OK)
        screen_nodes(reply, &term, &out);
    stdout_put(&out);
    link_close(&link);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

struct node_options {
    const char *reason;
};

static const struct option_spec node_table[] = {
    {.name = "reason",
     .type = OPTION_TEXT,
     .offset = offsetof(struct node_options, reason),
     .value = "TEXT",
     .help = "kept with the node, shown by ddpctl nodes"},
    {0},
};

static int nodes_call(struct invocation *in, const char *method)
{
    const struct node_options *o = in->options;
    Ddp__V1__NodeRequest request = DDP__V1__NODE_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    struct link link;
    struct err e;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    request.node = in->args.list[0];
    if (o->reason)
        request.reason = (char *)(uintptr_t)o->reason;
    enum err_code code = link_call(&link, method, &request, &message, 0, &e);
    if (code == ERR_OK) {
        const Ddp__V1__NodeReply *reply = message;
        buf_printf(&talk, "%s %s\n", in->args.list[0], reply->node ? reply->node->state : "forgotten");
        stderr_put(&talk);
    }
    link_close(&link);
    return code == ERR_OK ? EXIT_DONE : error_print(&e);
}

static int cmd_drain_run(struct invocation *in)
{
    return nodes_call(in, "DrainNode");
}

static int cmd_undrain_run(struct invocation *in)
{
    return nodes_call(in, "ResumeNode");
}

static int cmd_forget_run(struct invocation *in)
{
    return nodes_call(in, "ForgetNode");
}

const struct command cmd_nodes = {
    .name = "nodes",
    .usage = "nodes [-o table|json]",
    .summary = "the machines: state, what is free, what ails them",
    .help =
        "FREE counts GPUs where there are any, else CPU slots. SEEN is the time since the last heartbeat.",
    .options = nodes_table,
    .size = sizeof(struct nodes_options),
    .run = cmd_nodes_run,
};
const struct command cmd_drain = {
    .name = "drain",
    .usage = "drain NODE [--reason TEXT]",
    .summary = "put nothing more on a node, move its jobs away",
    .help = "Train jobs leave a snapshot and go on elsewhere, charged to nobody; commands are left to end. "
            "`ddpctl\n"
            "nodes` says drained when the node is empty.",
    .options = node_table,
    .size = sizeof(struct node_options),
    .least = 1,
    .most = 1,
    .run = cmd_drain_run,
};
const struct command cmd_undrain = {
    .name = "undrain",
    .usage = "undrain NODE",
    .summary = "use a drained node again",
    .help =
        "Undoes ddpctl drain, and holds the node's sick GPUs for well again: after a repair. What the driver "
        "still\n"
        "says of one makes it sick again at once.",
    .options = node_table,
    .size = sizeof(struct node_options),
    .least = 1,
    .most = 1,
    .run = cmd_undrain_run,
};
const struct command cmd_forget = {
    .name = "forget",
    .usage = "forget NODE",
    .summary = "say that a lost node's processes are gone for good",
    .help = "A command job on a node that cannot be heard waits until its processes there are known dead: "
            "until its\n"
            "lease has run out, or until you say so with this. Say it only of a machine that is off or cut "
            "off: two\n"
            "copies of a command would run otherwise. The node joins again when its agent comes back.",
    .options = node_table,
    .size = sizeof(struct node_options),
    .least = 1,
    .most = 1,
    .run = cmd_forget_run,
};
