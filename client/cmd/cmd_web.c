#include <unistd.h>

#include "base/mem.h"
#include "client/connect.h"
#include "client/interrupts.h"
#include "client/web/web_session.h"

struct web_command_options {
    int64_t port;
};

static const struct option_spec options[] = {
    {.name = "port",
     .type = OPTION_INT,
     .offset = offsetof(struct web_command_options, port),
     .value = "N",
     .min = 1,
     .max = 65535,
     .help = "port on 127.0.0.1",
     .default_text = "8629, or a free port if that is in use"},
    {0},
};

/* Reports a wrong address or token before the page is served. */
static enum err_code web_check_coordinator(struct link *link, struct err *e)
{
    Ddp__V1__WhoAmIRequest request = DDP__V1__WHO_AM_IREQUEST__INIT;
    CLEANUP(rpc_release) void *reply = NULL;
    return link_call(link, "WhoAmI", &request, &reply, 0, e);
}

static int cmd_web_run(struct invocation *in)
{
    const struct web_command_options *o = in->options;
    CLEANUP(buf_release) struct buf out = {0}, talk = {0};
    struct web_session *session;
    struct link link;
    struct err e;
    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    if (web_check_coordinator(&link, &e) != ERR_OK) {
        link_close(&link);
        return error_print(&e);
    }
    if (web_session_open(&session, &link, (uint16_t)o->port, &e) != ERR_OK)
        return error_print(&e);
    interrupts_catch();
    buf_printf(&out, "%s\n", web_session_url(session));
    buf_puts(&talk,
             "open this URL in a browser; keep it secret: it grants your rights; ^C ends the server\n");
    bool read = stdout_put(&out);
    stderr_put(&talk);
    while (read && !interrupts_count())
        usleep(100000); /* a signal ends it early */
    web_session_close(session);
    return read ? EXIT_DONE : EXIT_FAILED;
}

const struct command cmd_web = {
    .name = "web",
    .usage = "web [--port N]",
    .summary = "show the jobs in a browser, with live curves",
    .help =
        "Serves a web page and an HTTP interface on 127.0.0.1, until ^C, and prints the page's URL. The page\n"
        "has your rights: ddpctl turns its requests into calls with your token. The URL holds a random key.\n"
        "Requests without the key are refused, so other users of this machine and other web sites cannot use\n"
        "the page. To use it from another machine, forward the port:\n\n"
        "  ssh -t -L 8629:127.0.0.1:8629 box1 ddpctl web",
    .options = options,
    .size = sizeof(struct web_command_options),
    .run = cmd_web_run,
};
