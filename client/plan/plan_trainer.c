#include "client/plan/plan_trainer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/paths.h"
#include "client/interrupts.h"

#define STEPS_SKIPPED 3 /* the first steps touch memory for the first time */
#define STEPS_LEAST 5
#define STEPS_MOST 200
#define MEASURE_MS 3000        /* steps are measured for this long */
#define MEASURE_MOST_MS 120000 /* if STEPS_LEAST take longer */
#define COPY_BYTES_MOST ((size_t)64 << 20)
#define COPY_NS 40000000

/* ddp-trainer while it runs. */
struct plan_child {
    pid_t pid;
    int out;
    char *file; /* the job file, owned */
};

char *plan_temporary(void)
{
    const char *tmp = getenv("TMPDIR");
    return xasprintf("%s/ddp-plan-XXXXXX", tmp && *tmp ? tmp : "/tmp");
}

static enum err_code plan_write_job(const char *text, char *file, struct err *e)
{
    int fd = mkstemp(file);
    if (fd < 0)
        return err_sys(e, errno, "%s", file);
    close(fd);
    return file_write_renamed(file, text, strlen(text), 0600, false, e);
}

_Noreturn static void plan_child_exec(const char *program, char *const *argv, int out)
{
    /* The terminal's ^C goes to ddpctl, which then ends the trainer. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && setpgid(0, 0) == 0 && dup2(out, STDOUT_FILENO) >= 0 &&
        dup2(out, STDERR_FILENO) >= 0 && setenv("DDP_LOG", "error", 1) == 0)
        execv(program, argv);
    _exit(127);
}

/* words: the options after the job file; NULL ends them. What it says of errors comes through the same pipe as its results. */
static enum err_code plan_child_start(struct plan_child *c, const char *option, const char *text,
                                      char *const *words, struct err *e)
{
    CLEANUP(free_text) char *program = NULL;
    int pipes[2];
    *c = (struct plan_child){.out = -1, .file = plan_temporary()};
    if (paths_program("ddp-trainer", &program, e) || plan_write_job(text, c->file, e))
        return e->code;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    char **argv = strv_append(strv_append(strv_append(NULL, "ddp-trainer"), option), c->file);
    for (; *words; words++)
        argv = strv_append(argv, *words);
    c->pid = fork();
    if (c->pid == 0)
        plan_child_exec(program, argv, pipes[1]);
    const int failed = errno;
    strv_free(argv);
    close(pipes[1]);
    c->out = pipes[0];
    return c->pid < 0 ? err_sys(e, failed, "fork") : ERR_OK;
}

/* Returns the exit code; -1: a signal ended it. */
static int plan_child_end(struct plan_child *c)
{
    int status = 0;
    close_fd(&c->out);
    if (c->pid > 0 && interrupts_count())
        kill(c->pid, SIGKILL);
    if (c->pid > 0)
        while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
            ;
    unlink(c->file);
    free(c->file);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Returns false at the end of the output, and if nothing came until the deadline. */
static bool plan_child_read(const struct plan_child *c, struct buf *out, int64_t deadline_ms)
{
    char piece[4096];
    struct pollfd p = {.fd = c->out, .events = POLLIN};
    int64_t left = deadline_ms - clock_mono_ns() / 1000000;
    ssize_t got;
    int ready = -1;
    /* A handler, such as that of SIGCONT after ^Z, ends poll. */
    while (left > 0 && !interrupts_count() && (ready = poll(&p, 1, (int)left)) < 0 && errno == EINTR)
        left = deadline_ms - clock_mono_ns() / 1000000;
    if (left <= 0 || interrupts_count() || ready <= 0)
        return false;
    got = read(c->out, piece, sizeof(piece));
    if (got > 0)
        buf_append(out, piece, (size_t)got);
    return got > 0;
}

/* The last line is the reason why the trainer ended. */
static enum err_code plan_child_failed(const char *said, enum err_code code, struct err *e)
{
    static const char prefix[] = "ddp-trainer: ";
    size_t len = strlen(said);
    while (len > 0 && said[len - 1] == '\n')
        len--;
    const char *line = said + len;
    while (line > said && line[-1] != '\n')
        line--;
    if (strncmp(line, prefix, strlen(prefix)) == 0)
        line += strlen(prefix);
    return err_set(e, code, "%.*s", (int)(said + len - line), line);
}

enum err_code plan_trainer_sizes(const char *job_text, int64_t ranks, int64_t per_node, double gpu_memory,
                                 struct plan_sizes *out, struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0};
    CLEANUP(free_text) char *world = xasprintf("%lld", (long long)ranks);
    CLEANUP(free_text) char *memory = xasprintf("%.0f", gpu_memory);
    CLEANUP(free_text) char *together = xasprintf("%lld", (long long)per_node);
    char *words[] = {
        (char *)(uintptr_t) "--world", world, (char *)(uintptr_t) "--per-node", together, NULL, memory, NULL};
    const int64_t deadline_ms = clock_mono_ns() / 1000000 + MEASURE_MOST_MS;
    struct plan_child c;
    if (gpu_memory > 0)
        words[4] = (char *)(uintptr_t) "--gpu-memory";
    enum err_code code = plan_child_start(&c, "--sizes", job_text, words, e);
    while (!code && plan_child_read(&c, &said, deadline_ms))
        ;
    const int exited = plan_child_end(&c);
    if (code)
        return e->code;
    if (interrupts_count())
        return err_set(e, ERR_CANCELLED, "interrupted");
    if (exited)
        return plan_child_failed(said.len ? said.data : "ddp-trainer ended without a result",
                                 exited == 2 ? ERR_INVALID_ARGUMENT : ERR_FAILED_PRECONDITION, e);
    return plan_sizes_parse(said.data ? said.data : "", said.len, out, e);
}

/* ---- a step, measured */

static int seconds_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Takes the whole lines from `said`. Each report has the time of one step. Other lines are collected. */
static void steps_take(struct buf *said, double *ms, size_t *count, struct buf *other)
{
    char *line = said->data, *end;
    size_t used = 0;
    while (line && (end = memchr(line, '\n', said->len - used))) {
        CLEANUP(json_release) json_t *object = NULL;
        struct err ignored;
        const bool report = json_parse(line, (size_t)(end - line), said->len, &object, &ignored) == ERR_OK;
        if (report && *count < STEPS_MOST && json_get_real(object, "ms_per_step", 0) > 0)
            ms[(*count)++] = json_get_real(object, "ms_per_step", 0);
        if (!report)
            buf_append(other, line, (size_t)(end - line) + 1);
        used += (size_t)(end - line) + 1;
        line = end + 1;
    }
    buf_consume(said, used);
}

enum err_code plan_trainer_step(const char *job_text, double *seconds, struct err *e)
{
    CLEANUP(buf_release) struct buf said = {0}, other = {0};
    double *ms = xcalloc(STEPS_MOST, sizeof(*ms));
    size_t count = 0;
    struct plan_child c;
    char *words[] = {NULL};
    const int64_t began_ms = clock_mono_ns() / 1000000;
    enum err_code code = plan_child_start(&c, "--standalone", job_text, words, e);
    while (!code && plan_child_read(&c, &said, began_ms + MEASURE_MOST_MS)) {
        steps_take(&said, ms, &count, &other);
        const bool long_enough = clock_mono_ns() / 1000000 - began_ms >= MEASURE_MS;
        if (count == STEPS_MOST || (long_enough && count >= STEPS_SKIPPED + STEPS_LEAST))
            break;
    }
    /* It has nothing to save: its snapshots, if the job has some, go to a directory that is removed. */
    if (c.pid > 0)
        kill(c.pid, SIGKILL);
    plan_child_end(&c);
    const size_t first = count > STEPS_SKIPPED ? STEPS_SKIPPED : 0;
    if (!code && interrupts_count()) {
        code = err_set(e, ERR_CANCELLED, "interrupted");
    } else if (!code && count == first) {
        code = plan_child_failed(other.len ? other.data : "ddp-trainer made no step to measure",
                                 ERR_FAILED_PRECONDITION, e);
        err_wrap(e, "measuring a step here (or give --step or --rate)");
    } else if (!code) {
        qsort(ms + first, count - first, sizeof(*ms), seconds_compare);
        *seconds = ms[first + (count - first) / 2] / 1e3;
    }
    free(ms);
    return code;
}

double plan_copy_rate(double bytes)
{
    const size_t size = bytes < (double)COPY_BYTES_MOST ? (size_t)bytes / 64 * 64 + 64 : COPY_BYTES_MOST;
    char *from = xcalloc(1, size), *to = xmalloc(size);
    const int64_t began = clock_mono_ns();
    int64_t best = INT64_MAX, now = began;
    memset(from, 1, size);
    for (int i = 0; i < 3 || now - began < COPY_NS; i++) {
        const int64_t at = clock_mono_ns();
        memcpy(to, from, size);
        now = clock_mono_ns();
        best = now - at < best ? now - at : best;
        from[(size_t)i % size] ^= to[0]; /* what was copied is used */
    }
    free(from);
    free(to);
    return (double)size / (double)(best > 0 ? best : 1) * 1e9;
}
