#include "daemon/coordinator/service/tell/tell_program.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

#define OUTPUT_MOST 4096 /* bytes that are logged */
#define KILL_AFTER_S 2   /* from SIGTERM to SIGKILL */
#define GUARD_LATER_S 3  /* the guard (timeout) ends the program so long after the coordinator should have */

extern char **environ;

struct tell_program {
    uv_process_t process;
    uv_pipe_t input, output;
    uv_timer_t timer;
    uv_write_t write;
    char *name, *json;
    int64_t timeout_ms;
    tell_done_fn done; /* NULL: abandoned */
    void *user;
    struct tell_result result;
    char text[OUTPUT_MOST + 1], chunk[1024];
    size_t len;
    bool has_process; /* the handle is open, whether or not a program runs */
    bool exited, output_ended, termed;
    int open_handles;
};

static void program_on_closed(uv_handle_t *handle)
{
    struct tell_program *p = handle->data;
    if (--p->open_handles)
        return;
    free(p->name);
    free(p->json);
    free(p);
}

static void program_close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, program_on_closed);
}

static void program_log_output(struct tell_program *p)
{
    p->text[p->len] = '\0';
    for (char *rest = p->text, *line; (line = strsep(&rest, "\n"));)
        if (*line)
            log_info("hook_output", "program=%s line=%s", LOG_Q(p->name), LOG_Q(line));
}

/* Of the output, the result has only the first line, which usually says why the program failed. */
static void program_add_output(struct tell_program *p)
{
    struct tell_result *r = &p->result;
    const size_t used = strlen(r->text);
    if (!p->len)
        return;
    snprintf(r->text + used, sizeof r->text - used, ": %.*s", (int)strcspn(p->text, "\n"), p->text);
    for (char *c = r->text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = ' ';
}

/* Called when the program has exited and its output has ended. Processes that it left behind may hold the output open;
 * then this is called at the time limit. */
static void program_finish(struct tell_program *p)
{
    tell_done_fn done = p->done;
    p->done = NULL;
    if (done) {
        program_log_output(p);
        program_add_output(p);
        done(p->user, &p->result);
    }
    if (p->has_process)
        program_close_handle((uv_handle_t *)&p->process);
    program_close_handle((uv_handle_t *)&p->input);
    program_close_handle((uv_handle_t *)&p->output);
    program_close_handle((uv_handle_t *)&p->timer);
}

static void program_on_exit(uv_process_t *process, int64_t status, int signal)
{
    struct tell_program *p = process->data;
    struct tell_result *r = &p->result;
    p->exited = true;
    r->ok = status == 0 && signal == 0;
    r->refused = !r->ok && !p->termed;
    if (p->termed)
        snprintf(r->text, sizeof r->text, "killed after %" PRId64 " ms, its time limit", p->timeout_ms);
    else if (signal)
        snprintf(r->text, sizeof r->text, "killed by signal %d", signal);
    else
        snprintf(r->text, sizeof r->text, "exit code %" PRId64, status);
    if (p->output_ended || !p->done)
        program_finish(p);
}

static void program_on_late(uv_timer_t *timer)
{
    struct tell_program *p = timer->data;
    const pid_t group = p->process.pid;
    if (p->exited) { /* other processes of its group hold the output open */
        kill(-group, SIGKILL);
        program_finish(p);
        return;
    }
    kill(-group, p->termed ? SIGKILL : SIGTERM);
    p->termed = true;
    uv_timer_start(timer, program_on_late, KILL_AFTER_S * 1000, 0);
}

static void program_give_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct tell_program *p = handle->data;
    (void)suggested;
    *out = uv_buf_init(p->chunk, sizeof p->chunk);
}

static void program_on_output(uv_stream_t *stream, ssize_t count, const uv_buf_t *data)
{
    struct tell_program *p = stream->data;
    if (count > 0) {
        const size_t room = OUTPUT_MOST - p->len;
        const size_t take = (size_t)count < room ? (size_t)count : room;
        memcpy(p->text + p->len, data->base, take);
        p->len += take;
        return;
    }
    if (count == 0)
        return;
    uv_read_stop(stream);
    p->output_ended = true;
    if (p->exited)
        program_finish(p);
}

static void program_on_written(uv_write_t *write, int status)
{
    struct tell_program *p = write->data;
    (void)status; /* an error is fine: the program need not read its stdin */
    program_close_handle((uv_handle_t *)&p->input);
}

static void program_on_failed_start(uv_timer_t *timer)
{
    program_finish(timer->data);
}

static char **program_environment(const struct notice_record *n)
{
    char **env = NULL;
    const struct {
        const char *name, *value;
    } texts[] = {{"EVENT", n->what},
                 {"JOB_NAME", n->name},
                 {"USER", n->user},
                 {"NODE_NAME", n->node},
                 {"TEXT", n->text}};
    for (char **at = environ; at && *at; at++)
        if (strncmp(*at, "DDP_", 4) != 0 && strncmp(*at, "NOTIFY_SOCKET=", 14) != 0)
            env = strv_append(env, *at);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        CLEANUP(free_text) char *entry = xasprintf("DDP_%s=%s", texts[i].name, texts[i].value);
        env = strv_append(env, entry);
    }
    CLEANUP(free_text) char *id = xasprintf("DDP_NOTICE_ID=%" PRId64, n->id);
    CLEANUP(free_text) char *job = xasprintf("DDP_JOB_ID=%" PRId64, n->job);
    return strv_append(strv_append(env, id), job);
}

/* The time limit must hold even if the coordinator is killed. So timeout(1) starts the program. It leads the program's
 * group, exits as the program does, and ends the group later than the coordinator would. */
static char **program_guard(char *const *argv, int64_t timeout_ms)
{
    char **guarded = strv_append(strv_append(NULL, "timeout"), "-k");
    CLEANUP(free_text) char *kill_after = xasprintf("%d", KILL_AFTER_S);
    CLEANUP(free_text) char *limit = xasprintf("%" PRId64, (timeout_ms + 999) / 1000 + GUARD_LATER_S);
    guarded = strv_append(strv_append(guarded, kill_after), limit);
    for (; *argv; argv++)
        guarded = strv_append(guarded, *argv);
    return guarded;
}

static int program_spawn(uv_loop_t *loop, struct tell_program *p, char *const *argv,
                         const struct notice_record *notice)
{
    int ends[2];
    if (access(argv[0], X_OK) != 0 || pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    BUG_ON(uv_pipe_open(&p->output, ends[0]) != 0);
    char **env = program_environment(notice);
    char **guarded = program_guard(argv, p->timeout_ms);
    uv_stdio_container_t stdio[] = {
        {.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&p->input},
        {.flags = UV_INHERIT_FD, .data.fd = ends[1]},
        {.flags = UV_INHERIT_FD, .data.fd = ends[1]},
    };
    const uv_process_options_t options = {.exit_cb = program_on_exit,
                                          .file = guarded[0],
                                          .args = guarded,
                                          .env = env,
                                          .cwd = "/",
                                          .flags = UV_PROCESS_DETACHED,
                                          .stdio_count = 3,
                                          .stdio = stdio};
    p->has_process = true;
    p->open_handles++;
    /* libcurl makes socket pairs that would stay open after exec. The program's three streams are copies, so this does
     * not close them. */
    (void)syscall(SYS_close_range, 3, ~0u, 1u << 2 /* CLOSE_RANGE_CLOEXEC */);
    const int rc = uv_spawn(loop, &p->process, &options);
    strv_free(env);
    strv_free(guarded);
    close(ends[1]);
    return rc;
}

struct tell_program *tell_program_start(uv_loop_t *loop, char *const *argv,
                                        const struct notice_record *notice, const char *json,
                                        int64_t timeout_ms, tell_done_fn done, void *user)
{
    struct tell_program *p = xcalloc(1, sizeof *p);
    p->name = xstrdup(argv[0]);
    p->json = xasprintf("%s\n", json);
    p->timeout_ms = timeout_ms;
    p->done = done;
    p->user = user;
    p->open_handles = 3;
    uv_pipe_init(loop, &p->input, 0);
    uv_pipe_init(loop, &p->output, 0);
    uv_timer_init(loop, &p->timer);
    const int rc = program_spawn(loop, p, argv, notice);
    p->process.data = p->input.data = p->output.data = p->timer.data = p->write.data = p;
    if (rc != 0) {
        snprintf(p->result.text, sizeof p->result.text, "%s: %s", p->name, uv_strerror(rc));
        /* memory, processes or descriptors may be available later */
        p->result.refused = rc != UV_EAGAIN && rc != UV_ENOMEM && rc != UV_EMFILE && rc != UV_ENFILE;
        uv_timer_start(&p->timer, program_on_failed_start, 0, 0);
        return p;
    }
    uv_timer_start(&p->timer, program_on_late, (uint64_t)timeout_ms, 0);
    uv_buf_t data = uv_buf_init(p->json, (unsigned)strlen(p->json));
    if (uv_write(&p->write, (uv_stream_t *)&p->input, &data, 1, program_on_written) != 0)
        program_close_handle((uv_handle_t *)&p->input);
    uv_read_start((uv_stream_t *)&p->output, program_give_buffer, program_on_output);
    return p;
}

void tell_program_abandon(struct tell_program *p)
{
    p->done = NULL;
    if (!p->exited && p->process.pid > 0)
        kill(-p->process.pid, SIGKILL);
    program_finish(p);
}
