#include <langinfo.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/connect.h"
#include "client/top/top_fetch.h"
#include "client/top/top_terminal.h"
#include "client/top/top_view.h"

#define MESSAGE_MS 4000 /* how long a message hides the names of the keys, unless a key is pressed */
#define EVERY_MS 1000   /* between two answers of the coordinator and the next question */

struct top_options {
    bool once;
};

static const struct option_spec options[] = {
    {.name = "once",
     .type = OPTION_FLAG,
     .offset = offsetof(struct top_options, once),
     .help = "print one screen and end, as without a terminal"},
    {0},
};

static bool top_is_utf8(void)
{
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static int top_print_once(struct link *link)
{
    CLEANUP(top_fetched_release) struct top_fetched fetched = {0};
    CLEANUP(buf_release) struct buf out = {0};
    struct term term = term_of(STDOUT_FILENO);
    const struct top_frame frame = {.term = &term, .utf8 = top_is_utf8()};
    struct top_state state = {0};

    if (!top_fetch(&fetched, link, &state)) {
        struct err e;
        err_set(&e, fetched.code, "%s", fetched.problem);
        return error_print(&e);
    }
    term.rows = 0; /* the reader scrolls */
    top_settle(&state, &fetched.model, top_room(&frame, &fetched.model, &state));
    top_draw(&frame, &fetched.model, &state, &out);
    return screen_put(&out) ? EXIT_DONE : EXIT_FAILED;
}

static void top_redraw(const struct top_fetched *fetched, struct top_state *state)
{
    CLEANUP(buf_release) struct buf out = {0};
    const struct term term = term_of(STDOUT_FILENO);
    const struct top_frame frame = {.term = &term, .utf8 = top_is_utf8(), .keys = true};

    top_settle(state, &fetched->model, top_room(&frame, &fetched->model, state));
    top_draw(&frame, &fetched->model, state, &out);
    screen_fold(&out);
    top_terminal_draw(&out);
}

/* Handles what was typed. Returns false at the end. *now: the coordinator is to be asked at once. */
static bool top_handle_keys(struct link *link, const struct top_fetched *fetched, struct top_state *state,
                            const char *bytes, size_t count, bool *now)
{
    for (size_t at = 0; at < count;) {
        struct top_key key;
        const enum top_page page = state->page;
        at += top_key_take(bytes + at, count - at, &key);
        const enum top_action action = top_press(state, &fetched->model, &key);
        if (action == TOP_QUIT)
            return false;
        if (action == TOP_CANCEL_JOB)
            top_cancel(link, state->cancels, state->message, sizeof(state->message));
        *now = *now || action == TOP_CANCEL_JOB || page != state->page;
    }
    return true;
}

static void top_run_live(struct link *link)
{
    CLEANUP(top_fetched_release) struct top_fetched fetched = {0};
    struct top_state state = {0};
    char bytes[256];
    int64_t next_ms = 0, said_ms = 0;

    top_redraw(&fetched, &state); /* the first screen, even if the coordinator has not answered */
    for (bool more = true; more;) {
        if (clock_boot_ms() >= next_ms) {
            top_fetch(&fetched, link, &state);
            next_ms = clock_boot_ms() + EVERY_MS;
        }
        if (!state.message[0])
            said_ms = clock_boot_ms();
        else if (clock_boot_ms() - said_ms > MESSAGE_MS)
            state.message[0] = '\0';
        top_redraw(&fetched, &state);
        const long count = top_terminal_wait(next_ms - clock_boot_ms(), bytes, sizeof(bytes));
        bool now = false;
        more =
            count >= 0 && top_handle_keys(link, &fetched, &state, bytes, count > 0 ? (size_t)count : 0, &now);
        if (now) {
            next_ms = 0;
            top_redraw(&fetched, &state);
        }
    }
}

static int cmd_top_run(struct invocation *in)
{
    const struct top_options *o = in->options;
    struct link link;
    struct err e;
    int code = EXIT_DONE;

    if (link_open(&link, in->globals, &e) != ERR_OK)
        return error_print(&e);
    if (o->once || !top_terminal_possible() || !top_terminal_open()) {
        code = top_print_once(&link);
    } else {
        top_run_live(&link);
        top_terminal_close();
    }
    link_close(&link);
    return code;
}

const struct command cmd_top = {
    .name = "top",
    .usage = "top [--once]",
    .summary = "watch nodes, GPUs and jobs on one screen",
    .help = "Shows the nodes, the load of their GPUs and the jobs, renewed each second. Keys:\n"
            "  arrows, j, k  select a job\n"
            "  enter         open it: its ranks, why it waits, its loss, its log\n"
            "  /             filter by number, name, user, state or node\n"
            "  s, r          sort, reverse\n"
            "  n             all nodes\n"
            "  c             cancel the job, after a question\n"
            "  esc           back, or no filter\n"
            "  q             back, or quit\n"
            "Without a terminal, or with --once, it prints one screen with all nodes and jobs.",
    .options = options,
    .size = sizeof(struct top_options),
    .run = cmd_top_run,
};
