/* The trainer has the model's code, so it is started as a program, on a job file and tokens in a directory that is removed
 * afterwards. */
#include "client/bench/bench_run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
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
#include "base/random.h"
#include "client/interrupts.h"

#define TOKENS (200 << 10)
#define LINE_MOST (64 << 10)
#define LOG_MOST (1 << 20)
#define START_MS 120000 /* until the first step has ended */
#define STEP_MS 60000   /* until the next one has */
#define POLL_MS 100

const struct bench_size bench_sizes[] = {
    {"small", 4, 4, 128, 64, 65, 16, 0.40, 0.20},
    {"middle", 6, 6, 384, 256, 65, 12, 0.45, 0.25},
    {"large", 12, 12, 768, 512, 50257, 4, 0.55, 0.25},
    {0},
};

const struct bench_size *bench_size_find(const char *name, size_t len)
{
    for (const struct bench_size *s = bench_sizes; s->name; s++)
        if (strlen(s->name) == len && !memcmp(s->name, name, len))
            return s;
    return NULL;
}

/* ---- what the trainer says */

static const char *const metric_names[] = {"ms_per_step", "tokens_per_s", "gflops", "peak_share"};

enum err_code bench_steps_add(struct bench_steps *s, const char *line, size_t len, struct err *e)
{
    CLEANUP(json_release) json_t *report = NULL;
    if (json_parse(line, len, LINE_MOST, &report, e) != ERR_OK)
        return err_wrap(e, "the trainer's report");
    s->parameters = json_get_int(report, "parameters", s->parameters);
    if (!json_object_get(report, metric_names[0]))
        return ERR_OK; /* the report before the first step */
    for (size_t i = 0; i < ARRAY_LEN(metric_names); i++) {
        s->values[i] = array_grow(s->values[i], s->count, &s->cap[i], sizeof(*s->values[i]));
        s->values[i][s->count] = json_get_real(report, metric_names[i], 0.0);
    }
    s->count++;
    return ERR_OK;
}

static int reals_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double reals_median(const double *values, size_t count)
{
    CLEANUP(free_text) char *copy = xmemdup(values, count * sizeof(*values));
    double *sorted = (double *)(void *)copy;
    qsort(sorted, count, sizeof(*sorted), reals_compare);
    return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0;
}

void bench_steps_result(const struct bench_steps *s, struct bench_result *out)
{
    double *const fields[] = {&out->ms_per_step, &out->tokens_per_s, &out->gflops, &out->share};
    /* The first step also touches its memory for the first time. */
    const size_t skip = s->count > 1;
    out->parameters = s->parameters;
    out->steps = (int64_t)(s->count - skip);
    for (size_t i = 0; s->count && i < ARRAY_LEN(fields); i++)
        *fields[i] = reals_median(s->values[i] + skip, s->count - skip);
}

void bench_steps_release(struct bench_steps *s)
{
    for (size_t i = 0; i < ARRAY_LEN(s->values); i++)
        free(s->values[i]);
    *s = (struct bench_steps){0};
}

void bench_device_read(const char *log, struct bench_result *out)
{
    const char *sizes = strstr(log, "event=sizes "), *device = sizes ? strstr(sizes, " device=") : NULL;
    const char *threads = sizes ? strstr(sizes, " threads=") : NULL;
    snprintf(out->device, sizeof(out->device), "unknown");
    if (device)
        (void)sscanf(device, " device=%31[^ \n]", out->device);
    out->threads = threads ? atoi(threads + strlen(" threads=")) : 0;
}

/* ---- the trainer */

struct bench_child {
    char *dir; /* with the job file, the tokens and the trainer's log */
    pid_t pid;
    int out; /* its stdout */
    struct buf line;
    struct bench_steps steps;
};

/* Tokens whose numbers are spread like those of words: small ones are frequent. What the model learns does not matter. */
static enum err_code write_tokens(const char *path, int vocab, struct err *e)
{
    CLEANUP(free_text) char *bytes = xmalloc(2 * TOKENS);
    for (uint64_t i = 0; i < TOKENS; i++) {
        const unsigned token = (unsigned)pow(vocab, (double)(random_mix(i) >> 11) * 0x1p-53) - 1;
        bytes[2 * i] = (char)(token & 0xff);
        bytes[2 * i + 1] = (char)(token >> 8);
    }
    return file_write_renamed(path, bytes, 2 * TOKENS, 0600, false, e);
}

static enum err_code write_job(const struct bench_child *c, const struct bench_size *size,
                               const char *precision, const char *device, struct err *e)
{
    CLEANUP(buf_release) struct buf job = {0};
    CLEANUP(free_text)
    char *path = paths_join(c->dir, "job.yaml"), *tokens = paths_join(c->dir, "tokens.bin");
    buf_printf(&job,
               "name: bench\nnodes: 1\nprocs_per_node: 1\ndevice: %s\ntrain:\n"
               "  model: {type: gpt, layers: %d, heads: %d, width: %d, context: %d, vocab: %d}\n"
               "  data: {type: tokens, path: \"%s\", split: 0.9}\n"
               "  optimizer: {type: adamw, lr: 1.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, clip: 1.0}\n"
               "  batch: %d\n  steps: 1000000000\n  precision: %s\n  log_every: 1\n  eval: {every: never}\n",
               device, size->layers, size->heads, size->width, size->context, size->vocab, tokens, size->rows,
               precision);
    if (write_tokens(tokens, size->vocab, e) != ERR_OK)
        return e->code;
    return file_write_renamed(path, job.data, job.len, 0600, false, e);
}

_Noreturn static void child_exec(const char *program, const char *job, int out, int log)
{
    /* The terminal's ^C goes to ddpctl, which then ends the trainer. The device's name is in its log (bench_device_read). */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && setpgid(0, 0) == 0 && setenv("DDP_LOG", "info", 1) == 0 &&
        dup2(out, 1) >= 0 && dup2(log, 2) >= 0)
        execl(program, "ddp-trainer", "--standalone", job, (char *)NULL);
    _exit(127);
}

static enum err_code child_start(struct bench_child *c, struct err *e)
{
    CLEANUP(free_text)
    char *program = NULL, *job = paths_join(c->dir, "job.yaml"), *log_path = paths_join(c->dir, "log");
    CLEANUP(close_fd) int log = open(log_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int ends[2];
    if (paths_program("ddp-trainer", &program, e) != ERR_OK)
        return e->code;
    if (log < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(e, errno, "%s", log_path);
    c->pid = fork();
    if (c->pid == 0)
        child_exec(program, job, ends[1], log);
    const int code = errno;
    close(ends[1]);
    c->out = ends[0];
    return c->pid < 0 ? err_sys(e, code, "fork") : ERR_OK;
}

/* Takes the whole lines of what has been read. */
static enum err_code child_take_lines(struct bench_child *c, struct err *e)
{
    char *end;
    while (c->line.len && (end = memchr(c->line.data, '\n', c->line.len))) {
        const size_t len = (size_t)(end - c->line.data);
        if (bench_steps_add(&c->steps, c->line.data, len, e) != ERR_OK)
            return e->code;
        buf_consume(&c->line, len + 1);
    }
    return ERR_OK;
}

/* Reads what the trainer has written, waiting POLL_MS at most. *over: it has closed its stdout. */
static enum err_code child_read(struct bench_child *c, bool *over, struct err *e)
{
    struct pollfd p = {.fd = c->out, .events = POLLIN};
    char bytes[4096];
    if (poll(&p, 1, POLL_MS) <= 0)
        return ERR_OK;
    const ssize_t n = read(c->out, bytes, sizeof(bytes));
    if (n < 0)
        return errno == EINTR ? ERR_OK : err_sys(e, errno, "reading from ddp-trainer");
    *over = n == 0;
    buf_append(&c->line, bytes, (size_t)n);
    return child_take_lines(c, e);
}

static enum err_code child_failed(const struct bench_child *c, const struct buf *log, struct err *e)
{
    /* The trainer's last line says why. */
    const char *text = log->len ? log->data : "";
    size_t len = strlen(text);
    while (len && text[len - 1] == '\n')
        len--;
    size_t from = len;
    while (from && text[from - 1] != '\n')
        from--;
    (void)c;
    return err_set(e, ERR_INTERNAL, "ddp-trainer has failed: %.*s", (int)(len - from), text + from);
}

/* Reads until there are enough steps. */
static enum err_code child_measure(struct bench_child *c, int64_t seconds, struct err *e)
{
    int64_t first = 0, last = clock_boot_ms();
    size_t seen = 0;
    bool over = false;
    while (!over) {
        if (child_read(c, &over, e) != ERR_OK)
            return e->code;
        const int64_t now = clock_boot_ms();
        if (interrupts_count())
            return err_set(e, ERR_CANCELLED, "interrupted");
        if (c->steps.count > seen) {
            first = first ? first : now;
            last = now;
            seen = c->steps.count;
        }
        if (seen > BENCH_STEPS && now - first >= seconds * 1000)
            return ERR_OK;
        if (now - last > (seen ? STEP_MS : START_MS))
            return err_set(e, ERR_DEADLINE_EXCEEDED, "no step ended within %d s",
                           (seen ? STEP_MS : START_MS) / 1000);
    }
    return err_set(e, ERR_INTERNAL, "ddp-trainer has ended");
}

/* Ends the trainer, and reads its log. Nothing of it is to be kept. */
static void child_end(struct bench_child *c, struct buf *log)
{
    CLEANUP(free_text) char *path = paths_join(c->dir, "log");
    struct err unread;
    if (c->pid > 0) {
        (void)kill(c->pid, SIGKILL);
        while (waitpid(c->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    if (file_read(path, LOG_MOST, log, &unread) != ERR_OK)
        buf_clear(log); /* then only the device's name is missing */
}

static void child_release(struct bench_child *c)
{
    struct err e;
    close_fd(&c->out);
    buf_release(&c->line);
    bench_steps_release(&c->steps);
    if (file_remove_tree(c->dir, &e) != ERR_OK)
        fprintf(stderr, "ddpctl: %s is left: %s\n", c->dir, e.msg);
    free(c->dir);
}

enum err_code bench_run(const struct bench_size *size, const char *precision, const char *device,
                        int64_t seconds, struct bench_result *out, struct err *e)
{
    const char *tmp = getenv("TMPDIR");
    CLEANUP(buf_release) struct buf log = {0};
    struct bench_child c = {.dir = xasprintf("%s/ddp-bench-XXXXXX", tmp && *tmp ? tmp : "/tmp"), .out = -1};
    *out = (struct bench_result){0};
    if (!mkdtemp(c.dir)) {
        (void)err_sys(e, errno, "%s", c.dir);
        free(c.dir);
        return e->code;
    }
    enum err_code code = write_job(&c, size, precision, device, e);
    if (code == ERR_OK)
        code = child_start(&c, e);
    if (code == ERR_OK)
        code = child_measure(&c, seconds, e);
    child_end(&c, &log);
    if (code == ERR_INTERNAL)
        code = child_failed(&c, &log, e);
    bench_steps_result(&c.steps, out);
    bench_device_read(log.len ? log.data : "", out);
    child_release(&c);
    return code;
}
