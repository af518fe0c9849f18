#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/connect.h"
#include "client/screen/screen_nodes.h"
#include "client/text/json_print.h"

/* nodes, and the commands that change a node's state: drain, undrain, forget. */

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
    struct err e;
    if (link_call_once(in->globals, "ListNodes", &request, &reply, &e) != ERR_OK)
        return error_print(&e);
    if (o->output && strcmp(o->output, "json") == 0) {
        json_print(reply, &out);
    } else {
        screen_nodes(reply, &term, &out);
        screen_fold(&out);
    }
    stdout_put(&out);
    return EXIT_DONE;
}

struct node_options {
    const char *reason;
};

static const struct option_spec node_table[] = {
    {.name = "reason",
     .type = OPTION_TEXT,
     .offset = offsetof(struct node_options, reason),
     .value = "TEXT",
     .help = "reason, which ddpctl nodes shows"},
    {0},
};

static int nodes_call(struct invocation *in, const char *method)
{
    const struct node_options *o = in->options;
    Ddp__V1__NodeRequest request = DDP__V1__NODE_REQUEST__INIT;
    CLEANUP(rpc_release) void *message = NULL;
    CLEANUP(buf_release) struct buf talk = {0};
    struct err e;
    request.node = in->args.list[0];
    if (o->reason)
        request.reason = (char *)(uintptr_t)o->reason;
    if (link_call_once(in->globals, method, &request, &message, &e) != ERR_OK)
        return error_print(&e);
    const Ddp__V1__NodeReply *reply = message;
    buf_printf(&talk, "%s %s\n", in->args.list[0], reply->node ? reply->node->state : "forgotten");
    stderr_put(&talk);
    return EXIT_DONE;
}

static int cmd_drain_run(struct invocation *in)
{
    return nodes_call(in, "DrainNode");
}

static int cmd_undrain_run(struct invocation *in)
{
    return nodes_call(in, "UndrainNode");
}

static int cmd_forget_run(struct invocation *in)
{
    return nodes_call(in, "ForgetNode");
}

const struct command cmd_nodes = {
    .name = "nodes",
    .usage = "nodes [-o table|json]",
    .summary = "list the nodes: their state, free slots and problems",
    .help = "FREE counts GPUs on nodes that have GPUs, CPU slots on others. SEEN is the time since the last\n"
            "heartbeat.",
    .options = nodes_table,
    .size = sizeof(struct nodes_options),
    .run = cmd_nodes_run,
};
const struct command cmd_drain = {
    .name = "drain",
    .usage = "drain NODE [--reason TEXT]",
    .summary = "place nothing more on a node, and move its jobs away",
    .help =
        "Train jobs write a snapshot and continue on other nodes, and so do commands that call\n"
        "ddp.should_stop. This does not count as a restart. Other commands run to their end. `ddpctl nodes`\n"
        "shows the node as drained when it is empty.",
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
        "Clears the drained state, and marks the node's sick GPUs as healthy, as after a repair. A GPU about\n"
        "which the driver still reports a fault becomes sick again at once.",
    .options = node_table,
    .size = sizeof(struct node_options),
    .least = 1,
    .most = 1,
    .run = cmd_undrain_run,
};
const struct command cmd_forget = {
    .name = "forget",
    .usage = "forget NODE",
    .summary = "remove a node that has left, or declare its processes dead",
    .help =
        "When a node is lost, a command job that ran there waits until its processes are known to be dead:\n"
        "until its lease has run out, or until this command declares them dead. Use it only for a machine\n"
        "that is switched off or isolated; otherwise two copies of the command may run. The node joins again\n"
        "when its agent comes back.",
    .options = node_table,
    .size = sizeof(struct node_options),
    .least = 1,
    .most = 1,
    .run = cmd_forget_run,
};
