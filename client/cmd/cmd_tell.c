#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/connect.h"
#include "client/screen/screen_hooks.h"
#include "client/text/json_print.h"

#define TEST_MS 660000 /* the longest time limit of a hook is 600 s */

struct tell_options {
    const char *output;
    bool test;
};

static const struct option_spec options[] = {
    {.name = "test",
     .type = OPTION_FLAG,
     .offset = offsetof(struct tell_options, test),
     .help = "send a test message through each hook, or through HOOK, and print what came back"},
    OPTION_OUTPUT(tell_options, output),
    {0},
};

/* 1 if a hook has not taken its test message. */
static int tell_exit_code(const Ddp__V1__TestHookReply *reply)
{
    for (size_t i = 0; i < reply->n_results; i++)
        if (!reply->results[i]->ok)
            return EXIT_FAILED;
    return EXIT_DONE;
}

static enum err_code tell_call(struct link *link, const struct invocation *in, void **reply, struct err *e)
{
    const struct tell_options *o = in->options;
    Ddp__V1__ListHooksRequest list = DDP__V1__LIST_HOOKS_REQUEST__INIT;
    Ddp__V1__TestHookRequest test = DDP__V1__TEST_HOOK_REQUEST__INIT;
    if (!o->test)
        return link_call(link, "ListHooks", &list, reply, 0, e);
    if (in->args.count)
        test.name = in->args.list[0];
    return link_call_within(link, "TestHook", &test, reply, TEST_MS, e);
}

static int cmd_tell_run(struct invocation *in)
{
    const struct tell_options *o = in->options;
    CLEANUP(rpc_release) void *reply = NULL;
    CLEANUP(buf_release) struct buf out = {0};
    struct term term = term_of(STDOUT_FILENO);
    struct link link;
    struct err e = {0};
    if (in->args.count && !o->test)
        err_set(&e, ERR_INVALID_ARGUMENT, "a HOOK needs --test: ddpctl tell --test %s", in->args.list[0]);
    if (e.code || link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    const enum err_code code = tell_call(&link, in, &reply, &e);
    const int ended = code == ERR_OK && o->test ? tell_exit_code(reply) : EXIT_DONE;
    const bool json = o->output && strcmp(o->output, "json") == 0;
    if (code == ERR_OK && json)
        json_print(reply, &out);
    else if (code == ERR_OK && o->test)
        screen_hook_test(reply, &term, &out);
    else if (code == ERR_OK)
        screen_hooks(reply, &term, &out);
    (json ? stdout_put : screen_put)(&out);
    link_close(&link);
    return code == ERR_OK ? ended : error_print(&e);
}

const struct command cmd_tell = {
    .name = "tell",
    .usage = "tell [-o table|json]\ntell --test [HOOK] [-o table|json]",
    .summary = "list the coordinator's hooks, and send test messages",
    .help =
        "Prints one line for each hook of coordinator.yaml: where its messages go, how many wait, and its last\n"
        "success and failure since the coordinator's start. The last line is about the messages that jobs asked\n"
        "for with `submit --tell`. --test exits with 1 if a message was not delivered. Needs the role operate.",
    .options = options,
    .size = sizeof(struct tell_options),
    .most = 1,
    .run = cmd_tell_run,
};
